"""Options apart from state, and parts of methods: their state, notes and facts."""

from typing import ClassVar

import numpy as np
import pytest
import torch
from pydantic import Field
from torch import nn

from pairsift.encode.features import Items
from pairsift.errors import InputError
from pairsift.loss.ranking import InfoNCE
from pairsift.match.base import Codes, Matcher, unit
from pairsift.methods import METHODS
from pairsift.methods.base import Component, Method, Part
from pairsift.methods.bicro import BiCro
from pairsift.methods.cream import CREAM
from pairsift.methods.decl import DECL
from pairsift.methods.gsc import GSC
from pairsift.methods.l2rm import L2RM
from pairsift.methods.mscn import MSCN
from pairsift.methods.ncr import NCR
from pairsift.methods.npc import NPC
from pairsift.methods.parts.division import CleanProbability, Division
from pairsift.methods.parts.pseudo_captions import CaptionSearch
from pairsift.methods.pc2 import PC2
from pairsift.methods.pc2_mscn import PC2MSCN
from pairsift.methods.pcsr import PCSR
from pairsift.steps import Batch, Network, Observation, Phase, Setting

IMAGE_OF = np.array([0, 0, 1, 1, 2, 3, 4])


def setting(networks=2):
    return Setting(np.arange(5), IMAGE_OF, 5, None, InfoNCE(), 0, networks, verified=np.array([0, 2]))


def begun(method):
    return method.begin(setting(method.networks))


@pytest.mark.parametrize("name", METHODS)
def test_options_keep_no_state_and_each_run_has_its_own(name):
    method = METHODS[name]()
    before = hash(method)
    first, second = begun(method), begun(method)
    assert first.arrays().keys() == second.arrays().keys()
    for key, array in first.arrays().items():
        assert not np.shares_memory(array, second.arrays()[key])
    for options in (method, *method.parts.values(), *(field.default for field in type(method).model_fields.values())):
        assert not isinstance(options, Component) or (options.state == {} and options.setting_if_any is None)
    assert method == METHODS[name]() and hash(method) == before
    assert all(part.setting is first.setting for part in first.parts.values())


@pytest.mark.parametrize("kind", [NCR, PC2, PCSR])
def test_one_part_given_to_two_methods_has_state_in_each(kind):
    division = Division(threshold=0.8)
    first, second = (begun(kind(division=division)) for _ in range(2))
    for method, w in ((first, 0.9), (second, 0.1)):
        method.division.state["clean_probability"][:, :4] = w
        method.division.state["clean_probability"][:, 4] = 1 - w
    assert [method.subset("clean", 0).tolist() for method in (first, second)] == [[0, 1, 2, 3], [4]]
    assert first.division.threshold == second.division.threshold == 0.8
    assert division.state == {}


@pytest.mark.parametrize("kind", [NCR, PC2, PCSR, BiCro, CREAM, L2RM, GSC, NPC, DECL])
def test_the_whole_state_is_named_by_part_and_can_be_put_back(kind):
    method = begun(kind(networks=2))
    assert {name.rpartition(".")[0] for name in method.arrays()} <= {"", *method.parts}
    saved = {name: np.arange(array.size).reshape(array.shape) for name, array in method.arrays().items()}
    method.resume(saved)
    assert all(method.arrays()[name] is array for name, array in saved.items())
    for part in method.parts.values():
        for name in part.state:
            assert all((part.of_peer(name, k) == part.state[name][1 - k]).all() for k in range(2))
    again = begun(method)
    assert all(again.arrays()[name] is not array for name, array in saved.items())


def test_a_network_alone_believes_itself_and_arrays_are_per_network_and_pair():
    method = begun(NCR(networks=1))
    assert method.division.state["clean_probability"].shape == (1, 7)
    method.division.state["clean_probability"][0] = np.linspace(0, 1, 7)
    assert method.division.of_peer("clean_probability", 0).tolist() == np.linspace(0, 1, 7, dtype=np.float32).tolist()
    ids = method.setting.per_pair(-1, np.int64)
    assert (ids.shape, ids.dtype, set(ids.ravel().tolist())) == ((1, 7), np.int64, {-1})


# ---------------------------------------------------------------- a method of parts


class Plain(Matcher):
    name = "plain"
    image_kind = text_kind = "vector"

    def __init__(self):
        super().__init__()
        self.dim = 3
        self.image, self.text = nn.Linear(4, 3), nn.Linear(4, 3)

    def encode_images(self, items):
        return Codes(unit(self.image(items.values)))

    def encode_texts(self, items):
        return Codes(unit(self.text(items.values)))


class Likeness(Part):
    """How alike image and caption are, smoothed over passes."""

    rate: float = Field(default=0.5, ge=0, le=1)

    def initial_state(self, setting):
        return {"likeness": setting.per_pair(0)}

    def observe(self, seen):
        return {"likeness": seen.similarity.diagonal() + 10 * seen.k}

    def update(self, notes):
        for k, noted in enumerate(notes):
            kept = self.state["likeness"][k, self.setting.ids]
            self.state["likeness"][k, self.setting.ids] = (1 - self.rate) * kept + self.rate * noted["likeness"]

    def facts(self):
        return {"likeness": float(self.state["likeness"].mean())}


class Drift(Part):
    """How far the likeness has moved since the pass before."""

    def initial_state(self, setting):
        return {"drift": setting.per_pair(0)}

    def compare(self, before, now):
        self.state["drift"][:, self.setting.ids] = now - before

    def facts(self):
        return {"drift": float(self.state["drift"].mean())}


class Composed(Method):
    name: ClassVar[str] = "composed"

    drift: Drift = Drift()
    likeness: Likeness = Likeness()
    clean: CleanProbability = CleanProbability()

    def phases(self):
        return (Phase("train", 1, observe=True),)

    def update(self, notes, epoch):
        before = self.likeness.state["likeness"][:, self.setting.ids].copy()
        super().update(notes, epoch)
        self.drift.compare(before, np.stack([noted["likeness.likeness"] for noted in notes]))

    def step(self, step):
        return []


def batch(ids=range(5)):
    rng = np.random.default_rng(0)
    images, texts = rng.normal(size=(5, 4)), rng.normal(size=(7, 4))
    ids = np.array(list(ids))
    rows = torch.from_numpy(IMAGE_OF[ids])
    sides = images[IMAGE_OF[ids]], texts[ids]
    return Batch(ids, rows, rows, *(Items(torch.from_numpy(side.astype(np.float32))) for side in sides))


def network():
    torch.manual_seed(0)
    return Network(Plain(), None).eval()


@torch.no_grad()
def test_every_part_gets_its_own_notes_and_all_facts_come_together():
    method, seen = begun(Composed(likeness={"rate": 0.25})), network()
    diagonal = seen(batch())[0].diagonal().numpy()
    notes = []
    for k in range(2):
        noted = method.observe(Observation.make(seen, k, batch()))
        assert set(noted) == {"likeness.likeness", "clean.loss"}
        assert noted["likeness.likeness"].numpy() == pytest.approx(diagonal + 10 * k, abs=1e-6)
        assert noted["clean.loss"].tolist() == Observation.make(seen, k, batch()).loss(InfoNCE()).tolist()
        notes.append({name: value.numpy() for name, value in noted.items()})
    assert set(method.arrays()) == {"likeness.likeness", "drift.drift", "clean.clean_probability", "clean.loss"}
    likeness, drift = method.likeness.state["likeness"], method.drift.state["drift"]
    for number in range(2):
        before = likeness.copy()
        method.update(notes, number)
        for k in range(2):
            now = diagonal + 10 * k
            assert drift[k, :5] == pytest.approx(now - before[k, :5], abs=1e-5)
            assert likeness[k, :5] == pytest.approx(0.75 * before[k, :5] + 0.25 * now, abs=1e-5)
    assert not drift[:, 5:].any() and not likeness[:, 5:].any()
    facts = method.facts()
    assert set(facts) == {"drift", "likeness", "noise_rate"}
    assert facts["likeness"] == pytest.approx(likeness.mean())
    trust = method.clean.state["clean_probability"][:, :5]
    assert facts["noise_rate"] == pytest.approx(1 - trust.mean(), abs=1e-6)


def test_equal_names_of_arrays_or_facts_are_an_error():
    class Twice(Composed):
        other: Likeness = Likeness()

    with pytest.raises(InputError, match="composed: two arrays of its parts or of its own have the name likeness"):
        begun(Twice())

    class Own(Composed):
        def initial_state(self, setting):
            return {"drift": setting.per_pair(0)}

    with pytest.raises(InputError, match="have the name drift"):
        begun(Own())

    class Alike(Drift):
        def facts(self):
            return {"likeness": 0.0}

    method = begun(Composed(drift=Alike()))
    with pytest.raises(InputError, match="composed: two facts of its parts or of its own have the name likeness"):
        method.facts()


OPTIONS = {
    PC2: {"captions": {"search": "epoch"}},
    PCSR: {"captions": {"search": "epoch"}, "epochs": {"warmup": 0, "clean": 0}, "consistency": {"counted_from": 1}},
    PC2MSCN: {"captions": {"search": "epoch"}},
}


@pytest.mark.parametrize("kind", [PC2, PCSR, PC2MSCN, BiCro, NPC, MSCN, Composed])
def test_the_order_of_the_fields_does_not_matter(kind):
    class Reversed(kind):
        @property
        def parts(self):
            return dict(reversed(super().parts.items()))

    found = []
    for made in (kind, Reversed):
        ids = np.arange(24)
        whole = Setting(ids, ids // 2, 12, None, InfoNCE(), 0, verified=np.array([0, 2]))
        method = made(networks=2, **OPTIONS.get(kind, {})).begin(whole)
        rng = np.random.default_rng(6)
        for epoch in range(3):
            seen = Network(Plain(), method.head(3)).eval()
            with torch.no_grad():
                noted = method.observe(Observation.make(seen, 0, batch()))
            shapes = {name: (24, *noted[name].shape[1:]) for name in sorted(noted)}
            notes = [{name: rng.random(shape, np.float32) for name, shape in shapes.items()} for _ in range(2)]
            method.update(notes, epoch)
        found.append((method.arrays(), method.facts(), [method.subset("all", k).tolist() for k in range(2)]))
    (arrays, *others), (again, *other_way) = found
    assert others == other_way and arrays.keys() == again.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, again[name], name)
    assert kind is not PC2 or (arrays["stability.stability"] != 1).any()  # there was something to compare


def test_a_part_of_ones_own_stands_in_for_the_usual_one():
    class Certain(Division):
        """Nobody is doubted."""

        surplus: float = Field(default=0.5, ge=0)

        def observe(self, seen):
            return super().observe(seen) | {"surplus": torch.full((len(seen.batch),), self.surplus)}

        def update(self, notes):
            assert all((noted["surplus"] == self.surplus).all() for noted in notes)

    method = begun(NCR(division=Certain(threshold=0.3, surplus=2.0)))
    noted = {
        name: value.detach().numpy() for name, value in method.observe(Observation.make(network(), 0, batch())).items()
    }
    assert set(noted) == {"division.loss", "division.surplus"}
    method.update([noted, noted], 0)
    assert type(method.division) is Certain
    assert (method.division.state["clean_probability"] == 1).all()
    filled = NCR(division=Certain(surplus=2.0)).filled({"division": {"threshold": 0.9}, "margin": 0.1})
    assert type(filled.division) is Certain and filled.margin == 0.1
    assert (filled.division.threshold, filled.division.surplus) == (0.9, 2.0)
    assert type(begun(filled).division) is Certain


def test_a_begun_method_is_no_source_of_options():
    options = PC2(captions=CaptionSearch(search="epoch"))
    method = begun(options)
    with pytest.raises(InputError, match="pc2: a part that has begun is no option"):
        method.replaced(networks=1)
    other = begun(options.replaced(networks=1))
    assert other.captions.search == "epoch" and other.division.state["clean_probability"].shape == (1, 7)
