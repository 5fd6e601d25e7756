"""The papers' presets against the numbers that the papers print, or their public code where they are silent."""

import pytest

from pairsift.loss.ranking import Hinge, InfoNCE
from pairsift.methods import METHODS
from pairsift.runs.config import flattened, from_tree
from pairsift.train.schedule import learning_rate

TRIPLET = Hinge(margin=0.2, negatives="hardest", base=10.0, reduction="sum")
NCR = {"division": {"threshold": 0.5}, "margin": 0.2, "networks": 2}
PC2 = {
    "classifier": {"classes": 128},
    "division": {"threshold": 0.5},
    "stability": {"rectify": True},
    "captions": {"search": "batch", "compare": "class", "mismatch_threshold": 0},
    "weights": {"noisy": 1, "pseudo": 1, "entropy": 10},
    "networks": 2,
}
PCSR = {
    "classifier": {"classes": 256},
    "division": {"threshold": 0.5},
    "captions": {"search": "batch"},
    "consistency": {"least_use": 0.4, "most_use": 0.9, "sensitivity": 0.2, "rate": 0.7},
    "noisy": {"train": "all", "loss": "own", "gamma": 0.7},
    "weights": {"ranking": 1, "pseudo": 1, "robust": 1, "entropy": 10},
    "networks": 2,
}
BICRO = {
    "division": {"mixture": "beta", "threshold": 0.5},
    "anchors": {"share": 0.1, "mismatch_threshold": 0.5},
    "warmup_share": 0.3,
    "networks": 2,
}
CREAM = {"division": {"mixture": "gaussian", "threshold": 0.5}, "mining": 1, "filter": "weight", "networks": 2}
L2RM = {
    "division": {"mixture": "beta", "threshold": 0.5},
    "rematching": {"cost": "distance", "mass": 0.1, "temperature": 0.05, "forbid_given": True},
    "networks": 1,
}
GSC = {
    "indicators": {"use": "both", "beta1": 0.7, "beta2": 0.7, "tau1": 0.07},
    "intra_modal": {"gamma": 0.01, "tau2": 1.0},
    "networks": 2,
}
NPC = {"bank": {"threshold": 0.99, "least": 0, "refresh": False, "weight": 1}, "impact": {"weigh": True}, "networks": 1}

# By preset: epochs of each phase, when the rate of 2e-4 falls and to what part of it, and options of the method.
SGR = {
    ("ncr", "paper"): ((5, 20, 20), {30: 0.1}, NCR),
    ("ncr", "paper_coco"): ((10, 10, 10), {10: 0.1}, NCR),
    ("ncr", "paper_cc152k"): ((10, 20, 20), {30: 0.1}, NCR),
    ("pc2", "paper"): ((5, 25, 25), {30: 0.1}, PC2),
    ("pc2", "paper_coco"): ((10, 25, 25), {30: 0.1}, PC2),
    ("pc2", "paper_now"): ((10, 25, 25), {30: 0.1}, PC2),
    ("pcsr", "paper"): ((5, 25, 15, 10), {30: 0.1}, PCSR),
    ("pcsr", "paper_early"): ((5, 19, 21, 10), {30: 0.1}, PCSR),
    ("pcsr", "paper_cc152k"): ((10, 25, 15, 10), {30: 0.1}, PCSR),
    ("bicro", "paper"): ((10, 20, 20), {30: 0.1}, BICRO),
    ("cream", "paper"): ((5, 10, 5, 25), {10: 0.1, 20: 0.01, 30: 0.001}, CREAM),
    ("l2rm", "paper"): ((5, 35), {15: 0.1, 30: 0.01}, {**L2RM, "rematching": {**L2RM["rematching"], "epsilon": 0.01}}),
    ("l2rm", "paper_coco"): ((10, 20), {10: 0.1}, {**L2RM, "rematching": {**L2RM["rematching"], "epsilon": 0.07}}),
    ("l2rm", "paper_cc152k"): (
        (10, 40),
        {20: 0.1},
        {**L2RM, "rematching": {**L2RM["rematching"], "forbid_given": False}},
    ),
    ("gsc", "paper"): ((1, 59), {15: 0.2, 30: 0.04, 45: 0.008}, GSC),
    ("gsc", "paper_coco"): ((1, 29), {15: 0.2}, GSC),
    ("gsc", "paper_cc152k"): ((1, 59), {15: 0.2, 30: 0.04, 45: 0.008}, GSC),
}


def resolved(method, preset, matcher="sgr"):
    config = from_tree({"source": ".", "method": method, "matcher": matcher, "preset": preset})
    return config, config.method, config.train


@pytest.mark.parametrize(("method", "preset"), SGR)
def test_a_papers_preset_is_what_the_paper_prints(method, preset):
    epochs, falls, own = SGR[method, preset]
    config, made, options = resolved(method, preset)
    phases = made.phases()
    assert tuple(phase.epochs for phase in phases) == epochs
    warmup = sum(phase.epochs for phase in phases if phase.warm)
    assert warmup == (0 if method == "gsc" else epochs[0])
    assert config.loss == (InfoNCE(base=1.0, reduction="mean") if method in ("gsc", "cream") else TRIPLET)
    assert (options.batch_size, options.weight_decay, options.max_norm) == (128, 0.0, 2.0)
    expected, rate = [], 2e-4
    for epoch in range(-warmup, sum(epochs) - warmup):
        rate = 2e-4 * falls[epoch] if epoch in falls else rate
        expected.append(rate)
    found = [learning_rate(options, epoch, 0.9, sum(epochs), warmup) for epoch in range(sum(epochs))]
    assert found == pytest.approx(expected)
    assert flattened(own).items() <= flattened(made.model_dump()).items()


def test_every_papers_preset_of_the_triplet_and_structure_methods_is_checked():
    names = {name for name, _ in SGR}
    named = {(name, preset) for name in names for preset in METHODS[name].presets}
    assert {pair for pair in named if pair[1].startswith("paper")} == set(SGR)


@pytest.mark.parametrize("preset", ["paper", "clip"])
def test_npc_fine_tunes_clip_as_printed(preset):
    config, made, options = resolved("npc", preset, "clip")
    assert [(phase.name, phase.epochs) for phase in made.phases()] == [("warm-up", 0), ("bank", 1), ("train", 4)]
    assert (options.lr, options.weight_decay, options.batch_size) == (2e-7, 0.2, 256)
    assert (options.schedule, options.warmup_steps, options.max_norm) == ("one_cycle", 500, 10.0)
    assert config.matcher.adam == ((0.9, 0.98), 1e-6)
    assert flattened(NPC).items() <= flattened(made.model_dump()).items()
    assert isinstance(config.loss, InfoNCE)


def test_plain_fine_tunes_clip_as_npcs_baseline():
    config, made, options = resolved("plain", "clip", "clip")
    assert sum(phase.epochs for phase in made.phases()) == 5 and made.networks == 1
    assert (options.lr, options.weight_decay, options.batch_size) == (5e-7, 0.2, 256)
    assert isinstance(config.loss, InfoNCE)


def test_ncrs_noisy_pairs_wait_for_the_second_half_and_pc2s_for_epoch_25():
    for method, preset in (("ncr", "paper"), ("ncr", "paper_coco"), ("pc2", "paper")):
        phases = resolved(method, preset)[1].phases()
        assert [phase.subsets for phase in phases] == [("all",), ("clean",), ("clean", "noisy")]
        assert [phase.warm for phase in phases] == [True, False, False]
        assert phases[1].epochs == phases[2].epochs
