"""A published method is as published: held-out evidence acts inside it only where its option says so."""

import numpy as np
import pytest
from train_helpers import make_pairs

from pairsift.methods import METHODS
from pairsift.runs.config import from_tree
from pairsift.runs.job import job_of
from pairsift.runs.prepare import Prepared
from pairsift.steps import Prior
from pairsift.train.batches import Likeness
from pairsift.train.loop import Trainer

OURS = ("linear", "crossfit", "sift")
PRESETS = [(name, preset) for name in METHODS for preset in METHODS[name].presets]
DIVIDING = ("ncr", "pc2", "pcsr", "bicro", "l2rm", "cream", "decl")


def made_job(folder, method, **options):
    """Return what a run trains with, where held-out evidence believes every pair and takes all images for one."""
    pairs, features = make_pairs(n_images=40)
    config = from_tree({"source": "pairs.csv", "method": method, "device": "cpu", **options})
    prepared = Prepared(pairs, features, None, None, "", pairs.split)
    prior = Prior(np.ones(len(pairs), np.float32), 0.0, 0.0)
    likeness = Likeness(np.zeros(pairs.n_images, np.int64), np.zeros(len(pairs), np.int64))
    return job_of(config, prepared, folder, prior, likeness), prior, likeness


@pytest.mark.parametrize(("method", "preset"), PRESETS)
def test_no_preset_of_a_published_method_asks_for_evidence(method, preset):
    config = from_tree({"source": "pairs.csv", "method": method, "preset": preset})
    assert config.method.evidence is (method in OURS)


@pytest.mark.parametrize("method", DIVIDING)
def test_evidence_reaches_a_published_method_by_its_option_alone(tmp_path, method):
    job, _, _ = made_job(tmp_path, method)
    assert (job.prior, job.likeness) == (None, None)
    job, prior, likeness = made_job(tmp_path, method, **{method: {"evidence": True}})
    assert (job.prior, job.likeness) == (prior, likeness)
    assert Trainer(job).method.setting.prior is prior
