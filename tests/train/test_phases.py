"""What every phase of every method trains on, and what is peculiar to its warm-up."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional
from train_helpers import make_job

from pairsift.loss.ranking import Hinge
from pairsift.match.two_tower import TwoTower, TwoTowerOptions
from pairsift.methods import METHODS
from pairsift.train.loop import Trainer

WARM, PREPARING, OBSERVED = (True, False, False), (False, True, False), (False, True, True)  # warm, observe, competes
DIVIDED = [("warm-up", 2, ("all",), *WARM), ("clean", 3, ("clean",), *OBSERVED)]
STAGES = [*DIVIDED, ("refine", 4, ("clean", "refinable"), *OBSERVED)]
EPOCHS = {"warmup": 2, "clean": 3, "all": 5}
TRAIN = {"epochs": {"warmup": 2, "train": 5}}
BANK = [("warm-up", 2, ("all",), *WARM), ("bank", 1, ("all",), *OBSERVED)]


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("plain", TRAIN, [("warm-up", 2, ("all",), True, False, True), ("train", 5, ("all",), False, False, True)]),
        ("ncr", {"epochs": EPOCHS}, [*DIVIDED, ("all", 5, ("clean", "noisy"), *OBSERVED)]),
        (
            "pc2",
            {"epochs": EPOCHS},
            [DIVIDED[0], ("clean", 3, ("clean",), *PREPARING), ("all", 5, ("clean", "noisy"), *OBSERVED)],
        ),
        (
            "cream",
            {"epochs": {**EPOCHS, "hard": 4}},
            [*DIVIDED, ("hard", 4, ("clean", "hard"), *OBSERVED), ("all", 5, ("clean", "hard", "noisy"), *OBSERVED)],
        ),
        ("l2rm", TRAIN, [("warm-up", 2, ("all",), *WARM), ("rematch", 5, ("clean", "noisy"), *OBSERVED)]),
        ("bicro", {"epochs": EPOCHS}, [*DIVIDED, ("all", 5, ("clean", "noisy"), *OBSERVED)]),
        (
            "pcsr",
            {"epochs": {**EPOCHS, "refine": 4}},
            [*STAGES, ("all", 5, ("clean", "refinable", "ambiguous"), *OBSERVED)],
        ),
        ("npc", TRAIN, [*BANK, ("train", 4, ("all",), False, False, True)]),
        ("npc", {**TRAIN, "bank": {"refresh": True}}, [*BANK, ("train", 4, ("all",), *OBSERVED)]),
        ("decl", TRAIN, [("warm-up", 2, ("all",), True, False, False), ("train", 5, ("all",), *OBSERVED)]),
        ("mscn", TRAIN, [("warm-up", 2, ("all",), *WARM), ("meta", 5, ("clean", "verified"), *OBSERVED)]),
        ("gsc", TRAIN, [("first", 2, ("all",), False, False, False), ("train", 5, ("all",), *OBSERVED)]),
    ],
)
def test_phases_have_their_epochs_subsets_warmth_passes_and_place_in_the_contest(name, options, expected):
    phases = METHODS[name](**options).phases()
    found = [(p.name, p.epochs, p.subsets, p.warm, p.observe, p.competes) for p in phases]
    assert found == expected and not any(phase.restarts for phase in phases)
    assert {p.name for p in phases if p.once} == ({"hard", "all"} if name == "cream" else set())
    assert {p.name for p in phases if p.in_turn or p.new_optimizers} == ({"meta"} if name == "mscn" else set())


@pytest.mark.parametrize(
    ("name", "options", "names", "passes"),
    [
        ("ncr", {}, ["warm-up", "clean", "all", "all"], [1, 2, 3]),
        ("pc2", {"epochs": {"all": 1}}, ["warm-up", "clean", "all"], [1, 2]),
        ("l2rm", {"epochs": {"train": 2}}, ["warm-up", "rematch", "rematch"], [1, 2]),
        ("cream", {}, ["warm-up", "clean", "hard", "all"], [1, 2, 3]),
        ("bicro", {}, ["warm-up", "clean", "all", "all"], [1, 2, 3]),
        ("npc", {}, ["warm-up", "bank", "train", "train"], [1]),
        ("mscn", {"epochs": {"train": 2}}, ["warm-up", "meta", "meta"], [1, 1, 2, 2]),  # one network after the other
        ("gsc", {"epochs": {"train": 2}}, ["first", "train", "train"], [1, 2]),
    ],
)
def test_a_pass_precedes_every_epoch_of_a_phase_that_has_one_and_no_other(tmp_path, name, options, names, passes):
    epochs = []
    hooks = {"update": lambda method, update, notes, epoch: epochs.append(epoch) or update(notes, epoch)}
    trainer = Trainer(make_job(tmp_path, name, n_images=40, hooks=hooks, **options))
    trainer.run()
    assert [line["phase"] for line in trainer.log] == names
    assert epochs == passes


def hinges(similarity: np.ndarray, excluded: np.ndarray, of_several) -> list[float]:
    """Each pair's hinge at the margin 0.2 over captions and over images, of several negatives as told."""
    found = []
    for i, row in enumerate(similarity):
        others = np.flatnonzero(~excluded[i])
        captions = [max(0.0, 0.2 + row[j] - row[i]) for j in others]
        images = [max(0.0, 0.2 + similarity[j, i] - row[i]) for j in others]
        found.append(of_several(captions) + of_several(images))
    return found


def warmed_up(folder, name: str, **options):
    """A trainer after an epoch of warm-up, and what its steps made of their pairs, with the phase and without it."""
    lengths = METHODS[name].model_fields["epochs"].annotation.model_fields
    later = dict.fromkeys(set(lengths) - {"warmup"}, 1 if name == "plain" else 0)
    steps = []

    def stepped(method, updates, given):
        step = method.step
        if given.phase.name == "train":  # plain training has an epoch of it at least
            yield from updates(given)
            return
        colder = step(replace(given, phase=replace(given.phase, warm=False, observe=True)))
        terms = step(given)
        network = given.network
        images, texts = network.encode(given.batch)
        logits = [] if network.head is None else [network.logits(codes).detach() for codes in (images, texts)]
        similarity = network.matcher.similarity(images, texts).detach().numpy().astype(float)
        rows = given.batch.image_rows.numpy()
        steps.append((terms, colder, similarity, rows[:, None] == rows[None, :], logits))
        yield terms

    job = make_job(folder, name, n_images=40, hooks={"updates": stepped}, epochs=later, **options)
    sizes = TwoTowerOptions(dim=16, hidden=16, dropout=0.0)
    trainer = Trainer(replace(job, ranking=Hinge(negatives="hardest"), matcher=lambda: TwoTower(20, 16, sizes)))
    head = None if trainer.networks[0].head is None else [p.clone() for p in trainer.networks[0].head.parameters()]
    trainer.run()
    assert len(steps) == 4
    return trainer, steps, head


@pytest.mark.parametrize("name", ["plain", "ncr", "pc2", "pcsr", "bicro", "cream", "npc", "gsc"])
def test_warming_up_takes_the_mean_of_the_negatives_and_later_the_hardest(tmp_path, name):
    _, steps, _ = warmed_up(tmp_path, name, **({"warmup_share": 1.0} if name == "bicro" else {}))
    for terms, colder, similarity, excluded, _ in steps:
        warm, cold = (hinges(similarity, excluded, of_several) for of_several in (np.mean, np.max))
        assert terms[0].values.tolist() == pytest.approx(warm, abs=1e-5)
        assert colder[0].values.tolist() == pytest.approx(cold, abs=1e-5)
        assert min(np.subtract(cold, warm)) > 0.01


def test_the_classifier_of_pc2_learns_in_its_warm_up(tmp_path):
    trainer, steps, head = warmed_up(tmp_path, "pc2", weights={"entropy": 7.0, "pseudo": 2.0})
    for terms, _, _, _, (images, texts) in steps:
        assert [(t.name, t.weight) for t in terms] == [("clean", 1.0), ("pseudo", 2 / 128), ("entropy", 7 / 128)]
        expected = functional.cross_entropy(images, texts.argmax(1))
        assert terms[1].reduced().item() == pytest.approx(expected.item(), rel=1e-4)
    assert not any(torch.equal(a, b) for a, b in zip(head, trainer.networks[0].head.parameters(), strict=True))


def test_the_classifier_of_pcsr_waits_for_the_first_stage(tmp_path):
    trainer, steps, head = warmed_up(tmp_path, "pcsr")
    assert {tuple(term.name for term in terms) for terms, *_ in steps} == {("clean",)}
    assert all(torch.equal(a, b) for a, b in zip(head, trainer.networks[0].head.parameters(), strict=True))
