"""What a method thought of each pair: summaries of an epoch, and the file of the end."""

from itertools import pairwise

import numpy as np
import pyarrow.parquet
import pytest

from pairsift.loss.ranking import InfoNCE
from pairsift.methods.gsc import GSC
from pairsift.methods.ncr import NCR
from pairsift.methods.npc import NPC
from pairsift.methods.pc2 import PC2
from pairsift.methods.pcsr import PCSR
from pairsift.methods.plain import Plain
from pairsift.steps import Setting
from pairsift.train.record import BINS, epoch_summary, write_state

IDS = np.array([1, 2, 4, 5, 7])
IMAGE_OF = np.array([0, 0, 1, 1, 2, 2, 3, 3])
MATCHED = np.array([True, False, True, True, False])


def begun(method, matched=None):
    method = method.begin(Setting(IDS, IMAGE_OF, 4, matched, InfoNCE(), 0, method.networks))
    return method


def test_a_summary_is_means_and_counts_of_each_group():
    values = np.random.default_rng(0).random((2, 5)).astype(np.float32)
    values[1, 2] = np.nan
    found = epoch_summary({"w": values, "ids": np.zeros((2, 5), np.int64)}, MATCHED)
    assert set(found) == {"w"} and len(found["w"]["edges"]) == BINS + 1
    for group, members in (("all", np.ones(5, bool)), ("matching", MATCHED), ("mismatched", ~MATCHED)):
        rows = [value for row in values[:, members].tolist() for value in row if not np.isnan(value)]
        assert found["w"][group]["mean"] == pytest.approx(sum(rows) / len(rows))
        edges = found["w"]["edges"]
        counts = [sum(low <= value < high for value in rows) for low, high in pairwise(edges)]
        assert sum(found["w"][group]["counts"]) == len(rows)
        assert sum(abs(a - b) for a, b in zip(found["w"][group]["counts"], counts, strict=True)) <= 2  # rounded edges


def test_without_truth_or_values_there_is_less():
    assert set(epoch_summary({"w": np.ones((1, 3))}, None)["w"]) == {"edges", "all"}
    assert epoch_summary({"w": np.full((1, 3), np.nan)}, None)["w"]["all"] == {"mean": None, "counts": [0] * BINS}
    assert epoch_summary({}, MATCHED) == {}


def test_arrays_per_image_are_read_through_their_pairs():
    method = begun(PCSR(classifier={"classes": 3}))
    method.consistency.state["consistency"][:] = [[0.1, 0.2, 0.3, 0.4], [0.5, 0.6, 0.7, 0.8]]
    found = method.values_of_pairs()
    assert set(found) == {"clean_probability", "loss", "consistency"}
    assert found["consistency"][1].tolist() == pytest.approx([0.5, 0.6, 0.7, 0.7, 0.8])
    assert begun(Plain()).values_of_pairs() == {}


def test_the_file_holds_every_array_of_every_network(tmp_path):
    method = begun(NCR())
    method.update([{"division.loss": np.arange(5.0) + k} for k in range(2)], 0)
    write_state(tmp_path / "state.parquet", IDS, method.values_of_pairs(), MATCHED)
    table = pyarrow.parquet.read_table(tmp_path / "state.parquet")
    names = ["pair", "truly_matching", "clean_probability_0", "clean_probability_1", "loss_0", "loss_1"]
    assert table.column_names == names
    assert table["pair"].to_pylist() == IDS.tolist() and table["loss_1"].to_pylist() == [1, 2, 3, 4, 5]
    assert table["truly_matching"].to_pylist() == MATCHED.tolist()
    assert [path.name for path in tmp_path.iterdir()] == ["state.parquet"]


def test_the_purity_of_a_bank_is_the_share_of_its_pairs_that_match():
    truth = np.zeros(8, np.bool_)
    truth[[1, 4]] = True
    method = begun(NPC(), truth)
    assert "bank_purity" not in method.facts()
    method.bank.state["by_image"][0, IDS], method.bank.state["by_text"][0, IDS] = [1, 1, 4, 4, 2], [5, 1, 4, 7, 1]
    assert method.facts()["bank_purity"] == pytest.approx(7 / 10)
    known = begun(NPC())
    known.bank.state["by_image"][:], known.bank.state["by_text"][:] = 1, 1
    assert "bank_purity" not in known.facts()


def test_the_classes_in_use_are_counted_over_training_images():
    method = begun(PC2(classifier={"classes": 4}))
    assert "classes_in_use" not in method.facts()
    method.classifier.state["predictions"][0] = np.eye(4)[[0, 1, 1, 3]]
    method.classifier.state["predictions"][1] = np.eye(4)[[2, 2, 2, 2]]
    assert method.facts()["classes_in_use"] == (3 + 1) / 2
    assert method.values_of_pairs()["pseudo_class"].tolist() == [[0, 1, 1, 1, 3], [2] * 5]  # by the pairs' images
    few = PC2(classifier={"classes": 4})
    few = few.begin(Setting(IDS[:2], IMAGE_OF, 4, None, InfoNCE(), 0, 2))  # pairs of the images 0 and 1 alone
    few.classifier.state["predictions"][:] = np.eye(4)
    assert few.facts()["classes_in_use"] == 2


@pytest.mark.parametrize(
    ("method", "right"),
    [
        (NCR(), [3, 4]),  # clean are those above 0.5
        (NCR(division={"threshold": 0.8}), [4, 4]),
        (NPC(networks=2, bank={"threshold": 0.99}), [3, 4]),  # the bank's threshold divides nothing
    ],
)
def test_discrimination_is_the_share_of_pairs_on_the_right_side(method, right):
    truth = np.zeros(8, np.bool_)
    truth[IDS[MATCHED]] = True
    assert "discrimination" not in begun(method).facts()
    method = begun(method, truth)
    part = method.bank if method.name == "npc" else method.division
    part.state["clean_probability"][:, IDS] = [[0.9, 0.7, 0.4, 0.9, 0.2], [0.7, 0.6, 0.9, 0.9, 0.1]]
    assert method.facts()["discrimination"] == pytest.approx(sum(right) / 10)


@pytest.mark.parametrize(("use", "right"), [("both", [4, 3]), ("cross_modal", [4, 3]), ("intra_modal", [4, 4])])
def test_discrimination_of_labels_is_by_those_that_the_method_takes(use, right):
    truth = np.zeros(8, np.bool_)
    truth[IDS[MATCHED]] = True
    assert "discrimination" not in begun(GSC()).facts()
    method = begun(GSC(indicators={"use": use}), truth)
    method.indicators.state["cross_modal"][:, IDS] = [[0.9, 0.7, 0.8, 0.9, 0.2], [0.9, 0.4, 0.4, 0.9, 0.6]]
    method.indicators.state["intra_modal"][:, IDS] = [[0.6, 0.4, 0.3, 0.9, 0.4], [0.9, 0.2, 0.8, 0.4, 0.2]]
    assert method.facts()["discrimination"] == pytest.approx(sum(right) / 10)
