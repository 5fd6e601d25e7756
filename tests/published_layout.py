"""Checkpoints in the published layout of the SGRAF family, from plain modules with exactly those parameter names.

Nothing of pairsift is used: the forward pass is written from the paper, one image and one caption at a time.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

REGIONS, WIDTH, DIM, WORD, SIM = 4, 6, 8, 5, 7
WORDS = ("<pad>", "<start>", "<end>", "<unk>", "a", "red", "green", "blue", "dog", "cat", "boat", "bird")
IDS = {word: 40 - 3 * number if number > 3 else number for number, word in enumerate(WORDS)}  # kept, not in order
SIZE = max(IDS.values()) + 1


class ImageEncoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(WIDTH, DIM)

    def forward(self, regions: Tensor) -> Tensor:
        return nn.functional.normalize(self.fc(regions), dim=-1)


class TextEncoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(SIZE, WORD)
        self.cap_rnn = nn.GRU(WORD, DIM, batch_first=True, bidirectional=True)

    def forward(self, ids: list[int]) -> Tensor:
        states = self.cap_rnn(self.embed(torch.tensor([ids])))[0][0]
        return nn.functional.normalize((states[:, :DIM] + states[:, DIM:]) / 2, dim=-1)


class SelfAttention(nn.Module):
    def __init__(self, regions: int | None) -> None:
        super().__init__()
        local, whole = [nn.BatchNorm1d(regions)] if regions else [], [nn.BatchNorm1d(DIM)] if regions else []
        self.embedding_local = nn.Sequential(nn.Linear(DIM, DIM), *local, nn.Tanh())
        self.embedding_global = nn.Sequential(nn.Linear(DIM, DIM), *whole, nn.Tanh())
        self.embedding_common = nn.Sequential(nn.Linear(DIM, 1))

    def forward(self, tokens: Tensor) -> Tensor:
        local, whole = self.embedding_local(tokens[None])[0], self.embedding_global(tokens.mean(0)[None])[0]
        weights = self.embedding_common(local * whole)[:, 0].softmax(0)
        return nn.functional.normalize((weights[:, None] * tokens).sum(0), dim=0)


class Step(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.graph_query_w, self.graph_key_w, self.sim_graph_w = (nn.Linear(SIM, SIM) for _ in range(3))

    def forward(self, nodes: Tensor) -> Tensor:
        edges = (self.graph_query_w(nodes) @ self.graph_key_w(nodes).T).softmax(1)
        return self.sim_graph_w(edges @ nodes).relu()


class Filtration(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attn_sim_w, self.bn = nn.Linear(SIM, 1), nn.BatchNorm1d(1)

    def forward(self, nodes: Tensor) -> Tensor:
        gates = self.bn(self.attn_sim_w(nodes))[:, 0].sigmoid()
        return nn.functional.normalize((gates[:, None] * nodes).sum(0) / gates.sum(), dim=0)


class Similarity(nn.Module):
    def __init__(self, module: str, steps: int = 2) -> None:
        super().__init__()
        self.v_global_w, self.t_global_w = SelfAttention(REGIONS), SelfAttention(None)
        self.sim_tranloc_w, self.sim_tranglo_w = nn.Linear(DIM, SIM), nn.Linear(DIM, SIM)
        self.sim_eval_w = nn.Linear(SIM, 1)
        if module == "SGR":
            self.SGR_module = nn.ModuleList(Step() for _ in range(steps))
        else:
            self.SAF_module = Filtration()

    def forward(self, regions: Tensor, words: Tensor) -> Tensor:
        affinity = nn.functional.leaky_relu(regions @ words.T, 0.1)
        weights = (9 * nn.functional.normalize(affinity, dim=1)).softmax(0)
        context = nn.functional.normalize(weights.T @ regions, dim=-1)
        whole = (self.v_global_w(regions) - self.t_global_w(words)) ** 2
        nodes = torch.cat([self.sim_tranglo_w(whole)[None], self.sim_tranloc_w((context - words) ** 2)])
        nodes = nn.functional.normalize(nodes, dim=-1)
        if hasattr(self, "SAF_module"):
            return self.sim_eval_w(self.SAF_module(nodes)).sigmoid()[0]
        for step in self.SGR_module:
            nodes = step(nodes)
        return self.sim_eval_w(nodes[0]).sigmoid()[0]


class Net:
    """One network: its three encoders, in evaluation mode, all parameters and statistics random."""

    def __init__(self, module: str, seed: int) -> None:
        torch.manual_seed(seed)
        self.encoders = ImageEncoder().eval(), TextEncoder().eval(), Similarity(module).eval()
        for encoder in self.encoders:
            for name, value in encoder.state_dict().items():
                if name.endswith("running_var"):
                    value.uniform_(0.5, 2)
                elif value.is_floating_point():
                    value.normal_(std=0.6)

    def states(self, prefix: str = "") -> list[dict[str, Tensor]]:
        return [{prefix + name: value for name, value in one.state_dict().items()} for one in self.encoders]

    @torch.no_grad()
    def scores(self, images: np.ndarray, captions: list[str]) -> np.ndarray:
        """Similarity of every image with every caption, (n_images, n_captions)."""
        image, text, similarity = self.encoders
        regions = [image(torch.from_numpy(one)) for one in images]
        words = [text(ids_of(caption)) for caption in captions]
        return np.array([[float(similarity(one, other)) for other in words] for one in regions])


def ids_of(caption: str) -> list[int]:
    return [1, *(IDS.get(word, 3) for word in caption.lower().split()), 2]


def save(path: Path, *nets: Net, prefix: str = "", **more: object) -> Path:
    """Write a checkpoint of one or two networks with what usually stands beside them."""
    keys = ["model"] if len(nets) == 1 else ["model_A", "model_B"]
    opt = argparse.Namespace(bi_gru=True, embed_size=1024, data_name="tiny_precomp", no_imgnorm=False, noise_ratio=0.4)
    states: dict[str, object] = {key: net.states(prefix) for key, net in zip(keys, nets, strict=True)}
    torch.save({"epoch": 17, "best_rsum": 480.5, "opt": opt, "Eiters": 99, **states, **more}, path)
    return path


def write_source(folder: Path) -> tuple[Path, dict[str, tuple[np.ndarray, list[str]]]]:
    """A folder of random features, two random captions for each image, and what it holds by split."""
    folder.mkdir(parents=True)
    rng, held = np.random.default_rng(3), {}
    for stem, count in (("train", 6), ("dev", 4), ("test", 7)):
        images = rng.normal(size=(count, REGIONS, WIDTH)).astype(np.float32)
        lengths = rng.integers(1, 9, 2 * count)
        captions = [" ".join(rng.choice([*WORDS[4:], "zebra"], length)) for length in lengths]
        np.save(folder / f"{stem}_ims.npy", images)
        (folder / f"{stem}_caps.txt").write_text("\n".join(captions) + "\n")
        held[stem] = images, captions
    (folder / "vocab.json").write_text(json.dumps({"word2idx": IDS}))
    return folder, held
