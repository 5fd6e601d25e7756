"""What every matcher promises, and the codes it hands over."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from pairsift.encode.features import Items
from pairsift.match import MATCHERS
from pairsift.match.base import Codes, Matcher, unit
from pairsift.match.two_tower import TwoTower
from pairsift.match.vse import Vse

SIZES = {"dim": 4, "word_dim": 3}
OPTIONS: dict[str, dict[str, Any]] = {
    "two_tower": {"dim": 4, "hidden": 7, "depth": 2},
    "pcmepp": {"dim": 4, "hidden": 7},
    "pcme": {"dim": 4, "hidden": 7},
    "pau": {"dim": 4, "hidden": 7, "prototypes": 3},
    "vse-mean": SIZES | {"pooling": "mean"},
    "vse-gpo": SIZES | {"pooling": "gpo"},
    "vsrn": SIZES | {"graphs": 2},
    "scan": SIZES | {"direction": "both"},
    "imram": SIZES,
    "saf": SIZES | {"similarity_dim": 16},
    "sgr": SIZES | {"similarity_dim": 16},
    "sgraf": SIZES | {"similarity_dim": 16},
}
KINDS = list(OPTIONS)


@pytest.fixture(params=KINDS)
def matcher(request: pytest.FixtureRequest) -> Matcher:
    return make(request.param)


def make(kind: str) -> Matcher:
    """A small matcher in float64 and evaluation mode whose every parameter is random."""
    torch.manual_seed(3)
    matcher = MATCHERS[kind.partition("-")[0]]
    width = 5 if matcher.text_kind == "vector" else 11
    made = matcher(6, width, options=matcher.options(**OPTIONS[kind]))
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return made.double().eval()


def images(matcher: Matcher, n: int) -> Items:
    shape = (n, 6) if matcher.image_kind == "vector" else (n, 5, 6)
    values = torch.randn(shape, dtype=torch.float64)
    if matcher.image_kind == "vector":
        return Items(values)
    return Items(values, torch.arange(5) < torch.randint(1, 6, (n, 1)))


def texts(matcher: Matcher, n: int) -> Items:
    if matcher.text_kind == "vector":
        return Items(torch.randn(n, 5, dtype=torch.float64))
    return Items(torch.randint(0, 11, (n, 7)), torch.arange(7) < torch.randint(1, 8, (n, 1)))


def pick(items: Items, order: torch.Tensor) -> Items:
    return Items(items.values[order], None if items.mask is None else items.mask[order])


def test_codes_have_unit_length(matcher: Matcher) -> None:
    for codes in (matcher.encode_images(images(matcher, 9)), matcher.encode_texts(texts(matcher, 8))):
        assert codes.vectors.shape[1] == matcher.dim
        torch.testing.assert_close(codes.vectors.norm(dim=1), torch.ones(len(codes), dtype=torch.float64))


def test_permuted_items_give_permuted_codes_and_similarities(matcher: Matcher) -> None:
    left, right = images(matcher, 9), texts(matcher, 8)
    rows, columns = torch.randperm(9), torch.randperm(8)
    image_codes, text_codes = matcher.encode_images(left), matcher.encode_texts(right)
    moved = matcher.encode_images(pick(left, rows)), matcher.encode_texts(pick(right, columns))
    torch.testing.assert_close(moved[0].vectors, image_codes.vectors[rows])
    torch.testing.assert_close(moved[1].vectors, text_codes.vectors[columns])
    similarity = matcher.similarity(image_codes, text_codes)
    assert similarity.shape == (9, 8)
    torch.testing.assert_close(matcher.similarity(*moved), similarity[rows][:, columns])


@pytest.mark.parametrize("kind", [kind for kind in KINDS if MATCHERS[kind.partition("-")[0]].factorises])
def test_similarity_is_the_inner_product_of_the_vectors_of_the_index(kind: str) -> None:
    matcher = make(kind)
    left, right = matcher.encode_images(images(matcher, 3)), matcher.encode_texts(texts(matcher, 4))
    similarity = matcher.similarity(left, right)
    for i in range(3):
        for j in range(4):
            expected = sum(a * b for a, b in zip(left.indexed[i].tolist(), right.indexed[j].tolist(), strict=True))
            assert similarity[i, j].item() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if MATCHERS[kind.partition("-")[0]].factorises])
def test_the_index_begins_with_the_global_vectors(kind: str) -> None:
    matcher = make(kind)
    for codes in (matcher.encode_images(images(matcher, 3)), matcher.encode_texts(texts(matcher, 4))):
        assert codes.indexed.shape == (len(codes), matcher.index_dim)
        torch.testing.assert_close(unit(codes.indexed[:, : matcher.dim]), codes.vectors)


def test_different_items_get_different_codes(matcher: Matcher) -> None:
    for codes in (matcher.encode_images(images(matcher, 2)), matcher.encode_texts(texts(matcher, 2))):
        assert (codes.vectors[0] - codes.vectors[1]).norm().item() > 1e-3


@pytest.mark.parametrize("kind", KINDS)
def test_gradcheck_over_features_and_parameters(kind: str) -> None:
    matcher = make(kind)
    left, right = images(matcher, 2), texts(matcher, 3)
    names = [name for name, _ in matcher.named_parameters() if not name.endswith("log_scale")]
    parameters = [dict(matcher.named_parameters())[name].detach().requires_grad_() for name in names]
    values = [left.values.requires_grad_()]
    if right.values.is_floating_point():
        values.append(right.values.requires_grad_())

    class Similarity(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.matcher = matcher

        def forward(self, image_values: torch.Tensor, text_values: torch.Tensor) -> torch.Tensor:
            codes = matcher.encode_images(Items(image_values, left.mask))
            return matcher.similarity(codes, matcher.encode_texts(Items(text_values, right.mask)))

    def run(*inputs: torch.Tensor) -> torch.Tensor:
        own = dict(zip((f"matcher.{name}" for name in names), inputs[len(values) :], strict=True))
        text_values = inputs[1] if len(values) == 2 else right.values
        result: torch.Tensor = torch.func.functional_call(Similarity(), own, (inputs[0], text_values))
        return result

    assert torch.autograd.gradcheck(run, (*values, *parameters), fast_mode=True)


@pytest.mark.parametrize("training", [False, True])
def test_all_zero_features_give_finite_gradients(matcher: Matcher, training: bool) -> None:
    matcher.train(training)
    left, right = images(matcher, 4), texts(matcher, 4)
    codes = matcher.encode_images(Items(torch.zeros_like(left.values), left.mask))
    texts_ = matcher.encode_texts(Items(torch.zeros_like(right.values), right.mask))
    matcher.similarity(codes, texts_).sum().backward()
    for name, parameter in matcher.named_parameters():
        assert parameter.grad is None or bool(parameter.grad.isfinite().all()), name


def test_every_parameter_of_the_encoders_learns(matcher: Matcher) -> None:
    matcher.train(matcher.name == "pcme")  # whose variances are in samples alone
    weights = torch.randn(4, 4, dtype=torch.float64)
    codes = matcher.encode_images(images(matcher, 4)), matcher.encode_texts(texts(matcher, 4))
    (matcher.similarity(*codes) * weights * matcher.scale()).sum().backward()
    for name, parameter in matcher.named_parameters():
        if name.endswith(("key.bias", "common.bias")):  # shift all logits of a softmax alike; published files have them
            continue
        assert parameter.grad is not None and float(parameter.grad.abs().sum()) > 0, name


def test_registry_knows_each_matcher_by_its_name() -> None:
    assert MATCHERS["two_tower"] is TwoTower
    assert all(matcher.name == name for name, matcher in MATCHERS.items())
    assert (Vse.image_kind, Vse.text_kind, Vse.factorises, Vse.preset) == ("regions", "ids", True, "paper")


def test_unit_of_zero_is_zero_with_a_finite_gradient() -> None:
    x = torch.tensor([[0.0, 0.0], [3.0, 4.0]], requires_grad=True)
    torch.testing.assert_close(unit(x), torch.tensor([[0.0, 0.0], [0.6, 0.8]]))
    unit(x).sum().backward()
    assert x.grad is not None and bool(x.grad.isfinite().all())


def test_codes_join_pads_tokens_and_keeps_masks() -> None:
    first = Codes(torch.tensor([[1.0], [2.0]]), torch.ones(2, 3, 4), torch.tensor([[True, True, False], [True] * 3]))
    second = Codes(torch.tensor([[3.0]]), torch.full((1, 5, 4), 2.0))
    joined = Codes.join([first, second])
    assert joined.tokens is not None and joined.mask is not None
    assert len(joined) == 3 and joined.vectors.flatten().tolist() == [1.0, 2.0, 3.0]
    assert joined.tokens.shape == (3, 5, 4)
    assert joined.tokens.sum((1, 2)).tolist() == [12.0, 12.0, 40.0]
    assert joined.mask.int().tolist() == [[1, 1, 0, 0, 0], [1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]


def test_codes_without_tokens_join_to_codes_without_tokens() -> None:
    joined = Codes.join([Codes(torch.zeros(2, 3)), Codes(torch.ones(1, 3))])
    assert joined.tokens is None and joined.mask is None
    assert joined.vectors.sum(1).tolist() == [0.0, 0.0, 3.0]


def test_codes_rows_take_every_part_in_the_order_asked_for() -> None:
    vectors = torch.arange(3.0)[:, None]
    codes = Codes(vectors, vectors[:, :, None] * 10, vectors > 0)
    rows = codes.rows(torch.tensor([2, 0, 2]))
    assert rows.tokens is not None and rows.mask is not None
    assert rows.vectors.flatten().tolist() == [2.0, 0.0, 2.0]
    assert rows.tokens.flatten().tolist() == [20.0, 0.0, 20.0]
    assert rows.mask.flatten().tolist() == [True, False, True]
    bare = Codes(vectors).rows(torch.tensor([1]))
    assert bare.tokens is None and bare.mask is None and bare.vectors.item() == 1.0


@pytest.mark.parametrize("kind", ["two_tower", "pcmepp", "pcme", "pau", "vse-mean", "vse-gpo", "vsrn"])
def test_vectors_have_unit_length_in_mixed_precision_too(kind: str) -> None:
    matcher = make(kind).float()
    left, right = (
        Items(x.values.float() if x.values.is_floating_point() else x.values, x.mask)
        for x in (images(matcher, 9), texts(matcher, 9))
    )
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        both = matcher.encode_images(left), matcher.encode_texts(right)
    for codes in both:
        length = codes.vectors.double().square().sum(1).sqrt()
        torch.testing.assert_close(length, torch.ones(9, dtype=torch.float64), rtol=0, atol=1e-5)
