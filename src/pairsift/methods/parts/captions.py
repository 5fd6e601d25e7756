"""The search for clean captions that fit the images of noisy pairs (PC2 and PCSR)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field
from torch import Tensor

from pairsift.arrays import Array, Ints, unit_rows
from pairsift.match.base import Codes, products, unit
from pairsift.methods.parts.division import Division
from pairsift.methods.parts.part import Part
from pairsift.steps import Batch, Network, Observation, Pairing, Setting, Term, correspond, related


@dataclass(frozen=True)
class CleanBatch:
    """A step's clean pairs, as captions are searched for among them.

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


class CaptionSearch(Part):
    """The search for captions of clean pairs for the images of noisy ones (PC2 Eq. 4).

    Where images have several captions, the search of an `epoch` finds a clean one of the same image if there is one: no
    other image is predicted more alike.

    State, with `search` epoch: `pseudo_caption`, (networks, n_pairs), ids; where embeddings are compared also
    `embeddings`, (networks, n_images, d), once there was a pass. It reads the pseudo-classifier's `predictions`.
    """

    per_image: ClassVar[tuple[str, ...]] = ("embeddings",)

    search: Literal["batch", "epoch"] = Field(
        default="batch",
        description="Captions are searched for in the clean batch at hand, or among all clean pairs once an epoch, "
        "which finds a clean caption of the same image where there is one.",
    )
    compare: Literal["class", "embedding"] = Field(
        default="class",
        description="What makes two images alike: their class predictions or their embeddings (PC2 Table 3).",
    )
    mismatch_threshold: float = Field(
        default=0.0, ge=0, le=1, description="A caption whose image is less alike than this is not used; PC2* has 0.5."
    )

    def begin(self, setting: Setting, state: dict[str, Array]) -> None:
        """Let every pair start with its own caption."""
        super().begin(setting, state)
        if self.search == "epoch":
            state["pseudo_caption"] = np.tile(np.arange(len(setting.image_of)), (setting.networks, 1))

    def observe(self, observation: Observation) -> dict[str, Tensor]:
        """Return the images' global vectors, where they are compared once an epoch."""
        return (
            {"embeddings": observation.images.vectors} if self.search == "epoch" and self.compare == "embedding" else {}
        )

    def update(self, notes: Sequence[Mapping[str, Array]], epoch: int) -> None:
        """Keep the embeddings of the pass."""
        if "embeddings" not in notes[0]:
            return
        shape = self.setting.networks, self.setting.n_images, notes[0]["embeddings"].shape[1]
        self.state["embeddings"] = np.zeros(shape, np.float32)
        for k, noted in enumerate(notes):
            self.state["embeddings"][k, self.setting.image_of[self.setting.ids]] = noted["embeddings"]

    def search_all(self, division: Division) -> None:
        """Find a caption for each noisy pair of every network after a pass, where `search` is epoch."""
        for k in range(self.setting.networks if self.search == "epoch" else 0):
            clean, noisy = division.subset("clean", k), division.subset("noisy", k)
            query, keys = (unit_rows(self._bank(k)[self.setting.image_of[ids]]) for ids in (noisy, clean))
            blocks = (np.array_split(side, len(noisy) // 1024 + 1) for side in (noisy, query))
            for ids, block in zip(*blocks, strict=True):
                self.state["pseudo_caption"][k, ids] = clean[(block @ keys.T).argmax(1)]

    def captions(self, network: int, ids: Ints) -> Ints:
        """Return ids of the pairs whose captions these noisy pairs train with; with `search` batch their own."""
        if self.search != "epoch":
            return ids
        return np.asarray(self.state["pseudo_caption"][network, ids], np.int64)

    def rematch(
        self, network: Network, k: int, noisy: Batch, images: Codes, clean: CleanBatch
    ) -> tuple[Pairing, Tensor]:
        """Put the captions of the clean images that are most alike beside the images of noisy pairs (PC2 Eq. 4).

        Args:
            network: The network in training.
            k: Its number.
            noisy: The noisy pairs; with `search` epoch they come with the captions that were found.
            images: Codes of their images.
            clean: The clean pairs of the step.

        Returns:
            The pairing, and S^p, the cosine of the two images' predictions or embeddings, without gradient, (B,).
        """
        if self.search == "epoch":
            texts, owners, numbers = (
                network.matcher.encode_texts(noisy.texts),
                noisy.caption_images,
                noisy.caption_texts,
            )
            rows = (self.setting.image_of[ids] for ids in (noisy.ids, self.captions(k, noisy.ids)))
            vectors = [unit(correspond(self._bank(k), row, clean.logits)) for row in rows]
            likeness = (vectors[0] * vectors[1]).sum(1)
        else:
            if self.compare == "embedding":
                query, keys = images.vectors.detach(), clean.images.vectors.detach()
            else:
                query, keys = (unit(logits.detach().softmax(1)) for logits in (network.logits(images), clean.logits))
            likeness, j = products(query, keys).max(1)
            texts, owners, numbers = clean.texts.rows(j), clean.batch.caption_images[j], clean.batch.caption_texts
            numbers = None if numbers is None else numbers[j]
        return Pairing(images, texts, related(noisy.image_rows, owners, numbers)), likeness

    def keep_alike(self, term: Term, likeness: Tensor) -> Term:
        """Return the term without the pairs whose caption's image is too little alike."""
        return term.kept(likeness >= self.mismatch_threshold)

    def _bank(self, k: int) -> Array:
        """Return the predictions or embeddings of all images in the last pass of network k, (n_images, K or d)."""
        bank: Array = self.state["embeddings" if self.compare == "embedding" else "predictions"][k]
        return bank
