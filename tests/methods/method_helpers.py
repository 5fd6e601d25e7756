"""A small setting (twelve pairs of six images, the first ten of them for training), and the papers in plain loops."""

import math

import numpy as np
import torch
from torch import nn

from pairsift.encode.features import Features, Items, Table
from pairsift.loss.ranking import Hinge
from pairsift.match.base import Codes, Matcher, unit
from pairsift.methods.parts.meta import meta_of
from pairsift.steps import Batch, Network, Request, Setting
from pairsift.train.batches import Gatherer

VERIFIED = np.array([1, 4, 6, 9])  # pairs of train that are known to match
TAUGHT = [1, 4, 6]  # those in a step
LINEAR = Hinge(base=1.0, negatives="mean", reduction="sum")
IMAGE_OF = np.array([0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5])
RNG = np.random.default_rng(7)
FEATURES = Features(
    Table(RNG.normal(size=(6, 8)).astype(np.float32)), Table(RNG.normal(size=(12, 6)).astype(np.float32))
)


def SETTING(ranking, matched=None, networks=2, **more):
    return Setting(np.arange(10), IMAGE_OF, 6, matched, ranking, 0, networks, **{"verified": VERIFIED, **more})


class Tiny(Matcher):
    """One linear map a side."""

    name = "tiny"
    image_kind = "vector"
    text_kind = "vector"
    has_tokens = True

    def __init__(self):
        super().__init__()
        self.dim = 4
        self.image, self.text = nn.Linear(8, 4), nn.Linear(6, 4)

    def encode_images(self, items: Items) -> Codes:
        code = unit(self.image(items.values))
        return Codes(code, torch.stack([code, -code], 1))

    def encode_texts(self, items: Items) -> Codes:
        code = unit(self.text(items.values))
        return Codes(code, torch.stack([code, 2 * code, code], 1))


SHARP = 1.5  # makes the head's predictions of five classes differ more between these few images


def make_networks(method, kind=Tiny, sharp=1.0):
    networks = []
    for seed in range(2) if sharp == 1 else (16, 17):  # these put the few images into several classes
        torch.manual_seed(seed)
        matcher = kind()
        network = Network(matcher, method.head(matcher.dim))
        with torch.no_grad():
            for parameter in [] if network.head is None else network.head.parameters():
                parameter.mul_(sharp)
        networks.append(network)
    return networks


def batch_of(ids) -> Batch:
    return Gatherer(FEATURES, IMAGE_OF, torch.device("cpu"))(Request(np.array(ids)))


def curve(y: float, base: float = 10.0) -> float:
    return (base**y - 1) / (base - 1)


def naive_hinge(s: np.ndarray, margins: list[float], excluded: np.ndarray, hardest: bool) -> list[float]:
    n = len(s)
    out = []
    for i in range(n):
        captions = [max(0.0, margins[i] + s[i, j] - s[i, i]) for j in range(n) if j != i and not excluded[i, j]]
        images = [max(0.0, margins[i] + s[k, i] - s[i, i]) for k in range(n) if k != i and not excluded[k, i]]
        out.append(sum((max(c) if hardest else sum(c) / len(c)) if c else 0.0 for c in (captions, images)))
    return out


def similarities(network, batch) -> np.ndarray:
    images, texts = network.encode(batch)
    return network.matcher.similarity(images, texts).detach().numpy().astype(float)


def excluded(batch) -> np.ndarray:
    rows = batch.image_rows.tolist()
    return np.array([[a == b for b in rows] for a in rows])


def softmax(rows: np.ndarray) -> np.ndarray:
    e = np.exp(rows - rows.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def predictions(network, codes) -> np.ndarray:
    return softmax(network.logits(codes).detach().numpy().astype(float))


def cosine(a, b) -> float:
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def naive_entropy(p) -> float:
    mean = [sum(row[k] for row in p) / len(p) for k in range(p.shape[1])]
    return sum(m * math.log(m) for m in mean)


def rematched(network, batch, clean) -> tuple[list[int], list[float], list[float]]:
    """By plain loops: which clean caption every image gets, how alike, and the hinge with it."""
    images, texts = network.encode(clean)
    other = network.matcher.encode_images(batch.images)
    p, keys = predictions(network, other), predictions(network, images)
    alike = [[cosine(a, b) for b in keys] for a in p]
    j = [int(np.argmax(row)) for row in alike]  # Eq. 10
    best = [alike[i][j[i]] for i in range(len(j))]
    block = network.matcher.similarity(other, texts).detach().numpy()[:, j].astype(float)
    rows, owners = batch.image_rows.tolist(), [int(clean.caption_images[b]) for b in j]
    n = range(len(j))
    mask = np.array([[rows[a] == rows[b] or owners[a] == owners[b] or rows[a] == owners[b] for b in n] for a in n])
    margins = [0.2 * curve(min(1.0, v)) for v in best]  # Eq. 9
    return j, best, naive_hinge(block, margins, mask, True)


def naive_v(network, images, texts):
    """V of all images with all captions by plain loops over unit vectors of 4 entries in 3 stretches."""
    meta, rows = meta_of(network), []
    weight, bias, out = (p.tolist() for p in (meta.mix.weight, meta.mix.bias, meta.out.weight[0]))
    for u in images.tolist():
        rows.append([])
        for t in texts.tolist():
            stretches = [3 * sum(u[d] * t[d] for d in places if d < 4) for places in ((0, 1), (2, 3), (4, 5))]
            sums = [sum(w * v for w, v in zip(ws, stretches, strict=True)) for ws in weight]
            hidden = [max(0.0, b + total) for b, total in zip(bias, sums, strict=True)]
            s = sum(a * b for a, b in zip(u, t, strict=True))
            logit = math.exp(meta.log_slope.item()) * s + meta.offset.item()
            logit += sum(o * h for o, h in zip(out, hidden, strict=True))
            rows[-1].append(1 / (1 + math.exp(-logit)))
    return rows
