"""The epoch of SGR is put together from steps, and the plain side computes what the matcher computes."""

import pytest
import torch

import epoch_sgr
from pairsift.encode.features import Items

STEP = {"encoders": 1.0, "similarity": 2.0, "bookkeeping": 0.5}


def test_an_epoch_has_the_steps_of_its_pairs_and_the_blocks_of_the_pass():
    measured = {kind: [STEP] for kind in epoch_sgr.KINDS}
    found = epoch_sgr.row("fp32", measured)["epochs"]
    assert found["warm-up"]["similarity"] == pytest.approx(2 * 145000 / 128 / 3600)
    assert found["clean and noisy"]["encoders"] == pytest.approx(1.6 * 145000 / 128 / 3600)


def test_parts_are_told_apart_in_the_forward_and_the_backward_pass(monkeypatch):
    clock = iter(range(100))
    monkeypatch.setattr(epoch_sgr.time, "thread_time", lambda: float(next(clock)))
    watch = epoch_sgr.Watch()
    x = torch.ones(2, requires_grad=True)
    with watch.during("encoders"):
        [codes] = epoch_sgr._Mark.apply(watch, "encoders", 2 * x)
    [scores] = epoch_sgr._Mark.apply(watch, "similarity", 3 * codes)
    scores.sum().backward()
    assert watch.part == "encoders"
    watch.switch("bookkeeping")
    assert x.grad is not None and x.grad.tolist() == [6.0, 6.0]
    assert watch.seconds == {"encoders": 2.0, "similarity": 1.0, "bookkeeping": 2.0}


def test_both_sides_compute_the_same():
    torch.manual_seed(0)
    sides = [epoch_sgr.network(side, epoch_sgr.Watch()).eval() for side in ("loop", "fp32")]
    sides[0].load_state_dict(sides[1].state_dict())
    mask = torch.arange(5) < torch.tensor([5, 2, 3])[:, None]
    images = Items(torch.randn(3, epoch_sgr.REGIONS, epoch_sgr.WIDTH))
    texts = Items(torch.randint(4, 100, (3, 5)) * mask, mask)
    with torch.no_grad():
        scores = [
            side.matcher.similarity(side.matcher.encode_images(images), side.matcher.encode_texts(texts))
            for side in sides
        ]
    torch.testing.assert_close(scores[0], scores[1], rtol=1e-4, atol=1e-6)
