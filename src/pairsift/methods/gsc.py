"""GSC: geometrical structure consistency."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import ClassVar, Literal, Self

import numpy as np
import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from pairsift.arrays import Array, Floats, Ints
from pairsift.loss.infonce import but_diagonal
from pairsift.loss.ranking import Hinge
from pairsift.match.base import Matcher, scale_at
from pairsift.methods.base import Epochs, Method, Notes, Part, trust_facts
from pairsift.methods.parts.division import fit_mixture
from pairsift.methods.parts.momentum import moving_average
from pairsift.methods.presets import CLIP_LINEAR, TWO_TOWER_LINEAR, Preset
from pairsift.options import Options
from pairsift.steps import Observation, Phase, Setting, Step, Term

log = logging.getLogger(__name__)

PAPER = Preset(
    train={
        "batch_size": 128,
        "lr": 2e-4,
        "weight_decay": 0.0,
        "schedule": "step",
        "decay_epoch": 15,
        "decay_factor": 0.2,
        "decay_every": 15,
        "max_norm": 2.0,
    },
    losses={"infonce": {"base": 1.0}},
)


class GSCEpochs(Epochs):
    """The phases of GSC."""

    warmup: int = Field(
        default=1,
        ge=0,
        description="Epochs before the first estimate, with all labels 1 (5 in the paper's ablation without averages).",
    )
    train: int = Field(default=59, ge=0, description="Epochs after that.")


class StructureIndicators(Part):
    """The cross-modal indicator y_CM and the intra-modal one y_IM of every pair, averaged over epochs (GSC).

    State: `cross_modal` and `intra_modal`, (networks, n_pairs), the averages of network k for every pair; 1 at first.
    `structure`, (networks, n_pairs), S_IM of the last estimate, kept for the record alone; 1 at first.
    """

    use: Literal["both", "cross_modal", "intra_modal"] = Field(
        default="both", description="What a label is made of: the lesser of both indicators, or one of them."
    )
    beta1: float = Field(
        default=0.7, ge=0, le=1, description="Share of the new estimate in the cross-modal average; 1 for no average."
    )
    beta2: float = Field(default=0.7, ge=0, le=1, description="The same for the intra-modal average.")
    tau1: float = Field(
        default=0.07, ge=0, description="Temperature of the cross-modal softmax; 0 for the matcher's own."
    )
    block: int = Field(
        default=128,
        ge=2,
        description="About how many pairs share a softmax where y_CM is estimated, which depends on it (128, the "
        "paper's batch); no more than come at once, batch_size for matchers that compare tokens.",
    )

    def initial_state(self, setting: Setting) -> dict[str, Array]:
        """Return averages that are 1."""
        return {name: setting.per_pair(1) for name in ("cross_modal", "intra_modal", "structure")}

    def labels(self, network: int, ids: Ints, device: torch.device) -> Tensor:
        """Return y = min(y_CM, y_IM) (Eq. 5) of these pairs as the network trains by it, its peer's, (len(ids),)."""
        return torch.from_numpy(least(*(self.of_peer(name, network)[ids] for name in self._names))).to(device)

    @property
    def _names(self) -> tuple[str, ...]:
        """Names of the indicators that a label is made of."""
        return ("cross_modal", "intra_modal") if self.use == "both" else (self.use,)

    def scale(self, matcher: Matcher) -> Tensor:
        """Return 1 / tau_1, scalar."""
        return scale_at(matcher, self.tau1)

    def observe(self, seen: Observation) -> dict[str, Tensor]:
        """Return y_CM (Eq. 3) and S_IM (Eq. 8) by the labels that the network trains by, (B,) each."""
        matcher = seen.network.matcher
        probability = seen.match_probability(self.scale(matcher), self.block)
        within = matcher.intra_similarity(seen.images), matcher.intra_similarity(seen.texts)
        labels = self.labels(seen.k, seen.batch.ids, probability.device)
        return {"probability": probability, "agreement": structure_agreement(*within, labels)}

    def update(self, notes: Notes) -> None:
        """Move the averages by the new estimates (Eq. 10); y_IM is the posterior of the cleaner component (Eq. 4)."""
        ids = self.setting.ids
        for k, noted in enumerate(notes):
            self.state["structure"][k, ids] = noted["agreement"]
            probability, distance = np.asarray(noted["probability"], np.float32), 1 - noted["agreement"]
            clean = np.asarray(fit_mixture(distance, self.setting.seed).low(distance), np.float32)
            for name, estimate, beta in (("cross_modal", probability, self.beta1), ("intra_modal", clean, self.beta2)):
                self.state[name][k, ids] = moving_average(estimate, self.state[name][k, ids], beta)

    def facts(self) -> dict[str, float]:
        """Return the estimated share of mismatched pairs: 1 - the mean of the averages y_IM, which start at 1.

        With the truth also the share of pairs whose label is on the right side of one half.
        """
        ids = self.setting.ids
        labels = least(*(self.state[name][:, ids] for name in self._names))
        return trust_facts(self.setting, self.state["intra_modal"][:, ids], labels > 0.5)


class IntraModal(Options):
    """The intra-modal loss L_IM (Eq. 7)."""

    gamma: float = Field(default=0.01, ge=0, description="Weight of the loss (Eq. 9); 0 leaves it out.")
    tau2: float = Field(default=1.0, ge=1e-6, description="Temperature of the intra-modal softmax.")
    weigh: bool = Field(
        default=True, description="Whether the label weights a pair's loss too, beside the structures inside it."
    )


class GSC(Method):
    """The method GSC: labels from the structures across and within the modalities, exchanged between two networks.

    All labels start at 1, and the averages over epochs take the place of a warm-up. With the loss `infonce` at base 1
    the cross-modal loss is Eq. 6, with the same tau_1 as the indicator. The hinge takes the labels as margins, which
    seldom pays: a small y_CM asks for a small margin, whose softmax is again a small y_CM, until all are alike.

    The paper makes its estimates during an epoch's training, from weights that change meanwhile, with dropout; here
    they come from a pass over all pairs, in evaluation mode, before the epoch that first uses them. The sums of
    S_IM, which the paper relaxes from all pairs to a batch, run over all pairs that the pass brings at once: a
    batch, or 1,024 where the similarity factorises. Both losses are taken by log-softmax (the published code's sums
    overflow), and captions of the same image are no negatives of each other. Where the similarity is a module of
    tokens, so are the intra-modal ones: an image attends to the other's regions (published code: region r meets
    region r). Eq. 7 is printed without the weight that its text asks for and the published code has: see
    `IntraModal.weigh`.
    Where the published scripts differ from the paper (gamma 0.05 for COCO, 0.02 and a decay every 20 epochs for
    CC152K), the paper holds; the number of epochs is theirs.
    """

    name: ClassVar[str] = "gsc"
    citation: ClassVar[str] = """
@inproceedings{zhao2024gsc,
  author = {Zhao, Zihua and Chen, Mengxi and Dai, Tianjie and Yao, Jiangchao and Han, Bo and Zhang, Ya and
    Wang, Yanfeng},
  title = {Mitigating Noisy Correspondence by Geometrical Structure Consistency Learning},
  booktitle = {Proceedings of the IEEE/CVF Conference on Computer Vision and Pattern Recognition},
  year = {2024}
}
"""
    presets: ClassVar[Mapping[str, Preset]] = {
        "paper": PAPER,
        "paper_coco": PAPER.plus(epochs={"train": 29}),
        "paper_cc152k": PAPER,
        "clip": CLIP_LINEAR.plus(epochs={"warmup": 0, "train": 5}, indicators={"tau1": 0.0}),
        "two_tower": TWO_TOWER_LINEAR.plus(epochs={"train": 7}, indicators={"tau1": 0.0, "block": 32}),
    }

    epochs: GSCEpochs = GSCEpochs()
    indicators: StructureIndicators = StructureIndicators()
    intra_modal: IntraModal = IntraModal()

    def phases(self) -> tuple[Phase, ...]:
        """Return a phase without estimates and one whose epochs begin with new estimates, on all pairs."""
        return Phase("first", self.epochs.warmup, competes=False), Phase("train", self.epochs.train, observe=True)

    def begin(self, setting: Setting) -> Self:
        """Return a copy that has begun; warn where the labels would shrink by themselves."""
        if isinstance(setting.ranking, Hinge) and self.indicators.use != "intra_modal":
            log.warning("gsc under the hinge: labels are margins, and both shrink together; the paper's is infonce")
        return super().begin(setting)

    def step(self, step: Step) -> list[Term]:
        """Return L = L_CM + gamma L_IM (Eq. 9)."""
        network, batch, ranking = step.network, step.batch, self.setting.ranking
        matcher, pairing = network.matcher, network.pairing(batch)
        images, texts, exclude = pairing.images, pairing.texts, pairing.exclude
        y = self.indicators.labels(step.k, batch.ids, exclude.device)
        similarity, scale = matcher.similarity(images, texts), self.indicators.scale(matcher)
        warm = not step.phase.observe
        terms = [self.setting.ranking_term("cross_modal", network, pairing, y, warm, similarity, scale)]  # Eq. 6
        if self.intra_modal.gamma:
            within = matcher.intra_similarity(images), matcher.intra_similarity(texts)
            values = structure_loss(*within, y, self.intra_modal.tau2, exclude)  # Eq. 7
            values = values * y if self.intra_modal.weigh else values
            terms.append(Term("intra_modal", values, self.intra_modal.gamma, ranking.reduction))
        return terms


def structure_agreement(images: Tensor, texts: Tensor, y: Tensor) -> Tensor:
    """Return the cosine of the two intra-modal structures of each pair (GSC Eq. 8).

    The pairs of the block are weighted by their labels:

        cos( (y_j <I_i, I_j>)_j , (y_j <T_i, T_j>)_j )

    j runs over all pairs of the block, including the pair i itself and captions of the same image. They are not
    negatives here; they only serve to compare the two structures.

    Args:
        images: Similarities of the block's images with each other, (B, B).
        texts: Similarities of its captions with each other, (B, B).
        y: Labels in [0, 1], (B,).

    Returns:
        (B,), in [-1, 1]; 0 where every label is 0.
    """
    return functional.cosine_similarity(images * y, texts * y, dim=1)


def structure_loss(images: Tensor, texts: Tensor, y: Tensor, temperature: float, exclude: Tensor) -> Tensor:
    """Return the cross-entropy of each image's structure against the structures of the captions (GSC Eq. 7).

        -log softmax_j( sum_k y_k <I_i, I_k> y_k <T_j, T_k> / tau_2 )_i

    Args:
        images: Similarities of the block's images with each other, (B, B).
        texts: Similarities of its captions with each other, (B, B).
        y: Labels in [0, 1], (B,).
        temperature: tau_2.
        exclude: True where image i and caption j are not negatives of each other, (B, B); the diagonal is always
            kept.

    Returns:
        (B,), at least 0.
    """
    with torch.autocast(images.device.type, enabled=False):  # sums of B products lose too much in half precision
        logits = (images * y.square()) @ texts.T / temperature
    return -logits.masked_fill(but_diagonal(exclude), -torch.inf).log_softmax(1).diagonal()


def least(*indicators: Floats) -> Floats:
    """Return the smallest indicator of each pair, in the shape of the indicators (GSC Eq. 5)."""
    return np.asarray(np.minimum.reduce(indicators), np.float32)
