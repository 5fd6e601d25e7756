"""Soft labels by how alike a pair and clean pairs are in both modalities (BiCro)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil

import numpy as np
from pydantic import Field
from torch import Tensor

from pairsift.arrays import Array, Floats, unit_rows
from pairsift.methods.parts.division import Division
from pairsift.methods.parts.nearest import nearest_clean
from pairsift.methods.parts.part import Part, peer
from pairsift.steps import Observation, Setting, Term


class AnchorLabels(Part):
    """The soft label y of every pair, by bidirectional similarity consistency with anchors (BiCro).

    Anchors are the clean pairs of least loss. Where a pair matches, an anchor with a similar image has a similar
    caption, and an anchor with a similar caption has a similar image. All that makes a network's labels comes from that
    network: vectors, losses and the clean set; its peer trains by them.

    State: `soft_label`, (networks, n_pairs), y of network k for every pair, in [0, 1]; 1 until the first pass.
    """

    share: float = Field(
        default=0.1, gt=0, le=1, description="Share of the clean pairs that are anchors, those of least loss."
    )
    mismatch_threshold: float = Field(
        default=0.5,
        ge=0,
        le=1,
        description="A noisy pair whose label is lower is not used, as in BiCro*; with 0 all are, as in BiCro.",
    )

    def begin(self, setting: Setting, state: dict[str, Array]) -> None:
        """Let every label start at 1."""
        super().begin(setting, state)
        state["soft_label"] = self.array_of_pairs(1)

    def observe(self, observation: Observation) -> dict[str, Tensor]:
        """Return both global vectors."""
        return {"by_image": observation.images.vectors, "by_text": observation.texts.vectors}

    def label_all(self, notes: Sequence[Mapping[str, Array]], division: Division) -> None:
        """Renew the labels of every network after a pass.

        Args:
            notes: For each network what its pass noted of the training pairs, in the order of `setting.ids`.
            division: The division by the same pass.
        """
        ids = self.setting.ids
        for k in range(self.setting.networks):
            teacher = peer(k, self.setting.networks)
            noted, clean = notes[teacher], np.flatnonzero(np.isin(ids, division.subset("clean", k)))
            order = clean[np.argsort(noted["loss"][clean], kind="stable")]
            anchors = order[: ceil(self.share * len(order))]
            q = consistency(noted["by_image"], noted["by_text"], self.setting.image_of[ids], anchors)
            labels = q.copy()
            labels[clean] = (1 + q[clean]) / 2
            labels[anchors] = 1
            self.state["soft_label"][teacher, ids] = labels

    def keep_alike(self, term: Term, y: Tensor) -> Term:
        """Return the term without the pairs whose label is too low."""
        return term.kept(y >= self.mismatch_threshold)

    def dropped(self, division: Division) -> float:
        """Return the share of training pairs that are noisy with a label below the threshold, mean over the networks.

        Args:
            division: The division by the same pass.
        """
        setting, below = self.setting, 0
        for k in range(setting.networks):
            below += int((self.of_peer("soft_label", k)[division.subset("noisy", k)] < self.mismatch_threshold).sum())
        return below / (setting.networks * len(setting.ids))


def consistency(images: Floats, texts: Floats, image_rows: Array, anchors: Array) -> Floats:
    """Return the bidirectional similarity consistency of pairs with their nearest anchors, (n,), in [0, 1].

    With the anchor a of the nearest image and the anchor b of the nearest caption, it is the mean of

        ratio(cos(I_k, I_a), cos(T_k, T_a))   and   ratio(cos(I_k, I_b), cos(T_k, T_b)),

    ratio(x, y) = min(x, y) / max(x, y). A cosine below 0 counts as 0, so that the ratio stays in [0, 1].

    Args:
        images: Vectors of the images, (n, d).
        texts: Vectors of the captions, (n, d).
        image_rows: The image of each pair, (n,).
        anchors: Rows of the anchors, ascending by loss; at least one.
    """
    images, texts = unit_rows(images), unit_rows(texts)
    ratios = []
    for vectors, items in ((images, image_rows), (texts, np.arange(len(texts)))):
        nearest = nearest_clean(vectors, items, anchors)
        alike = np.stack([np.einsum("nd,nd->n", side, side[nearest]) for side in (images, texts)]).clip(0, 1)
        ratios.append(alike.min(0) / np.maximum(alike.max(0), 1e-6))
    return np.asarray(np.mean(ratios, axis=0), np.float32)
