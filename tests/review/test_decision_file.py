"""Tables of decisions, and the verb that records them."""

import codecs
import csv
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from pairsift.cli import main
from pairsift.errors import InputError
from pairsift.marker import write_marker
from pairsift.pairs.pairs import Pairs
from pairsift.review.decision_file import read_decisions
from pairsift.review.decisions import Decision, Decisions
from pairsift.table import pair_table, write_csv

TABLE = pa.table(
    {
        "pair": [7, 3, 5, 1],
        "given_caption": ["=a cat", "a dog", "a tree", "a boat"],
        "match_probability": [0.02, 0.08, 0.6, 0.99],
        "verdict": ["mismatched", "mismatched", "clean", "clean"],
        "suggested_caption": ["a tree", None, None, None],
        "suggested_from_pair": pa.array([5, None, None, None], pa.int64()),
    }
)


@pytest.fixture
def folder(tmp_path):
    """A finished run's folder, as far as decisions are concerned."""
    (tmp_path / "run").mkdir()
    write_marker(tmp_path / "run", "run")
    (tmp_path / "run" / "config.yaml").touch()
    (tmp_path / "run" / "metrics.json").write_text("{}")
    pyarrow.parquet.write_table(TABLE, tmp_path / "run" / "pairs.parquet")
    return tmp_path / "run"


def valid(folder):
    table = Decisions(folder, TABLE["pair"].to_numpy()).table()
    return {row["pair"]: (row["decision"], row["new_caption"], row["from_pair"]) for row in table.to_pylist()}


def written(path, rows):
    """The rows as a file of the format that its name says."""
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".jsonl":
        path.write_text("\n".join(json.dumps(row) for row in rows))
    else:
        separator = "\t" if path.suffix == ".tsv" else ";"
        lines = [rows[0].keys(), *([value or "" for value in row.values()] for row in rows)]
        path.write_text("\n".join(separator.join(map(str, line)) for line in lines), encoding="utf-16")
    return path


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "parquet"])
def test_a_table_of_any_format_gives_the_same_decisions(tmp_path, suffix):
    rows = [
        {"pair": 7, "decision": "Replace", "new_caption": None, "from_pair": None, "reason": "Wrong image"},
        {"pair": 3, "decision": "replace", "new_caption": "two dogs", "from_pair": None, "reason": None},
        {"pair": 5, "decision": None, "new_caption": "not read", "from_pair": None, "reason": None},
        {"pair": 1, "decision": " DROP ", "new_caption": None, "from_pair": None, "reason": "too vague"},
    ]
    assert read_decisions(written(tmp_path / f"mine.{suffix}", rows), TABLE) == [
        Decision(7, "replace", "a tree", 5, "wrong image"),
        Decision(3, "replace", "two dogs"),
        Decision(1, "drop", reason="too vague"),
    ]


def test_a_caption_can_be_named_by_its_pair(tmp_path):
    (tmp_path / "mine.csv").write_text("Pair,Decision,From_Pair\n3,replace,7\n5,keep,\n")
    assert read_decisions(tmp_path / "mine.csv", TABLE) == [
        Decision(3, "replace", "=a cat", 7),  # the caption itself, which a spreadsheet would take for a formula
        Decision(5, "keep"),
    ]


@pytest.mark.parametrize(
    ("page", "captions"),
    [
        ("utf-8-sig", ["Zürich — 日本", "дом", "- café 😀"]),
        ("cp1252", ["Zürich – café №", "l’œuvre “déjà”", "- naïve 😀"]),
        ("cp932", ["日本の猫 😀", "犬と木", "- 赤い車"]),
        ("cp936", ["一只猫", "红色的汽车", "- 树 é"]),
        ("cp1251", ["кошка", "собака", "- дом 日本"]),
        ("cp1250", ["žluťoučký kůň", "příliš", "- Łódź"]),
    ],
)
def test_a_copy_that_a_spreadsheet_saved_gives_its_decisions_and_new_captions(tmp_path, page, captions):
    """A spreadsheet saves a code page, a question mark for what it lacks, and other separators and line ends."""
    table = TABLE.slice(0, 3).set_column(1, "given_caption", pa.array(captions))
    write_csv(tmp_path / "suspects.csv", table, marked=True)
    assert (tmp_path / "suspects.csv").read_bytes().startswith(codecs.BOM_UTF8)
    with (tmp_path / "suspects.csv").open(encoding="utf-8-sig", newline="") as stream:
        rows = [*csv.reader(stream)]
    news = ["", captions[1], rows[3][1]]  # the third is copied from the table, with its apostrophe
    with (tmp_path / "saved.csv").open("w", encoding=page, errors="replace", newline="") as stream:
        writer = csv.writer(stream, delimiter=";")
        writer.writerow([*rows[0], "decision", "new_caption"])
        writer.writerows([*row, "Drop" if not new else "Replace", new] for row, new in zip(rows[1:], news, strict=True))
    expected = [caption.encode(page, "replace").decode(page) for caption in captions]
    assert read_decisions(tmp_path / "saved.csv", table) == [
        Decision(7, "drop"),
        Decision(3, "replace", expected[1]),
        Decision(5, "replace", expected[2]),
    ]


def test_a_new_caption_whose_encoding_cannot_be_told_is_refused(tmp_path):
    (tmp_path / "mine.csv").write_bytes(b"pair,decision,new_caption\n3,replace," + "犬と木".encode("cp932"))
    with pytest.raises(InputError, match=r"line 2: new_caption holds characters whose encoding cannot be told .* save"):
        read_decisions(tmp_path / "mine.csv", TABLE)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("pair,verdict\n1,keep\n", r"has the columns 'pair', 'verdict'; decisions need the columns pair and decision"),
        ("pair,decision\nseven,keep\n", r"mine\.csv line 2: 'seven' is not the id of a pair"),
        (
            "pair,decision\n3,replace\n",
            r"mine\.csv line 2: replace has no new_caption, and the run suggests none for pair 3",
        ),
        ("pair,decision\n99,replace\n", r"line 2: replace has no new_caption, and the run suggests none for pair 99"),
        ("pair,decision\n1,keep\n1,keep,3\n", r"mine\.csv line 3: has 3 fields where the header has 2"),
        ("", r"the file is empty"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_with_the_row(tmp_path, content, message):
    (tmp_path / "mine.csv").write_text(content)
    with pytest.raises(InputError, match=message):
        read_decisions(tmp_path / "mine.csv", TABLE)


def test_the_verb_drops_below_a_threshold_what_nobody_decided(folder, capsys):
    Decisions(folder, np.array([7])).decide([Decision(7, "keep")])
    assert main(["decide", str(folder), "--drop-below", "0.1", "--reason", "wrong image"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "dropped 1 pair below 0.1; fewer than 1 of them are expected to match",
        "decided: 1 keep, 1 drop; undecided: 2 of 4 pairs",
    ]
    assert valid(folder) == {7: ("keep", None, None), 3: ("drop", None, None)}
    assert main(["decide", str(folder), "--drop-below", "0.1", "--quiet"]) == 0
    assert capsys.readouterr().out == "" and len(valid(folder)) == 2


def test_the_verb_takes_decisions_back_and_applies_them_again(folder, tmp_path, capsys):
    (tmp_path / "mine.csv").write_text("pair,decision\n7,replace\n3,drop\n")
    assert main(["decide", str(folder), "--from", str(tmp_path / "mine.csv"), "--reviewer", "ana"]) == 0
    assert valid(folder) == {7: ("replace", "a tree", 5), 3: ("drop", None, None)}
    for words, decided in (("--undo", 2), ("--undo --reviewer=ana", 0), ("--redo --reviewer=ana", 2)):
        assert main(["decide", str(folder), *words.split()]) == 0
        assert len(valid(folder)) == decided
    assert capsys.readouterr().out.splitlines() == [
        f"{tmp_path / 'mine.csv'}: decided on 2 pairs",
        "decided: 1 drop, 1 replace; undecided: 2 of 4 pairs",
        "reviewer has nothing to undo",
        "decided: 1 drop, 1 replace; undecided: 2 of 4 pairs",
        "undo: decision on 2 pairs",
        "decided: nothing; undecided: 4 of 4 pairs",
        "redo: decision on 2 pairs",
        "decided: 1 drop, 1 replace; undecided: 2 of 4 pairs",
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--undo", "--redo"], "--from, --drop-below, --undo and --redo exclude each other: give one of them"),
        (["--undo", "--reason", "other"], "--reason goes with --drop-below"),
        (["--drop-below", "0.5", "--reason", "othre"], "did you mean other?"),
        (["--from", "none.csv"], "there is no file none.csv"),
    ],
)
def test_what_the_verb_cannot_do_is_told_in_one_line(folder, capsys, words, message):
    assert main(["decide", str(folder), *words]) == 2
    err = capsys.readouterr().err
    assert message in err and err.count("\n") == 1 and valid(folder) == {}


def test_without_verdicts_no_number_of_good_pairs_is_promised(folder, capsys):
    unknown = TABLE.set_column(3, "verdict", pa.array(["unknown"] * 4))
    pyarrow.parquet.write_table(unknown, folder / "pairs.parquet")
    assert main(["decide", str(folder), "--drop-below", "0.1"]) == 0
    assert "dropped 2 pairs below 0.1; the run gives no verdicts: check some of them" in capsys.readouterr().out


def test_columns_of_the_source_are_no_decisions(tmp_path):
    own = {"decision": ["drop", "?"], " Reason": ["old stock"] * 2, "From_Pair": ["9"] * 2, "new_caption": ["x"] * 2}
    pairs = Pairs("s.csv", ["0.jpg"], [Path("0.jpg")], ["a", "b"], np.zeros(2, np.int64), np.full(2, "train"), own)
    table = pair_table(pairs, np.arange(2), np.array([0.1, 0.2]), np.ones(2, bool), ["mismatched"] * 2, -np.ones(2))
    assert table.column_names[-4:] == [f"{name}_given" for name in own]
    assert table["decision_given"].to_pylist() == own["decision"]
    marked = table.append_column("decision", pa.array(["keep", "drop"]))
    pyarrow.parquet.write_table(marked, tmp_path / "marked.parquet")
    found = read_decisions(tmp_path / "marked.parquet", table)
    assert [(row.pair, row.choice, row.caption, row.reason) for row in found] == [
        (0, "keep", None, None),
        (1, "drop", None, None),
    ]
