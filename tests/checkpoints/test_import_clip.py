"""NPC's checkpoints, CLIPs under OpenAI's names, against a naive forward pass of these; and what is refused."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

import pairsift
from clip_helpers import LENGTH, SIDE, save_clip
from pairsift.checkpoints.importing import import_checkpoint
from pairsift.cli import main
from pairsift.scenes import write_scenes

pytestmark = pytest.mark.slow

WIDTH, HEADS, BLOCKS, DIM, PATCH = 128, 2, 2, 24, 8
SIZES = {
    "hidden_size": WIDTH,
    "num_attention_heads": HEADS,
    "num_hidden_layers": BLOCKS,
    "intermediate_size": 4 * WIDTH,
}


class Perceptron(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.c_fc, self.c_proj = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.c_fc(x)
        return self.c_proj(hidden * torch.sigmoid(1.702 * hidden))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attn, self.mlp = nn.MultiheadAttention(WIDTH, HEADS), Perceptron()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, x: Tensor, causal: bool) -> Tensor:
        mask = torch.full((len(x), len(x)), -torch.inf).triu(1) if causal else None
        y = self.ln_1(x)
        x = x + self.attn(y, y, y, need_weights=False, attn_mask=mask)[0]
        return x + self.mlp(self.ln_2(x))


class Tower(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.resblocks = nn.ModuleList(Block() for _ in range(BLOCKS))

    def forward(self, x: Tensor, causal: bool) -> Tensor:
        for block in self.resblocks:
            x = block(x, causal)
        return x


class Visual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, WIDTH, PATCH, PATCH, bias=False)
        self.class_embedding = nn.Parameter(torch.zeros(WIDTH))
        self.positional_embedding = nn.Parameter(torch.zeros((SIDE // PATCH) ** 2 + 1, WIDTH))
        self.ln_pre, self.transformer, self.ln_post = nn.LayerNorm(WIDTH), Tower(), nn.LayerNorm(WIDTH)
        self.proj = nn.Parameter(torch.zeros(WIDTH, DIM))

    def forward(self, pixels: Tensor) -> Tensor:
        """One image (3, side, side)."""
        patches = self.conv1(pixels[None])[0].flatten(1).T
        x = torch.cat([self.class_embedding[None], patches]) + self.positional_embedding
        return normalize(self.ln_post(self.transformer(self.ln_pre(x), False)[0]) @ self.proj, dim=0)


class OpenAiClip(nn.Module):
    def __init__(self, words: int, seed: int = 0) -> None:
        super().__init__()
        self.visual, self.transformer = Visual(), Tower()
        self.token_embedding = nn.Embedding(words, WIDTH)
        self.positional_embedding = nn.Parameter(torch.zeros(LENGTH, WIDTH))
        self.ln_final, self.text_projection = nn.LayerNorm(WIDTH), nn.Parameter(torch.zeros(WIDTH, DIM))
        self.logit_scale = nn.Parameter(torch.tensor(2.5))
        torch.manual_seed(seed)
        for name, value in self.state_dict().items():
            if name != "logit_scale":
                value.normal_(mean=float(".ln_" in f".{name}" and name.endswith("weight")), std=0.15)
        self.eval()

    def text(self, ids: list[int]) -> Tensor:
        """One caption; the id of the end is the largest."""
        x = self.token_embedding(torch.tensor(ids)) + self.positional_embedding[: len(ids)]
        return normalize(self.ln_final(self.transformer(x, True))[int(np.argmax(ids))] @ self.text_projection, dim=0)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return save_clip(tmp_path_factory.mktemp("npc") / "clip", sizes=SIZES)


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("npc-scenes") / "few"
    write_scenes(folder, 12, 6)
    return folder


@pytest.fixture(scope="module")
def net(checkpoint):
    return OpenAiClip(json.loads((checkpoint / "config.json").read_text())["text_config"]["vocab_size"])


def npc(state: dict) -> dict:
    return {"epoch": 5, "name": "NPC", "state_dict": state, "optimizer": {"state": {}, "param_groups": [{"lr": 2e-7}]}}


def scores(net: OpenAiClip, run) -> tuple[np.ndarray, np.ndarray]:
    """The similarities of the naive forward pass and of the run, opened again, of a few images and captions."""
    opened = pairsift.open_run(run.folder, progress=False)
    features, matcher = opened.prepared.features, opened.matchers[0]
    images, texts = features.images.batch(np.arange(6)), features.texts.batch(np.arange(9))
    with torch.no_grad():
        found = matcher.similarity(matcher.encode_images(images), matcher.encode_texts(texts))
        left = [net.visual((one.float() - matcher.mean) / matcher.std) for one in images.values]
        lengths = [LENGTH] * len(texts.values) if texts.mask is None else texts.mask.sum(1).tolist()
        right = [net.text(ids[:n].tolist()) for ids, n in zip(texts.values, lengths, strict=True)]
    return np.array([[float(one @ other) for other in right] for one in left]), found.numpy()


@pytest.mark.parametrize("half", [False, True])
def test_similarities_are_those_of_the_published_forward(checkpoint, scenes, net, tmp_path, capsys, half):
    file, out = tmp_path / "epoch5.pt", tmp_path / "run"
    state = {name: value.half() if half else value for name, value in net.state_dict().items()}
    torch.save(npc(state), file)
    shutil.copytree(checkpoint, tmp_path / "lent")
    words = ["import-checkpoint", str(file), "--data", str(scenes), "--out", str(out), "--cache", str(tmp_path / "c")]
    assert main([*words, "--clip.checkpoint", str(tmp_path / "lent")]) == 0
    shutil.rmtree(tmp_path / "lent")
    assert "epoch5.pt: clip (epoch 5, as stated in the file)" in capsys.readouterr().out
    rounded = OpenAiClip(net.token_embedding.num_embeddings)
    rounded.load_state_dict({name: value.float() for name, value in state.items()})
    run = pairsift.open_run(out, progress=False)
    expected, found = scores(rounded, run)
    np.testing.assert_allclose(found, expected, atol=1e-5, rtol=0)
    assert expected.std(0).max() > 1e-3 and expected.std(1).max() > 1e-2
    assert run.matchers[0].scale().item() == pytest.approx(np.exp(2.5), rel=1e-5)
    assert 0 < run.evaluate()["ensemble"]["rsum"] <= 600


def test_several_epochs_are_an_ensemble(checkpoint, scenes, net, tmp_path):
    files = []
    for epoch in range(2):
        torch.save(npc({f"module.{name}": value for name, value in net.state_dict().items()}), tmp_path / f"{epoch}.pt")
        files.append(tmp_path / f"{epoch}.pt")
    options = {"clip": {"checkpoint": str(checkpoint)}, "cache": str(tmp_path / "cache")}
    run = import_checkpoint(files, scenes, tmp_path / "run", options, progress=False)
    assert run.config.method.networks == 2 and len(run.matchers) == 2


def changed(net: OpenAiClip, name: str, value: object) -> dict:
    state = {**net.state_dict(), name: value}
    return {key: one for key, one in state.items() if one is not None}


REFUSED = {
    "resnet": ("visual.layer1.0.conv1.weight", torch.zeros(1), "its image encoder is a ResNet"),
    "unknown": ("visual.extra", torch.zeros(1), "has an unknown parameter visual.extra"),
    "unknown part": ("transformer.resblocks.0.ln_3.weight", torch.zeros(1), "parameter transformer.resblocks.0.ln_3.w"),
    "missing": ("text_projection", None, "has no parameter for model.text_projection.weight of --clip.checkpoint"),
    "shape": ("ln_final.bias", torch.zeros(3), "its model.text_model.final_layer_norm.bias has the shape (3,)"),
    "deep": ("transformer.resblocks.2.ln_1.bias", torch.zeros(WIDTH), "layers.2.layer_norm1.bias has no place in"),
    "rows": ("transformer.resblocks.0.attn.in_proj_bias", torch.zeros(7), "has 7 rows, which are no queries, keys and"),
    "no tensor": ("logit_scale", 3.0, "its logit_scale is of type float, not a tensor"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_weights_that_do_not_fit_are_refused_in_one_line(checkpoint, scenes, net, tmp_path, capsys, name):
    key, value, says = REFUSED[name]
    torch.save(npc(changed(net, key, value)), tmp_path / "bad.pt")
    assert says in refused(capsys, tmp_path, scenes, checkpoint)


def refused(capsys, tmp_path, data, checkpoint, *more):
    words = ["import-checkpoint", str(tmp_path / "bad.pt"), "--data", str(data), "--out", str(tmp_path / "run"), *more]
    capsys.readouterr()
    assert main([*words, "--clip.checkpoint", str(checkpoint), "--cache", str(tmp_path / "cache")]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1, err
    assert not (tmp_path / "run").exists()
    return err


def test_models_and_data_that_do_not_fit_are_refused(checkpoint, scenes, net, tmp_path, capsys):
    torch.save(npc(dict(net.state_dict())), tmp_path / "bad.pt")
    more_heads = save_clip(tmp_path / "heads", sizes={**SIZES, "num_attention_heads": 4})
    assert "has 4 heads and quick_gelu at a width of 128" in refused(capsys, tmp_path, scenes, more_heads)
    other = save_clip(tmp_path / "gelu", sizes={**SIZES, "hidden_act": "gelu"})
    assert "has 2 heads and gelu at a width of 128" in refused(capsys, tmp_path, scenes, other)
    assert "nowhere" in refused(capsys, tmp_path, scenes, tmp_path / "nowhere")
    assert "there is nothing at" in refused(capsys, tmp_path, tmp_path / "none", checkpoint)
    features = tmp_path / "tiny_precomp"
    features.mkdir()
    for stem in ("train", "dev", "test"):
        np.save(features / f"{stem}_ims.npy", np.zeros((4, 2, 3), np.float32))
        (features / f"{stem}_caps.txt").write_text("a dog\n" * 4)
    assert "has features and no images for matcher clip" in refused(capsys, tmp_path, features, checkpoint)
    err = refused(capsys, tmp_path, scenes, checkpoint, "--vocabulary", str(tmp_path / "bad.pt"))
    assert "--vocabulary has no effect" in err
