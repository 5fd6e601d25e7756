"""The kinds of evidence that image and caption of a pair belong together, beside the evidence of decoys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from pairsift.arrays import Floats, Ints, Reals
from pairsift.detect.folds import CentredRows, Folds
from pairsift.detect.options import ContrastOptions, DetectOptions, NeighbourOptions

ROWS = 4096  # rows whose cosines with the references are in memory at once
BLOCK = 16_384  # rows that are encoded at once
QUERIES = 1024  # rows whose cosines with the keys are in memory at once

MATRIX_ROWS = 4096  # largest fold of which all cosines are computed at once

PairEncoder = Callable[[int, Ints], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class References:
    """The pairs that the images and captions of a fold are compared with.

    Attributes:
        images: Unit vectors of their images, (r, d).
        captions: Unit vectors of their captions, (r, d).
        groups: Group of near-duplicate images of each, (r,).
    """

    images: Tensor
    captions: Tensor
    groups: Ints

    @staticmethod
    def draw(
        folds: Folds, fold: int, members: Ints, encode: PairEncoder, seed: int, options: ContrastOptions
    ) -> References:
        """Draw at most 1,024 pairs of a fold, or of all folds where the fold has fewer than 50 pairs."""
        pool = members if len(members) >= options.min_references else np.arange(len(folds))
        drawn = np.random.default_rng((seed, 9, fold)).permutation(pool)[: options.references]
        return References(*encode(fold, drawn), folds.group_of[drawn])

    def image_levels(self, images: Tensor, groups: Ints, scale: float) -> Tensor:
        """Return the level that images reach with the captions, (n,); `groups` are those of each, (n, g)."""
        return _levels(images, self.captions, groups, self.groups, scale)

    def caption_levels(self, captions: Tensor, groups: Ints, scale: float) -> Tensor:
        """Return the level that captions reach with the images, (n,); `groups` are those of each, (n, g)."""
        return _levels(captions, self.images, groups, self.groups, scale)


@dataclass(frozen=True)
class Evidence:
    """A number per pair and per decoy, high where image and caption belong together.

    Attributes:
        pairs: Evidence of the pairs, (n,).
        decoys: Evidence of the decoys, captions combined with images of other pairs, (m,).
        near_decoys: Evidence of the near decoys, whose captions read like those that are given with the images, (k,).
        placeholder: Number of the image or caption that the pair has in common with many and that fits hardly any
            of them (`pairsift.detect.placeholders`), -1 for other pairs, (n,); empty if there is none.
        references: The references of each fold, where the evidence is a contrast with them.
    """

    pairs: Reals
    decoys: Reals
    near_decoys: Reals = field(default_factory=lambda: np.zeros(0))
    placeholder: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    references: Sequence[References] = ()


def contrast_with(
    references: Sequence[References], encode: PairEncoder, fold_of: Ints, group_of: Ints, scale: float
) -> Reals:
    """Return the evidence of pairs beside given references, as `contrast` defines it, (n,).

    Args:
        references: The references of each fold.
        encode: Function from a fold and some of these pairs to unit vectors of their images and captions.
        fold_of: Fold whose model judges each pair, (n,).
        group_of: Group of near-duplicate images of each pair, numbered as in the references, (n,).
        scale: Inverse temperature s.
    """
    found = np.zeros(len(fold_of))
    for fold, beside in enumerate(references):
        inside = np.flatnonzero(fold_of == fold)
        for start in range(0, len(inside), BLOCK):
            rows = inside[start : start + BLOCK]
            images, captions = encode(fold, rows)
            groups = group_of[rows][:, None]
            levels = beside.image_levels(images, groups, scale) + beside.caption_levels(captions, groups, scale)
            found[rows] = ((images * captions).sum(1) - levels / 2).numpy()
    return found


def contrast(folds: Folds, encode: PairEncoder, seed: int, options: DetectOptions) -> Evidence:
    """Return the cosine of every pair minus the level that its image and its caption reach with references.

        e(I, T) = cos(I, T) - 1/2s log mean_T' exp(s cos(I, T')) - 1/2s log mean_I' exp(s cos(I', T)),    s = 20

    The references are at most 1,024 pairs of the same fold, or of all folds where the fold has fewer than 50 pairs.

    Pairs of the same group of near-duplicate images are excluded. Otherwise the evidence of mismatched pairs and of
    decoys would be distributed differently: the caption of a decoy comes from the same fold, with all near-duplicates
    of its true image; the true image of a mismatched pair's caption mostly lies in another fold. For near decoys, and
    decoys that are swaps, the pairs of both groups are excluded, or they would be compared with themselves. So they are
    for decoys with an image of at least 20 pairs, or a caption from one: this image would count against them but not
    against its own pairs.

    Args:
        folds: The pairs, their folds and the decoys.
        encode: Function from a fold and some pairs to unit vectors of the pairs' images and captions, (k, d) each, from
            a model that did not see the fold.
        seed: Seed of the references.
        options: The references, and when an image is common.
    """
    scale = options.contrast.scale
    pairs, decoys, near = (np.zeros(n) for n in (len(folds), len(folds.decoy_images), len(folds.near_decoy_images)))
    place = np.zeros(len(folds), np.int64)
    common = np.bincount(folds.image_of, minlength=1)[folds.image_of] >= options.folds.min_common
    mismatched = (
        (decoys, folds.decoy_images, folds.decoy_captions, len(folds.copies) > 0),
        (near, folds.near_decoy_images, folds.near_decoy_captions, True),
    )
    references = []
    for fold, members in enumerate(folds.members()):
        beside = References.draw(folds, fold, members, encode, seed, options.contrast)
        references.append(beside)
        if not len(members):
            continue
        images, captions = _encoded(encode, fold, members)
        place[members], groups = np.arange(len(members)), folds.group_of[members]
        image_levels = beside.image_levels(images, groups[:, None], scale)
        caption_levels = beside.caption_levels(captions, groups[:, None], scale)
        own = np.arange(len(members))
        pairs[members] = (_cosines(images, captions, own, own) - (image_levels + caption_levels) / 2).numpy()
        cosines = images @ captions.T if len(members) <= MATRIX_ROWS else None
        for values, image_pairs, caption_pairs, alike in mismatched:
            inside = np.flatnonzero(folds.fold[image_pairs] == fold)
            here, there = place[image_pairs[inside]], place[caption_pairs[inside]]
            levels = image_levels[here] + caption_levels[there]
            # Levels without the groups of both sides, where one of them would count against the decoy.
            apart = np.flatnonzero(alike | common[image_pairs[inside]] | common[caption_pairs[inside]])
            both = np.stack([groups[here[apart]], groups[there[apart]]], 1)
            levels[apart] = beside.image_levels(images[here[apart]], both, scale)
            levels[apart] += beside.caption_levels(captions[there[apart]], both, scale)
            cosine = _cosines(images, captions, here, there) if cosines is None else cosines[here, there]
            values[inside] = (cosine - levels / 2).numpy()
    return Evidence(pairs, decoys, near, references=references)


def _encoded(encode: PairEncoder, fold: int, members: Ints) -> tuple[Tensor, Tensor]:
    """Return what `encode` gives, computed for some rows at a time."""
    images, captions = encode(fold, members[:BLOCK])
    if len(members) <= BLOCK:
        return images, captions
    both = [side.new_empty(len(members), side.shape[1]) for side in (images, captions)]
    for start in range(0, len(members), BLOCK):
        if start:
            images, captions = encode(fold, members[start : start + BLOCK])
        for side, part in zip(both, (images, captions), strict=True):
            side[start : start + BLOCK] = part
    return both[0], both[1]


def _cosines(images: Tensor, captions: Tensor, here: Ints, there: Ints) -> Tensor:
    """Return the cosine of each image in the rows `here` with the caption in the row `there`, (n,)."""
    cosines = torch.empty(len(here))
    for start in range(0, len(here), ROWS):
        part = slice(start, start + ROWS)
        cosines[part] = (images[here[part]] * captions[there[part]]).sum(1)
    return cosines


def _levels(queries: Tensor, references: Tensor, groups: Ints, reference_groups: Ints, scale: float) -> Tensor:
    """Return log mean exp(s cos) / s over the references outside the query's groups, (n,); 0 where there are none.

    Unit vectors have exponents of at most s, so that nothing overflows.

    Args:
        queries: Unit vectors, (n, d).
        references: Unit vectors, (m, d).
        groups: Groups of each query, (n, g).
        reference_groups: Group of each reference, (m,).
        scale: Inverse temperature s.
    """
    levels = torch.empty(len(queries))
    for start in range(0, len(queries), ROWS):
        part = slice(start, start + ROWS)
        exps = (queries[part] @ references.T).mul_(scale).exp_()
        rows, columns = _same_group(groups[part], reference_groups)
        exps[torch.from_numpy(rows), torch.from_numpy(columns)] = 0.0
        count = torch.from_numpy(len(references) - np.bincount(rows, minlength=len(exps)))
        levels[part] = torch.where(count > 0, (exps.sum(1) / count.clamp(min=1)).log(), 0.0) / scale
    return levels


def _same_group(groups: Ints, reference_groups: Ints) -> tuple[Ints, Ints]:
    """Return the pairs of a query and a reference of one of its groups: their rows, each pair once, (k,) and (k,)."""
    # Each group of a query is a stretch of the references in the order of their groups.
    order = np.argsort(reference_groups)
    groups = np.sort(groups, axis=1)
    first, end = (np.searchsorted(reference_groups[order], groups, side) for side in ("left", "right"))
    size = end - first
    # A group that a query has twice counts once.
    size[:, 1:][groups[:, 1:] == groups[:, :-1]] = 0
    # Every place of every stretch, beside the row of its query.
    size, first = size.ravel(), first.ravel()
    rows = np.repeat(np.arange(len(size)) // groups.shape[1], size)
    within = np.arange(len(rows)) - np.repeat(np.cumsum(size) - size, size)
    return rows, order[np.repeat(first, size) + within]


@dataclass(frozen=True)
class Keys:
    """The pairs of other folds among which the neighbours of a fold's pairs are sought.

    Attributes:
        queried: Centred unit vectors of the side by which neighbours are near, (k, d).
        predicted: Centred unit vectors of the other side, (k, e).
        weights: Trust in each pair, [0, 1], (k,).
    """

    queried: Tensor
    predicted: Tensor
    weights: Tensor


@dataclass(frozen=True)
class Neighbours:
    """Predictions of a side of a pair from the nearest pairs of other folds by the other side.

    Attributes:
        keys: The keys of each fold.
        means: Means of the images' and of the captions' features, (d,) and (e,).
        by_images: Whether neighbours are near by their images and predict the captions, or the reverse.
        options: The neighbours.
    """

    keys: list[Keys]
    means: tuple[Floats, Floats]
    by_images: bool
    options: NeighbourOptions

    def encoder(self, images: Floats, captions: Floats) -> PairEncoder:
        """Return a function that gives, for pairs with these features, one side as it is and the other predicted."""
        x, y = (CentredRows(side, mean) for side, mean in zip((images, captions), self.means, strict=True))

        def encode(fold: int, members: Ints) -> tuple[Tensor, Tensor]:
            keys = self.keys[fold]
            queries = (x if self.by_images else y)(members)
            predicted = _predictions(queries, keys.queried, keys.predicted, keys.weights, self.options)
            return (predicted, y(members)) if self.by_images else (x(members), predicted)

        return encode


def fit_neighbours(
    folds: Folds, images: Floats, captions: Floats, seed: int, options: NeighbourOptions, trust: Reals | None = None
) -> tuple[Neighbours, Neighbours]:
    """Draw the pairs by which captions and images are predicted.

    The captions of the 30 nearest images, weighted by exp(5 cos), predict the caption of an image; the images of the
    30 nearest captions predict the image of a caption. Cosines are between centred features. Pairs are also weighted by
    the trust in them.

    Args:
        folds: The pairs, their folds and the decoys.
        images: Features of each pair's image, (n, d).
        captions: Features of each pair's caption, (n, e).
        seed: Seed of the keys.
        options: The neighbours.
        trust: Trust in each pair by models that did not see each of the folds, [0, 1], (folds, n); None for 1. A pair
            with a trust of 0 is no neighbour.

    Returns:
        The predictions of captions by images, and of images by captions.
    """
    means = images.mean(0), captions.mean(0)
    x, y = CentredRows(images, means[0]), CentredRows(captions, means[1])
    weights = torch.ones(1, len(folds)) if trust is None else torch.from_numpy(trust).float()  # one row: for all folds
    by_images, by_captions = [], []
    for fold in range(folds.count):
        # At most so many pairs of the other folds, in an order that is drawn for each fold.
        weight = weights[fold % len(weights)]
        others = np.flatnonzero((folds.fold != fold) & (weight.numpy() > 0))
        drawn = np.random.default_rng((seed, 10, fold)).permutation(others)[: options.max_keys]
        sides = x(drawn), y(drawn)
        by_images.append(Keys(*sides, weight[drawn]))
        by_captions.append(Keys(*sides[::-1], weight[drawn]))
    return Neighbours(by_images, means, True, options), Neighbours(by_captions, means, False, options)


def _predictions(queries: Tensor, keys: Tensor, values: Tensor, weights: Tensor, options: NeighbourOptions) -> Tensor:
    """Return the weighted means of the values of each query's nearest keys, as unit vectors, (len(queries), e).

    Cosines are computed in double precision: among equally near keys, rounding would choose otherwise in every block.
    """
    if not len(keys):
        return torch.zeros(len(queries), values.shape[1])
    exact = keys.double().T
    count, predictions = min(options.count, len(keys)), torch.empty(len(queries), values.shape[1])
    for start in range(0, len(queries), QUERIES):
        cosine, place = (queries[start : start + QUERIES].double() @ exact).float().topk(count, 1)
        weight = (options.sharpness * cosine).softmax(1) * weights[place]
        means = functional.embedding_bag(place, values, per_sample_weights=weight, mode="sum")
        predictions[start : start + QUERIES] = unit_vectors(means)
    return predictions


def unit_vectors(x: Tensor) -> Tensor:
    """Return the rows of a tensor scaled to unit length, (n, d); a row of zeros stays zero."""
    return functional.normalize(x, eps=1e-9)


def sibling_encoder(encode: PairEncoder, image_of: Ints, probability: Reals, weight: float) -> PairEncoder:
    """Return an encoder that joins every pair's image with the image's other captions, its siblings.

        z_i  =  x_i + w sum_s p_s y_s    over the siblings s of pair i,    at unit length

    x and y are the vectors of images and captions in the space that they share. The pair's own caption is not part of
    z_i, and a sibling counts by its match probability p. So an image about which right captions say more is compared
    with its caption by all of this. Where p comes from evidence with siblings, the pair's caption had a part in it.

    Args:
        encode: Function from a fold and some pairs to unit vectors of their images and captions, (k, d) each.
        image_of: Image of each pair, (n,).
        probability: Probability that each pair matches, [0, 1], (n,).
        weight: Weight w of a caption that surely matches, beside the image.
    """
    image = np.unique(image_of, return_inverse=True)[1]
    weights = weight * torch.from_numpy(probability).float()

    def with_captions(fold: int, members: Ints) -> tuple[Tensor, Tensor]:
        wanted = np.unique(image[members])
        place = np.searchsorted(wanted, image)
        images, captions = encode(fold, members)
        own, at = captions.float() * weights[members, None], torch.from_numpy(place[members])
        total = torch.zeros(len(wanted), own.shape[1]).index_add_(0, at, own)
        rest = np.setdiff1d(np.flatnonzero(np.isin(image, wanted)), members)
        if len(rest):
            shares = encode(fold, rest)[1].float() * weights[rest, None]
            total.index_add_(0, torch.from_numpy(place[rest]), shares)
        return unit_vectors(images + total[at] - own), captions

    return with_captions


def memory_evidence(folds: Folds, of_copies: Reals, seed: int) -> Evidence:
    """Return the evidence of every swap by the network that learned the swap's copy.

    A pair has the evidence of a network that learned it as it is given, so that a mismatched pair and a decoy were
    learned alike.

    Args:
        folds: The pairs, and decoys that are swaps.
        of_copies: Evidence of the pairs of each copy by the network that learned it, (copies, n).
        seed: Seed of the choice where all networks learned a pair as it is given.
    """
    copy = np.random.default_rng((seed, 16)).integers(0, len(of_copies), len(folds))
    copy[folds.decoy_captions] = (folds.copies + 1) % len(of_copies)
    return Evidence(of_copies[copy, np.arange(len(folds))], of_copies[folds.copies, folds.decoy_captions])
