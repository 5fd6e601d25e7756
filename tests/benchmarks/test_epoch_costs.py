"""What an epoch costs is measured in phases that the whole schedule has."""

import numpy as np
import pytest

import epochs
from pairsift.loss.ranking import InfoNCE
from pairsift.methods import METHODS
from pairsift.runs.config import from_tree
from pairsift.steps import Setting


@pytest.mark.parametrize("name", sorted({*METHODS} - {"linear"}))  # it trains nothing
def test_every_phase_of_the_preset_has_one_epoch(name):
    given = {"source": ".", "method": name, "noise": 0.4}
    whole = [phase.name for phase in from_tree(given).method.phases() if phase.epochs]
    phases = [phase for phase in epochs.short(given).method.phases() if phase.epochs]
    assert [phase.name for phase in phases] == whole
    assert all(phase.epochs == 1 + (phase.restarts and phase.teachers) for phase in phases)


def test_pcsr_has_refinable_pairs_when_its_second_stage_begins():
    method = epochs.short({"source": ".", "method": "pcsr", "noise": 0.4}).method
    ids, rng = np.arange(60), np.random.default_rng(0)
    method = method.begin(Setting(ids, ids, 60, None, InfoNCE(), 0))
    names = [phase.name for phase in method.phases()]
    predictions = rng.dirichlet(np.full(method.classifier.classes, 0.1), 60).astype(np.float32)
    for epoch in range(1, names.index("refine") + 1):
        loss = np.where(ids < 30, 0.1, 0.9) + 0.05 * rng.random(60)
        method.update([{"division.loss": loss, "classifier.predictions": predictions}] * 2, epoch)
    assert len(method.subset("noisy", 0)) == 30
    assert 0 < len(method.subset("refinable", 0)) <= 30


def test_the_whole_is_the_mean_over_all_epochs_of_the_preset():
    run = {phase.name: phase.epochs for phase in from_tree({"source": ".", "method": "cream"}).method.phases()}
    costs = {"warm-up": 1.0, "clean": 1.0, "hard": 2.0, "all": 3.0}
    by_epoch = [costs[name] for name, length in run.items() for _ in range(length)]
    found = epochs.costs_of({"method": "cream", "matcher": "two_tower", "costs": costs})
    assert found == costs | {"whole": pytest.approx(np.mean(by_epoch))} and 1 < found["whole"] < 3
    assert epochs.costs_of({"method": "rcl", "matcher": "two_tower", "costs": {"train": 1.3}}) == {"train": 1.3}
