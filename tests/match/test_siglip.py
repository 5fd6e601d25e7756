"""A SigLIP in the matcher clip against transformers' own forward pass and loss, and in a short training."""

from pathlib import Path

import numpy as np
import pytest
import torch

from clip_helpers import LENGTH, SIDE, SIZES, save_clip, save_siglip
from pairsift.cli.fit import choices_of
from pairsift.encode.clip_preprocessor import ClipPreprocessor
from pairsift.encode.features import Features, Items, Table
from pairsift.errors import InputError
from pairsift.loss.ranking import Sigmoid
from pairsift.match.clip import Clip, ClipOptions
from pairsift.methods import METHODS
from pairsift.pairs.pairs import Pairs
from pairsift.runs.config import configure, from_tree
from pairsift.train.loop import Job, Trainer
from pairsift.train.options import TrainOptions

CAPTIONS = [
    "a red ball",
    "two dogs and a yellow house under the sun",
    "the boat",
    "grass in the rain",
    "a tree",
    "snow",
]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return str(save_siglip(tmp_path_factory.mktemp("siglip")))


def images(n: int = 6) -> Items:
    return Items(torch.from_numpy(np.random.default_rng(n).integers(0, 256, (n, 3, SIDE, SIDE), np.uint8)))


def test_logits_and_loss_are_those_of_transformers(checkpoint):
    import transformers

    own = transformers.SiglipModel.from_pretrained(checkpoint).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(checkpoint)
    front, matcher = ClipPreprocessor(checkpoint), Clip(ClipOptions(checkpoint=checkpoint, micro_batch=4)).train()
    ids = Table.from_items(front.encode(CAPTIONS)).batch(np.arange(6))
    assert ids.values.shape == (6, LENGTH) and front.mean == front.std == [0.5] * 3
    padded = tokenizer(CAPTIONS, padding="max_length", max_length=LENGTH, return_tensors="pt")["input_ids"]
    with torch.no_grad():
        wanted = own(pixel_values=(images().values / 255 - 0.5) / 0.5, input_ids=padded, return_loss=True)
    left, right = matcher.encode_images(images()), matcher.encode_texts(ids)
    torch.testing.assert_close(matcher.logits(left, right), wanted.logits_per_image, atol=1e-4, rtol=1e-4)
    assert min(wanted.logits_per_image.std(side).mean().item() for side in (0, 1)) > 0.1
    similarity, none = matcher.similarity(left, right), torch.zeros(6, 6, dtype=torch.bool)
    loss = Sigmoid()(similarity, matcher.scale(), torch.ones(6), none).mean()
    torch.testing.assert_close(loss, wanted.loss, atol=1e-4, rtol=1e-4)
    loss.backward()
    assert all(one.grad is not None for one in matcher.parameters())
    assert float(matcher.model.logit_bias.grad) and float(matcher.model.logit_scale.grad)
    assert matcher.dim == SIZES["hidden_size"] and matcher.index_dim == matcher.dim + 1 and not matcher.shares_space
    torch.testing.assert_close(left.indexed @ right.indexed.T, similarity)


def test_two_epochs_learn_the_pairs(checkpoint, tmp_path):
    (tmp_path / "model").mkdir()
    rows, split = np.arange(6), np.array(["train"] * 4 + ["dev", "test"])
    made = Pairs("made", [f"{i}" for i in rows], [Path(f"{i}") for i in rows], CAPTIONS, rows, split)
    texts = Table.from_items(ClipPreprocessor(checkpoint).encode(CAPTIONS))
    method = METHODS["plain"](networks=1, epochs={"warmup": 0, "train": 2})
    options = TrainOptions(batch_size=2, lr=1e-3, schedule="constant", device="cpu", threads=1)
    parts = method, Sigmoid(), options, tmp_path, False
    trainer = Trainer(
        Job(
            made,
            Features(Table(images().values.numpy()), texts),
            lambda: Clip(ClipOptions(checkpoint=checkpoint)),
            *parts,
        )
    )
    trainer.run()
    losses = [line["loss"]["network_0"]["correspondence"] for line in trainer.log]
    assert len(losses) == 2 and losses[1] < losses[0]


def test_a_run_of_a_siglip_takes_its_loss_unless_one_is_named(checkpoint, tmp_path):
    for place, loss in (
        (checkpoint, "sigmoid"),
        ("google/siglip2-base-patch16-224", "sigmoid"),
        ("some/clip", "infonce"),
    ):
        tree = {"source": "pairs", "method": "plain", "matcher": "clip", "clip": {"checkpoint": place}}
        config = from_tree(tree)
        assert config.loss.name == loss and from_tree(config.tree()) == config
        assert configure("pairs", method="plain", matcher=ClipOptions(checkpoint=place)).loss.name == loss
        assert choices_of(["--matcher", "clip", "--clip.checkpoint", place, "--method", "plain"]).loss.name == loss
    assert from_tree({**tree, "clip": {"checkpoint": checkpoint}, "loss": "bce"}).loss.name == "bce"
    (tmp_path / "config.json").write_text("broken")
    assert configure("pairs", method="plain", matcher=ClipOptions(checkpoint=str(tmp_path))).loss.name == "infonce"


def test_what_a_siglip_cannot_do_is_refused_in_one_line(checkpoint, tmp_path):
    naflex = save_clip(tmp_path) / "config.json"
    naflex.write_text(naflex.read_text().replace('"model_type": "clip"', '"model_type": "siglip2"'))
    with pytest.raises(InputError, match=r"rows of patches \(NaFlex\); give a checkpoint of one size") as error:
        ClipPreprocessor(str(tmp_path))
    assert "\n" not in str(error.value)
    with pytest.raises(InputError, match=r"--clip.head pcmepp stands on a CLIP, and .* is a SigLIP"):
        Clip.check(ClipOptions(checkpoint=checkpoint, head="pcmepp"))
