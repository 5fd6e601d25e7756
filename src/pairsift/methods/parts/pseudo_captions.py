"""A pseudo-classifier without labels, and captions of clean pairs for the images of noisy ones by it (PC2 and PCSR)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from pairsift.arrays import Array, Floats, Ints
from pairsift.match.base import Codes, products, unit
from pairsift.methods.base import Notes, Part
from pairsift.methods.parts.division import Division
from pairsift.methods.parts.nearest import nearest
from pairsift.steps import Batch, Network, Observation, Pairing, Setting, Term, gather_rows, related

HIDDEN = 256  # width of the classifier's hidden layer
SEARCHED = 50_000  # clean pairs; of more, each search draws so many


class PseudoClassifier(Part):
    """The pseudo-classifier C, one for both modalities: images and captions teach each other classes without labels.

    State: `predictions`, (networks, n_images, K), each image's class prediction in the last pass; 0 before the first.
    """

    per_image: ClassVar[tuple[str, ...]] = ("predictions",)

    classes: int = Field(default=128, ge=2, description="Number of classes, K.")

    def head(self, dim: int) -> nn.Module:
        """Return the network's trainable part, from codes of length `dim` to class logits."""
        return ClassifierHead(dim, self.classes)

    def initial_state(self, setting: Setting) -> dict[str, Array]:
        """Return predictions that are 0."""
        return {"predictions": np.zeros((setting.networks, setting.n_images, self.classes), np.float32)}

    def observe(self, seen: Observation) -> dict[str, Tensor]:
        """Return the images' class predictions, (B, K)."""
        return {"predictions": seen.network.logits(seen.images).softmax(1)}

    def update(self, notes: Notes) -> None:
        """Keep the predictions of the pass."""
        for k, noted in enumerate(notes):
            self.state["predictions"][k, self.setting.image_of[self.setting.ids]] = noted["predictions"]

    def predictions_of_pairs(self, k: int) -> Floats:
        """Return network k's prediction of every training pair's image in the last pass, (n, K)."""
        return np.asarray(self.state["predictions"][k, self.setting.image_of[self.setting.ids]], np.float32)

    def values_of_pairs(self) -> dict[str, Array]:
        """Return also `pseudo_class`, the class of each pair's image in the last pass, after a first one."""
        predictions = self.state["predictions"][:, self.setting.image_of[self.setting.ids]]
        classes = {"pseudo_class": predictions.argmax(2)} if predictions.any() else {}
        return {**super().values_of_pairs(), **classes}

    def facts(self) -> dict[str, float]:
        """Return how many classes the training images are put into, in the mean of the networks, after a first pass."""
        predictions = self.state["predictions"][:, np.unique(self.setting.image_of[self.setting.ids])]
        if not predictions.any():
            return {}
        return {"classes_in_use": float(np.mean([len(np.unique(network.argmax(1))) for network in predictions]))}

    def terms(self, images: Tensor, texts: Tensor, pseudo_weight: float, entropy_weight: float) -> list[Term]:
        """Return the terms that train the classifier on clean pairs.

        Args:
            images: Class logits of the images, (B, K).
            texts: Class logits of their captions, (B, K).
            pseudo_weight: Weight of the pseudo-classification loss (PC2 Eq. 2, PCSR Eq. 1).
            entropy_weight: Weight of the entropy of the mean prediction (PC2 Eq. 3, PCSR Eq. 2).
        """
        return [
            self.setting.auxiliary_term("pseudo", pseudo_label_loss(images, texts), pseudo_weight),
            self.setting.auxiliary_term("entropy", batch_entropy(images), entropy_weight),
        ]


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
    other image is predicted more alike. Of more than 50,000 clean pairs, it takes such a caption first, and searches
    for the others among 50,000 clean pairs, which are drawn anew every epoch.

    State, with `search` epoch: `pseudo_caption`, (networks, n_pairs), ids; where embeddings are compared also
    `embeddings`, (networks, n_images, d), once there was a pass.
    """

    per_image: ClassVar[tuple[str, ...]] = ("embeddings",)

    search: Literal["batch", "epoch"] = Field(
        default="batch",
        description="Captions are searched for in the clean batch at hand, or among up to 50,000 clean pairs once "
        "an epoch, which finds a clean caption of the same image where there is one.",
    )
    compare: Literal["class", "embedding"] = Field(
        default="class",
        description="What makes two images alike: their class predictions or their embeddings (PC2 Table 3).",
    )
    mismatch_threshold: float = Field(
        default=0.0, ge=0, le=1, description="A caption whose image is less alike than this is not used; PC2* has 0.5."
    )

    def initial_state(self, setting: Setting) -> dict[str, Array]:
        """Return each pair's own caption, where captions are searched for once an epoch."""
        if self.search == "batch":
            return {}
        return {"pseudo_caption": np.tile(np.arange(len(setting.image_of)), (setting.networks, 1))}

    def observe(self, seen: Observation) -> dict[str, Tensor]:
        """Return the images' global vectors, where they are compared once an epoch."""
        if self.search == "batch" or self.compare == "class":
            return {}
        return {"embeddings": seen.images.vectors}

    def update(self, notes: Notes) -> None:
        """Keep the embeddings of the pass."""
        if "embeddings" not in notes[0]:
            return
        shape = self.setting.networks, self.setting.n_images, notes[0]["embeddings"].shape[1]
        self.state["embeddings"] = np.zeros(shape, np.float32)
        for k, noted in enumerate(notes):
            self.state["embeddings"][k, self.setting.image_of[self.setting.ids]] = noted["embeddings"]

    def search_all(self, division: Division, classifier: PseudoClassifier, epoch: int) -> None:
        """Find a caption for each noisy pair of every network after a pass, where `search` is epoch.

        Args:
            division: The division by the same pass.
            classifier: The classifier, with the predictions of the same pass.
            epoch: Number of the epoch that begins, from 0.
        """
        image_of = self.setting.image_of
        for k in range(self.setting.networks if self.search == "epoch" else 0):
            clean, noisy = division.subset("clean", k), division.subset("noisy", k)
            few, vectors = len(clean) <= SEARCHED, self._vectors(k, classifier)
            rng = np.random.default_rng([self.setting.seed, epoch, k])
            pool = clean if few else np.sort(rng.choice(clean, SEARCHED, replace=False))
            found = pool[nearest(vectors[image_of[noisy]], vectors[image_of[pool]])]
            if not few:
                first = np.full(self.setting.n_images, -1)
                first[image_of[clean[::-1]]] = clean[::-1]
                own = first[image_of[noisy]]
                found = np.where(own >= 0, own, found)
            self.state["pseudo_caption"][k, noisy] = found

    def captions(self, network: int, ids: Ints) -> Ints:
        """Return ids of the pairs whose captions these noisy pairs train with; with `search` batch their own."""
        if self.search != "epoch":
            return ids
        return np.asarray(self.state["pseudo_caption"][network, ids], np.int64)

    def rematch(
        self, network: Network, k: int, noisy: Batch, images: Codes, clean: CleanBatch, classifier: PseudoClassifier
    ) -> tuple[Pairing, Tensor]:
        """Put the captions of the clean images that are most alike beside the images of noisy pairs (PC2 Eq. 4).

        Args:
            network: The network in training.
            k: Its number.
            noisy: The noisy pairs; with `search` epoch they come with the captions that were found.
            images: Codes of their images.
            clean: The clean pairs of the step.
            classifier: The classifier, with the predictions of the last pass.

        Returns:
            The pairing, and S^p, the cosine of the two images' predictions or embeddings, without gradient, (B,).
        """
        if self.search == "epoch":
            texts, owners = network.matcher.encode_texts(noisy.texts), noisy.caption_images
            numbers = noisy.caption_texts
            rows = (self.setting.image_of[ids] for ids in (noisy.ids, self.captions(k, noisy.ids)))
            vectors = [unit(gather_rows(self._vectors(k, classifier), row, clean.logits)) for row in rows]
            likeness = (vectors[0] * vectors[1]).sum(1)
        else:
            if self.compare == "embedding":
                query, keys = images.vectors.detach(), clean.images.vectors.detach()
            else:
                query, keys = (unit(logits.detach().softmax(1)) for logits in (network.logits(images), clean.logits))
            likeness, j = products(query, keys).max(1)
            same = clean.batch.image_rows[:, None] == clean.batch.image_rows
            j = same.int().argmax(1)[j]  # of an image's captions the first, whatever the rounding
            texts, owners, numbers = clean.texts.rows(j), clean.batch.caption_images[j], clean.batch.caption_texts
            numbers = None if numbers is None else numbers[j]
        return Pairing(images, texts, related(noisy.image_rows, owners, numbers)), likeness

    def keep_alike(self, term: Term, likeness: Tensor) -> Term:
        """Return the term without the pairs whose caption's image is too little alike."""
        return term.masked(likeness >= self.mismatch_threshold)

    def _vectors(self, k: int, classifier: PseudoClassifier) -> Array:
        """Return the predictions or embeddings of all images in the last pass of network k, (n_images, K or d)."""
        bank = self.state["embeddings"] if self.compare == "embedding" else classifier.state["predictions"]
        vectors: Array = bank[k]
        return vectors


def pseudo_label_loss(image_logits: Tensor, text_logits: Tensor) -> Tensor:
    """Return the cross-entropy of each image's prediction against the class of its caption (PC2 Eq. 2).

    The class of a caption is the argmax of its logits.

    Args:
        image_logits: (B, K).
        text_logits: (B, K). Only the argmax is used, so no gradient reaches them.

    Returns:
        (B,), at least 0.
    """
    return torch.nn.functional.cross_entropy(image_logits, text_logits.argmax(1), reduction="none")


def batch_entropy(logits: Tensor) -> Tensor:
    """Return one term per row of the negative entropy of the mean prediction (PC2 Eq. 3).

        value_i = sum_k p_ik log( (1/B) sum_j p_jk )

    The mean of the values over the batch is -H(mean prediction). Minimising it spreads the predictions over the
    classes; a single prediction may still be certain.

    Args:
        logits: (B, K).

    Returns:
        (B,), with a mean in [-log K, 0].
    """
    log_p = logits.log_softmax(1)
    log_mean = torch.logsumexp(log_p, 0) - math.log(len(logits))
    return (log_p.exp() * log_mean).sum(1)


class ClassifierHead(nn.Module):
    """A classifier of global vectors, scaled to a mean square of 1: linear, ReLU, linear.

    A unit vector of many dimensions has entries so small that the biases of a layer as PyTorch initialises it outweigh
    all differences between items. Every item is then put into the same few classes, and the gradient on the other
    classes is too small to change that. With scaled vectors, He initialisation and biases of 0 they start spread.

    Args:
        dim: Length of a global vector.
        classes: Number of classes K.
    """

    def __init__(self, dim: int, classes: int) -> None:
        super().__init__()
        layers = nn.Linear(dim, HIDDEN), nn.Linear(HIDDEN, classes)
        for layer in layers:
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            nn.init.zeros_(layer.bias)
        self.layers = nn.Sequential(layers[0], nn.ReLU(), layers[1])

    def forward(self, codes: Codes) -> Tensor:
        """Return logits, (n, K)."""
        logits: Tensor = self.layers(nn.functional.rms_norm(codes.vectors, codes.vectors.shape[-1:]))
        return logits
