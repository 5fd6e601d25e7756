"""Batches of 128 pairs whose similarities are given, and steps of methods under the presets of their papers on them."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from pairsift.encode.features import Features, Table
from pairsift.match.base import Codes, Matcher
from pairsift.methods.base import Method
from pairsift.runs.config import from_tree
from pairsift.steps import Batch, Network, Request, Setting, Step, Term
from pairsift.train.batches import Gatherer

B = 128
PAIRS = 4 * B  # each with an image of its own
ITEMS = torch.eye(PAIRS)
FEATURES = Features(Table(ITEMS.numpy()), Table(ITEMS.numpy()))


class Given(Matcher):
    """A matcher whose parameters are the similarities of all images with all captions."""

    name = "given"
    image_kind = text_kind = "vector"

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.dim = PAIRS
        rng = np.random.default_rng(seed)
        own = rng.beta(4, 2, PAIRS) * (rng.random(PAIRS) > 0.4)  # as scores of SGR in training, 40% of them low
        block = rng.beta(1.5, 6, (PAIRS, PAIRS))
        np.fill_diagonal(block, np.maximum(block.diagonal(), own))
        self.block = nn.Parameter(torch.from_numpy(block).float())

    def encode_images(self, items):
        return Codes(items.values)

    def encode_texts(self, items):
        return Codes(items.values)

    def similarity(self, images, texts):
        return images.vectors @ self.block @ texts.vectors.T


@dataclass
class Job:
    """A method that has begun under a preset, with its networks and the options of the loop."""

    method: Method
    networks: list[Network]
    options: object

    def batch(self, start: int, size: int = B) -> Batch:
        request = Request(np.arange(start, start + size))
        return Gatherer(FEATURES, np.arange(PAIRS), torch.device("cpu"))(request)

    def step(self, phase: str, k: int = 0, rate: float = 1.0, **batches: Batch) -> Step:
        (found,) = (p for p in self.method.phases() if p.name == phase)
        return Step(self.networks, k, batches, found, rate)

    def block(self, batch: Batch, k: int = 0) -> Tensor:
        """The similarities of a batch in float64, as a leaf that gradients reach."""
        ids = torch.from_numpy(batch.ids)
        return self.networks[k].matcher.block.detach()[ids][:, ids].double().requires_grad_()

    def gradient(self, terms: list[Term], batch: Batch, k: int = 0) -> Tensor:
        """The gradient of the loop's loss on the similarities of a batch."""
        block = self.networks[k].matcher.block
        (found,) = torch.autograd.grad(total(terms), block, retain_graph=True)
        ids = torch.from_numpy(batch.ids)
        return found[ids][:, ids].double()


def begun(name: str, preset: str = "paper", matcher: str = "sgr", **options) -> Job:
    """Begin a method under a preset, with random state of the right kind."""
    config = from_tree({"source": ".", "method": name, "matcher": matcher, "preset": preset, name: options})
    method, rng = config.method, np.random.default_rng(1)
    networks = []
    for k in range(method.networks):
        torch.manual_seed(k)
        networks.append(Network(Given(k), method.head(PAIRS)))
    ids = np.arange(PAIRS)
    setting = Setting(ids, ids, PAIRS, None, config.loss, 0, method.networks, config.train.batch_size or B)
    method = method.begin(setting)
    for part in method.parts.values():
        if "clean_probability" in part.state:
            part.state["clean_probability"][:] = rng.random((method.networks, PAIRS))
    return Job(method, networks, config.train)


def total(terms: list[Term]) -> Tensor:
    """The loss of an optimizer step as the loop adds it up."""
    return torch.stack([term.weight * term.reduced() for term in terms]).sum()


def softmaxes(block: Tensor, tau: float) -> tuple[Tensor, Tensor]:
    """The probabilities of captions for images, and of images for captions, an item in each row."""
    e = torch.exp(block / tau)
    return e / e.sum(1, keepdim=True), e.T / e.T.sum(1, keepdim=True)


def hardest(block: Tensor, margins) -> Tensor:
    """The sum over a batch of hinges with the hardest negative, each pair with its margin, by loops."""
    found = []
    for i in range(len(block)):
        others = [j for j in range(len(block)) if j != i]
        own, margin = block[i, i], float(margins[i])
        found.append(torch.relu(margin + block[i, others].max() - own))
        found.append(torch.relu(margin + block[others, i].max() - own))
    return torch.stack(found).sum()


def mean_hinges(block: Tensor) -> Tensor:
    """The hinge of each pair at the margin 0.2, averaged over all negatives, both directions, by loops."""
    found = []
    for i in range(len(block)):
        others = [j for j in range(len(block)) if j != i]
        own = block[i, i]
        found.append((torch.relu(0.2 + block[i, others] - own) + torch.relu(0.2 + block[others, i] - own)).mean())
    return torch.stack(found)


def same(job: Job, terms: list[Term], batch: Batch, loss: Tensor, block: Tensor, k: int = 0) -> None:
    """Assert that a step has a loss and its gradient on the similarities."""
    torch.testing.assert_close(total(terms).double(), loss, rtol=1e-4, atol=1e-5)
    (expected,) = torch.autograd.grad(loss, block, retain_graph=True)
    found = job.gradient(terms, batch, k)
    torch.testing.assert_close(found.norm(), expected.norm(), rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)
