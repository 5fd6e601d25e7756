"""The measures of a method's own trust and of its pseudo-captions, against plain loops."""

from pathlib import Path

import numpy as np
import pytest

from pairsift.bench.measure import own_caption, trust_auroc
from pairsift.loss.ranking import InfoNCE
from pairsift.methods.gsc import GSC
from pairsift.methods.ncr import NCR
from pairsift.methods.pc2 import PC2
from pairsift.methods.plain import Plain
from pairsift.pairs.pairs import Pairs
from pairsift.steps import Setting

IMAGE_OF = np.array([0, 0, 1, 1, 2, 2])
TRUE = np.array([0, 1, 1, 1, 0, 2])


def begun(method, matched=TRUE == IMAGE_OF):
    return method.begin(Setting(np.arange(6), IMAGE_OF, 3, matched, InfoNCE(), 0, method.networks))


def naive_auroc(trust, matched):
    """The share of (matching, mismatched) couples whose matching pair is believed more; half for a tie."""
    wins = [(a > b) + 0.5 * (a == b) for a in trust[matched] for b in trust[~matched]]
    return sum(wins) / len(wins)


def test_the_auroc_is_of_the_methods_own_trust():
    matched, rng = TRUE == IMAGE_OF, np.random.default_rng(0)
    divided, labelled = begun(NCR()), begun(GSC())
    divided.division.state["clean_probability"][:] = rng.random((2, 6))
    mean = divided.division.state["clean_probability"].mean(0)
    assert trust_auroc(divided) == pytest.approx(naive_auroc(mean, matched))
    for name in ("cross_modal", "intra_modal"):
        labelled.indicators.state[name][:] = rng.random((2, 6))
    least = np.minimum(labelled.indicators.state["cross_modal"], labelled.indicators.state["intra_modal"]).mean(0)
    assert trust_auroc(labelled) == pytest.approx(naive_auroc(least, matched))
    assert trust_auroc(begun(Plain())) is None
    assert trust_auroc(begun(NCR(), np.ones(6, bool))) is None


def test_own_captions_are_counted_by_the_image_that_they_truly_belong_to():
    method = begun(PC2(captions={"search": "epoch"}))
    method.division.state["clean_probability"][:] = [1, 0, 1, 1, 0, 1]  # pairs 1 and 4 are noisy for both networks
    method.captions.state["pseudo_caption"][0, [1, 4]] = [0, 5]  # captions of the images 0 and 2: both their own
    method.captions.state["pseudo_caption"][1, [1, 4]] = [2, 5]
    names = [f"{i}.jpg" for i in range(3)]
    split = np.full(6, "train")
    pairs = Pairs("made", names, [Path(n) for n in names], list("abcdef"), IMAGE_OF, split, true_image_of=TRUE)
    assert own_caption(method, pairs) == pytest.approx(3 / 4)
    assert own_caption(begun(PC2()), pairs) is None
