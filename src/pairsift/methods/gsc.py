"""GSC: geometrical structure consistency."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from math import inf
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from pairsift.loss.ranking import Hinge
from pairsift.loss.structure import match_probability, structure_agreement, structure_loss
from pairsift.methods.base import Array, Batch, Method, Network, Phase, Setting, Term, demand, not_negatives
from pairsift.methods.plain import CLIP, TWO_TOWER
from pairsift.pairs.pairs import Ints
from pairsift.trust.division import peer
from pairsift.trust.mixture import fit_mixture
from pairsift.trust.momentum import least, moving_average

log = logging.getLogger(__name__)

PAPER = {
    "loss": "infonce",
    "infonce.base": 1.0,
    "batch_size": 128,
    "lr": 2e-4,
    "weight_decay": 0.0,
    "schedule": "step",
    "decay_epoch": 15,
    "decay_factor": 0.2,
    "decay_every": 15,
    "max_norm": 2.0,
}


class GSC(Method):
    """Pairs are believed as far as they fit across the modalities and sit alike within them; labels are exchanged.

    All labels start at 1, and the averages over epochs take the place of a warm-up. With the loss `infonce` at base 1
    the cross-modal loss is Eq. 6, with the same tau_1 as the indicator. The hinge takes the labels as margins, which
    seldom pays: a small y_CM asks for a small margin, whose softmax is again a small y_CM, until all are alike.

    The paper makes its estimates during an epoch's training, from weights that change meanwhile, with dropout; here
    they come from a pass over all pairs, in evaluation mode, before the epoch that first uses them. The sums of
    S_IM, which the paper relaxes from all pairs to a batch, run over all pairs that the pass brings at once: a
    batch, or 1,024 where the similarity factorises. Both losses are taken by log-softmax (the published code's sums
    overflow), and captions of the same image are no negatives of each other. Where the similarity is a module of
    tokens, so are the intra-modal ones: an image attends to the other's regions (published code: region r meets
    region r). Eq. 7 is printed without the weight that its text asks for and the published code has: see `weigh`.
    Where the published scripts differ from the paper (gamma 0.05 for COCO, 0.02 and a decay every 20 epochs for
    CC152K), the paper holds; the number of epochs is theirs.

    State: `cross_modal` and `intra_modal`, (networks, n_pairs), the averaged indicators of network k for every pair.

    Args:
        warmup_epochs: Epochs before the first estimate, with all labels 1 (5 in the paper's ablation without averages).
        epochs: Epochs after that.
        indicators: What a label is made of: the lesser of `both` indicators, or one of them.
        gamma: Weight of the intra-modal loss; 0 leaves it out.
        beta1: Share of the new estimate in the cross-modal average, [0, 1]; 1 for no average.
        beta2: The same for the intra-modal average.
        tau1: Temperature of the cross-modal softmax; 0 for the matcher's own.
        tau2: Temperature of the intra-modal softmax.
        weigh: Whether the label weights a pair's intra-modal loss too, beside the structures inside it.
        block: About how many pairs share a softmax where y_CM is estimated, which depends on it (128, the paper's
            batch); no more than come at once, `batch_size` for matchers that compare tokens.
        networks: 2, or 1 for a network that believes itself.
    """

    name: ClassVar[str] = "gsc"
    summary: ClassVar[str] = "labels by structure across and within modalities, averaged over epochs and exchanged"
    citation: ClassVar[str] = (
        "Zhao et al., Mitigating Noisy Correspondence by Geometrical Structure Consistency Learning, CVPR 2024"
    )
    presets: ClassVar[Mapping[str, Mapping[str, object]]] = {
        "paper": PAPER,
        "paper_coco": {**PAPER, "gsc.epochs": 29},
        "paper_cc152k": PAPER,
        "clip": {**CLIP, "infonce.base": 1.0, "gsc.warmup_epochs": 0, "gsc.epochs": 5, "gsc.tau1": 0.0},
        "two_tower": {**TWO_TOWER, "infonce.base": 1.0, "gsc.epochs": 7, "gsc.tau1": 0.0, "gsc.block": 32},
    }

    def __init__(  # noqa: PLR0913, PLR0917
        self,
        warmup_epochs: int = 1,
        epochs: int = 59,
        indicators: Literal["both", "cross_modal", "intra_modal"] = "both",
        gamma: float = 0.01,
        beta1: float = 0.7,
        beta2: float = 0.7,
        tau1: float = 0.07,
        tau2: float = 1.0,
        weigh: bool = True,
        block: int = 128,
        networks: int = 2,
    ) -> None:
        self.warmup_epochs, self.epochs, self.indicators = warmup_epochs, epochs, indicators
        self.gamma, self.beta1, self.beta2, self.tau1, self.tau2 = gamma, beta1, beta2, tau1, tau2
        self.weigh, self.block, self.networks = weigh, block, networks

        demand(self, 0, inf, "warmup_epochs", "epochs", "gamma", "tau1")
        demand(self, 0, 1, "beta1", "beta2")
        demand(self, 1e-6, inf, "tau2")
        demand(self, 2, inf, "block")
        demand(self, 1, 2, "networks")

    def phases(self) -> tuple[Phase, ...]:
        """All pairs throughout; every epoch but the first begins with new estimates."""
        return Phase("first", self.warmup_epochs), Phase("train", self.epochs, observe=True)

    def begin(self, setting: Setting) -> None:
        """Every label starts at 1."""
        super().begin(setting)
        if isinstance(setting.ranking, Hinge) and self.indicators != "intra_modal":
            log.warning("gsc under the hinge: labels are margins, and both shrink together; the paper's is infonce")
        for name in ("cross_modal", "intra_modal"):
            self.state[name] = np.ones((self.networks, len(setting.image_of)), np.float32)

    def labels(self, network: int, ids: Ints, device: torch.device) -> Tensor:
        """y = min(y_CM, y_IM) (Eq. 5) of these pairs as network k trains by it, its peer's, (len(ids),)."""
        names = ("cross_modal", "intra_modal") if self.indicators == "both" else (self.indicators,)
        y = least(*(self.state[name][peer(network, self.networks), ids] for name in names))
        return torch.from_numpy(y).to(device)

    def scale(self, network: Network) -> Tensor:
        """1 / tau_1, scalar."""
        own = network.matcher.scale()
        return torch.full_like(own, 1 / self.tau1) if self.tau1 else own

    def observe(self, network: Network, batch: Batch) -> dict[str, Tensor]:
        """y_CM (Eq. 3), (B,), and S_IM (Eq. 8) by the labels that each network trains by, (B, networks).

        Network k needs column k alone; the pass does not say which network it is that looks.
        """
        images, texts = network.encode(batch)
        matcher, exclude, probability = network.matcher, not_negatives(batch), []
        for part in np.array_split(np.arange(len(batch)), max(1, round(len(batch) / self.block))):
            own = slice(int(part[0]), int(part[-1]) + 1)
            logits = matcher.similarity(images.rows(own), texts.rows(own)) * self.scale(network)
            probability.append(match_probability(logits, exclude[own, own]))
        within = matcher.intra_similarity(images), matcher.intra_similarity(texts)
        labels = [self.labels(k, batch.ids, exclude.device) for k in range(self.networks)]
        agreement = torch.stack([structure_agreement(*within, y) for y in labels], 1)
        return {"probability": torch.cat(probability), "agreement": agreement}

    def update(self, seen: Sequence[Mapping[str, Array]], epoch: int) -> None:
        """The averages move by the new estimates (Eq. 10); y_IM is the posterior of the cleaner component (Eq. 4)."""
        ids = self.setting.ids
        for k, notes in enumerate(seen):
            probability, distance = np.asarray(notes["probability"], np.float32), 1 - notes["agreement"][:, k]
            clean = np.asarray(fit_mixture(distance, self.setting.seed).low(distance), np.float32)
            for name, now, beta in (("cross_modal", probability, self.beta1), ("intra_modal", clean, self.beta2)):
                self.state[name][k, ids] = moving_average(now, self.state[name][k, ids], beta)

    def facts(self) -> dict[str, float]:
        """The estimated share of mismatched pairs: 1 - the mean of the averages y_IM, which start at 1."""
        return {"noise_rate": float(1 - self.state["intra_modal"][:, self.setting.ids].mean())}

    def step(self, networks: Sequence[Network], k: int, batches: Mapping[str, Batch], phase: Phase) -> list[Term]:
        """L = L_CM + gamma L_IM (Eq. 9)."""
        own, batch, ranking = networks[k], batches["all"], self.setting.ranking
        images, texts = own.encode(batch)
        exclude = not_negatives(batch)
        y = self.labels(k, batch.ids, exclude.device)
        similarity, scale = own.matcher.similarity(images, texts), self.scale(own)
        crossing = ranking(similarity, scale, y, exclude, warm=not phase.observe)  # Eq. 6
        terms = [Term("cross_modal", crossing, reduction=ranking.reduction)]
        if self.gamma:
            within = own.matcher.intra_similarity(images), own.matcher.intra_similarity(texts)
            values = structure_loss(*within, y, self.tau2, exclude)  # Eq. 7
            terms.append(Term("intra_modal", values * y if self.weigh else values, self.gamma, ranking.reduction))
        return terms
