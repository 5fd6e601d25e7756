"""DECL: deep evidential cross-modal learning with a robust dynamic hinge."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from pairsift.arrays import Array, Bools
from pairsift.loss.infonce import but_diagonal
from pairsift.loss.ranking import hinge
from pairsift.match.base import Codes, Matcher, at_least_float32
from pairsift.methods.base import Epochs, Method, Notes, Part, trust_facts
from pairsift.methods.parts.division import divide
from pairsift.methods.presets import CLIP, PAPER, TWO_TOWER, Preset
from pairsift.options import Options
from pairsift.steps import Observation, Phase, Setting, Step, Term, not_negatives


class DECLEpochs(Epochs):
    """The phases of DECL."""

    warmup: int = Field(default=5, ge=0, description="Epochs that believe every pair.")
    train: int = Field(default=40, ge=0, description="Epochs that begin with a division.")


class EvidenceDivision(Part):
    """The division of pairs by whether their own image and caption have the most evidence of a block (DECL).

    State: `clean_probability`, (networks, n_pairs), the pair's evidence as a share of the sum with its strongest
    negative's, by network k; 1 until the first pass.
    """

    scale: float = Field(
        default=0.0,
        ge=0,
        description="Factor of the similarity in the raw score r; 0 for the score before the sigmoid, or for the "
        "similarity itself where the matcher has no such score.",
    )
    tau: float = Field(default=0.1, ge=0.04, description="Temperature of the evidence, exp(tanh(r) / tau).")
    block: int = Field(
        default=128,
        ge=2,
        description="About how many pairs a pair is compared with, which decides how strict the division is (128, the "
        "paper's batch); no more than come at once, batch_size for matchers that compare tokens.",
    )

    def initial_state(self, setting: Setting) -> dict[str, Array]:
        """Return shares that believe every pair."""
        return {"clean_probability": setting.per_pair(1)}

    def scores(self, matcher: Matcher, images: Codes, texts: Codes) -> Tensor:
        """Return the raw scores r of every image with every text, (n_images, n_texts), in float32 at least."""
        if self.scale:
            return matcher.similarity(images, texts) * self.scale
        if type(matcher).logits is Matcher.logits:  # a cosine times an inverse temperature
            return matcher.similarity(images, texts)
        return at_least_float32(matcher.logits(images, texts))

    def observe(self, seen: Observation) -> dict[str, Tensor]:
        """Return (e_ii + e_ii) / (e_ii + e_ii + max_j (e_ij + e_ji)), (B,): above one half where the pair is first."""
        shares = []
        for images, texts, exclude in seen.blocks(self.block):
            both = evidence(self.scores(seen.network.matcher, images, texts), self.tau)
            both = both + both.T
            own = both.diagonal()
            itself = torch.eye(len(both), dtype=torch.bool, device=both.device)
            negatives = both.masked_fill(exclude | exclude.T | itself, 0.0)
            shares.append(own / (own + negatives.max(1).values))
        return {"share": torch.cat(shares)}

    def update(self, notes: Notes) -> None:
        """Keep the shares."""
        for k, noted in enumerate(notes):
            self.state["clean_probability"][k, self.setting.ids] = noted["share"]

    def clean(self, network: int) -> Bools:
        """Return which training pairs a network believes, (n,), by a share above one half.

        Where held-out evidence is known, no more pairs are noisy than it leaves room for.
        """
        shares = np.asarray(self.state["clean_probability"][network, self.setting.ids], np.float32)
        most = 1.0 if self.setting.prior is None else self.setting.prior.most
        return divide(shares, least=0.0, most=most)

    def facts(self) -> dict[str, float]:
        """Return the share of noisy pairs; with the truth also the share of pairs on the right side."""
        clean = np.stack([self.clean(k) for k in range(self.setting.networks)])
        return trust_facts(self.setting, clean, clean)


class DynamicHinge(Options):
    """The hinge whose negatives become fewer and harder with every step (DECL)."""

    weight: float = Field(
        default=0.8, ge=0, description="Weight of a batch's *sum* of hinges beside its mean evidential loss, lambda_1."
    )
    margin: float = Field(default=0.2, ge=0, description="Margin, in units of tanh(r).")
    anneal: float = Field(default=0.025, ge=0, description="By how much the number of negatives falls in a step.")
    least: int = Field(default=5, ge=1, description="The number of hardest negatives that it does not fall below.")


class DECL(Method):
    """The method DECL: a row of a batch is a choice among captions, with evidence for each, and noisy pairs get none.

    The raw score r of image and caption gives evidence, and evidence gives a Dirichlet distribution over the captions
    of the batch. An evidential loss fits it to the pair where it is believed and to no evidence where it is not; a
    hinge over tanh(r) counts for believed pairs alone. Before each epoch after the warm-up, a pair is believed if no
    other caption and image of its block have more evidence with it.

    r is the score before a sigmoid, or a cosine as it is: times the usual inverse temperature, tanh(r) would be 1 for
    all pairs that are somewhat alike, and nothing could be told apart. The evidential loss is reduced as the run's
    ranking loss is and its weight divided by 128, so that its share beside the sum of the hinges is the paper's in
    batches of any size. Of two networks, each trains by its peer's division; the paper has one.
    """

    name: ClassVar[str] = "decl"
    citation: ClassVar[str] = """
@inproceedings{qin2022decl,
  author = {Qin, Yang and Peng, Dezhong and Peng, Xi and Wang, Xu and Hu, Peng},
  title = {Deep Evidential Learning with Noisy Correspondence for Cross-modal Retrieval},
  booktitle = {Proceedings of the 30th ACM International Conference on Multimedia},
  pages = {4948--4956},
  year = {2022}
}
"""
    presets: ClassVar[Mapping[str, Preset]] = {
        "paper": PAPER.plus({"decay_epoch": 20}, networks=1),
        "paper_coco": PAPER.plus({"lr": 5e-4, "decay_epoch": 10}, epochs={"warmup": 2, "train": 20}, networks=1),
        # Matchers of distributions, whose preset this is too, have scores before a sigmoid, which were not tried.
        "two_tower": TWO_TOWER.plus(epochs={"warmup": 2, "train": 6}, dynamic={"anneal": 1.0}, division={"scale": 1.0}),
        "clip": CLIP.plus(epochs={"warmup": 1, "train": 4}, networks=1),
    }

    epochs: DECLEpochs = DECLEpochs()
    division: EvidenceDivision = EvidenceDivision()
    dynamic: DynamicHinge = DynamicHinge()
    regularisation: float = Field(default=0.1, ge=0, description="Weight of the divergence, lambda_2.")

    def phases(self) -> tuple[Phase, ...]:
        """Return warm-up, and training by divisions, on all pairs."""
        return (
            Phase("warm-up", self.epochs.warmup, warm=True, competes=False),
            Phase("train", self.epochs.train, observe=True),
        )

    def initial_state(self, setting: Setting) -> dict[str, Array]:
        """Return that every pair is believed, and each network's number of steps, 0."""
        return {"believed": setting.per_pair(1), "steps": np.zeros(setting.networks, np.int64)}

    def update(self, notes: Notes, epoch: int) -> None:
        """Divide the pairs anew."""
        super().update(notes, epoch)
        for k in range(self.setting.networks):
            self.state["believed"][k, self.setting.ids] = self.division.clean(k)

    def negatives(self, network: int, size: int) -> int:
        """Return how many negatives the hinge averages in the network's present step, from 1 on, on `size` pairs."""
        return max(int(size - self.dynamic.anneal * self.state["steps"][network]), self.dynamic.least)

    def step(self, step: Step) -> list[Term]:
        """Return the robust dynamic hinge of believed pairs, and the evidential loss of all."""
        k, batch = step.k, step.batch
        logits = self.division.scores(step.network.matcher, *step.network.encode(batch))
        exclude = not_negatives(batch)
        y = self.of_batch("believed", k, batch)
        margin = torch.full_like(y, self.dynamic.margin)
        self.state["steps"][k] += 1
        distances = y * hinge(logits.tanh(), margin, self.negatives(k, len(batch)), exclude)
        values = evidential_loss(evidence(logits, self.division.tau), y, exclude, self.regularisation)
        return [
            Term("hinge", distances, self.dynamic.weight, self.setting.ranking.reduction),
            self.setting.auxiliary_term("evidence", values, 1.0),
        ]


def evidence(logits: Tensor, tau: float) -> Tensor:
    """Return the evidence exp(tanh(r) / tau) of raw scores r, from exp(-1 / tau) to exp(1 / tau), at least float32."""
    return (logits.to(torch.promote_types(logits.dtype, torch.float32)).tanh() / tau).exp()


def evidential_loss(e: Tensor, y: Tensor, exclude: Tensor, regularisation: float) -> Tensor:
    """Return the evidential loss of every pair of a block, the sum of both directions (DECL).

    Row i says which caption belongs to image i, with the Dirichlet parameters a_ij = e_ij + 1 over the captions that
    `exclude` leaves. With Z_i = sum_j a_ij, m_ij = a_ij / Z_i, and the target Y, which is y_i for the pair and else 0:

        sum_j (Y_ij - m_ij)^2  +  sum_j m_ij (1 - m_ij) / (Z_i + 1)  +  lambda KL( Dir(Y + (1 - Y) a_i) || Dir(1) )

    The last term takes evidence away from what does not belong there; where y = 0, from every caption.

    Args:
        e: Evidence, (B, B), images in rows; pairs on the diagonal.
        y: 1 where a pair is believed, 0 where not, (B,).
        exclude: True where row i and column j are not negatives of each other, (B, B); the diagonal is always kept.
        regularisation: lambda, at least 0.

    Returns:
        (B,), at least 0.
    """
    kept = ~but_diagonal(exclude)
    return _of_rows(e, y, kept, regularisation) + _of_rows(e.T, y, kept.T, regularisation)


def _of_rows(e: Tensor, y: Tensor, kept: Tensor, regularisation: float) -> Tensor:
    """Return the loss over the entries of each row that are kept, (B,)."""
    a = (e + 1).masked_fill(~kept, 0.0)
    target = torch.diag(y.to(e.dtype))
    total = a.sum(1, keepdim=True)
    mean = a / total
    error = (target - mean).square().sum(1) + (mean * (1 - mean) / (total + 1)).sum(1)
    without = (target + (1 - target) * a).masked_fill(~kept, 1.0)
    return error + regularisation * divergence_from_uniform(without, kept)


def divergence_from_uniform(a: Tensor, kept: Tensor) -> Tensor:
    """Return KL( Dir(a) || Dir(1) ) of each row over the entries that are kept, (B,).

        log Gamma(Z) - sum_j log Gamma(a_j) - log Gamma(n) + sum_j (a_j - 1) (psi(a_j) - psi(Z)),    Z = sum_j a_j

    It is computed in float64: where evidence is large, numbers of millions cancel to hundreds.

    Args:
        a: Parameters, at least 1, and 1 where not kept, (B, B).
        kept: (B, B); at least one entry of each row.
    """
    with torch.autocast(a.device.type, enabled=False):
        dtype, a = a.dtype, a.double()
        total, n = a.masked_fill(~kept, 0.0).sum(1), kept.sum(1).double()
        gammas = torch.lgamma(total) - torch.lgamma(a).sum(1) - torch.lgamma(n)
        means = ((a - 1) * (torch.digamma(a) - torch.digamma(total)[:, None])).sum(1)
        return (gammas + means).to(dtype)
