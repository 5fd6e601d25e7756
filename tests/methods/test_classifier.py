"""The pseudo-classifier's classes start spread and stay so."""

import torch

from pairsift.match.base import Codes, unit
from pairsift.methods.parts.pseudo_captions import ClassifierHead, batch_entropy, pseudo_label_loss


def test_the_classes_start_spread_whatever_the_length_of_the_vectors():
    torch.manual_seed(0)
    vectors = unit(torch.randn(300, 512) + 1)
    head = ClassifierHead(512, 32)
    logits = head(Codes(vectors)).detach()
    assert len(logits.argmax(1).unique()) >= 10
    assert torch.allclose(head(Codes(2 * vectors)), logits, atol=1e-4)


def test_classes_stay_spread_and_agree_between_image_and_caption_within_a_hundred_steps():
    torch.manual_seed(0)
    topics = torch.randn(20, 256)[torch.randint(20, (600,))]
    images, texts = (unit(topics + 1 + torch.randn(600, 256)) for _ in range(2))
    head = ClassifierHead(256, 16)
    optimizer = torch.optim.AdamW(head.parameters(), 1e-3)
    for _ in range(100):
        rows = torch.randint(600, (128,))
        p, q = head(Codes(images[rows])), head(Codes(texts[rows]))
        loss = pseudo_label_loss(p, q).mean() + 10 * batch_entropy(p).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    p, q = (head(Codes(vectors)).argmax(1) for vectors in (images, texts))
    assert len(p.unique()) >= 12 and (p == q).float().mean() > 0.8
