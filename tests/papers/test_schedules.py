"""Learning rates, epoch by epoch, and what goes with them, beside the authors' numbers.

Presets of the triplet and structure methods are in `tests/methods/test_paper_presets.py`.
"""

import numpy as np
import pytest

from pairsift.runs.config import from_tree
from pairsift.train.schedule import learning_rate, network_epochs

# Epochs of the warm-up, then for each set of networks: first rate and by how much it has fallen from an epoch on.
FALLS = {
    ("crcl", "paper"): (0, [(7, 5e-4, {})] * 3 + [(32, 5e-4, {15: 0.1, 30: 0.01})]),
    ("crcl", "paper_coco"): (0, [(4, 5e-4, {})] * 3 + [(22, 5e-4, {10: 0.1, 20: 0.01})]),
    ("decl", "paper"): (5, [(40, 2e-4, {20: 0.1})]),
    ("decl", "paper_coco"): (2, [(20, 5e-4, {10: 0.1})]),
    ("rcl", "paper"): (0, [(40, 5e-4, {30: 0.1})]),
    ("rcl", "paper_coco"): (0, [(20, 5e-4, {10: 0.1})]),
    ("mscn", "paper"): (5, [(50, 2e-4, {30: 0.1})]),
}


@pytest.mark.parametrize(("method", "preset"), FALLS)
def test_rates_fall_when_the_authors_do(method, preset):
    warmup, networks = FALLS[method, preset]
    expected = []
    for length, rate, falls in networks:
        expected += [rate] * warmup
        for epoch in range(length):
            expected.append(rate * min([share for start, share in falls.items() if epoch >= start], default=1.0))
    config = from_tree({"source": ".", "method": method, "matcher": "sgr", "preset": preset})
    phases = [phase for phase in config.method.phases() for _ in range(phase.epochs)]
    assert len(phases) == len(expected)
    found = []
    for epoch in range(len(phases)):
        first, last = network_epochs(phases, epoch)
        found.append(learning_rate(config.train, epoch - first, 0.5, last - first, warmup))
    assert found == pytest.approx(expected)
    assert (config.train.max_norm, config.matcher.adam) == (2.0, ((0.9, 0.999), 1e-8))


@pytest.mark.parametrize(
    ("method", "preset", "peak", "norm"),
    [
        ("osa", "paper", 1e-5, 0),
        ("osa", "clip", 1e-5, 0),
        ("npc", "paper", 2e-7, 10),
        ("npc", "clip", 2e-7, 10),
        ("plain", "clip", 5e-7, 2),
    ],
)
def test_clip_is_fine_tuned_with_its_own_optimizer(method, preset, peak, norm):
    config = from_tree({"source": ".", "method": method, "matcher": "clip", "preset": preset})
    options = config.train
    assert (config.matcher.adam, options.weight_decay, options.batch_size) == (((0.9, 0.98), 1e-6), 0.2, 256)
    assert (options.lr, options.max_norm, options.warmup_steps) == (peak, norm, 500)
    steps = 567  # of an epoch of Flickr30K
    rates = [learning_rate(options, step // steps, step % steps / steps, 5, 0, steps) for step in range(5 * steps)]
    assert int(np.argmax(rates)) == 500 and rates[250] == pytest.approx(peak / 2, rel=1e-2)
    assert (np.diff(rates[500:]) <= 0).all() and rates[-1] < 0.002 * peak


def test_the_division_and_batches_of_mscn():
    config = from_tree({"source": ".", "method": "mscn", "matcher": "sgr", "preset": "paper"})
    warm, train = config.method.phases()
    assert (warm.batch_size, train.batch_size, config.train.batch_size) == (128, None, 64)
    assert train.new_optimizers and train.in_turn and not warm.new_optimizers


def test_the_virtual_step_of_mscn_has_the_present_rate():
    config = from_tree({"source": ".", "method": "mscn", "matcher": "sgr", "preset": "paper"})
    shares = [learning_rate(config.train, epoch, 0.0, 55, 5) / config.train.lr for epoch in range(5, 55)]
    assert [config.method.meta.rate * share for share in shares] == pytest.approx([2e-4] * 30 + [2e-5] * 20)
