"""Whether half precision changes recall: a small SGR, trained on made-up concepts, ranks held-out pairs both ways."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from pairsift.encode.features import Items
from pairsift.loss.ranking import hinge
from pairsift.match import Sgr
from pairsift.match.sgraf import SgrOptions
from pairsift.retrieve.ranks import ranks, recall

CONCEPTS, REGIONS, WIDTH, WORDS = 60, 12, 64, 6


def recall_in_half(count: int = 1000, steps: int = 250) -> dict[str, Any]:
    """rSum in percent over `count` held-out pairs in single precision, and by how much half precision changes it."""
    torch.manual_seed(0)
    matcher = Sgr(WIDTH, CONCEPTS, REGIONS, SgrOptions(dim=128, similarity_dim=64, dropout=0.0))
    looks = torch.randn(CONCEPTS, WIDTH)
    optimizer = torch.optim.Adam(matcher.parameters(), 5e-3)
    exclude = torch.eye(64, dtype=torch.bool)
    for _ in range(steps):
        images, texts = pairs(64, looks)
        scores = matcher.similarity(matcher.encode_images(images), matcher.encode_texts(texts))
        loss = hinge(scores, torch.full((64,), 0.2), "mean", exclude).sum()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(matcher.parameters(), 2.0)
        optimizer.step()
    matcher.eval()
    left, right = pairs(count, looks)
    found = []
    for half in (False, True):
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=half):
            scores = matcher.similarity(matcher.encode_images(left), matcher.encode_texts(right)).float().numpy()
        found.append(recall(ranks(lambda rows, scores=scores: scores[rows], np.arange(count), count)))
    worst = max(abs(found[0][name] - found[1][name]) for name in found[0] if name != "rsum")
    return {"recall_pairs": count, "recall_rsum": round(found[0]["rsum"], 2), "recall_largest_change": round(worst, 3)}


def pairs(count: int, looks: torch.Tensor) -> tuple[Items, Items]:
    """Images whose regions show some concepts in noise, and captions that name half of them in any order."""
    shown = torch.rand(count, CONCEPTS).topk(WORDS).indices
    regions = torch.randn(count, REGIONS, WIDTH)
    places = torch.rand(count, REGIONS).topk(WORDS).indices
    regions.scatter_add_(1, places[..., None].expand(-1, -1, WIDTH), looks[shown])
    named = shown.gather(1, torch.rand(count, WORDS).topk(WORDS // 2).indices)
    return Items(regions), Items(named)
