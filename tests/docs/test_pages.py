"""The code of the tutorial and of the how-to pages runs as it stands, block by block, in a folder of its own."""

import csv
import shlex
import sys
import types
from pathlib import Path

import pytest
from page_blocks import blocks_of

import pairsift
from pairsift.cli import main
from pairsift.encode.registry import TEXT_ENCODERS
from pairsift.match import MATCHERS
from pairsift.methods import METHODS
from pairsift.pairs import READERS

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [DOCS / "tutorial.md", *sorted(DOCS.glob("howto/*.md"))]


@pytest.fixture
def _nothing_registered():
    """Take back what a page registers."""
    registries = (METHODS, MATCHERS, READERS, TEXT_ENCODERS)
    before = [dict(one._loaded) for one in registries]
    yield
    for one, loaded in zip(registries, before, strict=True):
        one._loaded.clear()
        one._loaded.update(loaded)


@pytest.fixture
def names(monkeypatch):
    """The names of a page, as a module, so that its classes can be found by it."""
    module = types.ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)
    return vars(module)


def commands(code):
    """The command lines of a shell block, without comments."""
    lines = [shlex.split(line, comments=True) for line in code.splitlines()]
    return [words for words in lines if words]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_has_only_code_that_runs(page):
    for block in blocks_of(page):
        known = ("python", "sh", "yaml")
        assert block.language in known, f"{page.name} line {block.line}: {block.language or 'no language'}"
        if block.language == "sh":
            assert all(words[0] == "pairsift" for words in commands(block.code)), f"{page.name} line {block.line}"


def run_page(page, names):
    """Run the blocks of a page in order, with one namespace for its Python; YAML goes into the file that it names."""
    for block in blocks_of(page):
        if block.language == "python":
            exec(compile("\n" * block.line + block.code, str(page), "exec"), names)
        elif block.language == "yaml":
            Path(block.code.partition("\n")[0].removeprefix("# ")).write_text(block.code)
        else:
            for words in commands(block.code):
                assert main(words[1:]) == 0, f"{page.name} line {block.line}: {shlex.join(words)}"


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES[1:] if blocks_of(page)], ids=lambda page: page.stem)
@pytest.mark.usefixtures("_nothing_registered", "working_folder")
def test_the_code_of_a_page_runs(page, names):
    run_page(page, names)


@pytest.mark.slow
@pytest.mark.usefixtures("quickly")
def test_the_tutorial_finds_wrong_captions_and_mends_the_table(names, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run_page(PAGES[0], names)
    really, flagged = names["really"], names["flagged"]
    assert len(really) > 60 and len(really & flagged) > 0.7 * len(really) and len(flagged - really) < 25
    with open("corrected.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert 200 < len(rows) < 300 and list(rows[0]) == ["image", "caption", "shelf"]
    said = capsys.readouterr().out
    assert f"{len(really & flagged)} of {len(really)} wrong captions are flagged" in said


@pytest.mark.slow
@pytest.mark.usefixtures("working_folder")
def test_the_run_that_pages_begin_with_has_suspects_with_suggestions():
    rows = pairsift.open_run("runs/mine").suspects().to_pylist()
    assert len(rows) > 20 and any(row["suggested_caption"] for row in rows)


def test_an_include_gives_the_blocks_between_its_marks(tmp_path):
    (tmp_path / "other.md").write_text("```sh\na\n```\n## Here\n```python\nb\n```\n## There\n```sh\nc\n```\n")
    page = tmp_path / "page.md"
    page.write_text(
        '```python\n1\n```\n\n```{include} other.md\n:start-after: "## Here"\n:end-before: "## There"\n```\n'
    )
    assert [(block.language, block.code) for block in blocks_of(page)] == [("python", "1\n"), ("python", "b\n")]
