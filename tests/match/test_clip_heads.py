"""The heads of VSE-infinity, PCME and PCME++ on a CLIP against plain loops over transformers' own tokens."""

import math
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from clip_helpers import SIDE, save_clip
from pairsift.cli.fit import choices_of
from pairsift.encode.clip_preprocessor import ClipPreprocessor
from pairsift.encode.features import Features, Items, Table
from pairsift.loss import RANKING_LOSSES
from pairsift.match.clip import Clip, ClipOptions
from pairsift.match.clip_heads import PooledTokens, TokenVariances
from pairsift.match.heads import divergence
from pairsift.methods import METHODS
from pairsift.pairs.pairs import Pairs
from pairsift.runs.config import configure, from_tree
from pairsift.train.loop import Job, Trainer
from pairsift.train.options import TrainOptions

CAPTIONS = ["a red ball", "two dogs and a yellow house under the sun", "the boat", "grass in the rain"]
HEADS = {"gpo": "hinge", "pcme": "bce", "pcmepp": "bce"}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return str(save_clip(tmp_path_factory.mktemp("clip")))


def make(checkpoint: str, head: str, **options) -> Clip:
    torch.manual_seed(3)
    return Clip(ClipOptions(checkpoint=checkpoint, head=head, **options))


def images(n: int = 4) -> Items:
    return Items(torch.from_numpy(np.random.default_rng(n).integers(0, 256, (n, 3, SIDE, SIDE), np.uint8)))


@cache
def front(checkpoint: str) -> ClipPreprocessor:
    return ClipPreprocessor(checkpoint)


def texts(checkpoint: str, captions: list[str] = CAPTIONS) -> Items:
    return Table.from_items(front(checkpoint).encode(captions)).batch(np.arange(len(captions)))


def both(matcher: Clip, checkpoint: str):
    return matcher.encode_images(images()), matcher.encode_texts(texts(checkpoint))


def tokens_of(checkpoint: str, module: str, inputs: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Tokens as they leave the last block of transformers' own tower, and as they reach it."""
    import transformers

    tower = getattr(transformers.CLIPModel.from_pretrained(checkpoint).eval(), module)
    seen = []
    last = next(one for name, one in tower.named_modules() if name.endswith("encoder.layers.1"))
    last.register_forward_pre_hook(lambda _, args, kwargs: seen.extend((*args, *kwargs.values())), with_kwargs=True)
    with torch.no_grad():
        left = tower(**inputs).last_hidden_state
    return left, next(one for one in seen if isinstance(one, Tensor) and one.shape == left.shape)


def pooled(own: PooledTokens, tokens: Tensor) -> Tensor:
    """The pooling of one item, channel by channel."""
    mapped = tokens @ own.project.weight.T + own.project.bias
    theta = own.pool.weights(torch.tensor([len(tokens)]), len(tokens))[0]
    channels = [sorted(channel, reverse=True) for channel in mapped.T.tolist()]
    return torch.tensor([sum(t * x for t, x in zip(theta.tolist(), channel, strict=True)) for channel in channels])


def normed(x: Tensor, norm: torch.nn.LayerNorm) -> Tensor:
    centred = x - x.mean()
    return centred / (centred.square().mean() + norm.eps).sqrt() * norm.weight + norm.bias


def block(own: TokenVariances, tokens: Tensor) -> Tensor:
    """A transformer block on the tokens of one item, token by token and head by head."""
    layer, width = own.block, tokens.shape[1]
    queries, keys, values = (
        torch.stack([part @ normed(x, layer.norm1) + bias for x in tokens])
        for part, bias in zip(
            layer.self_attn.in_proj_weight.split(width), layer.self_attn.in_proj_bias.split(width), strict=True
        )
    )
    made = []
    for i, x in enumerate(tokens):
        seen = range(i + 1) if own.causal else range(len(tokens))
        heads = []
        for part in torch.arange(width).split(width // layer.self_attn.num_heads):
            weights = torch.stack([queries[i, part] @ keys[j, part] / math.sqrt(len(part)) for j in seen]).softmax(0)
            heads.append(sum(weight * values[j, part] for weight, j in zip(weights, seen, strict=True)))
        y = x + layer.self_attn.out_proj(torch.cat(heads))
        hidden = layer.linear1.weight @ normed(y, layer.norm2) + layer.linear1.bias
        made.append(y + layer.linear2.weight @ (hidden / (1 + (-1.702 * hidden).exp())) + layer.linear2.bias)
    return torch.stack(made)


@torch.no_grad()
def by_hand(matcher: Clip, checkpoint: str) -> list[tuple[list[Tensor], list[Tensor]]]:
    """Means of unit length and logarithms of variances of images and of captions."""
    head, sides = matcher.tokens, []
    scaled = (images().values - matcher.mean) / matcher.std
    inputs = (
        ("vision_model", {"pixel_values": scaled}, "image"),
        ("text_model", {"input_ids": texts(checkpoint).values}, "text"),
    )
    for module, values, side in inputs:
        left, reached = tokens_of(checkpoint, module, values)
        mask = texts(checkpoint).mask
        lengths = mask.sum(1).tolist() if side == "text" and mask is not None else [left.shape[1]] * len(left)
        assert side == "image" or len(set(lengths)) > 1
        means, logarithms = [], []
        for one, before, length in zip(left, reached, lengths, strict=True):
            mean = pooled(getattr(head, f"{side}s"), one[:length])
            means.append(mean / mean.norm())
            if head.distance is not None:
                own = getattr(head, f"{side}_variances")
                logarithms.append(pooled(own.pooled, block(own, before[:length])))
        sides.append((means, logarithms))
    return sides


def test_vectors_of_gpo_are_the_pooled_tokens(checkpoint):
    matcher = make(checkpoint, "gpo").eval()
    for codes, (means, _) in zip(both(matcher, checkpoint), by_hand(matcher, checkpoint), strict=True):
        torch.testing.assert_close(codes.vectors, torch.stack(means), atol=1e-5, rtol=1e-4)
        assert codes.index is None and (codes.vectors[0] - codes.vectors[1]).norm().item() > 0.05
    assert matcher.dim == matcher.index_dim == 1024 and matcher.factorises and matcher.shares_space
    assert (
        not matcher.starts_trained and matcher.penalty(*both(matcher, checkpoint), torch.eye(4), torch.ones(4)) is None
    )


def test_logits_of_pcmepp_are_those_of_the_expected_distance(checkpoint):
    matcher = make(checkpoint, "pcmepp", pcmepp={"slope": 3.0, "shift": 2.0, "vib": 0.5}).eval()
    codes = both(matcher, checkpoint)
    (left, left_logarithms), (right, right_logarithms) = by_hand(matcher, checkpoint)
    logits = matcher.logits(*codes)
    for i, (mean, logarithm) in enumerate(zip(left, left_logarithms, strict=True)):
        for j, (other, more) in enumerate(zip(right, right_logarithms, strict=True)):
            distance = (mean - other).square().sum() + logarithm.exp().sum() + more.exp().sum()
            assert logits[i, j].item() == pytest.approx(-3 * float(distance) + 2, abs=1e-3)
    expected = [
        0.5 * (divergence(one[None], a[None]) + divergence(other[None], b[None]))
        for one, a, other, b in zip(left, left_logarithms, right, right_logarithms, strict=True)
    ]
    penalty = matcher.penalty(*codes, torch.eye(4, dtype=torch.bool), torch.ones(4))
    torch.testing.assert_close(penalty, torch.cat(expected), atol=1e-4, rtol=1e-4)


def test_pcme_matches_samples_in_training_and_means_in_evaluation(checkpoint):
    matcher = make(checkpoint, "pcme", pcme={"slope": 3.0, "shift": 2.0, "samples": 2})
    (left, left_logarithms), (right, _) = by_hand(matcher, checkpoint)
    similarity = matcher.eval().similarity(*both(matcher, checkpoint))
    expected = torch.stack(left) @ torch.stack(right).T - 1 + (2 / 3) ** 2 / 2
    torch.testing.assert_close(similarity, expected, atol=1e-5, rtol=1e-4)
    with torch.no_grad():
        codes = both(matcher.train(), checkpoint)
    logits = matcher.logits(*codes)
    for i, image in enumerate(codes[0].extra["samples"]):
        for j, text in enumerate(codes[1].extra["samples"]):
            p = sum(torch.sigmoid(2 * (2 - 3 * (one - other).norm())) for one in image for other in text) / 4
            assert logits[i, j].sigmoid().item() == pytest.approx(float(p), rel=1e-3)
    matcher.tokens.distance.samples = 20
    with torch.no_grad():
        found = matcher.encode_images(images()).extra["samples"]
    spread = (found - torch.stack(left)[:, None]).square().sum(2).mean(1)
    torch.testing.assert_close(spread, torch.stack(left_logarithms).exp().sum(1), atol=0, rtol=0.05)


@pytest.mark.parametrize("head", HEADS)
def test_the_index_is_the_similarity_and_padding_and_parts_change_nothing(checkpoint, head):
    matcher, parts = make(checkpoint, head, micro_batch=0).eval(), make(checkpoint, head, micro_batch=3).eval()
    parts.load_state_dict(matcher.state_dict())
    left, right = both(matcher, checkpoint)
    assert left.indexed.shape[1] == matcher.index_dim == 1024 + {"gpo": 0, "pcme": 1, "pcmepp": 2}[head]
    torch.testing.assert_close(left.indexed @ right.indexed.T, matcher.similarity(left, right))
    assert matcher.shares_space == (head == "gpo")
    for one, other in zip(both(parts, checkpoint), (left, right), strict=True):
        torch.testing.assert_close(one.indexed, other.indexed, atol=1e-5, rtol=1e-4)
    for at, caption in enumerate(CAPTIONS):
        alone = matcher.encode_texts(texts(checkpoint, [caption]))
        torch.testing.assert_close(alone.indexed[0], right.indexed[at], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("freeze", ["none", "towers"])
def test_two_epochs_train_the_head_faster_than_the_towers(checkpoint, tmp_path, head, freeze):
    (tmp_path / "model").mkdir()
    rows = np.arange(6)
    split = np.array(["train"] * 4 + ["dev", "test"])
    captions = [*CAPTIONS, "a boat", "snow"]
    made = Pairs("made", [f"{i}" for i in rows], [Path(f"{i}") for i in rows], captions, rows, split)
    tables = Features(Table(images(6).values.numpy()), Table.from_items(front(checkpoint).encode(captions)))
    method = METHODS["plain"](networks=1, epochs={"warmup": 1, "train": 1})
    options = TrainOptions(batch_size=4, lr=1e-5, weight_decay=0.0, schedule="constant", device="cpu", threads=1)
    loss = RANKING_LOSSES[HEADS[head]]()
    trainer = Trainer(
        Job(made, tables, lambda: make(checkpoint, head, freeze=freeze), method, loss, options, tmp_path, False)
    )
    before = {name: one.detach().clone() for name, one in trainer.networks[0].matcher.named_parameters()}
    trainer.run()
    matcher = trainer.networks[0].matcher
    moved = {name: (one - before[name]).abs().max().item() for name, one in matcher.named_parameters()}
    assert len(trainer.log) == 2 and all(math.isfinite(step) for step in moved.values())
    head_step = moved["tokens.images.project.weight"]  # of Adam: the learning rate where gradients keep their sign
    assert head_step > 9e-4
    towers = "vision_model.encoder.layers.1.mlp.fc1.weight", "text_model.encoder.layers.0.mlp.fc1.weight"
    for name, share in zip(towers, (0.0, 0.0) if freeze == "towers" else (0.01, 0.1), strict=True):
        assert moved[f"model.{name}"] == pytest.approx(share * head_step, rel=0.1), name
    unmoved = [name for name, step in moved.items() if name.startswith("tokens.") and not step]
    assert not [name for name in unmoved if not name.endswith("score.weight")]


def test_a_run_takes_the_loss_of_the_heads_paper_unless_one_is_named(checkpoint):
    for head, loss in HEADS.items():
        options = ClipOptions(checkpoint=checkpoint, head=head)
        assert configure("pairs", method="plain", matcher=options).loss.name == loss
        assert configure("pairs", method="plain", matcher=options, loss="infonce").loss.name == "infonce"
        tree = {"source": "pairs", "method": "plain", "matcher": "clip", "clip": {"head": head}}
        config = from_tree(tree)
        assert config.loss.name == loss and from_tree(config.tree()) == config
        assert choices_of(["pairs", "--matcher", "clip", "--clip.head", head]).loss.name == loss
        assert choices_of(["pairs", "--matcher=clip", f"--clip.head={head}", "--loss", "hinge"]).loss.name == "hinge"
    assert configure("pairs", method="plain", matcher=ClipOptions(head="pau")).loss.name == "infonce"
