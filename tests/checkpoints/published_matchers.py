"""Networks in the published layouts of SCAN, VSRN, VSE-infinity and IMRAM, of plain modules with those parameter names.

Nothing of pairsift is used: the forward passes are written from the papers and the published formulas, one image and
one caption at a time. The sources are those of `published_layout`.
"""

from __future__ import annotations

import argparse
import math
import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import leaky_relu, normalize

from published_layout import DIM, SIZE, WIDTH, WORD, ids_of


def by_entry(regions: Tensor) -> Tensor:
    """Each entry over the regions, (N, d), of unit length."""
    return regions / (regions**2).sum(0, keepdim=True).sqrt()


class Recurrent(nn.Module):
    """A GRU over words; states of both directions are averaged."""

    def __init__(self, both: bool = True, layers: int = 1, words: int = SIZE) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, WORD)
        self.rnn = nn.GRU(WORD, DIM, layers, batch_first=True, bidirectional=both)

    def states(self, ids: list[int]) -> Tensor:
        states = self.rnn(self.embed(torch.tensor([ids])))[0][0]
        return (states[:, :DIM] + states[:, DIM:]) / 2 if self.rnn.bidirectional else states

    def forward(self, ids: list[int]) -> Tensor:
        return normalize(self.states(ids), dim=-1)


class LastState(Recurrent):
    def __init__(self, layers: int = 1) -> None:
        super().__init__(False, layers)

    def forward(self, ids: list[int]) -> Tensor:
        return normalize(self.states(ids)[-1], dim=0)


class Regions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(WIDTH, DIM)

    def forward(self, regions: Tensor) -> Tensor:
        return normalize(self.fc(regions), dim=-1)


class RegionsOfImram(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc_local = nn.Linear(WIDTH, DIM)

    def forward(self, regions: Tensor) -> Tensor:
        return normalize(self.fc_local(regions), dim=-1)


class Graph(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.g = nn.Conv1d(DIM, DIM, 1)
        self.W = nn.Sequential(nn.Conv1d(DIM, DIM, 1), nn.BatchNorm1d(DIM))
        self.theta, self.phi = nn.Conv1d(DIM, DIM, 1), nn.Conv1d(DIM, DIM, 1)

    def forward(self, regions: Tensor) -> Tensor:
        v = regions.T[None]
        relation = self.theta(v)[0].T @ self.phi(v)[0] / len(regions)
        return regions + self.W((relation @ self.g(v)[0].T).T[None])[0].T


class Reasoning(nn.Module):
    """VSRN's encoder of images; `flickr30k` is the form that the published code has for that collection."""

    def __init__(self, flickr30k: bool, graphs: int = 4) -> None:
        super().__init__()
        self.fc, self.img_rnn = nn.Linear(WIDTH, DIM), nn.GRU(DIM, DIM, 1, batch_first=True)
        for number in range(1, graphs + 1):
            setattr(self, f"Rs_GCN_{number}", Graph())
        self.graphs = graphs
        if flickr30k:
            self.bn = nn.BatchNorm1d(DIM)

    def forward(self, regions: Tensor) -> Tensor:
        regions, last = self.fc(regions), hasattr(self, "bn")
        regions = regions if last else by_entry(regions)
        for number in range(1, self.graphs + 1):
            regions = getattr(self, f"Rs_GCN_{number}")(regions)
        state = self.img_rnn(by_entry(regions)[None])[1][0]
        return normalize(self.bn(state) if last else state, dim=1)[0]


class Pool(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gru, self.linear = nn.GRU(32, 32, 1, batch_first=True, bidirectional=True), nn.Linear(32, 1, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        encoded = torch.zeros(len(tokens), 32)
        for position in range(len(tokens)):
            for pair in range(16):
                angle = position * math.exp(-2 * pair * math.log(10000) / 32)
                encoded[position, 2 * pair], encoded[position, 2 * pair + 1] = math.sin(angle), math.cos(angle)
        states = self.gru(encoded[None])[0][0]
        weights = (self.linear((states[:, :32] + states[:, 32:]) / 2) / 0.1).softmax(0)
        return normalize((tokens.sort(0, descending=True).values * weights).sum(0), dim=0)


class Perceptron(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(WIDTH, DIM // 2), nn.Linear(DIM // 2, DIM)])
        self.bns = nn.ModuleList([nn.BatchNorm1d(DIM // 2), nn.BatchNorm1d(DIM)])  # the second one is never called

    def forward(self, regions: Tensor) -> Tensor:
        return self.layers[1](self.bns[0](self.layers[0](regions)).relu())


class PooledRegions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc, self.mlp, self.gpool = nn.Linear(WIDTH, DIM), Perceptron(), Pool()

    def forward(self, regions: Tensor) -> Tensor:
        return self.gpool(self.mlp(regions) + self.fc(regions))


class PooledWords(Recurrent):
    def __init__(self, both: bool = True, layers: int = 1, words: int = SIZE) -> None:
        super().__init__(both, layers, words)
        self.gpool = Pool()

    def forward(self, ids: list[int]) -> Tensor:
        return self.gpool(self.states(ids))


def attend(query: Tensor, context: Tensor, sharpness: float) -> Tensor:
    """The attended vectors of SCAN, (queries, d)."""
    affinity = normalize(leaky_relu(context @ query.T, 0.1), dim=1)
    return (sharpness * affinity).softmax(0).T @ context


def cosines(left: Tensor, right: Tensor) -> Tensor:
    return (left * right).sum(1) / (left.norm(dim=1) * right.norm(dim=1))


class Net:
    """One network of any of the layouts, in evaluation mode, all parameters and statistics random."""

    def __init__(self, seed: int, *encoders: nn.Module, spread: float = 0.6, **opt: object) -> None:
        torch.manual_seed(seed)
        self.encoders = nn.ModuleList(encoders).eval()
        self.opt = {"no_imgnorm": False, "no_txtnorm": False, "embed_size": DIM, "margin": 0.2, **opt}
        for name, value in self.encoders.state_dict().items():
            if name.endswith("running_var"):
                value.uniform_(0.5, 2)
            elif value.is_floating_point():
                value.normal_(std=spread)

    def model(self, prefix: str = "") -> object:
        return [{prefix + name: value for name, value in one.state_dict().items()} for one in self.encoders]

    def score(self, image: Tensor, text: Tensor) -> Tensor:
        return image @ text

    @torch.no_grad()
    def scores(self, images: np.ndarray, captions: list[str]) -> np.ndarray:
        """Similarity of every image with every caption, (n_images, n_captions)."""
        left = [self.encoders[0](torch.from_numpy(one)) for one in images]
        right = [self.encoders[1](ids_of(caption)) for caption in captions]
        return np.array([[float(self.score(one, other)) for other in right] for one in left])

    def save(self, path: Path, **more: object) -> Path:
        raw = {"epoch": 17, "best_rsum": 480.5, "opt": argparse.Namespace(**self.opt), "Eiters": 99}
        torch.save({**raw, "model": self.model(), **more}, path)
        return path


class Python2(pickle._Pickler):
    """A pickler that writes strings as Python 2 did."""

    dispatch: ClassVar = dict(pickle._Pickler.dispatch)

    def save_str(self, text: str) -> None:
        self.write(b"U" + bytes([len(text.encode())]) + text.encode())
        self.memoize(text)

    dispatch[str] = save_str

    @classmethod
    def dump_into(cls, content: object, file: object, protocol: int = 2) -> None:
        cls(file, protocol).dump(content)


AS_PYTHON2 = SimpleNamespace(Pickler=Python2, dump=Python2.dump_into, __name__="pickle")


class VseInfinity(Net):
    def __init__(self, seed: int, **sizes: object) -> None:
        super().__init__(seed, PooledRegions(), PooledWords(**sizes))


class Vsrn(Net):
    def __init__(self, seed: int, flickr30k: bool, graphs: int = 4, layers: int = 1) -> None:
        spread = 0.3 if flickr30k else 0.6  # graphs over regions of any length are of the third order in them
        encoders = Reasoning(flickr30k, graphs), LastState(layers)
        super().__init__(seed, *encoders, spread=spread, measure="cosine", use_abs=False)


class Scan(Net):
    def __init__(self, seed: int, way: str, agg: str, sizes: dict | None = None, **opt: object) -> None:
        usual = {"raw_feature_norm": "clipped_l2norm", "lambda_softmax": 4.0, "lambda_lse": 5.0}
        opt = {**usual, "cross_attn": way, "agg_func": agg, **opt}
        super().__init__(seed, Regions(), Recurrent(**sizes or {}), **opt)

    def score(self, image: Tensor, text: Tensor) -> Tensor:
        query, context = (text, image) if self.opt["cross_attn"] == "t2i" else (image, text)
        relevance = cosines(query, attend(query, context, self.opt["lambda_softmax"]))
        if self.opt["agg_func"] == "Mean":
            return relevance.mean()
        return (relevance * self.opt["lambda_lse"]).exp().sum().log() / self.opt["lambda_lse"]


class Imram(Net):
    def __init__(self, seed: int, mode: str, steps: int = 3, sizes: dict | None = None, **opt: object) -> None:
        usual = {"raw_feature_norm": "clipped_l2norm", "lambda_softmax": 9.0, "no_IMRAM_norm": True}
        gates = nn.ModuleDict({f"{part}_{way}": nn.Linear(2 * DIM, DIM) for way in ("t2i", "i2t") for part in "gl"})
        opt = {**usual, "model_mode": mode, "iteration_step": steps, **opt}
        super().__init__(seed, RegionsOfImram(), Recurrent(**sizes or {}), gates, **opt)

    def model(self, prefix: str = "module.") -> object:
        images, texts, gates = (one.state_dict() for one in self.encoders)
        state = {f"img_enc.{name}": value for name, value in images.items()}
        state |= {f"txt_enc.{name}": value for name, value in texts.items()}
        for name, value in gates.items():
            state[name.replace("g_", "gate_", 1) if name[0] == "g" else name.replace("l_", "linear_", 1)] = value
        return {prefix + name: value for name, value in state.items()}

    def score(self, image: Tensor, text: Tensor) -> Tensor:
        total, mode = torch.zeros(()), self.opt["model_mode"]
        for way, first, context in (("t2i", text, image), ("i2t", image, text)):
            if mode == {"t2i": "image_IMRAM", "i2t": "text_IMRAM"}[way]:
                continue
            query = first
            for _ in range(self.opt["iteration_step"]):
                found = attend(query, context, self.opt["lambda_softmax"])
                total = total + cosines(first, found).mean()
                both, gates = torch.cat([query, found], 1), self.encoders[2]
                gate, update = gates[f"g_{way}"](both).sigmoid(), gates[f"l_{way}"](both).tanh()
                query = gate * query + (1 - gate) * update
        return total
