"""How networks stand when a method is asked: precision, dropout, gradients."""

from dataclasses import replace

import pytest
import torch
from train_helpers import make_job

from pairsift.match import MATCHERS
from pairsift.train.loop import Trainer
from pairsift.train.options import TrainOptions
from pairsift.train.precision import autocast_context


def watched(folder, monkeypatch, precision: str = "fp32") -> dict[str, list]:
    """What held in each of a run's passes, steps and evaluations: autocast, its type, gradients, training mode."""
    held, busy = {}, []

    def note(name, network):
        kind = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else torch.float32
        modes = {module.training for module in network.modules()}
        held.setdefault(name, []).append((kind, torch.is_grad_enabled(), modes))

    def observed(method, observe, seen):
        busy.append("observe")
        note("observe", seen.network)
        found = observe(seen)
        busy.pop()
        return found

    def stepped(method, updates, given):
        busy.append("step")
        note("step", given.network)
        for terms in updates(given):
            note("step", given.network)
            yield terms
        busy.pop()

    def encoded(matcher, items):
        if not busy:
            note("evaluate", matcher)
        return encode(matcher, items)

    job = make_job(folder, "ncr", n_images=40, hooks={"observe": observed, "updates": stepped})
    trainer = Trainer(replace(job, options=job.options.replaced(precision=precision)))
    encode = type(trainer.networks[0].matcher).encode_images
    monkeypatch.setattr(type(trainer.networks[0].matcher), "encode_images", encoded)
    trainer.run()
    assert set(held) == {"observe", "step", "evaluate"}
    return held


@pytest.mark.parametrize(
    ("precision", "kind"), [("fp32", torch.float32), ("bf16", torch.bfloat16), ("auto", torch.float32)]
)
def test_passes_steps_and_recall_have_the_precision_asked_for(tmp_path, monkeypatch, precision, kind):
    held = watched(tmp_path, monkeypatch, precision)
    assert {name: {kinds for kinds, _, _ in notes} for name, notes in held.items()} == {key: {kind} for key in held}


def test_networks_train_in_steps_alone(tmp_path, monkeypatch):
    held = watched(tmp_path, monkeypatch)
    steps = held.pop("step")
    assert all(gradients and modes == {True} for _, gradients, modes in steps)
    assert all(not gradients and modes == {False} for notes in held.values() for _, gradients, modes in notes)


@pytest.mark.parametrize(
    ("device", "precision", "training", "recall"),
    [
        ("cpu", "auto", set(), False),
        ("cpu", "fp32", set(), False),
        ("cpu", "bf16", set(MATCHERS), True),
        ("cuda", "auto", {"clip", "vsrn"}, False),
        ("cuda", "fp32", set(), False),
        ("cuda", "bf16", set(MATCHERS), True),
    ],
)
def test_auto_is_mixed_precision_where_a_gpu_trains_a_matcher_that_gains_by_it(
    monkeypatch, device, precision, training, recall
):
    monkeypatch.setattr(torch, "autocast", lambda kind, dtype, enabled: (kind, dtype, enabled))
    options = TrainOptions(precision=precision)
    held = {name: autocast_context(torch.device(device), options, matcher) for name, matcher in MATCHERS.items()}
    assert held == {name: (device, torch.bfloat16, name in training) for name in MATCHERS}
    assert autocast_context(torch.device(device), options) == (device, torch.bfloat16, recall)
