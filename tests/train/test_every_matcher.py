"""Matchers that read words or vectors train with the methods, and token-level ones learn."""

import copy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from pairsift.encode.features import Features, Table
from pairsift.loss import RANKING_LOSSES
from pairsift.loss.ranking import Hinge, RankingLoss
from pairsift.match import MATCHERS
from pairsift.match.base import Matcher
from pairsift.match.vsrn import Vsrn, VsrnOptions
from pairsift.methods import METHODS
from pairsift.methods.npc import pairings, view, views_at
from pairsift.methods.parts.dropout import encode
from pairsift.methods.parts.prediction import predict
from pairsift.noise.planted import plant_noise
from pairsift.pairs.pairs import Pairs
from pairsift.steps import Network, Request
from pairsift.train.batches import Gatherer
from pairsift.train.loop import Job, Trainer
from pairsift.train.options import TrainOptions

pytestmark = pytest.mark.slow

CONCEPTS, REGIONS, WIDTH = 12, 4, 6
READERS = sorted(name for name, matcher in MATCHERS.items() if matcher.text_kind in ("ids", "vector"))
QUICK = ("two_tower", "vse")  # a matcher of each kind
TRAINED = sorted(set(METHODS) - {"linear", "oracle", "osa"})


def cells():
    """Quick matchers with every method; of the others, each with every third one."""
    for row, matcher in enumerate(READERS):
        for column, method in enumerate(TRAINED):
            if matcher in QUICK or (row + column) % 3 == 0:
                yield matcher, method


def concepts(n_images: int, noise: float) -> tuple[Pairs, Features]:
    """Images of three concepts each, one a region, and two captions that name them in any order."""
    rng = np.random.default_rng(2)
    looks = rng.normal(size=(CONCEPTS, WIDTH))
    shown = np.stack([rng.permutation(CONCEPTS)[:3] for _ in range(n_images)])
    regions = 0.2 * rng.normal(size=(n_images, REGIONS, WIDTH))
    regions[:, :3] += looks[shown]
    image_of = np.repeat(np.arange(n_images), 2)
    words = [np.array([1, *(rng.permutation(shown[i]) + 4), 2])[: rng.integers(4, 6)] for i in image_of]
    share = image_of / n_images
    split = np.where(share < 0.6, "train", np.where(share < 0.8, "dev", "test"))
    names = [f"{i}.jpg" for i in range(n_images)]
    captions = [f"c{i}" for i in range(len(image_of))]
    pairs = Pairs("made", names, [Path(n) for n in names], captions, image_of, split)
    features = Features(Table(regions.astype(np.float32)), Table.from_items(words))
    pairs = plant_noise(pairs, noise, 1) if noise else pairs
    return replace(pairs, verified=np.arange(len(image_of)) % 5 == 0), features


def make(name: str, similarity_dim: int = 24) -> Matcher:
    """A small matcher."""
    matcher, sizes = MATCHERS[name], {"dim": 16, "word_dim": 8}
    if matcher.text_kind == "vector":
        return matcher(WIDTH, CONCEPTS, options=matcher.options(dim=16, hidden=16))
    if name in ("saf", "sgr", "sgraf"):
        options = matcher.options(**sizes, similarity_dim=similarity_dim)
        return matcher(WIDTH, CONCEPTS + 4, regions=REGIONS, options=options)
    return matcher(WIDTH, CONCEPTS + 4, options=matcher.options(**sizes))


def features_for(name: str, features: Features) -> Features:
    """The features as a matcher reads them; for vectors, the mean of the regions and the concepts that are named."""
    if MATCHERS[name].text_kind == "ids":
        return features
    named = np.zeros((len(features.texts), CONCEPTS), np.float32)
    for row, concepts_of in zip(named, features.texts.batch(np.arange(len(named))).values.numpy() - 4, strict=True):
        row[concepts_of[concepts_of >= 0]] = 1
    return Features(Table(np.asarray(features.images.values).mean(1)), Table(named))


def job(
    folder: Path,
    matcher: str,
    method: str,
    epochs: int,
    noise: float,
    precision: str = "fp32",
    n_images: int = 50,
    loss: RankingLoss | None = None,
) -> Job:
    (folder / "model").mkdir(parents=True, exist_ok=True)
    pairs, features = concepts(n_images, noise)
    features = features_for(matcher, features)
    names = METHODS[method].model_fields["epochs"].annotation().lengths()
    phases = {name: 1 if name == "warmup" else epochs for name in names}
    return Job(
        pairs,
        features,
        lambda: make(matcher),
        METHODS[method](epochs=phases, networks=1 if n_images > 50 else 2),
        loss or Hinge(negatives="mean", reduction="sum"),
        TrainOptions(batch_size=20, lr=5e-3, seed=5, device="cpu", threads=1, precision=precision, weight_decay=0.0),
        folder,
        progress=False,
    )


@pytest.mark.parametrize(("matcher", "method"), list(cells()))
def test_matchers_train_with_methods(tmp_path: Path, matcher: str, method: str) -> None:
    own = MATCHERS[matcher].loss
    loss = None if own is None else RANKING_LOSSES[own]()
    trainer = Trainer(job(tmp_path, matcher, method, epochs=1, noise=0.4, loss=loss))
    before = {name: value.clone() for name, value in trainer.networks[0].named_parameters()}
    trainer.run()
    assert len(trainer.log) == len(trainer.phases) >= 2
    assert trainer.position.best_rsum > 0
    after = dict(trainer.networks[0].named_parameters())
    assert all(value.isfinite().all() for value in after.values())
    moved = sum(not torch.equal(after[name], value) for name, value in before.items())
    assert moved > 0.7 * len(before)


@pytest.mark.parametrize("method", TRAINED)
def test_every_method_trains_beside_the_caption_loss(tmp_path: Path, method: str) -> None:
    options = VsrnOptions(dim=16, word_dim=8, caption_weight=1.0)
    writing = replace(
        job(tmp_path, "vsrn", method, epochs=1, noise=0.4), matcher=lambda: Vsrn(WIDTH, CONCEPTS + 4, options)
    )
    trainer = Trainer(writing)
    before = trainer.networks[0].matcher.captioner.out.weight.clone()
    trainer.run()
    after = dict(trainer.networks[0].named_parameters())
    assert all(value.isfinite().all() for value in after.values())
    moved = not torch.equal(after["matcher.captioner.out.weight"], before)
    assert moved or method in ("crcl", "decl", "rcl", "rince")


@pytest.mark.parametrize("matcher", READERS)
def test_every_matcher_can_be_looked_at_with_other_weights(matcher: str) -> None:
    torch.manual_seed(0)
    pairs, features = concepts(20, 0.0)
    network = Network(make(matcher, similarity_dim=8), None).train()
    gather = Gatherer(features_for(matcher, features), pairs.image_of, torch.device("cpu"))
    batch = gather(Request(pairs.ids("train")[::3]))
    parameters = {name: value for name, value in network.named_parameters() if value.requires_grad}
    everything = [torch.arange(len(batch))]

    def similarity(seed: int) -> torch.Tensor:
        (pair,) = pairings([batch], encode(network, [batch], seed), everything)
        return view(network, pair).similarity

    loss = similarity(1).square().sum()
    ahead = torch.autograd.grad(loss, list(parameters.values()), retain_graph=True, allow_unused=True)
    loss.backward()  # a second time through the same graph
    for found, parameter in zip(ahead, parameters.values(), strict=True):
        assert (found is None and parameter.grad is None) or torch.equal(found, parameter.grad)
    other = {name: value.detach() + 0.1 * torch.randn_like(value) for name, value in network.named_parameters()}
    kept = copy.deepcopy(network.state_dict())
    (seen,) = views_at(network, other, [batch], everything, 7)
    torch.testing.assert_close(kept, network.state_dict(), rtol=0, atol=0)
    before = similarity(7)
    network.load_state_dict({**kept, **other})
    torch.testing.assert_close(seen.similarity, similarity(7), rtol=1e-5, atol=1e-6)
    assert (seen.similarity - before).abs().max() > 1e-4


@pytest.mark.parametrize("matcher", ["scan", "sgr", "saf", "vsrn"])
def test_matchers_learn_what_images_show(tmp_path: Path, matcher: str) -> None:
    trainer = Trainer(job(tmp_path, matcher, "plain", epochs=8, noise=0.0, n_images=250))
    trainer.run()
    chance = 100 * (1 + 5 + 10) * (1 / 50 + 1 / 50)  # fifty dev images, two captions each
    assert trainer.position.best_rsum > 1.7 * chance


@pytest.mark.parametrize(("matcher", "method"), [("sgr", "ncr"), ("vse", "ncr"), ("sgr", "gsc"), ("scan", "gsc")])
def test_mixed_precision_trains_on_a_cpu_too(tmp_path: Path, matcher: str, method: str) -> None:
    trainer = Trainer(job(tmp_path, matcher, method, epochs=1, noise=0.4, precision="bf16"))
    trainer.run()
    assert all(value.isfinite().all() for value in trainer.networks[0].parameters())
    assert all(value.dtype == torch.float32 for value in trainer.networks[0].parameters())


def test_every_weight_has_a_gradient_in_mixed_precision_after_a_prediction() -> None:
    torch.manual_seed(0)  # torch up to 2.9 would give the weights as `predict` cast them to the pass that trains
    pairs, features = concepts(20, 0.0)
    network = Network(make("vse"), None).train()
    batch = Gatherer(features, pairs.image_of, torch.device("cpu"))(Request(pairs.ids("train")))
    with torch.autocast("cpu", torch.bfloat16):
        predict([network], batch)
        images, captions = network.encode(batch)
        loss = network.matcher.similarity(images, captions).square().sum()
    loss.backward()
    without = [name for name, value in network.named_parameters() if value.grad is None and "log_scale" not in name]
    assert not without
