"""What near images and near captions foretell."""

import math

import numpy as np
import pytest
from detect_helpers import OWN_REFERENCES, centred, naive_evidence, permuted, small, unit

from pairsift.detect.evidence import neighbour_evidence


def naive_foretold(folds, queries, values, most=30, trust=None):
    """Unit means of the values of the nearest pairs of other folds, weighted by exp(5 cos) and how far believed."""
    out = []
    for i in range(len(folds)):
        others = [j for j in range(len(folds)) if folds.fold[j] != folds.fold[i]]
        nearest = sorted(others, key=lambda j: -float(queries[i] @ queries[j]))[:most]
        believed = np.ones(len(folds)) if trust is None else trust[folds.fold[i]]
        total = sum(believed[j] * math.exp(5 * float(queries[i] @ queries[j])) * values[j] for j in nearest)
        out.append(unit(total))
    return np.array(out)


def fewer(folds, most=250):
    return type(folds)(
        folds.image_of, folds.group_of, folds.fold, folds.decoy_images[:most], folds.decoy_captions[:most]
    )


@pytest.mark.parametrize(("most", "told"), [(30, False), (4, False), (4, True)])
def test_both_kinds_match_plain_loops(most, told):
    options = OWN_REFERENCES.changed({"neighbours": {"count": most}})
    folds, images, captions = small(36, 1, 3)  # an image of one pair: no ties among the nearest
    folds, x, y = fewer(folds), centred(images), centred(captions)
    trust = np.random.default_rng(3).random((3, len(folds))) if told else None
    by_images, by_captions = neighbour_evidence(folds, images, captions, 0, options, trust)
    for evidence, codes in (
        (by_images, (naive_foretold(folds, x, y, most, trust), y)),
        (by_captions, (x, naive_foretold(folds, y, x, most, trust))),
    ):
        pairs, decoys = naive_evidence(folds, codes)
        assert evidence.pairs == pytest.approx(pairs, abs=1e-4)
        assert evidence.decoys == pytest.approx(decoys, abs=1e-4)


def test_links_of_a_fold_do_not_move_what_its_images_foretell():
    folds, images, captions = small(60, 1, 3)
    x, y, folds = centred(images), centred(captions), fewer(folds, 0)
    before, foretold = neighbour_evidence(folds, images, captions, 0, OWN_REFERENCES)[0], naive_foretold(folds, x, y)
    for members in folds.members():
        exchanged, moved = captions.copy(), y.copy()
        exchanged[members], moved[members] = captions[np.roll(members, 1)], y[np.roll(members, 1)]
        after = neighbour_evidence(folds, images, exchanged, 0, OWN_REFERENCES)[0]
        own = np.isin(np.arange(len(folds)), members)[:, None]
        expected, _ = naive_evidence(folds, (np.where(own, foretold, x @ np.ones((7, 5))), moved))
        assert after.pairs[members] == pytest.approx(expected[members], abs=1e-4)
        assert np.abs(after.pairs - before.pairs)[members].max() > 0.01


def test_few_keys_are_drawn_once_for_each_fold():
    folds, images, captions = small(40, 1, 2)
    whole = neighbour_evidence(folds, images, captions, 0, OWN_REFERENCES)[0]
    options = OWN_REFERENCES.changed({"neighbours": {"max_keys": 6}})
    part = neighbour_evidence(folds, images, captions, 0, options)[0]
    keys = [
        np.random.default_rng((0, 10, fold)).permutation(np.flatnonzero(folds.fold != fold))[:6] for fold in range(2)
    ]
    x, y = centred(images), centred(captions)
    told = [unit(sum(math.exp(5 * x[i] @ x[j]) * y[j] for j in keys[folds.fold[i]])) for i in range(len(folds))]
    pairs, _ = naive_evidence(fewer(folds, 0), (np.array(told), y))
    assert part.pairs == pytest.approx(pairs, abs=1e-4)
    assert np.abs(part.pairs - whole.pairs).max() > 0.01


def test_order_and_scale_do_not_matter():
    folds, images, captions = small(40, 1, 3)
    order = np.random.default_rng(4).permutation(len(folds))
    again = neighbour_evidence(permuted(folds, order), 5 * images[order] + 3, captions[order] / 4, 0, OWN_REFERENCES)
    for evidence, other in zip(neighbour_evidence(folds, images, captions, 0, OWN_REFERENCES), again, strict=True):
        assert other.pairs == pytest.approx(evidence.pairs[order], abs=1e-3)
        assert other.decoys == pytest.approx(evidence.decoys, abs=1e-3)
