"""CREAM: cross-modal retrieval by co-disagreement and consistency mining."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from pydantic import Field, PrivateAttr
from torch import Tensor

from pairsift.arrays import Ints
from pairsift.loss.infonce import log_softmaxes, match_probability
from pairsift.methods.base import Epochs, LabelledSets, Notes
from pairsift.methods.parts.division import CoDivision, rectified
from pairsift.methods.presets import CLIP_LINEAR, PAPER, TWO_TOWER_LINEAR, Preset
from pairsift.steps import Batch, Network, Phase, Step, Term, gather_rows, not_negatives

MOSTLY_CLEAN = 0.85  # share of clean pairs above which the published code filters nothing


class CREAMEpochs(Epochs):
    """The phases of CREAM."""

    warmup: int = Field(default=5, ge=0, description="Epochs on all pairs, as given.")
    clean: int = Field(default=10, ge=0, description="Epochs on clean pairs only.")
    hard: int = Field(default=5, ge=0, description="Epochs on clean and hard pairs.")
    all: int = Field(default=25, ge=0, description="Epochs on clean, hard and noisy pairs.")


class CREAM(LabelledSets):
    """The method CREAM: three sets by the disagreement of two networks, and soft targets for each.

    The label of a pair joins clean probabilities w and a prediction c, the mean of the pair's two softmax probabilities
    in the batch: w_peer + (1 - w_peer) c of a clean pair, the same with the mean of both w of a hard pair, and the mean
    of both networks' c of a noisy pair. What a label leaves goes to the batch's other captions and images, in
    proportion to similarity (consistency mining). With the loss `infonce` at base 1 (the papers' presets) the two terms
    of a set are the InfoNCE loss with these targets; with the hinge the label sets the margin beside the mining.

    With the paper's preset another caption counts, as in the published code, only where its share of what the label
    leaves reaches the mean of all labels of the step, which with 127 of them hardly any does, and what falls away is
    not given to the rest; where more than 85% of the pairs are clean, all count, and mining begins with the clean pairs
    instead of the hard ones. Elsewhere a caption counts from that part of the best one's similarity on, which is the
    mean of the clean probabilities, and the shares sum to 1 (`--cream.filter`). Similarities below 0, which a sigmoid
    does not have, have no share.

    The published code goes on from the best epoch of the warm-up; here the networks go on from the last. As there, each
    set has an optimizer step of its own, by labels from before all of them, hard pairs come along once in an epoch, and
    shares have a gradient.
    """

    name: ClassVar[str] = "cream"
    citation: ClassVar[str] = """
@article{ma2024cream,
  author = {Ma, Xinran and Yang, Mouxing and Li, Yunfan and Hu, Peng and Lv, Jiancheng and Peng, Xi},
  title = {Cross-modal Retrieval with Noisy Correspondence via Consistency Refining and Mining},
  journal = {IEEE Transactions on Image Processing},
  volume = {33},
  year = {2024}
}
"""
    presets: ClassVar[Mapping[str, Preset]] = {
        "paper": Preset(
            {"filter": "weight"},
            {**PAPER.train, "decay_epoch": 10, "decay_every": 10},
            losses={"infonce": {"base": 1.0}},
        ),
        "two_tower": TWO_TOWER_LINEAR.plus(epochs={"warmup": 2, "clean": 2, "hard": 1, "all": 3}),
        "clip": CLIP_LINEAR.plus(epochs={"warmup": 1, "clean": 1, "hard": 1, "all": 2}),
    }

    epochs: CREAMEpochs = CREAMEpochs()
    division: CoDivision = CoDivision()
    mining: float = Field(
        default=1.0, ge=0, description="Weight of what labels leave to other captions and images; 0 leaves it out."
    )
    filter: Literal["similarity", "weight"] = Field(
        default="similarity",
        description="Which others have a part of what a label leaves: those nearly as similar as the most similar "
        "one, or, as in the published code, those whose part reaches the mean label.",
    )

    _sizes: dict[str, int] = PrivateAttr(default_factory=dict)  # of the sets, once they were counted

    def phases(self) -> tuple[Phase, ...]:
        """Return warm-up, clean pairs, clean and hard pairs, all pairs."""
        return (
            Phase("warm-up", self.epochs.warmup, warm=True, competes=False),
            Phase("clean", self.epochs.clean, ("clean",), observe=True),
            Phase("hard", self.epochs.hard, ("clean", "hard"), observe=True, once=("hard",)),
            Phase("all", self.epochs.all, ("clean", "hard", "noisy"), observe=True, once=("hard",)),
        )

    def update(self, notes: Notes, epoch: int) -> None:
        """Renew the sets."""
        super().update(notes, epoch)
        self._sizes = {}

    @property
    def sizes(self) -> dict[str, int]:
        """The number of pairs in each set."""
        if not self._sizes:
            self._sizes = {name: int(members.sum()) for name, members in self.division.sets().items()}
        return self._sizes

    def subset(self, name: str, network: int) -> Ints:
        """Return `clean`, `hard` and `noisy` pairs by both networks, or `all`."""
        return self.division.subset(name, network)

    def label(self, step: Step, name: str) -> Tensor:
        """Return the labels of a set's pairs, (B,), in [0, 1]; 1 in the warm-up."""
        batch = step.batches[name]
        if name == "all":
            return torch.ones(len(batch), device=batch.image_rows.device)
        if name == "noisy":
            return torch.stack([predict(network, batch) for network in step.networks]).mean(0)
        w = self.division.of_peer("clean_probability", step.k)
        w = w if name == "clean" else self.division.state["clean_probability"].mean(0)
        return rectified(gather_rows(w, batch.ids, batch.image_rows), predict(step.network, batch))

    def terms(self, step: Step, name: str, labels: Mapping[str, Tensor]) -> list[Term]:
        """Return the ranking loss of a set by its labels and, once hard pairs train, the mining beside it."""
        network, y = step.network, labels[name]
        pairing = network.pairing(step.batches[name])
        similarity, scale = network.matcher.similarity(pairing.images, pairing.texts), network.matcher.scale()
        terms = [self.setting.ranking_term(name, network, pairing, y, step.phase.warm, similarity, scale)]
        if self.mining and self._mines(step.phase):
            least = self._thresholds(name, labels)
            values = mining(similarity * scale, similarity, y, pairing.exclude, *least)
            terms.append(Term(f"{name} mining", values, self.mining, self.setting.ranking.reduction))
        return terms

    def _mines(self, phase: Phase) -> bool:
        """Return whether labels leave something to other captions and images in a phase."""
        return "hard" in phase.subsets or (self._all_count and "clean" in phase.subsets)

    @property
    def _all_count(self) -> bool:
        """Whether so many pairs are clean that the published code filters nothing."""
        return self.filter == "weight" and self.sizes["clean"] > MOSTLY_CLEAN * sum(self.sizes.values())

    def _thresholds(self, name: str, labels: Mapping[str, Tensor]) -> tuple[float, float]:
        """Return the smallest part of the largest similarity, and the smallest share of what a label leaves, [0, 1]."""
        if self.filter == "similarity":
            return float(self.division.state["clean_probability"][:, self.setting.ids].mean()), 0.0
        if self._all_count and name != "noisy":
            return 0.0, 0.0
        total = sum(self.sizes[one] for one in labels)
        return 0.0, sum(self.sizes[one] * float(y.mean()) for one, y in labels.items()) / max(total, 1)


def predict(network: Network, batch: Batch) -> Tensor:
    """Return c, the mean of the two softmax probabilities of each pair in its batch, in evaluation mode, (B,)."""
    similarity, scale = network.judge(batch)
    return match_probability(similarity * scale, not_negatives(batch))


def mining(
    logits: Tensor, similarity: Tensor, y: Tensor, exclude: Tensor, least: float, least_weight: float = 0.0
) -> Tensor:
    """Return the cross-entropy of the batch's negatives with what a pair's label leaves to them (CREAM).

    With the shares R of the captions for each image, and R' of the images for each caption (`shares`):

        -(1 - y_i) / 2  [ sum_j R_ij log softmax_j(S_ij / tau)  +  sum_k R'_ki log softmax_k(S_ki / tau) ]

    Beside y_i times the InfoNCE loss, this is the InfoNCE loss with the targets y_i on the diagonal and (1 - y_i) R_ij
    off it.

    Args:
        logits: S / tau, (B, B), images in rows; pairs on the diagonal.
        similarity: S, (B, B), of which the shares are made, with gradient.
        y: Labels in [0, 1], (B,).
        exclude: True where row i and column j are not negatives of each other, (B, B).
        least: Smallest similarity that has a share, as a part of the row's largest, [0, 1].
        least_weight: Smallest (1 - y_i) R_ij that counts, [0, 1].

    Returns:
        (B,), at least 0.
    """
    rows, columns = log_softmaxes(logits, exclude)
    total = torch.zeros_like(y)
    for block, mask, log_p in ((similarity, exclude, rows), (similarity.T, exclude.T, columns.T)):
        weight = (1 - y)[:, None] * shares(block, least, mask)
        counts = (weight > 0) & (weight >= least_weight)
        total = total - (weight * counts * log_p.masked_fill(~counts, 0.0)).sum(1)  # 0 log 0 = 0, also in the gradient
    return total / 2


def shares(similarity: Tensor, least: float, exclude: Tensor) -> Tensor:
    """Return how a row's remaining probability is spread over its negatives, in proportion to similarity, (B, B).

    Similarities below 0, and those below `least` times the largest one of the row, have no share. The others sum to 1;
    a row without a positive similarity has no shares.

    Args:
        similarity: (B, B), pairs on the diagonal.
        least: In [0, 1].
        exclude: True where row i and column j are not negatives of each other, (B, B); the diagonal is always excluded.
    """
    diagonal = torch.eye(len(similarity), dtype=torch.bool, device=similarity.device)
    alike = similarity.masked_fill(exclude | diagonal, 0.0).clamp(min=0)
    alike = alike * (alike >= least * alike.amax(1, keepdim=True))
    return alike / alike.sum(1, keepdim=True).clamp(min=1e-12)
