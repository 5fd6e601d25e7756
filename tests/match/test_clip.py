"""CLIP against transformers' own forward pass, in parts against the whole, frozen and not."""

import math
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from clip_helpers import SIDE, image_processor, save_clip
from pairsift.encode.clip_preprocessor import ClipPreprocessor
from pairsift.encode.features import Features, Items, Table
from pairsift.errors import InputError
from pairsift.loss.infonce import infonce
from pairsift.loss.ranking import InfoNCE
from pairsift.match.clip import Clip, ClipOptions
from pairsift.methods import METHODS
from pairsift.pairs.pairs import Pairs
from pairsift.train.loop import Job, Trainer
from pairsift.train.options import TrainOptions

CAPTIONS = [
    "a red ball",
    "two dogs and a yellow house under the sun",
    "the boat",
    "a tree in the snow",
    "grass",
    "rain",
]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return str(save_clip(tmp_path_factory.mktemp("clip")))


@pytest.fixture(scope="module", params=[False, True], ids=["new", "old"])
def any_checkpoint(request, tmp_path_factory):
    return str(save_clip(tmp_path_factory.mktemp("clip"), old=request.param))


def images(n: int = 6) -> Items:
    return Items(torch.from_numpy(np.random.default_rng(n).integers(0, 256, (n, 3, SIDE, SIDE), np.uint8)))


def clip(checkpoint: str, pretrained: bool = True, **options: Any) -> Clip:
    """The matcher of a checkpoint, with more options."""
    return Clip(ClipOptions(checkpoint=checkpoint, **options), pretrained)


def texts(checkpoint: str, captions: list[str] = CAPTIONS) -> Items:
    return Table.from_items(ClipPreprocessor(checkpoint).encode(captions)).batch(np.arange(len(captions)))


def pick(items: Items, order) -> Items:
    return Items(items.values[order], None if items.mask is None else items.mask[order])


def both(matcher: Clip, checkpoint: str):
    return matcher.encode_images(images()), matcher.encode_texts(texts(checkpoint))


def test_codes_and_logits_are_those_of_transformers(any_checkpoint):
    import transformers

    own = transformers.CLIPModel.from_pretrained(any_checkpoint).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(any_checkpoint)
    front, matcher = ClipPreprocessor(any_checkpoint), clip(any_checkpoint).eval()
    mean, std = (torch.tensor(part)[:, None, None] for part in (front.mean, front.std))
    with torch.no_grad():
        wanted = own(
            pixel_values=(images().values / 255 - mean) / std, **tokenizer(CAPTIONS, padding=True, return_tensors="pt")
        )
        left, right = both(matcher, any_checkpoint)
    torch.testing.assert_close(left.vectors, wanted.image_embeds, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(right.vectors, wanted.text_embeds, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(matcher.logits(left, right), wanted.logits_per_image, atol=1e-4, rtol=1e-4)
    assert matcher.dim == 24 and matcher.factorises and left.tokens is None
    assert (left.vectors[0] - left.vectors[1]).norm() > 0.05


def precise(matcher: Clip) -> Clip:
    """In float64, but with version 4 of transformers, whose causal masks overflow there."""
    import transformers

    return matcher.double() if int(transformers.__version__.partition(".")[0]) >= 5 else matcher


def test_order_and_padding_change_nothing(checkpoint):
    matcher, order = precise(clip(checkpoint)).eval(), torch.tensor([3, 0, 5, 1, 4, 2])
    left, right = both(matcher, checkpoint)
    moved = matcher.encode_images(pick(images(), order)), matcher.encode_texts(pick(texts(checkpoint), order))
    torch.testing.assert_close(moved[0].vectors, left.vectors[order])
    torch.testing.assert_close(moved[1].vectors, right.vectors[order])
    for at, caption in enumerate(CAPTIONS):
        torch.testing.assert_close(matcher.encode_texts(texts(checkpoint, [caption])).vectors[0], right.vectors[at])


def loss_and_gradients(matcher: Clip, checkpoint: str) -> tuple[float, dict[str, torch.Tensor]]:
    left, right = both(matcher, checkpoint)
    loss = infonce(matcher.similarity(left, right) * matcher.scale(), torch.zeros(6, 6, dtype=torch.bool)).mean()
    loss.backward()
    return loss.item(), {name: one.grad for name, one in matcher.named_parameters() if one.grad is not None}


@pytest.mark.parametrize("size", [1, 4])
def test_parts_give_the_codes_the_loss_and_the_gradients_of_the_whole(checkpoint, size):
    whole, parts = (precise(clip(checkpoint, micro_batch=n)).train() for n in (0, size))
    for one, other in zip(both(whole, checkpoint), both(parts, checkpoint), strict=True):
        torch.testing.assert_close(one.vectors, other.vectors)
    loss, gradients = loss_and_gradients(whole, checkpoint)
    again, found = loss_and_gradients(parts, checkpoint)
    exact = next(whole.parameters()).dtype == torch.float64
    assert again == pytest.approx(loss, rel=1e-12 if exact else 1e-5) and found.keys() == gradients.keys()
    assert len(found) == len(list(whole.parameters()))
    for name, gradient in gradients.items():
        torch.testing.assert_close(found[name], gradient, msg=name)
        assert gradient.abs().sum() > 0 or name.endswith("k_proj.bias"), name  # shifts all logits of a softmax alike


def test_parts_give_the_gradients_of_the_whole_in_mixed_precision_too(checkpoint):
    found = []
    for size in (0, 3):
        matcher = clip(checkpoint, micro_batch=size).train()
        with torch.autocast("cpu", torch.bfloat16):
            left, right = both(matcher, checkpoint)
            assert left.vectors.dtype == torch.float32
            torch.testing.assert_close(left.vectors.norm(dim=1), torch.ones(6))
            loss = infonce(matcher.similarity(left, right) * matcher.scale(), torch.zeros(6, 6, dtype=torch.bool))
        loss.mean().backward()
        found.append([one.grad for one in matcher.parameters()])
    for one, other in zip(*found, strict=True):
        assert one.dtype == torch.float32
        torch.testing.assert_close(other, one, atol=0.03 * float(one.abs().max()) + 1e-6, rtol=0)


def kept_bytes(matcher: Clip, n: int = 24) -> int:
    """Bytes that a forward pass on images keeps for the backward pass, parameters aside."""
    kept, parameters = 0, {one.data_ptr() for one in matcher.parameters()}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        nonlocal kept
        kept += 0 if tensor.data_ptr() in parameters else tensor.numel() * tensor.element_size()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        matcher.encode_images(images(n))
    return kept


class Peak(TorchDispatchMode):
    """Counts the bytes of all tensors made inside that are alive at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.known, self.now, self.most = set(), 0, 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        for one in tree_leaves(made):
            if isinstance(one, torch.Tensor) and one.untyped_storage()._cdata not in self.known:
                storage = one.untyped_storage()
                self.known.add(storage._cdata)
                self.now += storage.nbytes()
                self.most = max(self.most, self.now)
                weakref.finalize(storage, self.free, storage._cdata, storage.nbytes())
        return made

    def free(self, known: int, size: int) -> None:
        self.known.remove(known)
        self.now -= size


def peak_bytes(matcher: Clip, n: int = 24) -> int:
    """The most that a forward and a backward pass on images have in memory at a time."""
    pixels = images(n)
    with Peak() as peak:
        matcher.encode_images(pixels).vectors.sum().backward()
    return peak.most


def test_parts_hold_a_fraction_of_what_the_whole_holds_at_a_time(checkpoint):
    whole, parts = (clip(checkpoint, micro_batch=size).train() for size in (0, 2))
    assert kept_bytes(parts) < kept_bytes(whole) / 20
    assert peak_bytes(parts) < peak_bytes(whole) / 4
    assert peak_bytes(parts, 48) < 1.2 * peak_bytes(parts, 24) and peak_bytes(whole, 48) > 1.8 * peak_bytes(whole, 24)


@pytest.mark.parametrize("freeze", ["none", "image", "text", "towers"])
def test_frozen_towers_stay_as_they_are_and_the_rest_learns(checkpoint, freeze):
    matcher = clip(checkpoint, freeze=freeze, micro_batch=4).train()
    held = {"none": [], "image": ["vision_model."], "text": ["text_model."], "towers": ["vision_model.", "text_model."]}
    _, gradients = loss_and_gradients(matcher, checkpoint)
    for name, one in matcher.named_parameters():
        frozen = any(name.startswith(f"model.{tower}") for tower in held[freeze])
        assert (name not in gradients) == frozen != one.requires_grad, name
    towers = {"vision_model.": matcher.model.vision_model, "text_model.": matcher.model.text_model}
    for name, tower in towers.items():
        assert all(one.training != (name in held[freeze]) for one in tower.modules())
    matcher.eval()
    assert not any(one.training for one in matcher.modules())
    with torch.autograd.graph.saved_tensors_hooks(lambda x: pytest.fail("kept"), lambda x: x), torch.no_grad():
        matcher.encode_images(images())


def test_a_frozen_tower_gives_the_codes_of_a_free_one_and_keeps_nothing(checkpoint):
    free, frozen = (clip(checkpoint, freeze=freeze, micro_batch=4).train() for freeze in ("none", "towers"))
    for one, other in zip(both(free, checkpoint), both(frozen, checkpoint), strict=True):
        torch.testing.assert_close(one.vectors, other.vectors)
    assert kept_bytes(frozen) < kept_bytes(clip(checkpoint, micro_batch=0)) / 20


def test_temperature_starts_at_the_checkpoints_and_stops_at_100(checkpoint):
    matcher = clip(checkpoint)
    assert matcher.scale().item() == pytest.approx(math.exp(2.6592), rel=1e-5)
    with torch.no_grad():
        matcher.model.logit_scale.fill_(5.0)
    matcher.scale().backward()
    assert matcher.scale().item() == pytest.approx(100) and matcher.model.logit_scale.grad.item() > 0


def test_without_its_weights_it_is_the_same_once_they_are_loaded(checkpoint):
    trained, other = clip(checkpoint).eval(), clip(checkpoint, pretrained=False).eval()
    assert not torch.equal(other.model.visual_projection.weight, trained.model.visual_projection.weight)
    other.load_state_dict(trained.state_dict())
    assert torch.equal(other.encode_images(images()).vectors, trained.encode_images(images()).vectors)


@pytest.mark.parametrize(("option", "said"), [({"freeze": "all"}, "freeze is 'all'"), ({"micro_batch": -1}, "is -1")])
def test_impossible_options_are_refused(checkpoint, option, said):
    with pytest.raises(InputError, match=said):
        clip(checkpoint, **option)


def test_vit_b_32_has_its_published_size(tmp_path):
    """Radford et al., Table 19: 12 layers of width 768 and 512, 77 tokens of 49,408, 512 common dimensions."""
    import transformers

    save_clip(tmp_path)
    text = {"hidden_size": 512, "num_hidden_layers": 12, "num_attention_heads": 8, "intermediate_size": 2048}
    text |= {"vocab_size": 49408, "max_position_embeddings": 77, "eos_token_id": 2}
    vision = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072}
    vision |= {"image_size": 224, "patch_size": 32}
    transformers.CLIPConfig(text_config=text, vision_config=vision, projection_dim=512).save_pretrained(tmp_path)
    size = {"height": 224, "width": 224}
    image_processor()(size={"shortest_edge": 224}, crop_size=size).save_pretrained(tmp_path)
    with torch.device("meta"):
        matcher = clip(str(tmp_path), pretrained=False)
    assert sum(one.numel() for one in matcher.parameters()) == 151_277_313 and matcher.dim == 512
    assert all(one.is_meta for one in matcher.parameters())
    pixels = Items(torch.zeros(2, 3, 224, 224, dtype=torch.uint8, device="meta"))
    ids = Items(torch.zeros(3, 77, dtype=torch.int64, device="meta"))
    left, right = matcher.encode_images(pixels), matcher.encode_texts(ids)
    assert left.vectors.shape == (2, 512) and right.vectors.shape == (3, 512)


def test_it_trains_with_the_betas_and_the_epsilon_of_its_authors(checkpoint, tmp_path):
    (tmp_path / "model").mkdir()
    rows = np.arange(4)
    made = Pairs("made", [f"{i}" for i in rows], [Path(f"{i}") for i in rows], CAPTIONS[:4], rows, np.full(4, "train"))
    tables = Features(
        Table(images(4).values.numpy()), Table.from_items(ClipPreprocessor(checkpoint).encode(CAPTIONS[:4]))
    )
    parts = METHODS["plain"](networks=1), InfoNCE(), TrainOptions(batch_size=2, device="cpu"), tmp_path, False
    trainer = Trainer(Job(made, tables, lambda: clip(checkpoint), *parts))
    groups = trainer.optimizers[0].param_groups
    assert {(group["betas"], group["eps"]) for group in groups} == {((0.9, 0.98), 1e-6)}


def test_the_prototypes_of_pau_stand_on_both_towers(checkpoint):
    torch.manual_seed(0)
    matcher = clip(checkpoint, head="pau", pau={"rerank": 0.5}).train()
    left, right = both(matcher, checkpoint)
    penalty = matcher.penalty(left, right, torch.eye(6, dtype=torch.bool), torch.ones(6))
    assert penalty is not None and matcher.prototypes is not None
    assert torch.equal(
        penalty, matcher.prototypes.penalty(left, right, torch.eye(6, dtype=torch.bool), matcher.scale())
    )
    penalty.mean().backward()
    assert all(float(parameter.grad.abs().sum()) > 0 for parameter in matcher.prototypes.parameters())
    assert float(matcher.model.visual_projection.weight.grad.abs().sum()) > 0
    plain = clip(checkpoint).eval()
    assert plain.prototypes is None and plain.shares_space and not matcher.shares_space
    scaled, cosine = matcher.eval().similarity(*both(matcher, checkpoint)), plain.similarity(*both(plain, checkpoint))
    vague = [codes.extra["vagueness"] for codes in both(matcher, checkpoint)]
    expected = cosine * (-0.5 * vague[0]).exp()[:, None] * (-0.5 * vague[1]).exp()
    torch.testing.assert_close(scaled, expected)
    assert ClipOptions(pau={"rerank": 0.5}).pau.regression == 100  # of the authors' runs
