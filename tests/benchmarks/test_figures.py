"""The papers' figures: what is drawn of hand-made logs equals plain loops, and a real run gives the pictures."""

import json
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "runs"))

from flat_options import fit

import figures
from pairsift.marker import write_marker
from pairsift.noise.planted import plant_noise
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
        assert sum(each.startswith(f"{name}: no") for each in said) == 7
    assert sum(each.startswith("short: no") for each in said) == 5
    assert len(said) == 21


def test_the_variance_over_noise_is_the_papers_for_the_papers_numbers(tmp_path):
    """NPC Table 1, Flickr30K, image to text: variances of 3.61 and, by what its text says of the drop, of 56.40."""
    table = {"npc": [87.9, 87.3, 85.6, 83.0], "plain": [86.2, 82.3, 76.2, 66.3]}
    folders = []
    for method, numbers in table.items():
        for ratio, number in zip([0, 0.2, 0.4, 0.6], numbers, strict=True):
            folders.append(write_run(tmp_path / method / f"{ratio}", [line(0)], method=method))
            noise = {"ratio": ratio, "rate": ratio} if ratio else None
            measured = {"noise": noise, "test": {"ensemble": {"i2t_r1": number, "t2i_r1": number}}}
            (folders[-1] / "metrics.json").write_text(json.dumps(measured))
    runs = figures.read_runs(folders[::-1])
    found = figures.over_noise(runs, "i2t_r1")
    assert found["npc, two_tower"][0].tolist() == [0, 0.2, 0.4, 0.6]
    assert found["npc, two_tower"][1].tolist() == table["npc"]
    npc, plain = (found[f"{method}, two_tower"][1].var() for method in table)
    assert npc == pytest.approx(3.61, abs=0.005) and plain - npc == pytest.approx(52.79, abs=0.005)
    labels = [each.get_label() for each in figures.draw_stability(runs).axes[0].lines]
    assert "npc, two_tower (variance 3.61)" in labels
    assert figures.over_noise(runs[:1], "i2t_r1") == {}


def test_densities_of_structures_and_of_their_gaussians_have_the_shares_as_areas(tmp_path):
    rng = np.random.default_rng(0)
    values = np.concatenate([rng.normal(0.8, 0.03, 600), rng.normal(0.4, 0.06, 200)])
    state = {"pair": range(800), "truly_matching": [True] * 600 + [False] * 200, "structure_0": values}
    folder = write_run(tmp_path / "run", [line(0)], state, "gsc")
    with (folder / "config.yaml").open("a") as config:
        config.write("seed: 3\n")
    panel = figures.draw_structure(read(folder)).axes[0]
    areas = [each.get_data() for each in panel.patches]
    assert [float((area.values * np.diff(area.edges)).sum()) for area in areas[::2]] == pytest.approx([0.75, 0.25])
    drawn = [dashed.get_xydata().T for dashed in panel.lines]
    assert [float(np.trapezoid(y, x)) for x, y in drawn] == pytest.approx([0.75, 0.25], abs=0.02)
    assert [float(x[y.argmax()]) for x, y in drawn] == pytest.approx([0.8, 0.4], abs=0.02)


@pytest.mark.slow
def test_a_run_without_noise_gives_classes_in_the_plane_and_scores_of_noise_planted_later(tmp_path):
    write_scenes(tmp_path / "scenes", 30, 5)
    options = {"method": "pc2", "pc2.epochs.warmup": 1, "pc2.epochs.clean": 1, "pc2.epochs.all": 1, "batch_size": 64}
    place = {"out": str(tmp_path / "run"), "cache": str(tmp_path / "cache"), "device": "cpu"}
    averaged = {"detect": {"folds": {"averaged_pairs": 1}}}
    run = fit(tmp_path / "scenes", {**options, **place, **averaged}, progress=False)
    assert figures.main([str(run.folder), "--planted", "0.4", "--out", str(tmp_path / "out")]) == 0
    assert {"run_classes.png", "run_planted.png"} <= {path.name for path in (tmp_path / "out").iterdir()}
    finished = read(run.folder)
    points, classes = figures.in_plane(finished)
    assert len(points) == len(classes) <= 24 and len(set(classes.tolist())) <= 10
    assert set(classes.tolist()) <= set(finished.state["pseudo_class_0"].tolist())
    scores = figures.planted_scores(finished, 0.4)
    pairs = plant_noise(run.prepared.pairs, 0.4, 0)
    ids = pairs.ids("train")
    texts, images = run.prepared.features.texts.batch(ids), run.prepared.features.images.batch(pairs.image_of[ids])
    with torch.no_grad():
        vectors = [(m.encode_images(images).vectors, m.encode_texts(texts).vectors) for m in run.matchers]
    own = np.mean([(i * t).sum(1).numpy() for i, t in vectors], axis=0)
    within = [(side @ side.T).double().numpy() for side in vectors[0]]
    agreement = [a @ b / np.linalg.norm(a) / np.linalg.norm(b) for a, b in zip(*within, strict=True)]
    for name, expected in {"similarity": own, "agreement of structures": np.array(agreement)}.items():
        for group, members in {"matching": ~pairs.mismatched()[ids], "mismatched": pairs.mismatched()[ids]}.items():
            assert scores[name][group] == pytest.approx(expected[members], abs=1e-4)


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
