"""SGR, SAF and SGRAF against plain loops over captions, in value and gradient, and their invariances."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from naive_loops_sgraf import graphs, image_vector, saf_loop, sgr_loop, text_vector
from torch import Tensor, nn

from pairsift.encode.features import Items
from pairsift.errors import InputError
from pairsift.match import sgraf
from pairsift.match.base import Codes
from pairsift.match.sgraf import Saf, Sgr, Sgraf, SgrafOptions, SgrOptions, SimilaritySizes
from pairsift.match.sgraf_kernels import reasoning_step, similarity_vectors

DOUBLE = torch.float64
LOOPS: dict[str, Callable[..., Tensor]] = {"sgr": sgr_loop, "saf": saf_loop}
parts = pytest.mark.parametrize("kind", ["sgr", "saf"])
KINDS = {"sgr": (Sgr, SgrOptions), "saf": (Saf, SimilaritySizes), "sgraf": (Sgraf, SgrafOptions)}
every = pytest.mark.parametrize("kind", ["sgr", "saf", "sgraf"])


def make(kind: str, regions: int | None = 5) -> Sgr | Saf | Sgraf:
    """A small float64 matcher in evaluation mode whose parameters and statistics are all random."""
    torch.manual_seed(4)
    matcher_of, options_of = KINDS[kind]
    matcher = matcher_of(6, 20, regions, options_of(dim=8, word_dim=3, similarity_dim=5))
    for parameter in matcher.parameters():
        nn.init.normal_(parameter, std=0.5)
    for name, buffer in matcher.named_buffers():
        if name.endswith("running_var"):
            buffer.uniform_(0.5, 2)
        elif name.endswith("running_mean"):
            buffer.normal_()
    return matcher.double().eval()


def ragged(*counts: int, longest: int = 0) -> Items:
    mask = torch.arange(max(longest, *counts)) < torch.tensor(counts)[:, None]
    return Items(torch.randn(*mask.shape, 6, dtype=DOUBLE) * mask[..., None], mask)


def captions(*lengths: int) -> Items:
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return Items(torch.randint(1, 20, mask.shape) * mask, mask)


def coded(matcher: Sgr | Saf | Sgraf, regions: int | None = 5) -> tuple[Codes, Codes]:
    """Codes of 4 images and of 6 captions, with two captions of the same length and one of a single word."""
    images = Items(torch.randn(4, 5, 6, dtype=DOUBLE)) if regions else ragged(5, 2, 3, 1)
    return matcher.encode_images(images), matcher.encode_texts(captions(3, 1, 7, 3, 2, 5))


@parts
@pytest.mark.parametrize("regions", [5, None])
def test_values_are_those_of_the_loop(kind: str, regions: int | None) -> None:
    matcher = make(kind, regions)
    images, texts = coded(matcher, regions)
    torch.testing.assert_close(
        matcher.similarity(images, texts), LOOPS[kind](matcher, images, texts), atol=1e-9, rtol=0
    )


@parts
@pytest.mark.parametrize("regions", [5, None])
def test_gradients_are_those_of_the_loop(kind: str, regions: int | None) -> None:
    matcher = make(kind, regions)
    leaves = list(matcher.parameters())
    found, expected = [], []
    for gradients, way in ((found, matcher.similarity), (expected, lambda *codes: LOOPS[kind](matcher, *codes))):
        torch.manual_seed(1)
        scores = way(*coded(matcher, regions))
        gradients += torch.autograd.grad((scores * torch.randn_like(scores)).sum(), leaves, allow_unused=True)
    for (name, _), one, other in zip(matcher.named_parameters(), found, expected, strict=True):
        if one is None:  # what a softmax ignores, and what no pair reads
            assert other is None or other.abs().max() < 1e-12, name
        else:
            torch.testing.assert_close(one, other, atol=1e-7, rtol=1e-6, msg=name)


@parts
def test_global_vectors_are_those_of_the_loop(kind: str) -> None:
    for regions in (5, None):
        matcher = make(kind, regions)
        images, texts = coded(matcher, regions)
        for number in range(len(images)):
            real = images.tokens[number][images.mask[number]]
            torch.testing.assert_close(images.vectors[number], image_vector(matcher, real), atol=1e-9, rtol=0)
        for number in range(len(texts)):
            real = texts.tokens[number][texts.mask[number]]
            torch.testing.assert_close(texts.vectors[number], text_vector(matcher, real), atol=1e-9, rtol=0)


def test_fused_alignment_passes_gradcheck() -> None:
    torch.manual_seed(0)
    for shared in (1, 3):
        shapes = (3, 2, 2, 5), (3, 5, 6), (shared, 2, 2, 6), (2, 6), (2,)
        leaves = [torch.randn(shape, dtype=DOUBLE, requires_grad=True) for shape in shapes]
        assert torch.autograd.gradcheck(similarity_vectors, leaves)


def test_a_fused_step_of_reasoning_passes_gradcheck() -> None:
    torch.manual_seed(0)
    shapes = (3, 4, 5), (5, 5), (5,), (5, 5), (5,)
    leaves = [torch.randn(shape, dtype=DOUBLE, requires_grad=True) for shape in shapes]
    for read in (1, 2, 4):
        assert torch.autograd.gradcheck(lambda *some, read=read: reasoning_step(*some, read), leaves)


@every
@pytest.mark.parametrize("paired", [False, True])
def test_pairs_without_a_gradient_are_left_out_and_nothing_changes(
    kind: str, paired: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    matcher = make(kind)
    left, right = (codes.rows(torch.arange(4)) for codes in coded(matcher))
    left, right = (replace(codes, tokens=codes.tokens.detach().requires_grad_()) for codes in (left, right))
    leaves = [left.tokens, right.tokens, *matcher.parameters()]
    scores = (matcher.pair_similarity if paired else matcher.similarity)(left, right)
    few = torch.zeros_like(scores)
    few.view(-1)[1], few.view(-1)[-1] = 1.0, -2.0
    found = []
    for share in (1.0, 0.0):
        monkeypatch.setattr("pairsift.match.sgraf_kernels.SPARSE", share)
        found.append(torch.autograd.grad(scores, leaves, few, retain_graph=True, allow_unused=True))
    torch.testing.assert_close(found[0], found[1])


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    matcher = make("sgr")
    images, texts = coded(matcher)
    whole = matcher.similarity(images, texts)
    slope = torch.autograd.grad(whole.square().sum(), matcher.local.weight, retain_graph=True)[0]
    monkeypatch.setattr("pairsift.match.sgraf_kernels.BLOCK_ROWS", 3)
    monkeypatch.setattr(sgraf, "CELLS_TRAINING", 4)
    cut = matcher.similarity(images, texts)
    torch.testing.assert_close(cut, whole)
    torch.testing.assert_close(torch.autograd.grad(cut.square().sum(), matcher.local.weight)[0], slope)


@every
@pytest.mark.parametrize("training", [False, True])
def test_similarity_by_pairs_is_the_diagonal(kind: str, training: bool) -> None:
    matcher = make(kind)
    images, texts = coded(matcher)
    texts = texts.rows(torch.arange(4))
    if training and kind == "sgr":  # SAF's norm sees other nodes then
        matcher.train()
    torch.testing.assert_close(matcher.pair_similarity(images, texts), matcher.similarity(images, texts).diagonal())


@every
@pytest.mark.parametrize("regions", [5, None])
def test_padding_changes_nothing(kind: str, regions: int | None) -> None:
    matcher = make(kind, regions)
    left = Items(torch.randn(4, 5, 6, dtype=DOUBLE)) if regions else ragged(5, 2, 3, 1)
    right = captions(3, 1, 7, 2)
    scores = matcher.similarity(matcher.encode_images(left), matcher.encode_texts(right))
    noise = torch.randint(1, 20, (4, 9))
    longer = Items(
        torch.where(torch.arange(9) < right.mask.sum(1)[:, None], nn.functional.pad(right.values, (0, 2)), noise)
    )
    longer = Items(longer.values, nn.functional.pad(right.mask, (0, 2)))
    wider = left
    if not regions:
        values = nn.functional.pad(left.values, (0, 0, 0, 3), value=7.0)
        wider = Items(values, nn.functional.pad(left.mask, (0, 3)))
    padded = matcher.similarity(matcher.encode_images(wider), matcher.encode_texts(longer))
    torch.testing.assert_close(padded, scores)


@every
def test_permuted_items_give_permuted_similarities(kind: str) -> None:
    matcher = make(kind)
    images, texts = coded(matcher)
    rows, columns = torch.randperm(4), torch.randperm(6)
    scores = matcher.similarity(images, texts)
    torch.testing.assert_close(matcher.similarity(images.rows(rows), texts.rows(columns)), scores[rows][:, columns])


def test_the_order_of_regions_matters_only_where_they_have_places() -> None:
    order = torch.tensor([3, 0, 4, 1, 2])
    items = Items(torch.randn(4, 5, 6, dtype=DOUBLE))
    for regions, same in ((None, True), (5, False)):
        matcher = make("sgr", regions)
        vectors = matcher.encode_images(items).vectors
        moved = matcher.encode_images(Items(items.values[:, order])).vectors
        assert torch.allclose(moved, vectors) == same


@every
def test_captions_of_one_word_and_of_two_hundred(kind: str) -> None:
    matcher = make(kind)
    images = matcher.encode_images(Items(torch.randn(3, 5, 6, dtype=DOUBLE)))
    texts = matcher.encode_texts(captions(1, 200, 0))
    scores = matcher.similarity(images, texts)
    assert scores.shape == (3, 3)
    assert scores.isfinite().all()
    if kind in LOOPS:
        torch.testing.assert_close(scores, LOOPS[kind](matcher, images, texts), atol=1e-9, rtol=0)


@every
def test_like_against_like(kind: str) -> None:
    matcher = make(kind, None)
    images, texts = coded(matcher, None)
    for codes in (images, texts):
        assert matcher.intra_similarity(codes).shape == (len(codes), len(codes))
    if kind == "sgr":
        torch.testing.assert_close(
            matcher.intra_similarity(images), sgr_loop(matcher, images, images), atol=1e-9, rtol=0
        )
        torch.testing.assert_close(matcher.intra_similarity(texts), sgr_loop(matcher, texts, texts), atol=1e-9, rtol=0)


@pytest.mark.parametrize("kind", ["saf", "sgraf"])
def test_the_gates_statistics_are_those_of_images_with_texts(kind: str) -> None:
    matcher = make(kind).train()
    images, texts = coded(matcher)
    norm = (matcher.saf if isinstance(matcher, Sgraf) else matcher).gate_norm
    assert norm.running_mean is not None
    before = norm.running_mean.clone()
    matcher.intra_similarity(images)
    matcher.intra_similarity(texts)
    assert torch.equal(norm.running_mean, before)
    matcher.similarity(images, texts)
    assert not torch.equal(norm.running_mean, before)


def test_logits_and_similarity_vectors_lead_to_the_similarity() -> None:
    for kind in ("sgr", "saf"):
        matcher = make(kind)
        images, texts = coded(matcher)
        vectors = matcher.similarity_vectors(images, texts)
        assert vectors.shape == (4, 6, 5)
        torch.testing.assert_close(matcher.head(vectors).squeeze(-1), matcher.logits(images, texts))
        torch.testing.assert_close(matcher.logits(images, texts).sigmoid(), matcher.similarity(images, texts))


def test_saf_in_training_normalises_over_all_nodes_at_once() -> None:
    matcher = make("saf").train()
    images, texts = coded(matcher)
    scores = matcher.similarity(images, texts)
    nodes = graphs(matcher, images, texts)
    logits = torch.cat([matcher.gate(one).flatten() for one in nodes])
    mean, variance = logits.mean(), logits.var(correction=0)
    for number, one in enumerate(nodes):
        logit = (matcher.gate(one).squeeze(-1) - mean) / (variance + 1e-5).sqrt()
        gates = torch.sigmoid(logit * matcher.gate_norm.weight + matcher.gate_norm.bias)
        vector = (gates.unsqueeze(-1) * one).sum(1)
        vector = vector / vector.norm(dim=1, keepdim=True)
        torch.testing.assert_close(scores[:, number], matcher.head(vector).sigmoid().squeeze(1), atol=1e-7, rtol=0)
    assert matcher.gate_norm.num_batches_tracked == 1


def test_sgraf_is_the_mean_of_its_parts() -> None:
    matcher = make("sgraf")
    left, right = Items(torch.randn(4, 5, 6, dtype=DOUBLE)), captions(3, 1, 7)
    images, texts = matcher.encode_images(left), matcher.encode_texts(right)
    torch.testing.assert_close(images.vectors.norm(dim=1), torch.ones(4, dtype=DOUBLE))
    expected = sum(
        part.similarity(part.encode_images(left), part.encode_texts(right)) for part in (matcher.sgr, matcher.saf)
    )
    torch.testing.assert_close(matcher.similarity(images, texts), expected / 2)


@every
def test_half_precision_stays_close(kind: str) -> None:
    torch.manual_seed(0)
    matcher_of, options_of = KINDS[kind]
    matcher = matcher_of(64, 50, 9, options_of(dim=64, similarity_dim=32)).eval()
    items = Items(torch.randn(8, 9, 64)), Items(torch.randint(1, 50, (8, 12)))
    with torch.no_grad():
        codes = matcher.encode_images(items[0]), matcher.encode_texts(items[1])
    scores = matcher.similarity(*codes)
    with torch.autocast("cpu", torch.bfloat16):
        half = matcher.similarity(*codes)
    assert half.dtype == torch.float32
    assert (half - scores).abs().max() < 5e-3
    half.square().sum().backward()
    part = matcher.sgr if isinstance(matcher, Sgraf) else matcher
    rough = part.local.weight.grad.clone()
    part.local.weight.grad = None
    scores.square().sum().backward()
    exact = part.local.weight.grad
    assert rough.dtype == torch.float32
    assert (rough - exact).norm() < 0.1 * exact.norm()


@every
def test_empty_regions_and_zero_codes_have_finite_gradients(kind: str) -> None:
    matcher = make(kind, None).train()
    values = torch.zeros(3, 4, 6, dtype=DOUBLE)
    values[0] = torch.randn(4, 6)
    mask = torch.tensor([[True] * 4, [True] * 4, [False] * 4])
    scores = matcher.similarity(matcher.encode_images(Items(values, mask)), matcher.encode_texts(captions(2, 3)))
    scores.sum().backward()
    assert scores.isfinite().all()
    for name, parameter in matcher.named_parameters():
        assert parameter.grad is None or parameter.grad.isfinite().all(), name


def test_wrong_options_are_told_in_one_line() -> None:
    with pytest.raises(InputError, match="steps"):
        SgrOptions(steps=0)
    with pytest.raises(InputError, match="same number of regions"):
        Sgr(6, 20, None, SgrOptions(region_norm="slot"))
    with pytest.raises(InputError, match="36 regions"):
        Saf(6, 20, 36, SimilaritySizes(dim=8)).encode_images(Items(torch.randn(2, 5, 6)))
