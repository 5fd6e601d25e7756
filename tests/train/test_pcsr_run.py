"""PCSR in the loop: its stages train what they should, an empty class is left out, and a killed run ends the same."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from train_helpers import make_job

from pairsift.methods.pcsr import PCSR
from pairsift.train.batches import steps
from pairsift.train.loop import CHECKPOINT, Trainer

pytestmark = pytest.mark.slow


def watched(folder: Path, update=lambda method, do, *given: do(*given), **options) -> tuple[Trainer, list]:
    """A trainer, and a list that gets (phase, network, ids by subset, batches) of every step."""
    seen = []

    def stepped(method, step, given):
        ids = {name: batch.ids for name, batch in given.batches.items()}
        seen.append((given.phase.name, given.k, ids, given.batches))
        return step(given)

    return Trainer(make_job(folder, "pcsr", hooks={"step": stepped, "update": update}, **options)), seen


def test_stages_train_their_subsets_by_the_peers_division(tmp_path):
    parts = []

    def updated(method, update, notes, epoch):
        update(notes, epoch)
        ids, w, tau = method.setting.ids, method.division.state["clean_probability"], method.consistency.state["tau"]
        score = method.consistency.state["consistency"][:, method.setting.image_of]
        noisy = [set(ids[w[k][ids] <= 0.5].tolist()) for k in range(2)]
        steady = [{i for i in noisy[k] if score[k, i] >= tau[k]} for k in range(2)]
        captions = method.captions.state["pseudo_caption"].copy()
        parts.append([(set(ids.tolist()) - noisy[k], steady[k], noisy[k] - steady[k], captions[k]) for k in range(2)])

    trainer, seen = watched(tmp_path, updated)
    trainer.run()
    subsets = {"warm-up": ["all"], "clean": ["clean"], "refine": ["clean", "refinable"]}
    subsets["all"] = ["clean", "refinable", "ambiguous"]
    assert {(name, k) for name, k, _, _ in seen} == {(name, k) for name in subsets for k in range(2)}
    stages = ["clean", "refine", "all"]
    for name, k, ids, batches in seen:
        assert list(ids) == subsets[name]
        if name in stages:
            clean, refinable, ambiguous, _ = parts[stages.index(name)][1 - k]
            captions = parts[stages.index(name)][k][3]  # sought by the network itself
            assert len(set(ids["clean"]) - clean) <= 5  # 1% at least is clean and noisy each
            assert set(ids.get("refinable", [])) <= refinable and set(ids.get("ambiguous", [])) <= ambiguous
            for kind in ("refinable", "ambiguous"):
                if kind in batches:
                    owners = trainer.job.pairs.image_of[captions[ids[kind]]]
                    assert batches[kind].caption_images.tolist() == owners.tolist()
    last = parts[-1]
    trained = [{i for name, k, ids, _ in seen if name == "all" and k == n for i in ids["clean"]} for n in range(2)]
    assert [len(trained[k] ^ last[1 - k][0]) <= 5 for k in range(2)] == [True, True]
    facts = trainer.log[-1]
    assert 0 <= facts["tau"] <= 1 and 0 < facts["utilisation"] < 1
    assert "tau" not in trainer.log[1]


@pytest.mark.parametrize("stage", ["refine", "all"])
def test_a_run_killed_in_a_stage_ends_with_the_same_weights_and_division(tmp_path, stage):
    straight, seen = watched(tmp_path / "a")
    straight.run()
    first = [name for name, *_ in seen].index(stage)
    die_at = first + [name for name, *_ in seen].count(stage) // 2 + 3
    child = Path(__file__).with_name("resume_child.py")
    command = [sys.executable, child, tmp_path / "b", str(die_at), json.dumps({"method": "pcsr"})]
    done = subprocess.run(command, check=False, capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    resumed = Trainer(make_job(tmp_path / "b", "pcsr"))
    resumed.run(resume=True)
    end, again = (load_file(tmp_path / name / CHECKPOINT) for name in "ab")
    kept = {f"state/consistency.{name}" for name in ("counts", "consistency", "tau")} | {
        "state/captions.pseudo_caption"
    }
    assert kept < end.keys() == again.keys()
    assert all(torch.equal(end[name], again[name]) for name in end)
    assert straight.method.verdicts() == resumed.method.verdicts()


@pytest.mark.parametrize(("score", "left"), [(1.0, "refinable"), (0.0, "ambiguous")])
def test_a_class_without_pairs_is_left_out_of_the_steps(tmp_path, score, left):
    trainer, _ = watched(tmp_path)
    method = trainer.method
    method.division.state["clean_probability"][:, method.setting.ids[::2]] = 0.1
    method.consistency.state["consistency"][:], method.consistency.state["tau"][:] = score, 0.5
    plan = steps(method, method.phases()[-1], 0, 32, (0,))
    assert {tuple(step) for step in plan} == {("clean", left)}
    assert all(len(step[left]) for step in plan)


@pytest.mark.parametrize(
    "options",
    [
        {"consistency": {"least_use": 0.0, "sensitivity": 0.0}},
        {"networks": 1, "captions": {"search": "batch"}},
        {"noisy": {"train": "none"}},
    ],
)
def test_switches_run_to_the_end(tmp_path, options):
    trainer, _ = watched(tmp_path, **options)
    trainer.run()
    words = trainer.method.verdicts()
    assert len(words) == len(trainer.method.setting.ids) and "clean" in words
    assert np.isfinite([line["dev"]["rsum"] for line in trainer.log]).all()


def test_verdicts_tell_planted_mismatches(tmp_path):
    trainer, _ = watched(tmp_path)
    trainer.run()
    pairs, method = trainer.job.pairs, trainer.method
    assert isinstance(method, PCSR)
    wrong = pairs.mismatched()[pairs.ids("train")]
    words = np.array(method.verdicts())
    assert wrong[words != "clean"].mean() > 0.8
    assert wrong[words == "clean"].mean() < 0.3
    assert {"clean", "refinable", "ambiguous"} == set(words)
