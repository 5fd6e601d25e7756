"""The matchers' terms on tiny inputs: the numbers that their authors' code gives."""

import pytest
import torch
from torch import nn

from pairsift.encode.features import Items
from pairsift.loss.ranking import BCE
from pairsift.match.pau import PrototypeOptions, Prototypes
from pairsift.match.pcme import Pcme, PcmeOptions
from pairsift.match.vse import Vse, VseOptions
from pairsift.match.vsrn import Captioner, VsrnOptions

FLAT = torch.eye(3, dtype=torch.bool)


def prototypes(regression=0.0, diversity=0.0):
    """PAU's prototypes (1, 0) and (.6, .8) of both modalities."""
    made = Prototypes(2, PrototypeOptions(prototypes=2, regression=regression, diversity=diversity))
    for parameter in (made.images, made.texts):
        nn.init.zeros_(parameter)
        parameter.data += torch.tensor([[1.0, 0.0], [0.6, 0.8]])
    return made


def paus_terms(**weights):
    own, scale = prototypes(**weights), torch.tensor(1 / 0.07)
    images = own.codes(torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]]), own.texts, scale)
    texts = own.codes(torch.tensor([[0.8, 0.6], [0.0, 1.0], [1.0, 0.0]]), own.images, scale)
    return own.penalty(images, texts, FLAT, scale), images


def test_paus_diversity_counts_the_squared_logits_of_all_entries():
    assert paus_terms(diversity=0.015)[0].tolist() == pytest.approx([1.1020] * 3, abs=5e-5)


def test_paus_vagueness_follows_the_similarity_with_negatives_as_a_share_of_its_mean():
    terms, images = paus_terms(regression=0.5)
    assert float(terms.detach().mean()) == pytest.approx(0.0453, abs=5e-5)
    by_images = torch.tensor([0.799, 0.479, 1.406])
    vagueness = images.extra["vagueness"].detach()
    text_sides = torch.tensor([1.249368, 0.640701, 0.800877]), torch.tensor([0.926911, 0.844148, 0.919886])
    expected = ((vagueness - by_images) ** 2 + (text_sides[1] - text_sides[0]) ** 2) / 4
    assert terms.tolist() == pytest.approx(expected.tolist(), abs=5e-4)


def test_vse_plus_plus_reads_a_text_forward_and_takes_the_last_state():
    torch.manual_seed(0)
    matcher = Vse(6, 10, VseOptions(dim=4, word_dim=3, pooling="mean")).eval()
    own = nn.GRU(3, 4, batch_first=True)
    own.load_state_dict(matcher.words.gru.state_dict())
    ids = torch.tensor([[1, 2, 3, 4], [1, 5, 4, 0]])
    found = matcher.encode_texts(Items(ids, ids > 0)).vectors
    for row, caption in zip(found, ([1, 2, 3, 4], [1, 5, 4]), strict=True):
        last = own(matcher.words.vectors.weight[caption][None])[1][0, 0]
        torch.testing.assert_close(row, last / last.norm())


def test_vsrn_is_2048_wide_and_its_captioner_starts_by_xavier_normal():
    assert VsrnOptions().dim == 2048
    torch.manual_seed(0)
    captioner = Captioner(64, 50, 300)
    assert float(captioner.out.weight.detach().std()) == pytest.approx(0.060, abs=0.001)
    assert float(captioner.enter.weight.detach().std()) == pytest.approx((2 / (64 + 512)) ** 0.5, abs=0.001)


def test_pcmes_divergences_stand_beside_its_loss_as_a_sum_beside_a_sum():
    torch.manual_seed(0)
    n, dim, weight = 5, 3, 0.01
    matcher = Pcme(6, 4, PcmeOptions(dim=dim, hidden=4, dropout=0.0, samples=2, kl=weight)).double().train()
    left, right = torch.randn(n, 6, dtype=torch.float64), torch.randn(n, 4, dtype=torch.float64)
    images, texts = matcher.encode_images(Items(left)), matcher.encode_texts(Items(right))
    ones, none = torch.ones(n, dtype=torch.float64), torch.zeros(n, n, dtype=torch.bool)
    values = BCE(pseudo=0.0, smoothing=0.0)(matcher.similarity(images, texts), matcher.scale(), ones, none)
    found = (values + matcher.penalty(images, texts, none, ones)).mean()
    p = (matcher.similarity(images, texts) * matcher.scale()).sigmoid()
    total = 2 * sum(-(p[i, j] if i == j else 1 - p[i, j]).log() for i in range(n) for j in range(n))
    for head, x in ((matcher.image_head, left), (matcher.text_head, right)):
        for mean, log_variance in zip(*head(x), strict=True):
            total = total - weight / 2 * sum(1 + v - m**2 - v.exp() for m, v in zip(mean, log_variance, strict=True))
    torch.testing.assert_close(found, total / n**2)  # the sums of the paper, over the pairs
