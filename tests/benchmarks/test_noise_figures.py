"""The figure of detectors by kinds of noise."""

from itertools import pairwise

import pytest

import noise_figures

NAMES = ("ours", "ours_near", "cosine", "contrast", "lemon", "cca", "knn")


def row(collection, kind, noise, shift=0.0):
    numbers = {name: 0.6 + 0.05 * place + shift for place, name in enumerate(NAMES)}
    detectors = {name: {"auroc": auroc, "low": auroc - 0.01, "high": auroc + 0.01} for name, auroc in numbers.items()}
    return {"collection": collection, "kind": kind, "noise": noise, "detectors": detectors}


def test_every_detector_has_a_bar_of_its_mean_auroc_for_every_kind_and_collection():
    rows = [row("a", kind, 0.4) for kind in noise_figures.KINDS]
    rows += [row("a", "random", 0.4, 0.02), row("b", "near", 0.4), row("b", "random", 0.0)]
    figure = noise_figures.detectors(rows)
    first, second = figure.axes
    assert [axes.get_title() for axes in figure.axes] == ["a", "b"]
    assert [len(axes.patches) for axes in figure.axes] == [4 * len(NAMES), len(NAMES)]
    tops = [bar.get_y() + bar.get_height() for bar in first.patches]
    assert tops[: len(NAMES)] == pytest.approx([0.61 + 0.05 * place for place in range(len(NAMES))])
    assert tops[len(NAMES) : 2 * len(NAMES)] == pytest.approx([0.6 + 0.05 * place for place in range(len(NAMES))])
    edges = sorted((bar.get_x(), bar.get_x() + bar.get_width()) for bar in first.patches)
    assert all(end <= start + 1e-9 for (_, end), (start, _) in pairwise(edges))
    [legend] = [axes.get_legend() for axes in figure.axes if axes.get_legend() is not None]
    assert [text.get_text() for text in legend.get_texts()] == ["ours", "ours, near expected", *NAMES[2:]]
    colours = [tuple(bar.get_facecolor()) for bar in second.patches]
    assert [tuple(patch.get_facecolor()) for patch in legend.get_patches()] == colours and len(set(colours)) == 7
