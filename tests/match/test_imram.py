"""IMRAM against the loop over captions, what must change nothing, and a backward pass that keeps little."""

from __future__ import annotations

from typing import Any, Literal

import pytest
import torch
from naive_loops_scan import imram_similarity
from torch import Tensor
from torch.nn import functional

from pairsift.encode.features import Items
from pairsift.errors import InputError
from pairsift.match import imram
from pairsift.match.base import Codes, unit
from pairsift.match.imram import Imram, ImramOptions

DOUBLE = torch.float64
Direction = Literal["text", "image", "full"]
directions = pytest.mark.parametrize("direction", ["text", "image", "full"])
rounds = pytest.mark.parametrize("steps", [1, 2, 3, 4])


def make(direction: Direction = "full", steps: int = 3, dim: int = 5, **options: Any) -> Imram:
    torch.manual_seed(2)
    chosen = ImramOptions(dim=dim, word_dim=3, direction=direction, steps=steps, **options)
    matcher = Imram(6, 20, chosen).double()
    for parameter in matcher.gates.parameters():
        torch.nn.init.normal_(parameter, std=2 / dim**0.5)
    return matcher


def codes(*counts: int, dim: int = 5, seed: int = 0) -> Codes:
    """Random unit tokens, so many for each item, and zeros behind them."""
    generator = torch.Generator().manual_seed(seed)
    mask = torch.arange(max(counts)) < torch.tensor(counts)[:, None]
    tokens = unit(torch.randn(*mask.shape, dim, dtype=DOUBLE, generator=generator) + 0.3) * mask[..., None]
    return Codes(unit(tokens.sum(1)), tokens.requires_grad_(), mask)


def gradients(value: Tensor, matcher: Imram, *given: Codes, weights: Tensor | None = None) -> list[Tensor]:
    """Of the tokens and of the gates."""
    if weights is None:
        weights = torch.randn(value.shape, dtype=value.dtype, generator=torch.Generator().manual_seed(9))
    wanted = [each.tokens for each in given if each.tokens is not None]
    found = torch.autograd.grad(
        (value * weights).sum(), [*wanted, *matcher.gates.parameters()], allow_unused=True, retain_graph=True
    )
    parameters = [*wanted, *matcher.gates.parameters()]
    return [
        torch.zeros_like(x) if gradient is None else gradient for x, gradient in zip(parameters, found, strict=True)
    ]


def assert_all_close(mine: list[Tensor], theirs: list[Tensor]) -> None:
    for one, other in zip(mine, theirs, strict=True):
        torch.testing.assert_close(one, other)


@directions
@rounds
@pytest.mark.parametrize("cells", [8, 2048])
def test_values_and_gradients_match_the_loop_over_captions(
    direction: Direction, steps: int, cells: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(imram.BLOCK_CELLS, "cpu", cells)
    matcher, images, texts = make(direction, steps), codes(4, 2, 7, 4), codes(3, 1, 6, 3, 9, seed=1)
    got, expected = matcher.similarity(images, texts), imram_similarity(matcher, images, texts)
    assert got.shape == (4, 5)
    torch.testing.assert_close(got, expected)
    assert_all_close(gradients(got, matcher, images, texts), gradients(expected, matcher, images, texts))


@directions
@rounds
def test_images_without_a_mask_match_the_loop(direction: Direction, steps: int) -> None:
    matcher, texts, whole = make(direction, steps, sharpness=4.0), codes(3, 2, seed=1), codes(5, 5, 5)
    bare = Codes(whole.vectors, whole.tokens)
    torch.testing.assert_close(matcher.similarity(bare, texts), imram_similarity(matcher, bare, texts))


@pytest.mark.parametrize("steps", [1, 4])
@pytest.mark.parametrize("memory", [0.0, 4e-6, 1.0])
@pytest.mark.parametrize("share", [0.0, 0.15, 0.6])
def test_gradients_of_few_pairs_and_with_little_memory(steps: int, memory: float, share: float) -> None:
    matcher, images, texts = make("full", steps, memory=memory), codes(4, 2, 7, 4), codes(3, 1, 3, 3, 9, seed=1)
    weights = torch.randn(4, 5, dtype=DOUBLE) * (torch.rand(4, 5) < share)
    got, expected = matcher.similarity(images, texts), imram_similarity(matcher, images, texts)
    for _ in range(2):  # the second time nothing is kept any more
        mine = gradients(got, matcher, images, texts, weights=weights)
        assert_all_close(mine, gradients(expected, matcher, images, texts, weights=weights))


@directions
@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("memory", [0.0, 1.0])
def test_gradcheck(direction: Direction, steps: int, memory: float) -> None:
    matcher, images, texts = (
        make(direction, steps, dim=3, memory=memory),
        codes(3, 2, dim=3),
        codes(2, 1, seed=1, dim=3),
    )
    names = [name for name, _ in matcher.named_parameters() if name.startswith("gates")]
    given = [dict(matcher.named_parameters())[name].detach().requires_grad_() for name in names]

    def run(regions: Tensor, words: Tensor, *gates: Tensor) -> Tensor:
        left, right = Codes(images.vectors, regions, images.mask), Codes(texts.vectors, words, texts.mask)
        return torch.func.functional_call(_Similarity(matcher), _named(names, gates), (left, right))

    assert torch.autograd.gradcheck(run, (images.tokens, texts.tokens, *given), fast_mode=True)


class _Similarity(torch.nn.Module):
    def __init__(self, matcher: Imram) -> None:
        super().__init__()
        self.matcher = matcher

    def forward(self, images: Codes, texts: Codes) -> Tensor:
        return self.matcher.similarity(images, texts)


def _named(names: list[str], values: tuple[Tensor, ...]) -> dict[str, Tensor]:
    return {f"matcher.{name}": value for name, value in zip(names, values, strict=True)}


@directions
def test_the_diagonal_is_the_similarity_of_pairs(direction: Direction) -> None:
    matcher, images, texts = make(direction), codes(4, 2, 7, 4, 1), codes(3, 1, 6, 3, 9, seed=1)
    pairs, diagonal = matcher.pair_similarity(images, texts), matcher.similarity(images, texts).diagonal()
    torch.testing.assert_close(pairs, diagonal)
    assert_all_close(gradients(pairs, matcher, images, texts), gradients(diagonal, matcher, images, texts))
    alone = matcher.pair_similarity(images.rows(slice(1, 2)), texts.rows(slice(1, 2)))
    torch.testing.assert_close(alone, pairs[1:2])


@directions
def test_padding_and_order_change_nothing(direction: Direction) -> None:
    matcher, images, texts = make(direction), codes(4, 2, 3), codes(3, 1, 6, seed=1)
    assert images.tokens is not None and images.mask is not None and texts.tokens is not None and texts.mask is not None
    narrow = matcher.similarity(images, texts)
    order = torch.tensor([6, 2, 0, 5, 1, 4, 3])
    tokens = functional.pad(images.tokens, (0, 0, 0, 3), value=7.0)[:, order]
    scattered = Codes(images.vectors, tokens, functional.pad(images.mask, (0, 3))[:, order])
    long = Codes(
        texts.vectors, functional.pad(texts.tokens, (0, 0, 0, 4), value=7.0), functional.pad(texts.mask, (0, 4))
    )
    torch.testing.assert_close(matcher.similarity(scattered, long), narrow)
    torch.testing.assert_close(matcher.pair_similarity(scattered, long), narrow.diagonal())
    rows, columns = torch.tensor([2, 0, 1]), torch.tensor([1, 2, 0])
    moved = matcher.similarity(images.rows(rows), texts.rows(columns))
    torch.testing.assert_close(moved, narrow[rows][:, columns])


@directions
@pytest.mark.parametrize("count", [1, 49])
def test_captions_of_one_and_of_two_hundred_words_and_any_number_of_regions(direction: Direction, count: int) -> None:
    matcher, images, texts = make(direction), codes(count, count), codes(1, 200, 12, seed=1)
    torch.testing.assert_close(matcher.similarity(images, texts), imram_similarity(matcher, images, texts))


@directions
def test_items_of_one_kind_are_compared_as_images_with_texts(direction: Direction) -> None:
    matcher, images = make(direction), codes(4, 2, 7)
    torch.testing.assert_close(matcher.intra_similarity(images), imram_similarity(matcher, images, images))


@directions
def test_zero_regions_and_zero_words_give_finite_gradients(direction: Direction) -> None:
    matcher, images, texts = make(direction), codes(3, 3), codes(2, 4, 4, seed=1)
    assert images.tokens is not None and texts.tokens is not None
    with torch.no_grad():
        images.tokens[0, 1] = images.tokens[1] = texts.tokens[1, 2] = texts.tokens[2] = 0
    similarity = matcher.similarity(images, texts)
    assert similarity[1].tolist() == [0.0] * 3 and similarity[:, 2].tolist() == [0.0] * 2
    assert all(bool(gradient.isfinite().all()) for gradient in gradients(similarity, matcher, images, texts))


@directions
@pytest.mark.parametrize("how", ["autocast", "codes"])
def test_half_precision_stays_close(direction: Direction, how: str) -> None:
    matcher = make(direction, dim=256)
    images, texts = codes(36, 30, dim=256), codes(12, 5, 20, seed=1, dim=256)
    expected = matcher.similarity(images, texts)
    exact = gradients(expected, matcher, images, texts)
    matcher = matcher.float()
    kind = torch.bfloat16 if how == "codes" else torch.float32
    given = [
        Codes(each.vectors, each.tokens.to(kind), each.mask) for each in (images, texts) if each.tokens is not None
    ]
    with torch.autocast("cpu", torch.bfloat16, enabled=how == "autocast"):
        got = matcher.similarity(*given)
    assert got.dtype == torch.float32
    torch.testing.assert_close(got.double(), expected, rtol=0, atol=5e-3)
    for mine, theirs in zip(gradients(got, matcher, images, texts), exact, strict=True):
        assert float((mine - theirs).norm()) < 0.3 * float(theirs.norm())  # the loop's under autocast: up to 0.2


def test_evaluation_keeps_nothing() -> None:
    matcher, images, texts = make(), codes(4, 2), codes(3, 1, seed=1)
    with torch.no_grad():
        assert not matcher.similarity(images, texts).requires_grad
    allowance = imram.MemoryBudget(1e-6)
    assert allowance.take([]) is None and allowance.take([torch.zeros(1000)]) is None
    kept = allowance.take([torch.zeros(200)])
    assert kept is not None and allowance.take([torch.zeros(200)]) is None


def test_every_round_adds_a_cosine() -> None:
    """Without gates that open, q stays q_1 and each round scores the same."""
    matcher, images, texts = make(steps=3), codes(4, 2), codes(3, 1, seed=1)
    for name, gates in matcher.gates.named_children():
        assert isinstance(gates, torch.nn.Linear), name
        torch.nn.init.zeros_(gates.weight)
        torch.nn.init.constant_(gates.bias, 50.0)
    once = make(steps=1).similarity(images, texts)
    torch.testing.assert_close(matcher.similarity(images, texts), 3 * once)


def test_empty_images_and_captions_are_scored() -> None:
    matcher = make()
    mask = torch.tensor([[True, True, False], [False, False, False]])
    images = matcher.encode_images(Items(torch.randn(2, 3, 6, dtype=DOUBLE), mask))
    texts = matcher.encode_texts(Items(torch.tensor([[3, 4], [0, 0]]), torch.tensor([[True, True], [False, False]])))
    similarity = matcher.similarity(images, texts)
    similarity.sum().backward()
    assert similarity[1].tolist() == [0.0, 0.0] and bool((similarity[0].abs() > 0).all())
    assert all(bool(p.grad.isfinite().all()) for p in matcher.parameters() if p.grad is not None)


@pytest.mark.parametrize(("direction", "millions"), [("text", 17.0), ("image", 17.0), ("full", 21.2)])
def test_size_with_the_flickr30k_vocabulary(direction: Direction, millions: float) -> None:
    with torch.device("meta"):
        matcher = Imram(2048, 8481, ImramOptions(direction=direction))
    assert round(sum(parameter.numel() for parameter in matcher.parameters()) / 1e6, 1) == millions
    assert (matcher.dim, matcher.steps, matcher.sharpness) == (1024, 3, 9.0)
    assert (Imram.factorises, Imram.has_tokens, Imram.preset) == (False, True, "paper")


@pytest.mark.parametrize(
    ("options", "message"), [({"direction": "t2i"}, "direction is 't2i'"), ({"steps": 0}, "steps is 0")]
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ImramOptions(**options)


@directions
@rounds
def test_the_largest_similarity_is_one_a_round_and_direction(direction: Direction, steps: int) -> None:
    matcher = make(direction, steps)
    one = Codes(unit(torch.ones(1, 5, dtype=DOUBLE)), unit(torch.ones(1, 2, 5, dtype=DOUBLE)), torch.ones(1, 2) > 0)
    value = matcher.similarity(one, one).item()  # all tokens are equal, and so is what a query finds
    assert matcher.largest == pytest.approx(value) and value == pytest.approx(steps * (2 if direction == "full" else 1))
