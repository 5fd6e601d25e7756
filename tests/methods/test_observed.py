"""What a pass notes of each pair, with several captions of one image in the batch."""

import pytest
import torch
from method_helpers import SETTING, SHARP, batch_of, excluded, make_networks, naive_hinge, predictions, similarities

from pairsift.loss.ranking import Hinge
from pairsift.methods.bicro import BiCro
from pairsift.methods.cream import CREAM
from pairsift.methods.l2rm import L2RM
from pairsift.methods.ncr import NCR
from pairsift.methods.npc import NPC
from pairsift.methods.pc2 import PC2
from pairsift.methods.pcsr import PCSR
from pairsift.steps import Observation

BATCH = [0, 1, 4, 6, 7, 9]  # 0 and 1 show one image, 6 and 7 another


def observed(method):
    network = make_networks(method, sharp=SHARP)[1].eval()
    method = method.begin(SETTING(Hinge(), networks=method.networks))
    with torch.no_grad():
        return network, method.observe(Observation.make(network, 1, batch_of(BATCH)))


@pytest.mark.parametrize("kind", [NCR, PC2, PCSR, NPC, BiCro, CREAM, L2RM])
def test_the_loss_that_divides_is_the_mean_over_all_true_negatives(kind):
    network, notes = observed(kind())
    batch = batch_of(BATCH)
    s, margins = similarities(network, batch), [0.2] * 6
    expected = naive_hinge(s, margins, excluded(batch), hardest=False)
    assert notes["bank.loss" if kind is NPC else "division.loss"].tolist() == pytest.approx(expected, abs=1e-5)
    for other in (
        naive_hinge(s, margins, excluded(batch), True),
        naive_hinge(s, margins, excluded(batch) & False, False),
    ):
        assert max(abs(a - b) for a, b in zip(expected, other, strict=True)) > 0.01  # hardest, or siblings too


@pytest.mark.parametrize(("kind", "search"), [(PC2, "batch"), (PC2, "epoch"), (PCSR, "batch"), (PCSR, "epoch")])
def test_predictions_are_noted_as_probabilities_of_the_image(kind, search):
    network, notes = observed(kind(classifier={"classes": 5}, captions={"search": search}))
    expected = predictions(network, network.encode(batch_of(BATCH))[0])
    assert notes["classifier.predictions"].numpy() == pytest.approx(expected, abs=1e-5)
    assert expected.max(1).min() < 0.9 and len(set(expected.argmax(1))) > 1


@pytest.mark.parametrize("kind", [NPC, BiCro])
def test_the_images_and_the_captions_vectors_are_noted_under_their_own_names(kind):
    network, notes = observed(kind())
    images, texts = network.encode(batch_of(BATCH))
    part = "bank" if kind is NPC else "anchors"
    assert torch.equal(notes[f"{part}.by_image"], images.vectors)
    assert torch.equal(notes[f"{part}.by_text"], texts.vectors)
    assert not torch.allclose(images.vectors, texts.vectors, atol=0.1)
