"""MSCN: meta similarity correction by pairs that are known to match."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from pairsift.arrays import Ints
from pairsift.match.base import at_least_float32
from pairsift.methods.base import Epochs, Method, Notes
from pairsift.methods.parts.division import Division, fit_known_betas
from pairsift.methods.parts.meta import MetaCorrection, meta_of, partial_products_of_pairs
from pairsift.methods.presets import CLIP_LINEAR, PAPER, TWO_TOWER_LINEAR, Preset
from pairsift.steps import Observation, Pairing, Phase, Step, Term, not_negatives


class MSCNEpochs(Epochs):
    """The phases of MSCN."""

    warmup: int = Field(default=5, ge=0, description="Epochs on all pairs, while both networks learn together.")
    train: int = Field(default=50, ge=0, description="Epochs on clean pairs, each with a step of the meta network.")

    def phases(self, warmup_batch: int | None) -> tuple[Phase, ...]:
        """Return warm-up, and training on clean and verified pairs with new optimizers.

        Args:
            warmup_batch: Pairs in a step of the warm-up; None for the run's.
        """
        return (
            Phase("warm-up", self.warmup, warm=True, competes=False, batch_size=warmup_batch),
            Phase("meta", self.train, ("clean", "verified"), observe=True, in_turn=True, new_optimizers=True),
        )


class MetaDivision(Division):
    """The purification of MSCN: a mixture of two betas over corrected similarities, which begins with known pairs.

    One beta begins with the V of verified pairs, the other with the V of images with captions of other pairs. Then EM
    refits both to the V of all training pairs. A network's clean probability is the posterior of the beta with the
    larger mean, and its peer trains by it.

    State: `clean_probability`, as for `CleanProbability`; `loss`, 1 - V of every pair in the last pass.
    """

    mixture: Literal["beta"] = Field(default="beta", description="Components of the mixture; there is no other.")

    def observe(self, seen: Observation) -> dict[str, Tensor]:
        """Return V of each pair, and of its image with the next pair's caption (NaN where they may fit), (B,) each."""
        images, meta = seen.images, meta_of(seen.network)
        following = torch.arange(len(images), device=images.vectors.device).roll(-1)
        values = []
        for captions in (seen.texts, seen.texts.rows(following)):
            similarity = at_least_float32(seen.network.matcher.pair_similarity(images, captions))
            values.append(meta(similarity, partial_products_of_pairs(images, captions, meta.groups)).sigmoid())
        may_fit = not_negatives(seen.batch).gather(1, following[:, None])[:, 0]
        return {"corrected": values[0], "mismatched": values[1].masked_fill(may_fit, torch.nan)}

    def update(self, notes: Notes) -> None:
        """Fit w, the posterior of the component with the larger corrected similarity."""
        ids = self.setting.ids
        verified = np.isin(ids, self.setting.verified)
        for k, noted in enumerate(notes):
            if not noted:  # this network has not passed
                continue
            distance, mismatched = 1 - noted["corrected"], 1 - noted["mismatched"]
            mixture = fit_known_betas(distance, distance[verified], mismatched[np.isfinite(mismatched)])
            self.state["clean_probability"][k, ids] = mixture.low(distance)
            self.state["loss"][k, ids] = distance


class MSCN(Method):
    """The method MSCN: a meta network corrects similarities so that a step on them serves pairs known to match.

    The corrected similarity V takes the place of S in the ranking loss; y, which sets the margin (hinge) or the weight
    (InfoNCE) of a pair, is V_ii^2 / (V_ii^2 + (1 - V_ii)^2), without gradient. In the warm-up the meta network learns
    from the ranking loss like the matcher; after it only by the virtual step (`MetaCorrection`). Before every epoch
    the pairs whose V looks mismatched are left out (`MetaDivision`), each network by its peer: by a pass right before
    it trains, so that the second network's peer has trained already. The optimizers are new after the warm-up.

    It needs verified training pairs (`--verified` or `--verified-column`), which teach the meta network alone. The
    paper takes 2,900 on Flickr30K, drawn from dev; here none are taken from dev, on which checkpoints are chosen.

    Where the published code differs from this: its meta network reads the similarity vector of SGR or SAF in the place
    of their last layer and its output is the similarity at test time too; here it reads the similarity and partial
    products of the global vectors, so that every matcher can be corrected, and retrieval ranks by the matcher's own
    similarity, so that search keeps its index. It takes margins along the wrong axis in one direction. It updates the
    meta network before the matcher and at a lower rate; here both move in one step, at the matcher's rate or, with
    CLIP, at the rate of a method's trainable part. Its negatives of verified pairs are drawn from the training pairs;
    here they are the other verified pairs of the step.
    """

    name: ClassVar[str] = "mscn"
    needs_verified: ClassVar[bool] = True
    citation: ClassVar[str] = """
@inproceedings{han2023mscn,
  author = {Han, Haochen and Miao, Kaiyao and Zheng, Qinghua and Luo, Minnan},
  title = {Noisy Correspondence Learning with Meta Similarity Correction},
  booktitle = {Proceedings of the IEEE/CVF Conference on Computer Vision and Pattern Recognition},
  pages = {7517--7526},
  year = {2023}
}
"""
    presets: ClassVar[Mapping[str, Preset]] = {
        "paper": Preset(
            {"warmup_batch": 128},
            {**PAPER.train, "batch_size": 64},
            "hinge",
            {"hinge": {"reduction": "sum", "base": 1.0}},
        ),
        "two_tower": TWO_TOWER_LINEAR.plus(epochs={"warmup": 2, "train": 6}),
        "clip": CLIP_LINEAR.plus(epochs={"warmup": 1, "train": 4}, meta={"rate": CLIP_LINEAR.train["lr"]}),
    }

    epochs: MSCNEpochs = MSCNEpochs()
    meta: MetaCorrection = MetaCorrection()
    division: MetaDivision = MetaDivision()
    warmup_batch: int | None = Field(
        default=None, ge=2, description="Pairs in a step of the warm-up; none (null in YAML) for batch_size."
    )

    def phases(self) -> tuple[Phase, ...]:
        """Return warm-up, and training on clean and verified pairs."""
        return self.epochs.phases(self.warmup_batch)

    def head(self, dim: int) -> nn.Module:
        """Return the meta network."""
        return self.meta.head()

    def subset(self, name: str, network: int) -> Ints:
        """Return `verified` pairs; or the others that are `clean` by the peer's division, or all of them."""
        if name == "verified":
            return self.setting.verified
        return self.meta.unverified(self.division.subset(name, network))

    def step(self, step: Step) -> list[Term]:
        """Return the ranking loss on corrected similarities, and after the warm-up the meta loss."""
        network, batch, warm = step.network, step.batch, step.phase.warm
        seed, images, texts = self.meta.encode(network, batch)
        pairing = Pairing(images, texts, not_negatives(batch))
        logits = self.meta.correct(network, pairing, learns=warm)
        y = torch.ones_like(logits.diagonal()) if warm else correspondence(logits)
        term = self.setting.ranking_term("corrected", network, pairing, y, warm, logits.sigmoid())
        if warm:
            return [term]
        return self.meta.terms(network, term, y, (batch, step.batches["verified"]), seed, step.rate)


def correspondence(logits: Tensor) -> Tensor:
    """Return y of each pair by its corrected similarity, the sharpened V_ii, without gradient, (B,), in [0, 1]."""
    return sharpened(logits.detach().diagonal().sigmoid())


def sharpened(p: Tensor) -> Tensor:
    """Return p^2 / (p^2 + (1 - p)^2), which moves probabilities towards 0 and 1 (MSCN's soft margin), (B,)."""
    return p.square() / (p.square() + (1 - p).square())
