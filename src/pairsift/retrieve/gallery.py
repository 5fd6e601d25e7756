"""Galleries: the codes of images and captions from several networks, and their similarities, in bounded memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from pairsift.arrays import Ints, Reals, text_numbers
from pairsift.encode.features import Features
from pairsift.match.base import Codes, Matcher, products, unit
from pairsift.pairs.pairs import Pairs
from pairsift.retrieve.answers import Answers, answered
from pairsift.retrieve.bank import Bank, evaluation_mode, token_batches
from pairsift.retrieve.equal import EqualItems, EqualRanks, Recall, Ties, Views, recall_notes
from pairsift.retrieve.nearest import CANDIDATES, ApproximateIndex, closest
from pairsift.retrieve.ranks import RightAnswers, count_wrong, image_folds

ROWS = 65_536  # captions that are joined with their images at once
KEPT_BYTES = 3 * 2**28  # limit of the tokens that all networks together keep

Similarities = NDArray[np.float32]


@dataclass(frozen=True)
class Gallery:
    """The codes of some images and captions from several networks.

    Unless stated otherwise a similarity is the mean over the networks. Similarities are computed in evaluation mode and
    without gradients.

    Attributes:
        matchers: One matcher per network, all of the same kind.
        images: Codes of the images from each network.
        texts: Codes of the captions from each network.
    """

    matchers: Sequence[Matcher]
    images: Sequence[Bank]
    texts: Sequence[Bank]

    @staticmethod
    def encode(matchers: Sequence[Matcher], features: Features, image_rows: Ints, ids: Ints) -> Gallery:
        """Encode these image rows and the captions of these pairs.

        The tokens of images are not kept, because the blocks read each image only once.
        """
        keep = KEPT_BYTES // len(matchers)
        images = [Bank.encode_table(matcher, features.images, image_rows, False, 0) for matcher in matchers]
        texts = [Bank.encode_table(matcher, features.texts, ids, True, keep) for matcher in matchers]
        return Gallery(matchers, images, texts)

    @property
    def factorises(self) -> bool:
        """Whether similarities are inner products of global vectors, which are cheap."""
        return all(matcher.factorises for matcher in self.matchers)

    @property
    def shares_space(self) -> bool:
        """Whether the similarity is the cosine of image and caption, so that their vectors can be added."""
        return all(matcher.shares_space for matcher in self.matchers)

    @property
    def chunk(self) -> int:
        """The number of images in a block; their tokens are in memory together."""
        return 256 if self.factorises else 128

    def with_captions(self, owner: Ints, weight: Reals) -> tuple[Gallery, Similarities]:
        """Return the gallery with every image joined with its captions, x + sum_t w_t y_t at unit length.

        Args:
            owner: Index of the image of each caption, (n_texts,).
            weight: Weight of each caption, at least 0, (n_texts,).

        Returns:
            The gallery, and the mean similarity of each caption with its image joined with the others, (n_texts,).
        """
        images, similarity = [], torch.zeros(len(owner))
        for bank, texts in zip(self.images, self.texts, strict=True):
            total, device = bank.vectors.float().clone(), bank.vectors.device
            at, weights = (torch.from_numpy(side).to(device) for side in (owner, weight.astype(np.float32)))
            parts = [slice(start, start + ROWS) for start in range(0, len(owner), ROWS)]
            for part in parts:
                total.index_add_(0, at[part], texts.vectors[part].float() * weights[part, None])
            for part in parts:
                captions = texts.vectors[part].float()
                others = unit(total[at[part]] - captions * weights[part, None])
                similarity[part] += (others * captions).sum(1).cpu() / len(self.images)
            images.append(Bank.from_codes(Codes(unit(total))))
        return Gallery(self.matchers, images, self.texts), np.asarray(similarity.numpy(), np.float32)

    def only_captions(self, places: Ints) -> Gallery:
        """Return a gallery of the same images and only these captions.

        It keeps the codes of these captions, so use it for small numbers of captions.
        """
        return Gallery(self.matchers, self.images, [Bank.from_codes(texts.select(places)) for texts in self.texts])

    def scale(self) -> float:
        """Return the mean inverse temperature of the networks."""
        return float(np.mean([matcher.scale().item() for matcher in self.matchers]))

    def views(self, rows: Ints) -> Similarities:
        """Return the similarity of these images with all captions per network, (n_networks, len(rows), n_texts)."""
        similarities = np.empty((len(self.matchers), len(rows), len(self.texts[0])), np.float32)
        for view, matcher, images, texts in zip(similarities, self.matchers, self.images, self.texts, strict=True):
            image_codes = images.select(rows)
            for places, codes in texts.walk():
                with evaluation_mode(matcher):
                    view[:, places] = matcher.similarity(image_codes, codes).float().cpu().numpy()
        return similarities

    def block(self, rows: Ints) -> Similarities:
        """Return the mean similarity of these images with all captions, (len(rows), n_texts)."""
        return np.asarray(self.views(rows).mean(0), np.float32)

    def ensemble_and_views(self, rows: Ints) -> Similarities:
        """Return the results of `block` and `views` side by side, (1 + n_networks, len(rows), n_texts)."""
        views = self.views(rows)
        return np.concatenate([views.mean(0, keepdims=True), views])

    def coarse(self, rows: Ints | slice, captions: Ints | slice = slice(None)) -> Similarities:
        """Return the mean inner product of the global vectors of these images and captions, (len(rows), len(captions)).

        It equals `block` where the matchers factorise.
        """
        return _mean_products(self.images, rows, self.texts, captions)

    def coarse_of_captions(self, captions: Ints) -> Similarities:
        """Return the mean inner product of the global vectors of these captions and all images, (n, n_images)."""
        return _mean_products(self.texts, captions, self.images, slice(None))

    def pairs(self, rows: Ints, places: Ints) -> Similarities:
        """Return the mean similarity of each of these images with the caption at the same position, (n,)."""
        order = np.lexsort((places, rows))  # by image, then by caption
        longest = np.maximum(self.images[0].lengths[rows], self.texts[0].lengths[places])[order]
        similarities = np.zeros((len(self.matchers), len(rows)), np.float32)
        for view, matcher, images, texts in zip(similarities, self.matchers, self.images, self.texts, strict=True):
            for part in token_batches(longest):
                if len(batch := order[part]):
                    with evaluation_mode(matcher):
                        similarity = matcher.pair_similarity(images.select(rows[batch]), texts.select(places[batch]))
                    view[batch] = similarity.float().cpu().numpy()
        return np.asarray(similarities.mean(0), np.float32)


def _mean_products(
    left: Sequence[Bank], rows: Ints | slice, right: Sequence[Bank], columns: Ints | slice
) -> Similarities:
    """Return the mean over the networks of the inner products of these vectors, (len(rows), len(columns))."""
    device, total = left[0].vectors.device, None
    at, beside = (
        index if isinstance(index, slice) else torch.from_numpy(index).to(device) for index in (rows, columns)
    )
    for one, other in zip(left, right, strict=True):
        part = products(one.vectors[at], other.vectors[beside])
        total = part if total is None else total.add_(part)
    assert total is not None, "a gallery has a network"
    return np.asarray(total.div_(len(left)).cpu().numpy(), np.float32)


def most_similar(
    gallery: Gallery, images: bool, k: int, candidates: int = CANDIDATES, index: ApproximateIndex | None = None
) -> tuple[Ints, Similarities]:
    """Return the items most similar to the only item of the other side of a gallery, best first.

    Items with equal scores are ordered by ascending index. Where the matchers do not factorise, the global vectors
    select the best `candidates` items (at least `k`), and the similarity itself ranks these again.

    Args:
        gallery: The gallery.
        images: Whether images are wanted, by the only caption; else captions, by the only image.
        k: Number of items.
        candidates: Number of items that are ranked again.
        index: An approximate index of the items; the best are those among its candidates.

    Returns:
        Indices of the items and their mean similarities, each (min(k, n),).
    """
    queries, items = (gallery.texts, gallery.images) if images else (gallery.images, gallery.texts)
    number = k if gallery.factorises else max(k, candidates)
    places, scores = closest([bank.vectors for bank in queries], [bank.vectors for bank in items], number, index)
    if gallery.factorises:
        return places, scores
    places = np.sort(places)
    part = gallery if images else gallery.only_captions(places)
    similarity = part.block(places)[:, 0] if images else part.block(np.zeros(1, np.int64))[0]
    best = np.argsort(-similarity, kind="stable")[:k]
    return places[best], similarity[best]


def evaluate(
    matchers: Sequence[Matcher],
    features: Features,
    pairs: Pairs,
    split: str,
    folds: int = 1,
    answers: Answers | None = None,
    picture: Ints | None = None,
) -> Views:
    """Return the recall on a split for the ensemble (`ensemble`) and for each network (`network_0`, ...), in percent.

    The protocol is the papers': only an image's own captions are right, and only its own image is right for a caption.
    With `picture`, the number of the picture of each image, copies of an image and captions with equal text are one.
    Both directions and all these views use the same similarities. With more than one fold, the images are cut into that
    many consecutive parts, each part is ranked separately, and the recall is the mean over the parts. With `answers`,
    these are the right ones in place of an image's own captions, and folds do not count.
    """
    ids, rows = pairs.ids(split), pairs.images(split)
    if answers is not None:
        links = answers.links(pairs, rows, ids)
        gallery = Gallery.encode(matchers, features, rows, ids)
        return _named([answered(gallery.ensemble_and_views, *links, (len(rows), len(ids)), gallery.chunk)])
    text = None if picture is None else text_numbers([pairs.captions[pair] for pair in ids])
    parts = []
    for own, captions, owner in _folds(pairs, split, folds):
        gallery = Gallery.encode(matchers, features, own, captions)
        right = RightAnswers.own(owner, len(own))
        if picture is not None and text is not None:
            right = EqualItems.make(picture[own], text[np.searchsorted(ids, captions)]).right_answers(owner)
        [wrong] = count_wrong(gallery.ensemble_and_views, [right], (len(own), len(captions)), gallery.chunk)
        parts.append([right.measures(view) for view in wrong])
    return _named(parts)


def evaluate_equal(
    matchers: Sequence[Matcher], features: Features, pairs: Pairs, split: str, picture: Ints, folds: int = 1
) -> Recall:
    """Return the recall on a split where copies of an image, and captions with equal text, are one item.

    Args:
        matchers: One matcher per network.
        features: The features of all images and captions.
        pairs: The pairs.
        split: The split.
        picture: Number of the picture of each image, the same for copies, (n_images,).
        folds: As for `evaluate`.
    """
    all_ids = pairs.ids(split)
    text = text_numbers([pairs.captions[pair] for pair in all_ids])
    ranked = []
    for rows, ids, owner in _folds(pairs, split, folds):
        items = EqualItems.make(picture[rows], text[np.searchsorted(all_ids, ids)])
        ranked.append(equal_ranks_of_views(matchers, features, rows, ids, owner, items))
    views = _named([[view.measures() for view in part] for part in ranked])
    strict = _named([[view.strict() for view in part] for part in ranked])
    whole = EqualItems.make(picture[pairs.images(split)], text)
    ties = Ties.together([part[0].ties() for part in ranked])
    return Recall(views, strict, recall_notes(split, whole, views["ensemble"], strict["ensemble"], ties))


def _folds(pairs: Pairs, split: str, folds: int) -> list[tuple[Ints, Ints, Ints]]:
    """Return for each fold of a split the rows of its images, the ids of its pairs, and the image of each of these."""
    ids, rows = pairs.ids(split), pairs.images(split)
    owner = np.searchsorted(rows, pairs.image_of[ids]).astype(np.int64)
    parts = image_folds(owner, len(rows), folds)
    return [(rows[own], ids[captions], owner[captions] - own[0]) for own, captions in parts]


def _named(folds: Sequence[Sequence[Mapping[str, float]]]) -> Views:
    """Return the mean of measures over folds, by the name of the view: the ensemble, then each network."""
    names = ["ensemble", *(f"network_{k}" for k in range(len(folds[0]) - 1))]
    return {
        name: {key: float(np.mean([fold[view][key] for fold in folds])) for key in folds[0][view]}
        for view, name in enumerate(names)
    }


def equal_ranks_of_views(
    matchers: Sequence[Matcher], features: Features, rows: Ints, ids: Ints, owner: Ints, items: EqualItems
) -> list[EqualRanks]:
    """Return the ranks among these images and captions, where equal items are one, for the ensemble and each network.

    Args:
        matchers: One matcher per network.
        features: The features of all images and captions.
        rows: Rows of the images, (n_images,).
        ids: Ids of the pairs with the captions, (n_texts,).
        owner: Position in `rows` of the image of each caption, (n_texts,).
        items: The numbers of these images and captions.
    """
    gallery = Gallery.encode(matchers, features, rows, ids)
    return EqualRanks.by_view(gallery.ensemble_and_views, owner, items, gallery.chunk)
