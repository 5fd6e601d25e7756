"""BiCro: noisy correspondence rectification by bidirectional cross-modal similarity consistency."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from typing import ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from pairsift.arrays import Array, Floats, Ints, unit_rows
from pairsift.methods.base import DividedEpochs, Method, Notes, Part, peer
from pairsift.methods.parts.division import BetaDivision, Division
from pairsift.methods.parts.nearest import nearest_clean
from pairsift.methods.presets import CLIP, PAPER, TWO_TOWER, Preset
from pairsift.steps import Observation, Phase, Setting, Step, Term


class BiCroEpochs(DividedEpochs):
    """The phases of BiCro."""

    warmup: int = Field(default=10, ge=0, description="Epochs on the pairs of least loss in every batch.")


class AnchorLabels(Part):
    """The soft label y of every pair, by bidirectional similarity consistency with anchors (BiCro).

    Anchors are the clean pairs of least loss. Where a pair matches, an anchor with a similar image has a similar
    caption, and an anchor with a similar caption has a similar image. All that makes a network's labels comes from that
    network: vectors, losses and the clean set; its peer trains by them.

    State: `soft_label`, (networks, n_pairs), y of network k for every pair, in [0, 1]; 1 until the first pass.
    """

    share: float = Field(
        default=0.1, gt=0, le=1, description="Share of the clean pairs that are anchors, the ones of least loss."
    )
    mismatch_threshold: float = Field(
        default=0.5,
        ge=0,
        le=1,
        description="A noisy pair whose label is lower is not used, as in BiCro*; with 0 all are, as in BiCro.",
    )

    def initial_state(self, setting: Setting) -> dict[str, Array]:
        """Return labels that are 1."""
        return {"soft_label": setting.per_pair(1)}

    def observe(self, seen: Observation) -> dict[str, Tensor]:
        """Return both global vectors."""
        return {"by_image": seen.images.vectors, "by_text": seen.texts.vectors}

    def label_all(self, vectors: Sequence[tuple[Floats, Floats]], division: Division) -> None:
        """Renew the labels of every network after a pass.

        Args:
            vectors: For each network the vectors of the training pairs' images and captions, (n, d) each.
            division: The division by the same pass.
        """
        ids = self.setting.ids
        for k in range(self.setting.networks):
            teacher = peer(k, self.setting.networks)
            loss = division.state["loss"][teacher, ids]
            clean = np.flatnonzero(np.isin(ids, division.subset("clean", k)))
            order = clean[np.argsort(loss[clean], kind="stable")]
            anchors = order[: ceil(self.share * len(order))]
            q = consistency(*vectors[teacher], self.setting.image_of[ids], anchors)
            labels = q.copy()
            labels[clean] = (1 + q[clean]) / 2
            labels[anchors] = 1
            self.state["soft_label"][teacher, ids] = labels

    def keep_alike(self, term: Term, y: Tensor) -> Term:
        """Return the term without the pairs whose label is too low."""
        return term.masked(y >= self.mismatch_threshold)

    def dropped(self, division: Division) -> float:
        """Return the share of training pairs that are noisy with a label below the threshold, mean over the networks.

        Args:
            division: The division by the same pass.
        """
        setting, below = self.setting, 0
        for k in range(setting.networks):
            below += int((self.of_peer("soft_label", k)[division.subset("noisy", k)] < self.mismatch_threshold).sum())
        return below / (setting.networks * len(setting.ids))


class BiCro(Method):
    """The method BiCro: soft labels from clean anchors, which set the margins of clean and of noisy pairs.

    A pair's label is how alike it and its nearest anchors are in both modalities: y = q for a noisy pair, (1 + q) / 2
    for a clean one and 1 for an anchor (`AnchorLabels`). The label sets the margin (hinge) or the weight (InfoNCE) of
    the pair. In the warm-up only the pairs of least loss in a batch train. Noisy pairs are left out of the first half
    after that.

    Where the published code differs from this: it takes anchors from the clean pairs of a batch of 128, twelve or
    thirteen, while here they come from all clean pairs, once an epoch; it writes the labels of a batch to other pairs
    of the batch, while here a label belongs to its pair; it takes the margin along the wrong axis in one direction; a
    dropped pair has the margin 0 there, which still pulls image and caption together, and no loss here. As there, noisy
    pairs have an optimizer step of their own, before that of the clean ones. An anchor may show the same image as the
    pair.
    """

    name: ClassVar[str] = "bicro"
    citation: ClassVar[str] = """
@inproceedings{yang2023bicro,
  author = {Yang, Shuo and Xu, Zhaopan and Wang, Kai and You, Yang and Yao, Hongxun and Liu, Tongliang and Xu, Min},
  title = {{BiCro}: Noisy Correspondence Rectification for Multi-Modality Data via Bi-directional Cross-modal
    Similarity Consistency},
  booktitle = {Proceedings of the IEEE/CVF Conference on Computer Vision and Pattern Recognition},
  year = {2023}
}
"""
    # In batches of 512 networks that know nothing yet learn nothing from the pairs of least loss: at 60% noise dev rSum
    # was 3.5 after two epochs of warm-up on 30% of each batch, which is chance.
    presets: ClassVar[Mapping[str, Preset]] = {
        "paper": PAPER,
        "two_tower": TWO_TOWER.plus(epochs={"warmup": 2, "clean": 3, "all": 3}, warmup_share=1.0),
        "clip": CLIP.plus(epochs={"warmup": 1, "clean": 2, "all": 2}, warmup_share=1.0),
    }

    epochs: BiCroEpochs = BiCroEpochs()
    division: BetaDivision = BetaDivision()
    anchors: AnchorLabels = AnchorLabels()
    warmup_share: float = Field(
        default=0.3, gt=0, le=1, description="Share of a batch that trains in the warm-up, the pairs of least loss."
    )

    def phases(self) -> tuple[Phase, ...]:
        """Return warm-up, clean pairs, all pairs."""
        return self.epochs.phases()

    def subset(self, name: str, network: int) -> Ints:
        """Return `clean` and `noisy` pairs by the peer's division, or `all`."""
        return self.division.subset(name, network)

    def update(self, notes: Notes, epoch: int) -> None:
        """Renew w; then the labels by the clean pairs."""
        super().update(notes, epoch)
        vectors = [(noted["anchors.by_image"], noted["anchors.by_text"]) for noted in notes]
        self.anchors.label_all(vectors, self.division)

    def facts(self) -> dict[str, float]:
        """Return the facts of the division, and the share of pairs that `keep_alike` leaves out as `dropped`."""
        return {**super().facts(), "dropped": self.anchors.dropped(self.division)}

    def step(self, step: Step) -> list[Term]:
        """Return terms of the least losses of all pairs, or of clean and of noisy pairs by the peer's labels."""
        return [self._term(step, subset) for subset in step.batches]

    def updates(self, step: Step) -> Iterator[list[Term]]:
        """Yield the loss of noisy pairs, if they train, and then that of clean ones."""
        for subset in reversed(tuple(step.batches)):
            yield [self._term(step, subset)]

    def _term(self, step: Step, subset: str) -> Term:
        """Return the loss of a subset's pairs."""
        batch = step.batches[subset]
        y = self.anchors.of_batch("soft_label", step.k, batch)
        y = torch.ones_like(y) if subset == "all" else y
        term = self.setting.ranking_term(subset, step.network, step.network.pairing(batch), y, step.phase.warm)
        if subset == "all":
            return smallest_losses(term, self.warmup_share)
        return self.anchors.keep_alike(term, y) if subset == "noisy" else term


def smallest_losses(term: Term, share: float) -> Term:
    """Return a term with the smallest of its losses alone.

    Args:
        term: The losses, (B,).
        share: Share of them that is kept, (0, 1], rounded up.
    """
    values = term.values.detach()
    kept = torch.zeros(len(values), dtype=torch.bool, device=values.device)
    kept[values.argsort(stable=True)[: ceil(share * len(values))]] = True
    return term.masked(kept)


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
