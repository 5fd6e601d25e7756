"""The papers' figures: what is drawn of hand-made logs equals plain loops, and a real run gives the pictures."""

import json
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "runs"))

from flat_options import fit

import figures
from pairsift.marker import write_marker
from pairsift.scenes import write_scenes

EDGES = [0.0, 0.25, 0.5, 0.75, 1.0]
TRUTH = [True, True, True, False, False]
PNG = b"\x89PNG\r\n\x1a\n"


def summary(matching, mismatched, edges=EDGES):
    """What a log says of an array, by the counts in the bins; the means take each bin's lower edge."""

    def of(counts):
        total = sum(counts)
        mean = sum(n * low for n, low in zip(counts, edges, strict=False)) / total if total else None
        return {"mean": mean, "counts": list(counts)}

    both = [a + b for a, b in zip(matching, mismatched, strict=True)]
    return {"edges": list(edges), "all": of(both), "matching": of(matching), "mismatched": of(mismatched)}


def line(epoch, state=None, **facts):
    return {"event": "epoch", "epoch": epoch, "phase": "x", **facts, "state": state or {}}


def write_run(folder, lines, state=None, method="pc2", rate=0.3):
    """A finished run's files, as far as figures read them."""
    folder.mkdir(parents=True)
    write_marker(folder, "run")
    (folder / "config.yaml").write_text(f"method: {method}\nmatcher: two_tower\n")
    (folder / "metrics.json").write_text(json.dumps({"noise": None if rate is None else {"rate": rate}}))
    (folder / "log.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines))
    (folder / "pairs.parquet").touch()
    if state is not None:
        pq.write_table(pa.table(state), folder / "method_state.parquet")
    return folder


def read(folder):
    return figures.read_runs([folder])[0]


WARM = {"clean_probability": summary([3, 0, 0, 0], [2, 0, 0, 0], [1.0, 1.25, 1.5, 1.75, 2.0])}
STEPS = [([1, 0, 1, 4], [3, 1, 0, 0]), ([0, 1, 1, 4], [2, 2, 0, 0]), ([0, 0, 0, 6], [4, 0, 0, 0])]


def told(number):
    return {"clean_probability": summary(*STEPS[number % 3])}


def test_courses_are_means_and_shares_from_the_first_estimate_on(tmp_path):
    log = [line(0, WARM), line(1, told(2)), line(1, told(0)), line(2, told(1)), line(3, told(2))]  # 1 was resumed
    course = figures.courses(read(write_run(tmp_path / "run", log)))["clean_probability"]
    assert course.epochs == [2, 3, 4]
    assert course.means["matching"].tolist() == pytest.approx([3.5 / 6, 3.75 / 6, 4.5 / 6])
    assert course.means["mismatched"].tolist() == pytest.approx([0.25 / 4, 0.5 / 4, 0])
    assert [each.epoch for each in course.histograms] == [2, 3, 4]
    for each, (matching, mismatched) in zip(course.histograms, STEPS, strict=True):
        assert each.edges.tolist() == EDGES and set(each.shares) == {"matching", "mismatched"}
        assert each.shares["matching"].tolist() == pytest.approx([n / 6 for n in matching])
        assert each.shares["mismatched"].tolist() == pytest.approx([n / 4 for n in mismatched])


def test_without_truth_there_is_one_group_and_a_mean_may_be_missing(tmp_path):
    state = {"loss": {name: told(0)["clean_probability"][name] for name in ("edges", "all")}}
    later = {"loss": {"edges": EDGES, "all": {"mean": None, "counts": [0] * 4}}}
    run = read(write_run(tmp_path / "run", [line(0, state), line(1, later)], rate=None))
    course = figures.courses(run)["loss"]
    assert run.title == "pc2, no planted noise, two_tower"
    assert set(course.means) == {"all"} and course.means["all"][0] == pytest.approx(3.75 / 10)
    assert np.isnan(course.means["all"][1]) and not course.histograms[1].shares["all"].any()
    assert figures.draw_histograms(run)  # no error of a missing mean or an empty histogram


def test_last_scores_are_counted_around_their_levels(tmp_path):
    scores = {"consistency_0": [0.0, 1.0, 0.5, 0.98, 1.0], "consistency_1": [0.2, 0.2, 0.6, 1.0, 1.0]}
    log = [line(0, told(0)), line(1, told(1), tau=0.4), line(2, told(2), tau=0.65)]
    run = read(write_run(tmp_path / "run", log, {"pair": range(5), "truly_matching": TRUTH, **scores}, "pcsr"))
    networks = figures.final(run, "consistency")
    edges = figures.bins(networks)
    assert [{group: each.tolist() for group, each in values.items()} for values in networks] == [
        {"matching": values[:3], "mismatched": values[3:]} for values in scores.values()
    ]
    for values, given in zip(networks, scores.values(), strict=True):
        shares = figures.spread(values, edges)
        for group, rows in (("matching", given[:3]), ("mismatched", given[3:])):
            expected = [sum(low <= value < high for value in rows) / len(rows) for low, high in pairwise(edges)]
            assert shares[group].tolist() == pytest.approx(expected)
            assert sum(shares[group]) == pytest.approx(1)
    assert (edges[0] + edges[1]) / 2 == 0 and (edges[-2] + edges[-1]) / 2 == pytest.approx(1)
    assert figures.threshold(run) == 0.65
    figure = figures.draw_consistency(run)
    assert figure.get_suptitle().startswith("pcsr, 30% noise, two_tower")
    assert [bar.get_height() for bar in figure.axes[1].containers[0]] == pytest.approx(
        figures.spread(networks[1], edges)["matching"].tolist()
    )


def test_discrimination_begins_where_the_method_has_looked(tmp_path):
    log = [
        line(0, WARM, discrimination=0.7),
        line(1, told(0), discrimination=0.8),
        line(2, told(1), discrimination=0.9),
    ]
    folders = [write_run(tmp_path / part / "run", log, method=name) for part, name in (("a", "pc2"), ("b", "gsc"))]
    runs = figures.read_runs(folders)
    assert [run.name for run in runs] == ["run", "run-2"]
    known = [(run, *figures.discrimination(run)) for run in runs]
    assert [(epochs, values.tolist()) for _, epochs, values in known] == [([2, 3], [0.8, 0.9])] * 2
    drawn = figures.draw_discrimination(known).axes[0]
    assert [each.get_label() for each in drawn.lines] == ["pc2, 30% noise, two_tower", "gsc, 30% noise, two_tower"]
    assert drawn.lines[0].get_xydata().tolist() == [[2, 0.8], [3, 0.9]]


def test_the_bank_is_counted_pair_by_pair(tmp_path):
    p = {"clean_probability_0": [0.995, 0.6, 0.1, 0.97, 0.2], "clean_probability_1": [0.99, 0.95, 0.5, 0.4, 0.75]}
    log = [line(0, WARM), line(1, told(0), bank_purity=0.9, bank_share=0.5), line(2, bank_purity=1, bank_share=0.4)]
    run = read(write_run(tmp_path / "run", log, {"pair": range(5), "truly_matching": TRUTH, **p}, "npc"))
    found = figures.bank(run)
    assert (found.epochs, found.purity.tolist(), found.share.tolist()) == ([2, 3], [0.9, 1.0], [0.5, 0.4])
    for place, tau in enumerate(figures.THRESHOLDS):
        for group, kind in (("matching", True), ("mismatched", False)):
            reached = sum(
                value >= tau for values in p.values() for value, t in zip(values, TRUTH, strict=True) if t is kind
            )
            assert found.reach[group][place] == pytest.approx(reached / 10)
    said = [text.get_text() for text in figures.draw_bank(run).axes[0].texts]
    assert said[0] == f"{2 / 7:.1%}" and said[-1] == "0.0%"


def test_what_a_run_lacks_is_said_in_a_line_and_the_rest_is_drawn(tmp_path, capsys):
    silent = write_run(tmp_path / "silent", [line(0), line(1)], method="plain")
    short = write_run(tmp_path / "short", [line(0, WARM), line(1, told(1), discrimination=0.9)])
    old = {"event": "epoch", "epoch": 0, "phase": "x"}  # as before the log had a state
    older = write_run(tmp_path / "older", [old], method="ncr")
    assert figures.main([str(silent), str(short), str(older), "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr().out.splitlines()
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"short_histograms.png", "discrimination.png"}
    for name in ("silent", "older"):
        assert sum(each.startswith(f"{name}: no") for each in said) == 5
    assert sum(each.startswith("short: no") for each in said) == 3
    assert len(said) == 15


@pytest.mark.slow
def test_a_real_run_gives_the_pictures(tmp_path):
    write_scenes(tmp_path / "scenes", 30, 5)
    options = {"method": "npc", "npc.epochs.warmup": 1, "npc.epochs.train": 2, "batch_size": 64, "device": "cpu"}
    place = {"out": str(tmp_path / "run"), "cache": str(tmp_path / "cache")}
    fit(
        tmp_path / "scenes",
        {**options, **place, "noise": 0.4, "noise_seed": 1, "detect": {"folds": {"averaged_pairs": 1}}},
        progress=False,
    )
    assert figures.main([str(tmp_path / "run"), "--out", str(tmp_path / "out")]) == 0
    drawn = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    names = {"run_histograms.png", "run_bank.png", "run_weights.png", "discrimination.png"}
    assert set(drawn) == names and all(raw.startswith(PNG) for raw in drawn.values())
    run = read(tmp_path / "run")
    table = pq.read_table(tmp_path / "run" / "method_state.parquet").to_pydict()
    epochs, right = figures.discrimination(run)
    sides = [(p > 0.5) == t for p, t in zip(table["clean_probability_0"], table["truly_matching"], strict=True)]
    assert epochs == [2, 3] and right[-1] == pytest.approx(sum(sides) / len(sides))
    weights = [w for w, t in zip(table["weight_0"], table["truly_matching"], strict=True) if not t]
    assert figures.final(run, "weight")[0]["mismatched"].tolist() == weights
    assert figures.courses(run)["weight"].means["mismatched"][-1] == pytest.approx(sum(weights) / len(weights))
    assert 0 < min(weights) < 0.77
