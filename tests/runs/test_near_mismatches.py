"""Runs that are told that mismatched pairs have near captions."""

import numpy as np
import pyarrow.parquet as pq
import pytest
from flat_options import fit
from light_evidence import LIGHT
from sklearn.metrics import roc_auc_score

from pairsift.methods import plain
from pairsift.train.loop import Trainer

pytestmark = pytest.mark.slow

PLAIN = {"method": "plain", "plain.networks": 1, "plain.epochs.warmup": 0, "plain.epochs.train": 1, "seed": 1}


def error_of(run):
    """Calibration error over 8 bins of equal mass, AUROC, and the truth, of the training pairs."""
    table = run.pairs()
    train = np.array(table["split"].to_pylist()) == "train"
    wrong = table["truly_mismatched"].to_numpy(zero_copy_only=False)[train]
    probability = table["match_probability"].to_numpy()[train]
    bins = np.array_split(np.argsort(probability, kind="stable"), 8)
    error = sum(len(rows) * abs(probability[rows].mean() - (~wrong[rows]).mean()) for rows in bins) / len(wrong)
    return error, roc_auc_score(wrong, -probability), wrong.mean()


@pytest.fixture(scope="module")
def runs(place, scenes):
    options = {
        **PLAIN,
        "detect": LIGHT,
        "batch_size": 256,
        "device": "cpu",
        "cache": str(place / "cache"),
        "noise": 0.3,
    }
    options |= {"noise_kind": "near", "noise_seed": 1}
    kept, keep = [], Trainer._keep_if_best

    def noted(self, networks, epoch, dev):
        keep(self, networks, epoch, dev)
        if not self.has_dev:
            kept.append(self.position.best_epoch == epoch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "_keep_if_best", noted)
        patch.setattr(plain, "STEPS", 100)  # of the networks that learn copies
        found = {
            mismatches: fit(
                scenes,
                {**options, "mismatches": mismatches, "out": str(place / f"expects-{mismatches}")},
                progress=False,
            )
            for mismatches in ("random", "near")
        }
    return {**found, "kept": kept}


def test_near_mismatches_are_found_and_counted_where_they_are_expected(runs):
    (error, auroc, rate), (blind_error, blind_auroc, _) = error_of(runs["near"]), error_of(runs["random"])
    assert auroc > blind_auroc and error < 0.12 < blind_error
    assert runs["near"].metrics["noise_rate"]["estimated"] == pytest.approx(rate, abs=0.15)
    assert runs["random"].metrics["noise_rate"]["estimated"] < 0.1


def test_the_run_says_what_its_probabilities_are_about(runs):
    expected = runs["near"].metrics["expected_auroc"]
    assert 0.8 < expected["near"] < expected["any"] < 1 and runs["near"].metrics["counts_near"] is True
    assert runs["random"].metrics["counts_near"] is None
    assert runs["random"].metrics["expected_auroc"]["any"] > 0.9
    page = (runs["near"].folder / "report.html").read_text()
    assert "read much like the right ones" in page and "Networks that learned the pairs" in page


def test_what_the_networks_of_copies_wrote_is_gone(runs):
    assert "memory" in pq.read_table(runs["near"].folder / "trust.parquet").column_names
    assert not (runs["near"].folder / "copies").exists()


def test_networks_of_copies_keep_their_last_epoch_since_copies_have_no_dev_pairs(runs):
    assert runs["kept"] and set(runs["kept"]) == {True}
