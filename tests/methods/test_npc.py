"""NPC against the paper's equations in plain loops, and what its memory bank holds."""

import copy
import math

import numpy as np
import pytest
import torch
from method_helpers import IMAGE_OF, SETTING, batch_of, make_networks

from pairsift.encode.features import Items
from pairsift.errors import InputError
from pairsift.loss.ranking import Hinge, InfoNCE
from pairsift.match.two_tower import TwoTower, TwoTowerOptions
from pairsift.methods.npc import NPC, NegativeImpact, View, view, views_at
from pairsift.methods.parts.dropout import encode
from pairsift.runs.config import flattened
from pairsift.steps import Batch, Network, Pairing, Phase, Setting, Step, Term, not_negatives
from pairsift.train.loop import after_step, parameter_groups

TRAIN = Phase("train", 1)
IDS, NEAR_IMAGE, NEAR_TEXT = [0, 3, 5, 6, 4], [1, 3, 7, 7, 8], [0, 8, 7, 2, 4]  # 4 and 5 show one image
SIDES = {"by_image": NEAR_IMAGE, "by_text": NEAR_TEXT}


def double(ids: list[int]) -> Batch:
    batch = batch_of(ids)
    sides = (Items(items.values.double(), items.mask) for items in (batch.images, batch.texts))
    return Batch(batch.ids, batch.image_rows, batch.caption_images, *sides)


def stepped(method: NPC, network: Network, gather=double) -> list[Term]:
    """The terms of a step on the pairs IDS with these bank pairs."""
    for side, ids in SIDES.items():
        method.bank.state[side][0, IDS] = ids
    requests = method.requests({"all": np.array(IDS)}, 0)
    return method.step(Step([network], 0, {name: gather(request.ids) for name, request in requests.items()}, TRAIN))


def wanted(method: NPC, ids, network: int = 0) -> dict[str, list[int]]:
    """What a step on these pairs reads."""
    requests = method.requests({"all": np.array(ids)}, network)
    assert all(request.captions is None and not request.given_texts for request in requests.values())
    return {name: request.ids.tolist() for name, request in requests.items()}


def begun(
    method: NPC, network: Network, rate: float, clip: float = 0.0, ranking=None
) -> tuple[NPC, torch.optim.Optimizer]:
    """Begin the method, told of the network's optimizer, which has a past."""
    optimizer = torch.optim.AdamW(parameter_groups(network, 0.1), 0.05)
    for _ in range(2):
        optimizer.zero_grad()
        for parameter in network.parameters():
            parameter.grad = torch.randn_like(parameter)
        optimizer.step()
    optimizer.zero_grad()
    for group in optimizer.param_groups:
        group["lr"] = rate

    def after(k, gradients, momentum):
        assert k == 0
        return after_step(network, optimizer, clip, gradients, momentum)

    return method.begin(SETTING(ranking or InfoNCE(), networks=1, after_step=after)), optimizer


def blocks(network: Network, ids: list[int]) -> tuple[list[list[float]], float, list[list[bool]]]:
    images, texts = network.encode(double(ids))
    s = [[float(a @ b) for b in texts.vectors.detach()] for a in images.vectors.detach()]
    rows = [IMAGE_OF[i] for i in ids]
    return s, float(network.matcher.scale()), [[a == b for b in rows] for a in rows]


def entropies(network: Network, ids: list[int]) -> tuple[list[float], list[float]]:
    """Eq. 2 for every pair: CE(I, T) and CE(T, I)."""
    s, scale, out = blocks(network, ids)
    forth, back = [], []
    for i in range(len(ids)):
        row = sum(math.exp(scale * s[i][j]) for j in range(len(ids)) if j == i or not out[i][j])
        column = sum(math.exp(scale * s[k][i]) for k in range(len(ids)) if k == i or not out[k][i])
        forth.append(-math.log(math.exp(scale * s[i][i]) / row))
        back.append(-math.log(math.exp(scale * s[i][i]) / column))
    return forth, back


def mean_hinges(network: Network, ids: list[int]) -> tuple[list[float], list[float]]:
    s, _, out = blocks(network, ids)
    forth, back = [], []
    for i in range(len(ids)):
        captions = [max(0.0, 0.2 + s[i][j] - s[i][i]) for j in range(len(ids)) if j != i and not out[i][j]]
        images = [max(0.0, 0.2 + s[k][i] - s[i][i]) for k in range(len(ids)) if k != i and not out[k][i]]
        forth.append(sum(captions) / len(captions))
        back.append(sum(images) / len(images))
    return forth, back


@pytest.mark.parametrize("clip", [0.0, 0.3])
@pytest.mark.parametrize(
    ("ranking", "losses", "share"),
    [(InfoNCE(), entropies, 0.5), (Hinge(negatives="mean", reduction="sum"), mean_hinges, 1)],
)
def test_a_step_is_equations_6_to_11(ranking, losses, share, clip):
    torch.manual_seed(0)
    method = NPC(bank={"weight": 0.7})
    network = make_networks(method)[0].double()
    method, optimizer = begun(method, network, 0.02, clip, ranking)
    twin = copy.deepcopy(network)  # A', a real copy with a real optimizer
    theirs = torch.optim.AdamW(parameter_groups(twin, 0.1), 0.02)
    theirs.load_state_dict(copy.deepcopy(optimizer.state_dict()))  # which would share the moments
    for group in theirs.param_groups:
        group["betas"] = (0.0, group["betas"][1])

    before = [losses(twin, ids) for ids in (NEAR_IMAGE, NEAR_TEXT)]
    similarity, scale = twin(double(IDS))
    y = torch.ones(len(IDS), dtype=torch.float64)
    exclude = torch.tensor([[IMAGE_OF[a] == IMAGE_OF[b] for b in IDS] for a in IDS])
    own = ranking(similarity, scale, y, exclude)
    theirs.zero_grad()
    (own.sum() if ranking.reduction == "sum" else own.mean()).backward()
    if clip:
        torch.nn.utils.clip_grad_norm_(twin.parameters(), clip)
    theirs.step()
    after = [losses(twin, ids) for ids in (NEAR_IMAGE, NEAR_TEXT)]

    weights = []
    for i in range(len(IDS)):
        p, q = (sum(side[way][i] for side in before) + 1e-6 for way in (0, 1))  # Eq. 6, and the guard
        later_p, later_q = (sum(side[way][i] for side in after) + 1e-6 for way in (0, 1))
        r = 0.5 * (p / later_p + q / later_q)  # Eq. 7
        weights.append(math.tanh(r) if r < 1 else 1.0)  # Eq. 8
    assert min(weights) < 0.9 and (clip or max(weights) == 1.0)

    terms = {term.name: term for term in stepped(method, network)}
    assert terms["weight"].values.tolist() == pytest.approx(weights, rel=1e-6)
    others = [i for i in range(len(IMAGE_OF)) if i not in IDS]
    assert method.impact.state["weight"][0, IDS].tolist() == pytest.approx(weights, rel=1e-6)
    assert others and (method.impact.state["weight"][0, others] == 1).all()
    assert method.values_of_pairs()["mean_weight"][0, IDS].tolist() == pytest.approx(weights, rel=1e-6)
    method.impact.state["weight"][:] = 9  # the mean is of the steps alone
    method.impact.state["mean_weight"][0, IDS], method.impact.state["weighings"][0, IDS] = 0.25, 2
    stepped(method, network)
    means = [(2 * 0.25 + w) / 3 for w in weights]
    assert method.impact.state["mean_weight"][0, IDS].tolist() == pytest.approx(means, rel=1e-6)
    assert method.impact.state["weighings"][0, IDS].tolist() == [3] * len(IDS)
    assert not method.impact.state["weighings"][0, others].any()
    expected = [w * share * (a + b) for w, a, b in zip(weights, *losses(network, IDS), strict=True)]
    assert terms["correspondence"].values.tolist() == pytest.approx(expected, rel=1e-6)  # Eq. 9
    for side, values in zip(("by_image", "by_text"), before, strict=True):
        assert terms[side].values.tolist() == pytest.approx([share * (a + b) for a, b in zip(*values, strict=True)])
        assert terms[side].reduction == ranking.reduction  # Eq. 10
    assert [terms[name].weight for name in ("correspondence", "by_image", "by_text", "weight")] == [1, 0.7, 0.7, 0]


def test_gradients_are_those_of_the_weighted_loss_and_of_the_bank():
    torch.manual_seed(1)
    method = NPC()
    network = make_networks(method)[0].double()
    method, _ = begun(method, network, rate=0.05)
    terms = {term.name: term for term in stepped(method, network)}
    w = terms["weight"].values
    assert not w.requires_grad
    torch.stack([term.reduced() * term.weight for term in terms.values()]).sum().backward()
    found = [parameter.grad.clone() for parameter in network.parameters()]
    network.zero_grad()
    seen = {name: alone(network, double(ids), 0) for name, ids in {"all": IDS, **SIDES}.items()}
    values = {name: InfoNCE().observe(one.similarity, one.scale, one.exclude) for name, one in seen.items()}
    ((w * values["all"]).mean() + values["by_image"].mean() + values["by_text"].mean()).backward()
    for ours, parameter in zip(found, network.parameters(), strict=True):
        torch.testing.assert_close(ours, parameter.grad)


@pytest.mark.parametrize("weigh", [True, False])
@pytest.mark.parametrize("bank_weight", [0.0, 1.0])
def test_each_part_can_be_left_out(weigh, bank_weight):
    method = NPC(impact={"weigh": weigh}, bank={"weight": bank_weight})
    network = make_networks(method)[0]
    method, _ = begun(method, network, rate=0.05)
    gathered = []
    names = [term.name for term in stepped(method, network, lambda ids: gathered.append(list(ids)) or batch_of(ids))]
    bank = ["by_image", "by_text"] if bank_weight else []
    assert names == ["correspondence", *bank, *(["weight"] if weigh else [])]
    assert ("weight" in method.impact.state) == weigh
    assert gathered == [IDS, *([[1, 2, 7, 8]] if weigh or bank_weight else [])]


def test_pairs_of_the_batch_are_not_gathered_again():
    method = NPC()
    network = make_networks(method)[0]
    method, _ = begun(method, network, rate=0.05)
    method.bank.state["by_image"][0, IDS] = method.bank.state["by_text"][0, IDS] = IDS
    assert wanted(method, IDS) == {"all": IDS}
    terms = method.step(Step([network], 0, {"all": batch_of(IDS)}, TRAIN))
    torch.testing.assert_close(terms[1].values, terms[2].values)  # its own bank on both sides
    method.bank.state["by_image"][0, 3] = 8
    assert wanted(method, IDS) == {"all": IDS, "bank": [8, 0]}  # one alone has no batch statistics


class Rough(TwoTower):
    """Dropout, and a batch norm."""

    def __init__(self):
        super().__init__(8, 6, TwoTowerOptions(dim=8, hidden=8, dropout=0.5))
        self.norm = torch.nn.BatchNorm1d(8)

    def encode_images(self, items):
        return super().encode_images(Items(self.norm(items.values)))


def rough(rate):
    torch.manual_seed(3)
    network, method = Network(Rough(), None).train(), NPC()
    method, _ = begun(method, network, rate)
    return network, method


def alone(network: Network, batch: Batch, seed: int) -> View:
    """A batch by itself."""
    (codes,) = encode(network, [batch], seed)
    return view(network, Pairing(*codes, not_negatives(batch)))


def test_a_step_of_no_length_changes_nothing_whatever_dropout_does():
    network, method = rough(rate=0.0)
    terms = stepped(method, network, batch_of)
    assert terms[-1].values.tolist() == [1.0] * 5
    network, method = rough(rate=0.05)
    terms = stepped(method, network, batch_of)
    assert terms[-1].values.min() < 0.77


def test_looking_ahead_leaves_statistics_and_the_generator_alone():
    network, _ = rough(rate=0.05)
    batches = [batch_of(IDS), batch_of([1, 7, 8])]
    places = [torch.tensor([0, 1, 5, 6]), torch.tensor([7, 7, 2])]
    state = torch.get_rng_state()
    kept = copy.deepcopy(network.state_dict())
    weights = {name: parameter + 0.1 for name, parameter in network.named_parameters()}
    seen = views_at(network, weights, batches, places, 1)
    assert torch.equal(state, torch.get_rng_state())
    torch.testing.assert_close(kept, network.state_dict(), rtol=0, atol=0)
    other = copy.deepcopy(network)
    other.load_state_dict({**kept, **weights})
    masked = encode(other, batches, 1)
    images, texts = (torch.cat([side.vectors for side in sides]) for sides in zip(*masked, strict=True))
    for one, at in zip(seen, places, strict=True):
        torch.testing.assert_close(one.similarity, images[at] @ texts[at].T)
        torch.testing.assert_close(one.scale, other.matcher.scale())
        assert not one.similarity.requires_grad
    assert seen[1].exclude.tolist() == [[True, True, False], [True, True, False], [False, False, True]]
    assert not torch.equal(seen[0].similarity, views_at(network, weights, batches, places, 6)[0].similarity)


def test_mixed_precision_reads_the_change_in_full(monkeypatch):
    network, method = rough(rate=1e-7)  # bf16 has no number so near to another
    seen = []
    losses = NegativeImpact._losses
    monkeypatch.setattr(NegativeImpact, "_losses", lambda *views: seen.append(losses(*views)) or losses(*views))
    with torch.autocast("cpu", torch.bfloat16):
        terms = stepped(method, network, batch_of)
    (before, after) = seen
    assert all(part.dtype == torch.float32 for part in (*before, *after))
    assert not torch.equal(before[0], after[0])
    torch.testing.assert_close(before, after, rtol=1e-3, atol=1e-4)
    assert set(terms[-1].values.tolist()) != {1.0}


# ---------------------------------------------------------------- the bank

N, IMAGES = 60, 20
OWNER = np.repeat(np.arange(IMAGES), 3)


def observed(seed: int, noisy: int = 30) -> dict[str, np.ndarray]:
    """Losses in two groups, and vectors of which rows of one image share the image's."""
    rng = np.random.default_rng(seed)
    loss = np.where(rng.permutation(N) < noisy, 6.0, 1.0) + 0.4 * rng.normal(size=N)
    images, texts = rng.normal(size=(IMAGES, 7)), rng.normal(size=(N, 7)) * rng.uniform(0.2, 5, (N, 1))
    return {
        "bank.loss": loss.astype(np.float32),
        "bank.by_image": images[OWNER].astype(np.float32),
        "bank.by_text": texts,
    }


def banked(seen: list[dict[str, np.ndarray]], **options) -> NPC:
    method = NPC(networks=len(seen), bank=options)
    ids = np.arange(N) + 5  # ids are not rows
    method = method.begin(
        Setting(ids, np.concatenate([np.zeros(5, int), OWNER]), IMAGES, None, InfoNCE(), 0, len(seen))
    )
    assert set(wanted(method, ids[:4])) == {"all"}
    method.update(seen, 0)
    return method


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def test_the_bank_holds_the_nearest_pairs_of_the_strict_division():
    notes = observed(0)
    method = banked([notes])
    p = method.bank.state["clean_probability"][0, 5:]
    clean = [j for j in range(N) if p[j] >= 0.99]  # Eq. 5
    assert 20 <= len(clean) <= 32 and all(notes["bank.loss"][j] < 3.5 for j in clean)
    for i in range(N):
        for side in ("by_image", "by_text"):
            vectors, entry = notes[f"bank.{side}"], int(method.bank.state[side][0, i + 5]) - 5
            best = max(cosine(vectors[i], vectors[j]) for j in clean)
            assert entry in clean
            assert cosine(vectors[i], vectors[entry]) == pytest.approx(best, abs=1e-6)
            if side == "by_image":
                siblings = [j for j in clean if OWNER[j] == OWNER[entry]]
                assert entry == min(siblings, key=lambda j: notes["bank.loss"][j])
    assert all(method.bank.state["by_text"][0, j + 5] == j + 5 for j in clean)
    assert (method.bank.state["by_image"][0, :5] == -1).all()  # not for training


def test_where_nothing_reaches_the_threshold_the_cleanest_share_does():
    rng = np.random.default_rng(1)
    notes = observed(0) | {"bank.loss": rng.normal(size=N).astype(np.float32)}  # one group: nothing is certain
    method = banked([notes], threshold=1.0, least=0.1)
    facts = method.facts()
    assert facts["reach_threshold"] < 0.1 and facts["bank_share"] == pytest.approx(0.1)
    cleanest = set(np.argsort(notes["bank.loss"])[:6] + 5)
    assert set(method.bank.state["by_text"][0, 5:].tolist()) == cleanest
    assert set(method.bank.state["by_image"][0, 5:].tolist()) <= cleanest
    strict = banked([observed(0)]).facts()
    assert strict["bank_share"] == strict["reach_threshold"] > 0.3
    without = NPC()
    without = without.begin(SETTING(InfoNCE(), networks=1))
    assert set(without.facts()) == {"noise_rate"}


def test_two_networks_use_each_others_bank_and_one_its_own():
    method = banked([observed(0), observed(1)])
    ids = np.array([5, 17, 40])
    for network in (0, 1):
        found = wanted(method, ids, network)["bank"]
        bank = {pair for side in SIDES for pair in method.bank.state[side][1 - network, ids].tolist()}
        assert set(found) - set(ids.tolist()) == bank - set(ids.tolist())
    assert not np.array_equal(method.bank.state["by_text"][0], method.bank.state["by_text"][1])
    single = banked([observed(0)])
    bank = {pair for side in SIDES for pair in single.bank.state[side][0, ids].tolist()}
    assert set(wanted(single, ids)["bank"]) == bank - set(ids.tolist())


def test_the_phases_make_the_bank_once_or_every_epoch():
    named = [(p.name, p.epochs, p.warm, p.observe) for p in NPC(epochs={"warmup": 2, "train": 4}).phases()]
    assert named == [("warm-up", 2, True, False), ("bank", 1, False, True), ("train", 3, False, False)]
    assert [p.observe for p in NPC(epochs={"train": 4}, bank={"refresh": True}).phases()] == [False, True, True]
    assert sum(p.epochs for p in NPC(epochs={"train": 0}).phases()) == 0


def test_what_cannot_be_is_told_in_one_line():
    bank = {"threshold": 1.1}, {"least": -0.1}, {"weight": -1.0}
    for bad in (*({"bank": one} for one in bank), {"networks": 3}, {"epochs": {"train": -1}}):
        ((path, value),) = flattened(bad).items()
        with pytest.raises(InputError, match=f"^{path} is {value}; it must be .*[0-9]$"):
            NPC(**bad)
    with pytest.raises(InputError, match="two_tower starts untrained: take --preset scratch"):
        NPC().check(TwoTower, False)
    NPC(epochs={"warmup": 1}).check(TwoTower, False)
    NPC().check(TwoTower, True)
