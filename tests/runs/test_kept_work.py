"""What people did in a run's folder is never lost, and what others put into theirs is never touched."""

import shutil
import sys
from datetime import date, timedelta

import pytest
from flat_options import configured

import pairsift
from pairsift.cli import main
from pairsift.errors import InputError
from pairsift.marker import MARKER, VERSION, read_marker, write_marker
from pairsift.review import Decision
from pairsift.run_folder import holds_run
from pairsift.runs.claim import claimed

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # whole fits, on slow cores


@pytest.fixture
def words(scenes, place, tmp_path):
    """A short fit into tmp_path / "run"."""
    options = ["--method=plain", "--batch-size=64", "--device=cpu", "--epochs=2", f"--cache={place / 'cache'}"]
    return ["fit", str(scenes), f"--out={tmp_path / 'run'}", *options]


@pytest.fixture
def own(run, tmp_path):
    """A copy of a finished run at tmp_path / "run", with its options."""
    shutil.copytree(run.folder, tmp_path / "run")
    return tmp_path / "run", configured({**run.config.tree(), "out": str(tmp_path / "run")})


def said(capsys):
    return capsys.readouterr().err


def replace_run(config):
    """Begin a run in the place of an older one."""
    with claimed(config, overwrite=True) as claim:
        (config.folder / "config.yaml").write_text(config.text())
        claim.settle()


def test_decisions_outlive_a_second_fit_and_are_taken_over(own, tmp_path, capsys):
    folder, _ = own
    shutil.copy(folder / "config.yaml", tmp_path / "options.yaml")
    words = ["fit", f"--config={tmp_path / 'options.yaml'}", f"--out={folder}"]
    first = pairsift.open_run(folder, progress=False)
    worst = first.pairs()["pair"].to_pylist()[:40]
    first.decisions().decide([Decision(pair, "drop", reason="wrong image") for pair in worst[:30]], "ana")
    first.decisions().decide([Decision(worst[30], "replace", "two\nlines", worst[31])], "bo")
    before = first.decisions().table()
    capsys.readouterr()
    assert main([*words, "--seed=3"]) == 2
    line = said(capsys)
    ways = [
        "holds a finished run with 31 decisions",
        "pairsift serve",
        "pairsift audit",
        "--out",
        "--overwrite sets it",
    ]
    assert line.count("\n") == 1 and [line.find(way) for way in ways] == sorted(line.find(way) for way in ways)
    assert min(line.find(way) for way in ways) > 0
    assert main([*words, "--seed=3", "--overwrite", "--quiet"]) == 0
    [aside] = tmp_path.glob("run.*")
    assert date.today() - date.fromisoformat(aside.name.removeprefix("run.")) <= timedelta(days=1)
    line = said(capsys)
    assert line.count("\n") == 1 and f"31 decisions, which is kept as {aside}" in line
    assert f"pairsift decide {folder} --from {aside}" in line
    second = pairsift.open_run(folder, progress=False)
    assert second.config.train.seed == 3 and not len(second.decisions().table())
    assert pairsift.open_run(aside, progress=False).decisions().table().equals(before)
    second.decisions().decide([Decision(worst[0], "keep")], "cy")
    assert main(["decide", str(folder), "--from", str(aside)]) == 0
    assert (
        f"{aside}: took over 30 of 31 decisions; left out: 1 on pairs that are decided here" in capsys.readouterr().out
    )
    kept = {row.pop("pair"): row for row in before.drop_columns("time").to_pylist()}
    now = {row.pop("pair"): row for row in second.decisions().table().drop_columns("time").to_pylist()}
    assert now.pop(worst[0])["decision"] == "keep" and now == {pair: kept[pair] for pair in kept if pair != worst[0]}


def test_decisions_are_taken_over_by_image_and_caption_where_ids_have_moved(own, tmp_path, capsys):
    import pyarrow as pa
    import pyarrow.parquet

    folder, _ = own
    shutil.copytree(folder, tmp_path / "other")
    table = pyarrow.parquet.read_table(tmp_path / "other" / "pairs.parquet")
    moved = pa.array([pair + 1 for pair in table["pair"].to_pylist()])
    gone = table["pair"].to_pylist()[3]
    moved_table = table.set_column(table.column_names.index("pair"), "pair", moved)
    pyarrow.parquet.write_table(
        moved_table.filter(pa.compute.not_equal(moved, gone + 1)), tmp_path / "other" / "pairs.parquet"
    )
    pairs = [row for row in table["pair"].to_pylist() if row != gone][:5]
    decisions = pairsift.open_run(folder, progress=False).decisions()
    decisions.decide([Decision(pair, "drop") for pair in [*pairs, gone]])
    assert main(["decide", str(tmp_path / "other"), "--from", str(folder)]) == 0
    assert "took over 5 of 6 decisions; left out: 1 on pairs that this run does not have" in capsys.readouterr().out
    assert pairsift.open_run(tmp_path / "other", progress=False).decisions().decided().tolist() == sorted(
        pair + 1 for pair in pairs
    )


@pytest.mark.parametrize("work", ["decision", "undone", "damaged", "sheet", "suspects", "notes", "model"])
def test_a_run_that_people_worked_on_is_set_aside_and_another_is_removed(own, tmp_path, work, capsys):
    folder, config = own
    if work in ("decision", "undone"):
        decisions = pairsift.open_run(folder, progress=False).decisions()
        decisions.decide([Decision(decisions_of(folder)[0], "drop")])
        if work == "undone":
            decisions.undo()
    elif work == "damaged":
        (folder / "decisions.sqlite").write_bytes(b"torn" * 1000)
    elif work == "sheet":
        (folder / "spot_check.csv").write_text("pair;image;given_caption;decision;reason\n1;a;b;keep;\n")
    elif work == "suspects":
        (folder / "suspects.csv").write_text("pair, Decision\n1,drop\n")
    elif work == "model":
        (folder / "model" / "my notes.txt").write_text("mine")
    else:
        (folder / "notes.md").write_text("mine")
    before = {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}
    replace_run(config)
    [aside] = tmp_path.glob("run.*")
    assert f"kept as {aside}" in said(capsys)
    assert before.items() <= {file.name: file.read_bytes() for file in aside.iterdir() if file.is_file()}.items()
    replace_run(config)  # which nobody has worked on
    assert said(capsys) == "" and sorted(file.name for file in tmp_path.iterdir()) == ["run", aside.name]
    (folder / "notes.md").write_text("mine too")
    replace_run(config)
    assert (tmp_path / f"{aside.name}.2" / "notes.md").read_text() == "mine too"


def test_decisions_beside_no_options_are_not_begun_over(own, words, capsys):
    folder, config = own
    pairsift.open_run(folder, progress=False).decisions().decide([Decision(decisions_of(folder)[0], "drop")])
    (folder / "config.yaml").unlink()
    before = {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}
    assert main(words) == 2
    assert "holds 1 decision, and no config.yaml: put that back" in said(capsys)
    assert before.items() <= {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}.items()
    replace_run(config)
    assert "held a run with 1 decision, which is kept as" in said(capsys)


def test_the_demo_replaces_no_run_on_other_pairs_and_no_mended_caption(own, tmp_path, monkeypatch, capsys):
    folder, _ = own
    before = {file.name for file in folder.iterdir()}
    assert main(["demo", "--out", str(folder), "--images=10", "--quiet"]) == 2
    assert "holds a run on" in said(capsys) and {file.name for file in folder.iterdir()} == before
    assert not (tmp_path / "run-scenes").exists()
    words = ["demo", "--out", str(tmp_path / "demo"), "--images=10"]
    scenes = tmp_path / "demo-scenes"
    scenes.mkdir()
    write_marker(scenes, "scenes")
    (scenes / "captions.csv").write_text("image,caption\nscene_00000.jpg,mended\n")
    monkeypatch.setattr("pairsift.runs.fit.check", lambda *args, **options: sys.exit(7))
    with pytest.raises(SystemExit, match="7"):
        main([*words, "--quiet"])
    assert "mended" in (scenes / "captions-before.csv").read_text()


def decisions_of(folder):
    return pairsift.open_run(folder, progress=False).pairs()["pair"].to_pylist()


def test_a_new_run_that_cannot_be_begun_leaves_the_old_one(own, words, tmp_path, capsys):
    folder, _ = own
    before = {file.name for file in folder.iterdir()}
    marker = read_marker(folder)
    broken = tmp_path / "broken.csv"
    broken.write_text("image,caption\nnowhere.jpg,a cat\n")
    assert main(["fit", str(broken), f"--out={folder}", "--overwrite", "--quiet"]) == 2
    assert said(capsys).count("\n") == 1
    assert {file.name for file in folder.iterdir()} == before and read_marker(folder) == marker
    assert sorted(file.name for file in tmp_path.iterdir()) == ["broken.csv", "run"]


@pytest.mark.parametrize(
    ("verb", "more"),
    [
        ("fit", []),
        ("fit", ["--overwrite"]),
        ("fit", ["--resume"]),
        ("import-checkpoint", ["--overwrite"]),
        ("demo", []),
        ("bench", []),
    ],
)
def test_a_folder_without_our_marker_is_not_touched(words, tmp_path, verb, more, capsys):
    other = tmp_path / "run"
    (other / "checkpoints").mkdir(parents=True)
    files = {"config.yaml": "defaults: [model: vit]", "checkpoints/best.ckpt": "three days", "rows.json": "[]"}
    for name, content in files.items():
        (other / name).write_text(content)
    (tmp_path / "grid.yaml").write_text(f"{{source: {words[1]}, methods: plain, out: {other}}}")
    command = {
        "fit": [*words, *more],
        "import-checkpoint": [
            "import-checkpoint",
            str(other / "config.yaml"),
            f"--data={words[1]}",
            f"--out={other}",
            *more,
        ],
        "demo": ["demo", "--out", str(other), "--images=10"],
        "bench": ["bench", str(tmp_path / "grid.yaml")],
    }[verb]
    assert main(command) == 2
    line = said(capsys)
    assert line.count("\n") == 1 and line.startswith("pairsift: ")
    if verb != "import-checkpoint":
        assert "holds other files, which pairsift did not write" in line
    found = {str(file.relative_to(other)): file.read_text() for file in other.rglob("*") if file.is_file()}
    assert found == files and sorted(file.name for file in tmp_path.iterdir()) == ["grid.yaml", "run"]


def test_verbs_on_a_run_take_no_folder_of_others_and_none_of_a_newer_version(own, tmp_path, capsys):
    folder, config = own
    marker = (folder / MARKER).read_text()
    (folder / MARKER).write_text(marker.replace(f'"version": {VERSION}', f'"version": {VERSION + 1}'))
    for verb in (["audit"], ["evaluate"], ["decide"], ["export", "--out", str(tmp_path / "x.csv")], ["serve"]):
        assert main([verb[0], str(folder), *verb[1:]]) == 2
        assert "was written by a newer pairsift" in said(capsys)
    with pytest.raises(InputError, match="newer pairsift"), claimed(config, overwrite=True):
        pass
    (folder / MARKER).unlink()
    assert not holds_run(folder)
    for verb in ("audit", "evaluate", "decide", "serve"):
        assert main([verb, str(folder)]) == 2
        assert f"holds no run: there is no {MARKER}" in said(capsys)
    with pytest.raises(InputError, match="did not write"), claimed(config, overwrite=True):
        pass


def test_the_scenes_of_the_demo_go_over_nobodys_table(tmp_path, capsys):
    scenes = tmp_path / "demo-scenes"
    scenes.mkdir()
    (scenes / "captions.csv").write_text("mine")
    assert main(["demo", "--out", str(tmp_path / "demo"), "--images=10"]) == 2
    assert "demo-scenes holds other files" in said(capsys)
    assert (scenes / "captions.csv").read_text() == "mine" and not (tmp_path / "demo").exists()


def test_tables_with_decisions_are_kept_when_they_are_written_anew(own, capsys):
    folder, _ = own
    for name, command in {
        "spot_check.csv": ["spot-check", "--pairs", "20"],
        "suspects.csv": ["audit", "--quiet"],
    }.items():
        text = "pair,given_caption,decision\n3,a cat,keep\n"
        (folder / name).write_text(text)
        assert main([command[0], str(folder), *command[1:]]) == 0
        kept = folder / f"{name.removesuffix('.csv')}.1.csv"
        assert kept.read_text() == text and (folder / name).read_text() != text
        assert f"--from {kept}" in said(capsys)
        assert main([command[0], str(folder), *command[1:]]) == 0
        assert said(capsys) == ""


def test_a_table_that_changes_decisions_says_so(own, capsys):
    folder, _ = own
    pairs = decisions_of(folder)[:3]
    (folder.parent / "decided.csv").write_text("pair,decision\n" + "".join(f"{pair},drop\n" for pair in pairs))
    pairsift.open_run(folder, progress=False).decisions().decide([Decision(pairs[0], "keep")])
    assert main(["decide", str(folder), "--from", str(folder.parent / "decided.csv")]) == 0
    assert "decided on 3 pairs; 1 of them had another decision, which --undo brings back" in capsys.readouterr().out


def test_nothing_is_decided_on_a_run_that_another_has_taken_the_place_of(own, capsys):
    folder, config = own
    pair = decisions_of(folder)[0]
    decisions = pairsift.open_run(folder, progress=False).decisions()
    decisions.decide([Decision(pair, "keep")])
    replace_run(config)
    for late in (lambda: decisions.decide([Decision(pair, "drop")]), decisions.undo, decisions.redo):
        with pytest.raises(InputError, match="holds another run by now: nothing was recorded"):
            late()
    assert not (folder / "decisions.sqlite").exists()
