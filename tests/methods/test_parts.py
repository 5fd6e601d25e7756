"""Parts of methods: whose state theirs is, and what becomes of their notes and facts."""

from typing import ClassVar

import numpy as np
import pytest
import torch
from pydantic import Field
from torch import nn

from pairsift.encode.features import Items
from pairsift.loss.ranking import InfoNCE
from pairsift.match.base import Codes, Matcher, unit
from pairsift.methods import CREAM, GSC, L2RM, METHODS, NCR, NPC, PC2, PCSR, BiCro
from pairsift.methods.base import Method
from pairsift.methods.parts.captions import CaptionSearch
from pairsift.methods.parts.division import CleanProbability, Division
from pairsift.methods.parts.part import Part
from pairsift.steps import Batch, Network, Observation, Phase, Setting

IMAGE_OF = np.array([0, 0, 1, 1, 2, 3, 4])


def setting(networks=2):
    return Setting(np.arange(5), IMAGE_OF, 5, None, InfoNCE(), 0, networks, verified=np.array([0, 2]))


def begun(method):
    method.begin(setting(method.networks))
    return method


def parts_of(method):
    fields = (getattr(method, name) for name in type(method).model_fields)
    return [field for field in fields if isinstance(field, Part)]


@pytest.mark.parametrize("name", METHODS)
def test_methods_made_with_the_usual_parts_share_no_state(name):
    kind = METHODS[name]
    first, second = begun(kind()), begun(kind())
    assert first.state.keys() == second.state.keys()
    for key, array in first.state.items():
        assert not np.shares_memory(array, second.state[key])
    for one, other in zip(parts_of(first), parts_of(second), strict=True):
        assert one is not other and one.state is first.state and other.state is second.state
    for field in type(first).model_fields.values():
        assert not isinstance(field.default, Part) or field.default.state == {}  # nobody has begun the usual ones


@pytest.mark.parametrize("kind", [NCR, PC2, PCSR])
def test_one_part_given_to_two_methods_is_a_part_of_each(kind):
    division = Division(threshold=0.8)
    first, second = kind(division=division), kind(division=division)
    for method, w in ((first, 0.9), (second, 0.1)):
        begun(method).state["clean_probability"][:, :4] = w
        method.state["clean_probability"][:, 4] = 1 - w
    assert [method.subset("clean", 0).tolist() for method in (first, second)] == [[0, 1, 2, 3], [4]]
    assert first.division.threshold == second.division.threshold == 0.8
    assert division.state == {} and first.division.state is not second.division.state


@pytest.mark.parametrize("kind", [NCR, PC2, PCSR, BiCro, CREAM, L2RM, GSC, NPC])
def test_a_parts_state_lies_in_its_methods(kind):
    method = begun(kind(networks=2))
    assert parts_of(method) and all(part.state is method.state for part in parts_of(method))
    assert all(part.setting is method.setting for part in parts_of(method))
    for name, array in method.state.items():
        method.state[name] = np.arange(array.size).reshape(array.shape)  # another array, not other values alone
        for k in range(2):
            assert all((part.of_peer(name, k) == method.state[name][1 - k]).all() for part in parts_of(method))
    saved = {name: array + 1 for name, array in method.state.items()}
    shared = method.state
    method.resume(saved)
    assert method.state is shared and all((part.of_peer(name, 1) == saved[name][0]).all() for part in parts_of(method))
    begun(method)
    assert method.state is not shared and all(part.state is method.state for part in parts_of(method))


def test_a_network_alone_believes_itself_and_arrays_are_per_network_and_pair():
    method = begun(NCR(networks=1))
    assert method.state["clean_probability"].shape == (1, 7)
    method.state["clean_probability"][0] = np.linspace(0, 1, 7)
    assert method.division.of_peer("clean_probability", 0).tolist() == np.linspace(0, 1, 7, dtype=np.float32).tolist()
    ids = method.division.array_of_pairs(-1, np.int64)
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

    def begin(self, setting, state):
        super().begin(setting, state)
        state["likeness"] = self.array_of_pairs(0)

    def observe(self, seen):
        return {"likeness": seen.similarity.diagonal() + 10 * seen.k}

    def update(self, notes, epoch):
        for k, noted in enumerate(notes):
            kept = self.state["likeness"][k, self.setting.ids]
            self.state["likeness"][k, self.setting.ids] = (1 - self.rate) * kept + self.rate * noted["likeness"]

    def facts(self):
        return {"likeness": float(self.state["likeness"].mean())}


class Drift(Part):
    """How far the likeness was from the one that is kept: it must look before that is renewed."""

    def begin(self, setting, state):
        super().begin(setting, state)
        state["drift"] = self.array_of_pairs(0)

    def update(self, notes, epoch):
        ids = self.setting.ids
        for k, noted in enumerate(notes):
            self.state["drift"][k, ids] = noted["likeness"] - self.state["likeness"][k, ids]

    def facts(self):
        return {"drift": float(self.state["drift"].mean())}


class Composed(Method):
    name: ClassVar[str] = "composed"

    drift: Drift = Drift()
    likeness: Likeness = Likeness()
    clean: CleanProbability = CleanProbability()

    def phases(self):
        return (Phase("train", 1, observe=True),)

    def step(self, networks, k, batches, phase):
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
def test_notes_and_facts_of_all_parts_come_together_and_parts_are_renewed_in_the_order_of_the_fields():
    method, seen = begun(Composed(likeness={"rate": 0.25})), network()
    diagonal = seen(batch())[0].diagonal().numpy()
    notes = []
    for k in range(2):
        noted = method.observe(seen, k, batch())
        assert set(noted) == {"likeness", "loss"}
        assert noted["likeness"].numpy() == pytest.approx(diagonal + 10 * k, abs=1e-6)
        assert noted["loss"].tolist() == Observation.make(seen, k, batch()).loss(InfoNCE()).tolist()
        notes.append({name: value.numpy() for name, value in noted.items()})
    assert set(method.state) == {"likeness", "drift", "clean_probability", "loss"}
    for number in range(2):
        before = method.state["likeness"].copy()
        method.update(notes, number)
        for k in range(2):
            now = diagonal + 10 * k
            assert method.state["drift"][k, :5] == pytest.approx(now - before[k, :5], abs=1e-5)
            assert method.state["likeness"][k, :5] == pytest.approx(0.75 * before[k, :5] + 0.25 * now, abs=1e-5)
    assert not method.state["drift"][:, 5:].any() and not method.state["likeness"][:, 5:].any()
    facts = method.facts()
    assert set(facts) == {"drift", "likeness", "noise_rate"}
    assert facts["likeness"] == pytest.approx(method.state["likeness"].mean())
    assert facts["noise_rate"] == pytest.approx(1 - method.state["clean_probability"][:, :5].mean(), abs=1e-6)


def test_a_part_of_ones_own_stands_in_for_the_usual_one():
    class Certain(Division):
        """Nobody is doubted."""

        surplus: float = Field(default=0.5, ge=0)

        def observe(self, seen):
            return super().observe(seen) | {"surplus": torch.full((len(seen.batch),), self.surplus)}

        def update(self, notes, epoch):
            assert all((noted["surplus"] == self.surplus).all() for noted in notes)

    method = begun(NCR(division=Certain(threshold=0.3, surplus=2.0)))
    noted = {name: value.detach().numpy() for name, value in method.observe(network(), 0, batch()).items()}
    assert set(noted) == {"loss", "surplus"}
    method.update([noted, noted], 0)
    assert type(method.division) is Certain and method.division.state is method.state
    assert (method.state["clean_probability"] == 1).all()
    filled = NCR(division=Certain(surplus=2.0)).filled({"division": {"threshold": 0.9}, "margin": 0.1})
    assert type(filled.division) is Certain and filled.margin == 0.1
    assert (filled.division.threshold, filled.division.surplus) == (0.9, 2.0)
    assert type(begun(filled).division) is Certain


def test_methods_made_from_others_begin_afresh():
    method = begun(PC2(captions=CaptionSearch(search="epoch")))
    method.state["clean_probability"][:] = 0.3
    other = method.replaced(networks=1)
    assert other.captions.search == "epoch" and other.setting_if_any is None and other.state == {}
    begun(other)
    assert (other.state["clean_probability"] == 1).all() and other.state["clean_probability"].shape == (1, 7)
    assert (method.state["clean_probability"] == np.float32(0.3)).all()
