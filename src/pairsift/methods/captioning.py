"""The search for clean captions that PC2 and PCSR share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from torch import Tensor, nn

from pairsift.errors import InputError
from pairsift.match.base import Codes, Matcher, products, unit
from pairsift.methods.base import Array, Batch, Network, Pairing, Setting, correspond, not_negatives, related
from pairsift.methods.classifier import DirectionClassifier, FlatClassifier, GlobalClassifier
from pairsift.methods.division import DividingMethod
from pairsift.pairs.pairs import Ints

CLASSIFIERS: dict[str, Callable[[int, int], nn.Module]] = {
    "global": GlobalClassifier,
    "directions": DirectionClassifier,
    "flat": FlatClassifier,
}


@dataclass(frozen=True)
class CleanBatch:
    """A step's clean pairs, as their captions are sought in it.

    Attributes:
        batch: The pairs.
        images: Codes of their images.
        texts: Codes of their captions.
        logits: Class logits of their images, (B, K).
    """

    batch: Batch
    images: Codes
    texts: Codes
    logits: Tensor


class CaptioningMethod(DividingMethod):
    """A dividing method whose pseudo-classifier finds captions of clean pairs for the images of noisy ones.

    State beside `clean_probability`: `predictions`, (networks, n_images, K), each image's class prediction in the last
    pass, where `search` is epoch or the method `remembers`; with `search` epoch `pseudo_caption`, (networks, n_pairs),
    ids, and where embeddings are searched `embeddings`, (networks, n_images, d), once there was a pass.

    Attributes:
        classes: K of the pseudo-classifier.
        search: Captions are sought in the clean `batch` at hand, or among all clean pairs once an `epoch`. Where images
            have several captions, the latter finds a clean one of the same image if there is one: no other image is
            predicted more alike.
        classifier: The pseudo-classifier reads `global` vectors, also by `directions`, or all tokens in a row (`flat`).
        alike: What makes two images alike in the search: their `class` predictions, or the cosine of their global
            vectors (`embedding`, PC2 Table 3).
        remembers: Whether predictions are kept from one pass to the next with either search.
    """

    classes: int
    search: Literal["batch", "epoch"]
    classifier: Literal["global", "directions", "flat"]
    alike: Literal["class", "embedding"] = "class"
    remembers: ClassVar[bool] = False

    def check(self, matcher: type[Matcher]) -> None:
        """The flat classifier needs tokens."""
        if self.classifier == "flat" and not matcher.has_tokens:
            name = f"{self.name}.classifier"
            raise InputError(f"{name} flat needs tokens, {matcher.name} has none; use {name} global")

    def head(self, dim: int) -> nn.Module:
        """The pseudo-classifier C, one for both modalities."""
        return CLASSIFIERS[self.classifier](dim, self.classes)

    def begin(self, setting: Setting) -> None:
        """Every pair starts as clean, every image without a prediction, every caption as the pair's own."""
        super().begin(setting)
        if self.remembers or self.search == "epoch":
            self.state["predictions"] = np.zeros((self.networks, setting.n_images, self.classes), np.float32)
        if self.search == "epoch":
            self.state["pseudo_caption"] = np.tile(np.arange(len(setting.image_of)), (self.networks, 1))

    def observe(self, network: Network, batch: Batch) -> dict[str, Tensor]:
        """The loss by which pairs are divided, and the images' class predictions."""
        images, texts = network.encode(batch)
        similarity = network.matcher.similarity(images, texts)
        loss = self.setting.ranking.observe(similarity, network.matcher.scale(), not_negatives(batch))
        notes = {"loss": loss, "predictions": network.logits(images).softmax(1)}
        if self.search == "epoch" and self.alike == "embedding":
            notes["embeddings"] = images.vectors
        return notes

    def update(self, seen: Sequence[Mapping[str, Array]], epoch: int) -> None:
        """w from the losses; the predictions are kept, and captions sought by them."""
        super().update(seen, epoch)
        if "embeddings" in seen[0]:
            shape = self.networks, self.setting.n_images, seen[0]["embeddings"].shape[1]
            self.state["embeddings"] = np.zeros(shape, np.float32)
        for name in {"predictions", "embeddings"} & self.state.keys():
            for k, notes in enumerate(seen):
                self.state[name][k, self.setting.image_of[self.setting.ids]] = notes[name]
        if self.search == "epoch":
            for k in range(self.networks):
                self._seek(k)

    def captions(self, name: str, network: int, ids: Ints) -> Ints:
        """With `search` epoch: the captions that the last pass found for noisy pairs."""
        if name in ("all", "clean") or self.search != "epoch":
            return ids
        return np.asarray(self.state["pseudo_caption"][network, ids], np.int64)

    def _seek(self, k: int) -> None:
        """For each noisy pair of network k the clean one whose image it predicts most alike (PC2 Eq. 4)."""
        clean, noisy = self.subset("clean", k), self.subset("noisy", k)
        query, keys = (_unit(self._bank(k)[self.setting.image_of[ids]]) for ids in (noisy, clean))
        for part, block in zip(*(np.array_split(side, len(noisy) // 1024 + 1) for side in (noisy, query)), strict=True):
            self.state["pseudo_caption"][k, part] = clean[(block @ keys.T).argmax(1)]

    def _bank(self, k: int) -> Array:
        """What the last pass of network k saw of each image, as the search compares it, (n_images, K or d)."""
        bank: Array = self.state["embeddings" if self.alike == "embedding" else "predictions"][k]
        return bank

    def rematch(self, own: Network, k: int, noisy: Batch, images: Codes, clean: CleanBatch) -> tuple[Pairing, Tensor]:
        """Images of noisy pairs beside the captions of the clean images predicted most alike (PC2 Eq. 4).

        Args:
            own: The network in training.
            k: Its number.
            noisy: The noisy pairs; with `search` epoch they come with the captions found.
            images: Codes of their images.
            clean: The clean pairs of the step.

        Returns:
            The pairing, and S^p, the cosine of the two images' predictions or embeddings, without gradient, (B,).
        """
        if self.search == "epoch":
            texts, owners, read = own.matcher.encode_texts(noisy.texts), noisy.caption_images, noisy.caption_texts
            rows = noisy.image_rows, owners
            alike = [unit(correspond(self._bank(k), row.numpy(force=True), clean.logits)) for row in rows]
            y = (alike[0] * alike[1]).sum(1)
        else:
            if self.alike == "embedding":
                query, keys = images.vectors.detach(), clean.images.vectors.detach()
            else:
                query, keys = (unit(logits.detach().softmax(1)) for logits in (own.logits(images), clean.logits))
            y, j = products(query, keys).max(1)
            texts, owners, read = clean.texts.rows(j), clean.batch.caption_images[j], clean.batch.caption_texts
            read = None if read is None else read[j]
        return Pairing(images, texts, related(noisy.image_rows, owners, read)), y


def _unit(x: Array) -> Array:
    return np.asarray(x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12))
