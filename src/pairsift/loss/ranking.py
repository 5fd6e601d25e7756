"""The ranking losses that every method can use, and the hinge."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Protocol

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from pairsift.loss.infonce import but_diagonal, infonce, infonce_directions
from pairsift.options import Options

Reduction = Literal["mean", "sum"]
Negatives = int | str  # "mean", "hardest", or the number of hardest negatives to average


class RankingLoss(Protocol):
    """A loss that maps the similarities of a block and the correspondence of every pair to one value per pair."""

    @property
    def reduction(self) -> Reduction:
        """How the training loop reduces the loss over the pairs."""
        ...

    def __call__(self, similarity: Tensor, scale: Tensor, y: Tensor, exclude: Tensor, warm: bool = False) -> Tensor:
        """Return the loss of every pair.

        Args:
            similarity: (B, B), images in rows, pairs on the diagonal.
            scale: The matcher's inverse temperature, scalar.
            y: Correspondence of every pair in [0, 1], (B,).
            exclude: True where row i and column j are not negatives of each other, (B, B).
            warm: Whether the method is in its warm-up. The hinge then takes the mean over all negatives, as in the
                papers.

        Returns:
            (B,), at least 0.
        """
        ...

    def observe(self, similarity: Tensor, scale: Tensor, exclude: Tensor) -> Tensor:
        """Return the loss that divides the pairs into clean and noisy, (B,)."""
        ...

    def directions(self, similarity: Tensor, scale: Tensor, exclude: Tensor) -> tuple[Tensor, Tensor]:
        """Return the two directions of the loss of `observe`: image to text and text to image, (B,) each."""
        ...


class Hinge(Options):
    """The triplet hinge with the margin margin * (base^y - 1) / (base - 1), y the correspondence (NCR, PC2, PCSR)."""

    name: ClassVar[str] = "hinge"
    margin: float = Field(default=0.2, ge=0, description="The margin at y = 1, in units of the similarity.")
    negatives: Annotated[int, Field(ge=1)] | Literal["mean", "hardest"] = Field(
        default="hardest", description="Which negatives count once the warm-up is over, or how many of the hardest."
    )
    base: float = Field(
        default=10.0, ge=1, description="Base m of the curve; with 1 the margin is proportional to the correspondence."
    )
    reduction: Reduction = Field(
        default="mean", description="How the loss is reduced over the batch; the papers' is sum."
    )

    def __call__(self, similarity: Tensor, scale: Tensor, y: Tensor, exclude: Tensor, warm: bool = False) -> Tensor:
        """Return the loss of every pair, as in `RankingLoss`; `scale` is not used."""
        return hinge(similarity, self.margin * strength(y, self.base), "mean" if warm else self.negatives, exclude)

    def observe(self, similarity: Tensor, scale: Tensor, exclude: Tensor) -> Tensor:
        """Return the hinge at the full margin, averaged over all negatives, (B,)."""
        captions, images = self.directions(similarity, scale, exclude)
        return captions + images

    def directions(self, similarity: Tensor, scale: Tensor, exclude: Tensor) -> tuple[Tensor, Tensor]:
        """Return the two directions of `observe`, (B,) each; `observe` is their sum."""
        return hinge_directions(similarity, torch.full_like(similarity.diagonal(), self.margin), "mean", exclude)


class InfoNCE(Options):
    """The symmetric InfoNCE at the matcher's temperature; each pair is weighted by `strength` of its correspondence."""

    name: ClassVar[str] = "infonce"
    base: float = Field(
        default=10.0, ge=1, description="Base m of the curve; with 1 the weight is the correspondence itself."
    )
    reduction: Reduction = Field(default="mean", description="How the loss is reduced over the batch.")

    def __call__(self, similarity: Tensor, scale: Tensor, y: Tensor, exclude: Tensor, warm: bool = False) -> Tensor:
        """Return the loss of every pair, as in `RankingLoss`; `warm` is not used."""
        return strength(y, self.base) * infonce(similarity * scale, exclude)

    def observe(self, similarity: Tensor, scale: Tensor, exclude: Tensor) -> Tensor:
        """Return the unweighted InfoNCE, (B,)."""
        return infonce(similarity * scale, exclude)

    def directions(self, similarity: Tensor, scale: Tensor, exclude: Tensor) -> tuple[Tensor, Tensor]:
        """Return the two directions of `observe`, (B,) each; `observe` is their mean."""
        return infonce_directions(similarity * scale, exclude)


class Sigmoid(Options):
    """The pairwise sigmoid loss; the correspondence is the label of the pair (SigLIP).

    Zhai et al., Sigmoid Loss for Language Image Pre-Training, ICCV 2023. Without exclusions the mean over a batch is
    the sum of the binary cross-entropies of all images with all captions over B. The logit is the similarity less
    `threshold` at the matcher's temperature. Matchers whose similarity is a logit at their temperature, such as a
    SigLIP in `clip`, need no threshold.
    """

    name: ClassVar[str] = "sigmoid"
    threshold: float = Field(default=0.0, description="Similarity of pairs that match as likely as not.")
    reduction: Reduction = Field(default="mean", description="How the loss is reduced over the batch.")

    def __call__(self, similarity: Tensor, scale: Tensor, y: Tensor, exclude: Tensor, warm: bool = False) -> Tensor:
        """Return B/2 times the cross-entropies of each pair's row and column (`pairwise`), (B,); `warm` is not used."""
        return len(y) / 2 * pairwise((similarity - self.threshold) * scale, y, exclude)

    def observe(self, similarity: Tensor, scale: Tensor, exclude: Tensor) -> Tensor:
        """Return the mean of `directions`, (B,)."""
        captions, images = self.directions(similarity, scale, exclude)
        return (captions + images) / 2

    def directions(self, similarity: Tensor, scale: Tensor, exclude: Tensor) -> tuple[Tensor, Tensor]:
        """Return each pair's cross-entropy plus the mean of its negatives', by direction, (B,) each."""
        return pairwise_directions((similarity - self.threshold) * scale, exclude)


class BCE(Sigmoid):
    """The binary cross-entropy of all images with all captions; the correspondence is the label of the pair (PCME++).

    It is 2/B times the loss of `Sigmoid`, with pseudo-positives and smooth labels.
    """

    name: ClassVar[str] = "bce"
    pseudo: float = Field(default=0.1, ge=0, description="Weight of the loss with pseudo-positives beside the loss.")
    smoothing: float = Field(default=1e-4, ge=0, lt=0.5, description="How far labels are moved from 0 and 1.")

    def __call__(self, similarity: Tensor, scale: Tensor, y: Tensor, exclude: Tensor, warm: bool = False) -> Tensor:
        """Return the loss of every pair, as in `RankingLoss`; `warm` is not used."""
        return pairwise((similarity - self.threshold) * scale, y, exclude, self.pseudo, self.smoothing)


AnyRankingLoss = InfoNCE | Hinge | Sigmoid | BCE


def pairwise(logits: Tensor, y: Tensor, exclude: Tensor, pseudo: float = 0.0, smoothing: float = 0.0) -> Tensor:
    """Return the binary cross-entropy of each pair's row and of its column (Chun, ICLR 2024, Eq. 3 and 5).

    With the labels t_ii = y_i and t_ij = 0 elsewhere, and H(l, t) = -t log sigmoid(l) - (1 - t) log sigmoid(-l):

        mean_j H(l_ij, t_ij)  +  mean_k H(l_ki, t_ki)

    The means run over the pair itself and the negatives that `exclude` leaves, so that without exclusions the mean of
    the values is twice the mean of all B^2 cross-entropies. `pseudo` times the same is added with pseudo-positives: an
    image or a caption that is at least as close to the other side of the pair as the pair's own gets the label y_i too.

    Args:
        logits: l, (B, B), images in rows; pairs on the diagonal.
        y: Correspondence of every pair in [0, 1], (B,).
        exclude: True where row i and column j are not negatives of each other, (B, B); the diagonal is always kept.
        pseudo: Weight of the loss with pseudo-positives, at least 0.
        smoothing: epsilon; every label t becomes t + epsilon (1 - 2 t), [0, 0.5).

    Returns:
        (B,), at least 0.
    """
    exclude = but_diagonal(exclude)
    total = torch.zeros_like(logits[0])
    for block, excluded in ((logits, exclude), (logits.T, exclude.T)):
        positive, negative = functional.softplus(-block), functional.softplus(block)
        kept = ~excluded
        labels = torch.diag(y.to(block.dtype))
        for weight, t in ((1.0, labels), (pseudo, _with_pseudo(block, labels))):
            if weight:
                smooth = t + smoothing * (1 - 2 * t)
                entropy = (smooth * positive + (1 - smooth) * negative).masked_fill(excluded, 0.0)
                total = total + weight * entropy.sum(1) / kept.sum(1)
    return total


def pairwise_directions(logits: Tensor, exclude: Tensor) -> tuple[Tensor, Tensor]:
    """Return each pair's cross-entropy plus its negatives', by image and by caption, (B,) each.

    A pair's own cross-entropy weighs as much as the mean of its negatives in the direction: over the captions for its
    image, and over the images for its caption.

    Args:
        logits: l, (B, B), images in rows; pairs on the diagonal.
        exclude: True where row i and column j are not negatives of each other, (B, B); the diagonal always is.
    """
    exclude = exclude | torch.eye(len(exclude), dtype=torch.bool, device=exclude.device)
    negative = functional.softplus(logits).masked_fill(exclude, 0.0)
    own = functional.softplus(-logits.diagonal())
    captions, images = (negative.sum(axis) / (~exclude).sum(axis).clamp(min=1) for axis in (1, 0))
    return own + captions, own + images


def _with_pseudo(logits: Tensor, labels: Tensor) -> Tensor:
    """Return labels where entries that score at least as high as their row's pair have the pair's label, (B, B).

    An entry that is lower by the rounding of a product counts too: an equal caption has the label of the pair's own.
    The tolerance is that of float32 at most, since the steps of half precision are wide.
    """
    logits = logits.detach()
    own = logits.diagonal()[:, None]
    rounding = 100 * min(torch.finfo(logits.dtype).eps, torch.finfo(torch.float32).eps)
    least = own - rounding * (1 + own.abs())
    return torch.where(logits >= least, labels.diagonal()[:, None], labels)


def strength(y: Tensor, base: float = 10.0) -> Tensor:
    """Return the exponential curve of the papers, (base^y - 1) / (base - 1).

    It is 0 at y = 0, 1 at y = 1, and convex between.

    NCR and PC2 multiply the margin of the hinge by it (PC2 Eq. 5 and 9). Here it also weights InfoNCE. As the base
    tends to 1 the curve tends to y, which is the weight of GSC (Eq. 6).

    Args:
        y: Correspondences in [0, 1], any shape.
        base: Base m, at least 1; NCR and PC2 use 10.

    Returns:
        Values in [0, 1], in the shape of y.
    """
    return y if base == 1 else (torch.pow(base, y) - 1) / (base - 1)


def hinge(similarity: Tensor, margin: Tensor, negatives: Negatives, exclude: Tensor) -> Tensor:
    """Return the sum of the hinge losses of both directions for every pair of a block (NCR; PC2 Eq. 6 and 9).

    For the pair i, with [x] = max(x, 0) and the margin of the pair in both directions:

        over captions j:  [margin_i + S_ij - S_ii]        over images k:  [margin_i + S_ki - S_ii]

    Each is reduced over the negatives that `exclude` leaves.

    Args:
        similarity: S, (B, B), images in rows; pairs on the diagonal.
        margin: (B,), at least 0.
        negatives: `mean` takes the mean over all negatives, `hardest` takes the hardest negative, and a number k takes
            the mean over the k hardest.
        exclude: True where row i and column j are not negatives of each other, (B, B); the diagonal is always excluded.

    Returns:
        (B,), at least 0; 0 for a pair that has no negatives.
    """
    captions, images = hinge_directions(similarity, margin, negatives, exclude)
    return captions + images


def hinge_directions(
    similarity: Tensor, margin: Tensor, negatives: Negatives, exclude: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the two parts of `hinge`: over captions (image to text) and over images (text to image), each (B,)."""
    positive = similarity.diagonal()
    exclude = exclude | torch.eye(len(positive), dtype=torch.bool, device=similarity.device)
    captions = (margin[:, None] + similarity - positive[:, None]).clamp(min=0)
    images = (margin[None, :] + similarity - positive[None, :]).clamp(min=0)
    return _reduce(captions, exclude, negatives), _reduce(images.T, exclude.T, negatives)


def _reduce(cost: Tensor, exclude: Tensor, negatives: Negatives) -> Tensor:
    """Reduce each row of the costs (B, B) over the negatives that `negatives` selects, (B,)."""
    cost = cost.masked_fill(exclude, 0.0)
    count = (~exclude).sum(1)
    if negatives == "mean":
        return cost.sum(1) / count.clamp(min=1)
    k = 1 if negatives == "hardest" else int(negatives)
    hardest = cost.topk(min(k, cost.shape[1]), dim=1).values  # costs are >= 0 and excluded costs are 0
    return hardest.sum(1) / count.clamp(min=1, max=k)
