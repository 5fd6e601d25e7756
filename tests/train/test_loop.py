"""The loop: what trains when, by whose trust, and that a killed run ends as if it had not been killed."""

import itertools
import json
import math
import random
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from train_helpers import dying, make_job, make_method, make_pairs, watched

from pairsift.encode.parallel import map_ahead
from pairsift.errors import InputError
from pairsift.loss.ranking import InfoNCE
from pairsift.match.two_tower import TwoTower, TwoTowerOptions
from pairsift.retrieve.gallery import Gallery, evaluate
from pairsift.steps import Phase, Request, Setting
from pairsift.train.batches import Gatherer, cut, steps
from pairsift.train.checkpoint import read_tensors, write_tensors
from pairsift.train.loop import CHECKPOINT, Trainer, parameter_groups, pick_device
from pairsift.train.options import TrainOptions
from pairsift.train.schedule import competing, learning_rate


def weights(trainer: Trainer) -> dict[str, torch.Tensor]:
    return {f"{k}.{n}": v for k, net in enumerate(trainer.networks) for n, v in net.state_dict().items()}


def whole(folder: Path, **options) -> tuple[Trainer, dict[str, torch.Tensor]]:
    trainer = Trainer(make_job(folder, **options))
    trainer.run()
    return trainer, load_file(folder / CHECKPOINT)


NPC = {"method": "npc", "networks": 1}


# A seed for the step, options of the job, and whether a process of its own is killed there. In this process an error
# that nothing catches stands for it.
RUNS = [
    (0, {}, True),
    (1, {}, False),
    (2, {}, False),
    (3, NPC, False),
    (4, NPC | {"bank": {"refresh": True}}, True),
    (5, {"method": "gsc"}, False),
    (6, {"method": "crcl"}, False),
    (7, {"method": "bicro"}, False),
    (8, {"method": "cream"}, True),
    (9, {"method": "l2rm"}, False),
]


class Death(BaseException):
    """The end of a run."""


def die_in_a_process(folder: Path, step: int, options: dict[str, object]) -> None:
    child = Path(__file__).with_name("resume_child.py")
    command = [sys.executable, child, folder, str(step), json.dumps(options)]
    done = subprocess.run(command, check=False, capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr


def die_here(folder: Path, step: int, options: dict[str, object]) -> None:
    def die() -> None:
        raise Death

    with pytest.raises(Death):
        dying(step, die)(make_job(folder, **options)).run()


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """A function from options to the undisturbed run with them, the weights that it ends with, and its folder."""
    made: dict[str, tuple[Trainer, dict[str, torch.Tensor], Path]] = {}

    def run(options: dict[str, object]) -> tuple[Trainer, dict[str, torch.Tensor], Path]:
        name = json.dumps(options)
        if name not in made:
            folder = tmp_path_factory.mktemp("straight")
            made[name] = (*whole(folder, **options), folder)
        return made[name]

    return run


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "options", "killed"), RUNS)
def test_a_run_killed_at_a_random_step_ends_with_the_same_weights(tmp_path, straight, seed, options, killed):
    trainer, end, folder = straight(options)
    total = 48 if options else sum(line["loss_steps"] for line in steps_of(folder))
    die = die_in_a_process if killed else die_here
    die(tmp_path, random.Random(seed).randrange(2, total), options)
    resumed = Trainer(make_job(tmp_path, **options))
    resumed.run(resume=True)
    again = load_file(tmp_path / CHECKPOINT)
    assert end.keys() == again.keys()
    assert all(torch.equal(end[name], again[name]) for name in end)
    assert all(torch.equal(a, b) for a, b in zip(weights(trainer).values(), weights(resumed).values(), strict=True))
    for ours, theirs in zip(trainer.log, resumed.log, strict=True):
        assert (ours["dev"], ours["phase"]) == (theirs["dev"], theirs["phase"])
        for network, terms in ours["loss"].items():
            assert theirs["loss"][network] == pytest.approx(terms, rel=1e-12)


def steps_of(folder: Path) -> list[dict[str, int]]:
    """Optimizer steps of every epoch, counted by planning them again."""
    job = make_job(folder)
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    n_train = len(job.pairs.ids("train"))
    return [{"loss_steps": 2 * len(cut(np.arange(n_train // 2), 32))} for _ in lines]


def test_each_phase_trains_its_subsets(tmp_path):
    seen = []

    def stepped(method, step, given):
        seen.append((given.phase.name, given.k, tuple(given.batches)))
        return step(given)

    Trainer(make_job(tmp_path, hooks={"step": stepped}, epochs={"warmup": 1, "clean": 1, "all": 2})).run()
    assert {s for s in seen if s[0] == "warm-up"} == {("warm-up", 0, ("all",)), ("warm-up", 1, ("all",))}
    assert {s for s in seen if s[0] == "clean"} == {("clean", 0, ("clean",)), ("clean", 1, ("clean",))}
    assert {s for s in seen if s[0] == "all"} == {("all", 0, ("clean", "noisy")), ("all", 1, ("clean", "noisy"))}


@pytest.mark.parametrize("refresh", [False, True])
def test_bank_pairs_come_along_once_there_is_a_bank(tmp_path, refresh):
    seen, banks = [], []

    def updated(method, update, notes, epoch):
        update(notes, epoch)
        banks.append((epoch, {side: method.bank.state[side].copy() for side in ("by_image", "by_text")}))

    def stepped(method, step, given):
        ids, bank = given.batch.ids, banks[-1][1] if banks else {}
        if bank:
            wanted = {i for entries in bank.values() for i in entries[1 - given.k, ids].tolist()}
            extra = given.batches["bank"]
            assert set(extra.ids.tolist()) == wanted - set(ids.tolist())
            assert extra.caption_images.tolist() == method.setting.image_of[extra.ids].tolist()
        terms = step(given)
        seen.append((given.phase.name, given.k, tuple(given.batches), tuple(term.name for term in terms)))
        return terms

    hooks = {"update": updated, "step": stepped}
    job = make_job(
        tmp_path, "npc", hooks=hooks, epochs={"warmup": 1, "train": 3}, bank={"refresh": refresh, "least": 0.05}
    )
    trainer = Trainer(job)
    trainer.run()
    sides = ("by_image", "by_text")
    whole = (("all", "bank"), ("correspondence", *sides, "weight"))
    assert {s for s in seen if s[0] == "warm-up"} == {("warm-up", k, ("all",), ("correspondence",)) for k in (0, 1)}
    assert {s for s in seen if s[0] != "warm-up"} == {(phase, k, *whole) for k in (0, 1) for phase in ("bank", "train")}
    assert [epoch for epoch, _ in banks] == ([1, 2, 3] if refresh else [1])
    wrong = job.pairs.mismatched()
    for side in sides:
        entries = banks[0][1][side][:, job.pairs.ids("train")]
        assert (entries >= 0).all() and wrong[entries].mean() < 0.25  # of 0.4
    assert all("bank_share" in line for line in trainer.log[1:])


@pytest.mark.parametrize(("factorises", "most"), [(True, 384), (False, 48)])
def test_pairs_are_observed_in_small_blocks_where_a_similarity_costs_much(tmp_path, factorises, most):
    sizes = []

    def observed(method, observe, seen):
        sizes.append(len(seen.batch))
        return observe(seen)

    class Costly(TwoTower):
        pass

    Costly.factorises = factorises
    job = make_job(tmp_path, "ncr", hooks={"observe": observed}, epochs={"warmup": 0, "clean": 1, "all": 0})
    Trainer(replace(job, matcher=lambda: Costly(20, 16, TwoTowerOptions(dim=16, hidden=16)))).run()
    assert sum(sizes) == 2 * 384 and max(sizes) <= most and (factorises or min(sizes) >= 32)


def test_the_best_epoch_by_dev_is_what_remains(tmp_path):
    job = make_job(tmp_path)
    trainer = Trainer(job)
    trainer.run()
    dev = evaluate([n.matcher for n in trainer.networks], job.features, job.pairs, "dev")["ensemble"]["rsum"]
    competing = [line["dev"]["rsum"] for line in trainer.log if line["phase"] == "all"]
    assert dev == pytest.approx(max(competing), abs=1e-9)
    assert trainer.log[trainer.position.best_epoch]["dev"]["rsum"] == pytest.approx(dev)


def test_only_epochs_of_the_phase_that_competes_can_be_the_best(tmp_path, monkeypatch):
    job = make_job(tmp_path, method="pc2", epochs={"warmup": 1, "clean": 1, "all": 2})
    trainer = Trainer(job)
    recalls = iter([500.0, 400.0, 100.0, 90.0])
    monkeypatch.setattr(Trainer, "recall", lambda self, networks: {"rsum": next(recalls)})
    trainer.run()
    assert (trainer.position.best_epoch, trainer.position.best_rsum) == (2, 100.0)


def test_where_no_phase_competes_the_last_one_does():
    first, last = Phase("warm-up", 2, competes=False), Phase("clean", 1, competes=False)
    assert competing([first, first, last]) == [False, False, True]
    assert competing([first, first]) == [True, True]
    assert competing([first, Phase("train", 1)]) == [False, True]
    assert competing([]) == []


@pytest.mark.parametrize("more", [False, True])
def test_an_oracle_takes_as_many_steps_as_plain_where_asked(tmp_path, more):
    phases = {"warmup": 2, "train": 6}
    plain = Trainer(make_job(tmp_path / "plain", method="plain", epochs=phases))
    oracle = Trainer(make_job(tmp_path / "oracle", method="oracle", epochs=phases, as_many_steps=more))
    pairs = len(plain.method.setting.ids) * len(plain.phases)
    trained = len(oracle.method.subset("all", 0)) * len(oracle.phases)
    assert trained == pytest.approx(pairs if more else pairs * 0.6, rel=0.08)


def test_networks_differ_and_seeds_repeat(tmp_path):
    first, second = (Trainer(make_job(tmp_path / name)) for name in "ab")
    for a, b in zip(weights(first).values(), weights(second).values(), strict=True):
        assert torch.equal(a, b)
    one, two = (net.matcher.image_head.project[2].weight for net in first.networks)
    assert not torch.equal(one, two)


def test_the_ensemble_is_the_mean_of_the_networks_similarities(tmp_path):
    job = make_job(tmp_path)
    matchers = [net.matcher for net in Trainer(job).networks]
    rows, ids = job.pairs.images("dev"), job.pairs.ids("dev")
    gallery = Gallery.encode(matchers, job.features, rows, ids)
    all_rows = np.arange(len(rows))
    singles = gallery.views(all_rows)
    assert np.allclose(gallery.block(all_rows), (singles[0] + singles[1]) / 2, atol=1e-6)


def test_steps_cover_the_driver_once_and_cycle_the_rest():
    pairs, _ = make_pairs()
    method = make_method("ncr", epochs={"warmup": 0, "clean": 0, "all": 1})
    method = method.begin(Setting(pairs.ids("train"), pairs.image_of, pairs.n_images, None, InfoNCE(), 0))
    ids = pairs.ids("train")
    method.division.state["clean_probability"][:, ids[:40]] = 0.0
    plan = steps(method, method.phases()[2], 0, 32, (0, 4, 0))
    clean = np.concatenate([step["clean"] for step in plan])
    assert sorted(clean.tolist()) == ids[40:].tolist()
    noisy = np.concatenate([step["noisy"] for step in plan])
    assert len(noisy) == len(clean)
    counts = np.bincount(noisy, minlength=len(pairs))[ids[:40]]
    assert counts.max() - counts.min() <= 1
    assert [s["clean"].tolist() for s in plan] != [
        s["clean"].tolist() for s in steps(method, method.phases()[2], 1, 32, (0, 4, 0))
    ]


def test_a_phase_whose_first_set_is_empty_is_refused():
    pairs, _ = make_pairs()
    method = watched(make_method("ncr"), subset=lambda method, subset, name, network: np.zeros(0, np.int64))
    method = method.begin(Setting(pairs.ids("train"), pairs.image_of, pairs.n_images, None, InfoNCE(), 0))
    with pytest.raises(InputError, match=r"network 0 of ncr has no pair in the set 'empty' .* phase 'none'"):
        steps(method, Phase("none", 1, ("empty",)), 0, 32, (0, 4, 0))


@pytest.mark.parametrize(
    ("n", "size", "sizes"),
    [(10, 4, [4, 4, 2]), (9, 4, [4, 5]), (3, 4, [3]), (1, 4, [1]), (8, 4, [4, 4]), (5, 2, [2, 3])],
)
def test_small_rests_join_the_batch_before(n, size, sizes):
    batches = cut(np.arange(n), size)
    assert [len(b) for b in batches] == sizes
    assert np.concatenate(batches).tolist() == list(range(n))


def test_batches_are_made_ahead_in_order_and_never_far_ahead():
    made = []

    def make(number):
        if number == 7:
            raise ValueError("seven")
        made.append(number)
        return number * 10

    used = []
    with pytest.raises(ValueError, match="seven"):
        for value in map_ahead(make, range(9), depth=2):
            used.append(value)
            assert len(made) <= len(used) + 2
    assert used == [0, 10, 20, 30, 40, 50, 60]


def test_learning_rate_schedules():
    one = TrainOptions(lr=1.0)
    rates = [learning_rate(one, e, p / 10, 5, 1) for e in range(5) for p in range(10)]
    assert max(rates) == pytest.approx(1.0)
    assert rates[0] < 0.1 and rates[-1] < 0.05
    assert all(a >= b for a, b in itertools.pairwise(rates[5:]))
    step = TrainOptions(lr=1.0, schedule="step", decay_epoch=3)
    assert [learning_rate(step, e, 0, 9, 2) for e in range(7)] == pytest.approx([1, 1, 1, 1, 1, 0.1, 0.1])
    again = TrainOptions(lr=1.0, schedule="step", decay_epoch=2, decay_every=3, decay_factor=0.2)
    assert [learning_rate(again, e, 0, 9, 1) for e in range(9)] == pytest.approx([1] * 3 + [0.2] * 3 + [0.04] * 3)
    assert learning_rate(TrainOptions(lr=0.5, schedule="constant"), 4, 0.5, 9, 0) == 0.5
    for wrong in ({"decay_factor": 0.0}, {"decay_factor": 1.5}, {"decay_every": -1}):
        with pytest.raises(InputError, match=next(iter(wrong))):
            TrainOptions(**wrong)


@pytest.mark.parametrize(("warmup_steps", "peak"), [(5, 5), (20, 20), (90, 25)])
def test_a_rise_counted_in_steps_ends_at_its_step_and_the_cosine_at_the_last(warmup_steps, peak):
    options = TrainOptions(lr=2.0, warmup_steps=warmup_steps)
    rates = [learning_rate(options, step // 10, step % 10 / 10, 5, 0, 10) for step in range(50)]
    assert rates[1:peak] == pytest.approx([2.0 * max(0.04, step / peak) for step in range(1, peak)])
    fall = [1 + math.cos(math.pi * (step - peak) / (50 - peak)) for step in range(peak, 50)]
    assert rates[peak:] == pytest.approx([max(2e-3, rate) for rate in fall])


def test_a_rise_that_is_over_stays_over_where_later_epochs_have_fewer_steps(tmp_path, monkeypatch):
    rates = []
    monkeypatch.setattr("pairsift.train.loop.learning_rate", lambda *a: rates.append(learning_rate(*a)) or rates[-1])
    job = make_job(tmp_path)
    a_whole_epoch = len(cut(job.pairs.ids("train"), 32))
    object.__setattr__(job, "options", job.options.replaced(warmup_steps=a_whole_epoch))
    trainer = Trainer(job)
    trainer.run()
    first = rates[:a_whole_epoch]
    assert first == sorted(first) and rates[2 * a_whole_epoch] == pytest.approx(max(rates)) == pytest.approx(3e-3)
    assert len(rates) < len(trainer.phases) * 2 * a_whole_epoch
    after = rates[2 * a_whole_epoch :]
    ends = [n for n in range(1, len(after)) if after[n] > after[n - 1]]
    assert len(ends) == 3  # where the second network begins an epoch that the first one has just ended


def test_a_run_that_diverges_says_where(tmp_path):
    job = make_job(tmp_path)
    object.__setattr__(job, "options", job.options.replaced(lr=1e30))
    with pytest.raises(
        InputError, match=r"diverged: the loss clean is nan in step \d+ of epoch 1, network 0; lr is 1e\+30"
    ):
        Trainer(job).run()


def test_tensors_and_facts_come_back_and_broken_files_are_named(tmp_path):
    write_tensors(tmp_path / "a.safetensors", {"x": torch.arange(3)}, {"n": [1, {"b": 2}]})
    tensors, facts = read_tensors(tmp_path / "a.safetensors")
    assert tensors["x"].tolist() == [0, 1, 2] and facts == {"n": [1, {"b": 2}]}
    assert [p.name for p in tmp_path.iterdir()] == ["a.safetensors"]
    (tmp_path / "b.safetensors").write_bytes(b"no")
    with pytest.raises(InputError, match=r"b\.safetensors cannot be read"):
        read_tensors(tmp_path / "b.safetensors")
    with pytest.raises(InputError, match="missing"):
        read_tensors(tmp_path / "c.safetensors")


def test_rematched_captions_travel_with_their_owner():
    pairs, features = make_pairs()
    gather = Gatherer(features, pairs.image_of, torch.device("cpu"))
    batch = gather(Request(np.array([0, 5]), np.array([9, 2])))
    assert batch.image_rows.tolist() == pairs.image_of[[0, 5]].tolist()
    assert batch.caption_images.tolist() == pairs.image_of[[9, 2]].tolist()
    assert np.allclose(batch.texts.values.numpy(), features.texts.values[[9, 2]])
    assert batch.given_texts is None
    both = gather(Request(np.array([0, 5]), np.array([9, 2]), given_texts=True))
    assert np.allclose(both.given_texts.values.numpy(), features.texts.values[[0, 5]])
    own = gather(Request(np.array([0, 5]), np.array([0, 5]), given_texts=True))
    assert own.given_texts is None


def test_options_and_devices_that_cannot_be():
    for bad in (
        {"batch_size": 1},
        {"lr": 0.0},
        {"max_norm": -1.0},
        {"warmup_steps": -1},
        {"seed": -1},
        {"seed": 2**32},
    ):
        with pytest.raises(InputError):
            TrainOptions(**bad)
    with pytest.raises(InputError, match="not available"):
        pick_device("cuda:99")


def test_matrices_decay_and_a_head_learns_at_its_own_rate(tmp_path, monkeypatch):
    monkeypatch.setattr(TwoTower, "head_speed", 50.0)
    trainer = Trainer(make_job(tmp_path, "pc2"))
    network = trainer.networks[0]
    rates, decays = {}, {}
    for group in trainer.optimizers[0].param_groups:
        for parameter in group["params"]:
            assert id(parameter) not in rates
            rates[id(parameter)], decays[id(parameter)] = group["speed"], group["weight_decay"]
    for name, parameter in network.named_parameters():
        assert rates[id(parameter)] == (50.0 if name.startswith("head.") else 1.0)
        assert (decays[id(parameter)] > 0) == (parameter.ndim > 1)
    trainer.run()
    groups = trainer.optimizers[0].param_groups
    assert [group["lr"] for group in groups] == pytest.approx([groups[0]["lr"] * group["speed"] for group in groups])
    assert len(parameter_groups(network, 0.1)) == 4
