"""A small setting: twelve pairs of six images, the first ten of them for training."""

import numpy as np
import torch
from torch import nn

from pairsift.encode.features import Features, Items, Table
from pairsift.match.base import Codes, Matcher, unit
from pairsift.methods.base import Batch, Network, Setting
from pairsift.train.batches import Gatherer

IMAGE_OF = np.array([0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5])
RNG = np.random.default_rng(7)
FEATURES = Features(
    Table(RNG.normal(size=(6, 8)).astype(np.float32)), Table(RNG.normal(size=(12, 6)).astype(np.float32))
)


def SETTING(ranking, matched=None):
    return Setting(np.arange(10), IMAGE_OF, 6, matched, ranking, 0)


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


def make_networks(method, kind=Tiny):
    networks = []
    for seed in range(2):
        torch.manual_seed(seed)
        matcher = kind()
        networks.append(Network(matcher, method.head(matcher.dim)))
    return networks


def batch_of(ids) -> Batch:
    return Gatherer(FEATURES, IMAGE_OF, torch.device("cpu"))(np.array(ids))
