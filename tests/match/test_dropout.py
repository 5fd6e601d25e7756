"""Masks of dropout on a GPU, whose operations are recorded without one."""

import inspect

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from pairsift.match import MATCHERS
from pairsift.match.layers import Dropout
from pairsift.match.vsrn import Captioner

SIZES = {"image_dim": 6, "text_dim": 5, "vocabulary_size": 20, "regions": 4}
WITH_DROPOUT = {"two_tower", "pcme", "pcmepp", "pau", "saf", "sgr", "sgraf"}


class Recorder(TorchDispatchMode):
    """Notes the precision in which masks are drawn."""

    def __init__(self):
        super().__init__()
        self.kinds = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.native_dropout.default:
            self.kinds.append(args[0].dtype)
        return func(*args, **(kwargs or {}))


def dropouts(module: nn.Module) -> list[nn.Module]:
    return [part for part in module.modules() if "dropout" in type(part).__name__.lower()]


@pytest.mark.parametrize("name", sorted(set(MATCHERS) - {"clip"}))
def test_every_dropout_of_a_matcher_is_ours(name):
    wanted = inspect.signature(MATCHERS[name]).parameters
    found = dropouts(MATCHERS[name](**{key: value for key, value in SIZES.items() if key in wanted}))
    assert all(type(part) is Dropout for part in found)
    assert any(part.p for part in found) == (name in WITH_DROPOUT)


def test_the_dropout_of_the_caption_loss_is_ours():
    assert {type(part) for part in dropouts(Captioner(8, 20, 4))} == {Dropout}


KINDS = [torch.float16, torch.bfloat16, torch.float32]


@pytest.mark.parametrize("kind", KINDS)
def test_masks_are_drawn_in_float32_on_a_gpu(kind):
    with FakeTensorMode(), Recorder() as recorder:
        x = torch.empty(40, 50, dtype=kind, device="cuda")
        assert Dropout(0.4)(x).dtype == kind and Dropout(0.4).eval()(x).dtype == kind
        nn.Dropout(0.4)(x)
    assert recorder.kinds == [torch.float32, kind]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("p", [0.1, 0.4, 0.75, 1 - 1e-9])
def test_a_mask_on_a_cpu_drops_a_share_p_and_keeps_the_mean(kind, p):
    torch.manual_seed(1)
    x = torch.ones(301, 1001, dtype=kind, requires_grad=True)
    y = Dropout(p)(x)
    y.sum().backward()
    dropped = (y == 0).float()
    assert y.dtype == kind and torch.equal(x.grad, y.detach())
    if p < 0.9:  # five standard deviations
        assert abs(dropped.mean() - p) < 5 * (p * (1 - p) / x.numel()) ** 0.5
        assert torch.allclose(y[y > 0], torch.tensor(1 / (1 - p)).to(kind), rtol=1e-2)
    # neighbours in a row, in a column and four entries apart, which share random words, are independent
    for step, axis in ((1, 1), (1, 0), (4, 1)):
        both = (dropped * dropped.roll(step, axis)).mean()
        assert abs(both - dropped.mean() ** 2) < 5 / x.numel() ** 0.5


def test_a_seed_decides_masks_and_no_mask_is_drawn_in_evaluation_or_at_probability_0():
    x = torch.randn(7, 9)
    torch.manual_seed(3)
    first = Dropout(0.4)(x)
    state = torch.get_rng_state()
    assert not torch.equal(Dropout(0.4)(x), first)
    torch.manual_seed(3)
    assert torch.equal(Dropout(0.4)(x), first)
    assert Dropout(0.4).eval()(x) is x and Dropout(0.0)(x) is x and torch.equal(torch.get_rng_state(), state)
