"""GSC: geometrical structure consistency."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import ClassVar

from pydantic import Field

from pairsift.loss.ranking import Hinge
from pairsift.loss.structure import structure_loss
from pairsift.methods.base import Epochs, Method
from pairsift.methods.parts.indicators import StructureIndicators
from pairsift.methods.presets import CLIP_LINEAR, TWO_TOWER_LINEAR, Preset
from pairsift.options import Options
from pairsift.steps import Batch, Network, Pairing, Phase, Setting, Term, not_negatives

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
        "paper_coco": PAPER.having(epochs={"train": 29}),
        "paper_cc152k": PAPER,
        "clip": CLIP_LINEAR.having(epochs={"warmup": 0, "train": 5}, indicators={"tau1": 0.0}),
        "two_tower": TWO_TOWER_LINEAR.having(epochs={"train": 7}, indicators={"tau1": 0.0, "block": 32}),
    }

    epochs: GSCEpochs = GSCEpochs()
    indicators: StructureIndicators = StructureIndicators()
    intra_modal: IntraModal = IntraModal()

    def phases(self) -> tuple[Phase, ...]:
        """Return a phase without estimates and one whose epochs begin with new estimates, on all pairs."""
        return Phase("first", self.epochs.warmup, competes=False), Phase("train", self.epochs.train, observe=True)

    def begin(self, setting: Setting) -> None:
        """Let every label start at 1; warn where the labels would shrink by themselves."""
        super().begin(setting)
        if isinstance(setting.ranking, Hinge) and self.indicators.use != "intra_modal":
            log.warning("gsc under the hinge: labels are margins, and both shrink together; the paper's is infonce")

    def step(self, networks: Sequence[Network], k: int, batches: Mapping[str, Batch], phase: Phase) -> list[Term]:
        """Return L = L_CM + gamma L_IM (Eq. 9)."""
        network, batch, ranking = networks[k], batches["all"], self.setting.ranking
        matcher, (images, texts) = network.matcher, network.encode(batch)
        exclude = not_negatives(batch)
        y = self.indicators.labels(k, batch.ids, exclude.device)
        similarity, scale = matcher.similarity(images, texts), self.indicators.scale(matcher)
        pairing, warm = Pairing(images, texts, exclude), not phase.observe
        terms = [self.setting.ranking_term("cross_modal", network, pairing, y, warm, similarity, scale)]  # Eq. 6
        if self.intra_modal.gamma:
            within = matcher.intra_similarity(images), matcher.intra_similarity(texts)
            values = structure_loss(*within, y, self.intra_modal.tau2, exclude)  # Eq. 7
            values = values * y if self.intra_modal.weigh else values
            terms.append(Term("intra_modal", values, self.intra_modal.gamma, ranking.reduction))
        return terms
