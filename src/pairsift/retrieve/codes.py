"""Codes of whole tables, and the similarity of everything with everything in blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from pairsift.encode.features import Features, Table
from pairsift.match.base import Codes, Matcher
from pairsift.pairs.pairs import Ints, Pairs
from pairsift.retrieve.ranks import ranks, recall, recall_folds

Block = Callable[[Ints], NDArray[np.float32]]


@torch.no_grad()
def encode_rows(matcher: Matcher, table: Table, rows: Ints, texts: bool, batch_size: int = 1024) -> Codes:
    """Codes of these rows of a table in evaluation mode, in order, on the matcher's device.

    Tokens are kept only where the similarity needs them.
    """
    training = matcher.training
    matcher.eval()
    device = next(matcher.parameters()).device
    encode = matcher.encode_texts if texts else matcher.encode_images
    starts = range(0, max(1, len(rows)), batch_size)
    parts = [encode(table.batch(rows[start : start + batch_size]).to(device)) for start in starts]
    if matcher.factorises:
        parts = [Codes(part.vectors) for part in parts]
    matcher.train(training)
    return Codes.join(parts)


@dataclass(frozen=True)
class Gallery:
    """Some images and some captions as several networks see them; similarities are the networks' mean.

    Attributes:
        matchers: One per network.
        images: Each network's codes of the images, (n_images, ...).
        texts: Each network's codes of the captions, (n_texts, ...).
    """

    matchers: Sequence[Matcher]
    images: Sequence[Codes]
    texts: Sequence[Codes]

    @staticmethod
    def of(matchers: Sequence[Matcher], features: Features, image_rows: Ints, ids: Ints) -> Gallery:
        """Encode these image rows and the captions of these pairs."""
        images = [encode_rows(matcher, features.images, image_rows, texts=False) for matcher in matchers]
        texts = [encode_rows(matcher, features.texts, ids, texts=True) for matcher in matchers]
        return Gallery(matchers, images, texts)

    def only(self, network: int) -> Gallery:
        """The gallery as one network sees it."""
        one = slice(network, network + 1)
        return Gallery(self.matchers[one], self.images[one], self.texts[one])

    def scale(self) -> float:
        """Mean inverse temperature of the networks."""
        return float(np.mean([matcher.scale().item() for matcher in self.matchers]))

    @torch.no_grad()
    def block(self, rows: Ints) -> NDArray[np.float32]:
        """Mean similarity of these of the gallery's images with all its captions, (len(rows), n_texts)."""
        index = torch.from_numpy(rows)
        total = None
        for matcher, images, texts in zip(self.matchers, self.images, self.texts, strict=True):
            part = matcher.similarity(images.rows(index.to(images.vectors.device)), texts)
            total = part if total is None else total + part
        assert total is not None
        return np.asarray((total / len(self.matchers)).float().cpu().numpy(), np.float32)


def evaluate(
    matchers: Sequence[Matcher], features: Features, pairs: Pairs, split: str, folds: int = 1
) -> dict[str, dict[str, float]]:
    """Recall on a split for the ensemble (`ensemble`) and for each network (`network_0`, ...), in percent.

    With more than one fold it is the mean over that many consecutive parts of the images, ranked each by itself.
    """
    ids, rows = pairs.ids(split), pairs.images(split)
    owner = np.searchsorted(rows, pairs.image_of[ids]).astype(np.int64)
    gallery = Gallery.of(matchers, features, rows, ids)
    views = {"ensemble": gallery} | {f"network_{k}": gallery.only(k) for k in range(len(matchers))}
    if folds > 1:
        return {name: recall_folds(view.block, owner, len(rows), folds) for name, view in views.items()}
    return {name: recall(ranks(view.block, owner, len(rows))) for name, view in views.items()}
