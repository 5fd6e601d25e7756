"""The benchmark of image networks at reduced size."""

from pathlib import Path

import pytest
import torch

import image_encoders
import pairsift.encode.efficientnet
from verdicts import records

pytestmark = pytest.mark.slow


def test_networks_compute_in_the_precision_of_the_row(monkeypatch, tmp_path):
    monkeypatch.setattr(pairsift.encode.efficientnet, "precision_on", None)
    wanted = dict(zip(image_encoders.KEY, ("scenes-40", 1, "efficientnet-lite0", "bfloat16"), strict=True))
    row = image_encoders.measure(wanted, Path("nowhere"), str(tmp_path))
    assert pairsift.encode.efficientnet.precision_on(torch.device("cpu")) == torch.bfloat16
    assert row["pairs"] == 200 and row["auroc"] > 0.8
    table = image_encoders.summary([row, {**row, "seed": 2, "auroc": row["auroc"] - 0.2}])
    assert f"{row['auroc'] - 0.1:.3f}" in table


@pytest.mark.parametrize("dtype", sorted(image_encoders.DTYPES))
def test_speeds_are_of_files_of_both_sizes(monkeypatch, tmp_path, dtype):
    monkeypatch.setattr(pairsift.encode.efficientnet, "precision_on", None)
    monkeypatch.setattr(image_encoders, "PRODUCT", 64)
    drawn = [(str(tmp_path / image), *rest) for image, *rest in records("scenes-10", tmp_path, 1, tmp_path)]
    monkeypatch.setattr(image_encoders, "records", lambda *_: drawn)
    row = image_encoders.speed("efficientnet-lite0", dtype, tmp_path)
    assert list(row["rates"]) == ["224", "500"] and min(row["rates"].values()) > 0
    assert f"| `efficientnet-lite0` | {dtype} | {row['rates']['224']} |" in image_encoders.speeds([row])
