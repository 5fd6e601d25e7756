"""What is refused at once, before torch is imported."""

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from pairsift.errors import InputError
from pairsift.runs.source_check import check_source

LIGHT = """
import sys
from pairsift.cli import main
code = main(sys.argv[1:])
heavy = {"torch", "sklearn", "scipy", "matplotlib"} & set(sys.modules)
print(code, *sorted(heavy))
"""


def table(folder, name="mine.csv", text="a,b\n1,2\n"):
    (folder / name).write_text(text)
    return str(folder / name)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["fit", "nosuch.csv"], "there is nothing at"),
        (["fit", "TABLE", "--nosuch", "1"], "there is no option --nosuch: see"),
        (["fit", "TABLE", "--metod=ncr"], "there is no option --metod: did you mean --method?"),
        (
            ["fit", "TABLE"],
            "no image column and no caption column among the columns 'a', 'b'; name it with --image-column",
        ),
        (["fit", "TABLE", "--image-column", "a"], "no caption column"),
        (["fit", "TABLE", "--image-column=c"], "no column 'c'"),
        (["audit", "nowhere"], "holds no run"),
        (["bench", "nosuch.yaml"], "there is no grid nosuch.yaml"),
        (["evaluate", "nowhere"], "holds no run"),
        (["search", "nowhere", "a dog"], "holds no run"),
    ],
)
def test_a_first_error_needs_nothing_heavy(tmp_path, words, says):
    words = [table(tmp_path) if word == "TABLE" else word for word in words]
    done = subprocess.run([sys.executable, "-c", LIGHT, *words], capture_output=True, text=True, check=True)
    assert done.stdout == "2\n" and says in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize("words", [["--version"], ["--help"], ["list"], ["fit", "--help"]])
def test_what_tells_about_the_program_needs_nothing_heavy(words):
    done = subprocess.run([sys.executable, "-c", LIGHT, *words], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("\n0\n") and len(done.stdout) > 10 and done.stderr == ""


def test_a_source_that_may_be_right_passes(tmp_path):
    def passes(source, **given):
        check_source(Path(source), {f"--{name.replace('_', '-')}": value for name, value in given.items()})

    passes(table(tmp_path, text="image;caption\na.jpg;a dog\n"), noise="0.4")
    passes(table(tmp_path, "odd.json", "[]"), config="x.yaml")
    passes(tmp_path, caption_column="bpe")
    passes(table(tmp_path, "utf16.csv", "x"), config="x.yaml")
    (tmp_path / "wide.csv").write_bytes("image,caption\n".encode("utf-16"))
    passes(tmp_path / "wide.csv")
    passes(table(tmp_path, "empty.csv", ""))
    passes(table(tmp_path, "broken.parquet", "x"))


def test_a_parquet_file_without_captions_is_told_at_once(tmp_path):
    pyarrow.parquet.write_table(pa.table({"image": ["a.jpg"], "size": ["17"]}), tmp_path / "mine.parquet")
    with pytest.raises(InputError, match="no caption column among the columns 'image', 'size'"):
        check_source(tmp_path / "mine.parquet", {})
    check_source(tmp_path / "mine.parquet", {"--caption-column": "size"})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("pairsift fit --meth", ["--method"]),
        ("pairsift fit --method pc", ["pc2", "pc2_mscn", "pcsr"]),
        ("pairsift fit x.csv --method pc2 --pc2.captions.s", ["--pc2.captions.search"]),
        ("pairsift ev", ["evaluate"]),
    ],
)
def test_the_shell_completes_verbs_options_and_values(words, completed):
    asked = {"_PAIRSIFT_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
    code = "from pairsift.cli import main; main([])"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **asked}, capture_output=True, text=True, check=False
    )
    assert [line.removeprefix("plain,") for line in done.stdout.splitlines()] == completed
