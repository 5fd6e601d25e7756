"""SGRAF: SGR and SAF train apart, with all that a method keeps, and their similarities are averaged."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from test_every_matcher import CONCEPTS, REGIONS, WIDTH, job

from pairsift.match.sgraf import Saf, Sgr, Sgraf, SgrafOptions, SgrOptions, SimilaritySizes
from pairsift.retrieve.gallery import evaluate
from pairsift.train.apart import Apart, part_folder, trainer_of
from pairsift.train.loop import Trainer

SIZES = {"dim": 16, "word_dim": 8, "similarity_dim": 24}


def job_of(folder, matcher, options, method="bicro"):
    made = job(folder, "sgraf", method, 1, 0.4)
    return replace(made, matcher=lambda: matcher(WIDTH, CONCEPTS + 4, regions=REGIONS, options=options))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder, threads = tmp_path_factory.mktemp("sgraf"), torch.get_num_threads()
    torch.set_num_threads(1)
    trainer = trainer_of(job_of(folder, Sgraf, SgrafOptions(**SIZES)))
    trainer.run()
    torch.set_num_threads(threads)
    return trainer, folder


def test_each_part_is_what_it_would_be_as_a_matcher_of_its_own(trained, tmp_path):
    trainer, _ = trained
    assert isinstance(trainer, Apart) and len(trainer.networks) == 2
    alone = Trainer(job_of(tmp_path, Sgr, SgrOptions(**SIZES)))
    alone.run()
    for whole, network in zip(trainer.networks, alone.networks, strict=True):
        assert isinstance(whole.matcher, Sgraf)
        for name, value in network.matcher.state_dict().items():
            assert torch.equal(whole.matcher.sgr.state_dict()[name], value), name
    labels = [part.method.values_of_pairs() for part in trainer.trainers.values()]
    assert not np.array_equal(labels[0]["soft_label"], labels[1]["soft_label"])  # SAF has a division of its own


def test_the_whole_is_the_mean_of_its_parts(trained):
    trainer, _ = trained
    features, pairs = trainer.job.features, trainer.job.pairs
    found = evaluate([network.matcher for network in trainer.networks], features, pairs, "test")["ensemble"]
    parts = [part for network in trainer.networks for part in network.matcher.apart().values()]
    assert [type(part) for part in parts] == [Sgr, Saf] * 2
    assert found == evaluate(parts, features, pairs, "test")["ensemble"]


def test_its_log_and_its_checkpoints_are_of_all_parts(trained):
    trainer, folder = trained
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    assert [line["part"] for line in lines] == ["sgr"] * (len(lines) // 2) + ["saf"] * (len(lines) // 2)
    assert trainer.position.seconds == sum(part.position.seconds for part in trainer.trainers.values())
    again = trainer_of(trainer.job)
    again.run(resume=True)  # trains nothing again
    for network, other in zip(trainer.networks, again.networks, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(network.parameters(), other.parameters(), strict=True))
    trainer.remove_checkpoints()
    assert not part_folder(folder, "sgr").exists() and not part_folder(folder, "saf").exists()


def test_they_train_together_where_that_is_asked_for(tmp_path):
    assert isinstance(trainer_of(job_of(tmp_path, Sgraf, SgrafOptions(**SIZES, apart=False))), Trainer)
    assert isinstance(trainer_of(job_of(tmp_path, Saf, SimilaritySizes(**SIZES))), Trainer)
