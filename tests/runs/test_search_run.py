"""Search over a run: images by text and by pair, captions by image, from Python and on the command line."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from flat_options import fit
from safetensors.numpy import load_file

import pairsift
from pairsift.cli import main
from pairsift.errors import InputError
from pairsift.match import MATCHERS
from pairsift.retrieve.gallery import Gallery
from pairsift.runs.search import open_search
from pairsift.scenes import write_scenes
from pairsift.search.index import CAPTIONS
from pairsift.search.search import Search
from token_helpers import Late

pytestmark = pytest.mark.slow

MARKUP = '<script>alert(1)</script>\x1b[31m "red"\nsecond line'


@pytest.fixture
def copied(run, tmp_path):
    shutil.copytree(run.folder, tmp_path / "run")
    return tmp_path / "run"


def mean_scores(run):
    """The mean similarity of all images with all captions, from the features: (n_images, n_captions)."""
    pairs = run.prepared.pairs
    rows, ids = pairs.images(), pairs.ids()
    return rows, ids, Gallery.encode(run.matchers, run.prepared.features, rows, ids).block(np.arange(len(rows)))


def test_an_image_finds_the_captions_that_its_features_find(run):
    pairs = run.prepared.pairs
    rows, ids, scores = mean_scores(run)
    for place in (0, 7):
        hits = run.captions_for(pairs.paths[rows[place]], 6)
        expected = np.sort(scores[place])[::-1][:6]
        assert [hit.score for hit in hits] == pytest.approx(expected, abs=2e-3)
        for hit in hits:
            assert hit.caption == pairs.captions[hit.pair]
            assert hit.file == str(pairs.paths[pairs.image_of[hit.pair]])
            assert hit.score == pytest.approx(scores[place, np.searchsorted(ids, hit.pair)], abs=2e-3)


def test_images_like_a_pairs_image_are_ranked_by_vectors_without_itself(run):
    pairs = run.prepared.pairs
    vectors = load_file(run.folder / "model" / "images.safetensors")
    rows = vectors["rows"]
    pair = int(pairs.ids()[11])
    place = int(np.searchsorted(rows, pairs.image_of[pair]))
    means = sum(vectors[f"network_{k}"].astype(float) @ vectors[f"network_{k}"][place].astype(float) for k in (0, 1))
    expected = [row for row in np.argsort(-means / 2, kind="stable") if row != place]
    hits = run.images_like(pair, 5)
    assert [hit.file for hit in hits] == [str(pairs.paths[rows[row]]) for row in expected[:5]]
    assert [hit.score for hit in hits] == pytest.approx([means[row] / 2 for row in expected[:5]], abs=1e-4)
    assert all(pairs.image_of[hit.pair] == rows[row] for hit, row in zip(hits, expected, strict=False))
    assert len(run.images_like(pair, 10_000)) == len(rows) - 1


def test_a_text_finds_the_same_as_json_with_the_first_pair_of_each_image(run, capsys):
    pairs = run.prepared.pairs
    assert main(["search", str(run.folder), "a red ball", "-k", "4", "--json"]) == 0
    hits = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(hit["file"], hit["score"]) for hit in hits] == [
        (file, pytest.approx(score)) for file, score in run.search("a red ball", 4)
    ]
    for hit in hits:
        row = pairs.image_of[hit["pair"]]
        assert hit["pair"] == np.flatnonzero(pairs.image_of == row)[0] and hit["caption"] == pairs.captions[hit["pair"]]
        assert hit["file"] == str(pairs.paths[row]) and set(hit) == {"file", "pair", "caption", "score"}


def test_the_command_line_prints_captions_with_their_pairs_and_images_like_a_pairs(run, capsys):
    image = str(run.prepared.pairs.paths[0])
    assert main(["search", str(run.folder), "--image", image, "-k", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    for line, hit in zip(lines, run.captions_for(image, 3), strict=True):
        assert line == f"{hit.score:.3f}  {hit.caption}  (pair {hit.pair}, {hit.file})"
    assert main(["search", str(run.folder), "--like", "4", "-k", "2"]) == 0
    assert [line.split("  ")[1] for line in capsys.readouterr().out.splitlines()] == [
        hit.file for hit in run.images_like(4, 2)
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "search by one thing: give a text, or --image FILE, or --like PAIR"),
        (["a", "--like", "3"], "search by one thing"),
        (["--image", "x.png", "--like", "3"], "search by one thing"),
        (["", "-k", "3"], "the query is empty"),
        (["a", "-k", "0"], "k is 0: ask for at least 1"),
        (["--like", "4", "-k", "-1"], "k is -1: ask for at least 1"),
        (["--like", "999999"], "the run has no usable pair 999999"),
        (["--like", str(10**40)], "the run has no usable pair 1000"),
        (["--like=-1"], "the run has no usable pair -1"),
        (["--like", "many"], "'many' is not a valid integer"),
        (["--image", "nowhere.png"], "nowhere.png: the file does not exist"),
        (["--image", "/"], "/: it is not a file"),
    ],
)
def test_what_cannot_be_searched_is_told_in_one_line(run, words, message, capsys):
    assert main(["search", str(run.folder), *words]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and message in err


def test_the_page_of_results_has_images_and_no_markup_of_captions(run, copied, capsys, monkeypatch, tmp_path):
    opened = []
    monkeypatch.setattr("click.launch", opened.append)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    index = Search.open(copied).index
    kept = index.captions
    replace(kept, texts=[MARKUP] * len(kept.texts)).write(copied)
    assert main(["search", str(copied), "--image", str(run.prepared.pairs.paths[0]), "-k", "2", "--open"]) == 0
    out, err = capsys.readouterr()
    assert (
        "\x1b" not in out and len(out.splitlines()) == 2 and '<script>alert(1)</script> [31m "red" second line' in out
    )
    [name] = opened
    assert err.strip() == f"the page is {name}"
    page = Path(name).read_text(encoding="utf-8")
    assert page.count("data:image/jpeg;base64,") == 2 and "<script" not in page and "&lt;script&gt;" in page
    assert "default-src 'none'" in page and "http:" not in page and "https:" not in page


def test_an_index_without_its_captions_is_made_again(run, copied):
    (copied / CAPTIONS).unlink()
    opened = pairsift.open_run(copied, progress=False)
    assert opened.images_like(4, 3) == run.images_like(4, 3)
    assert load_file(copied / CAPTIONS).keys() == load_file(run.folder / CAPTIONS).keys()
    assert opened.search("a red ball", 2) == run.search("a red ball", 2)


def test_captions_are_never_beside_the_images_of_another_index(run, copied, monkeypatch):
    def stop(*arguments):
        raise OSError(28, "full")

    index = Search.open(copied).index
    monkeypatch.setattr("pairsift.search.index.write_tensors", stop)
    with pytest.raises(OSError, match="full"):
        index.write(copied)
    assert not (copied / CAPTIONS).exists()


def test_captions_are_kept_in_half_precision_as_they_are(run):
    kept = Search.open(run.folder).index.captions
    pairs = run.prepared.pairs
    assert all(str(vectors.dtype) == "torch.float16" for vectors in kept.vectors)
    assert kept.texts == [pairs.captions[pair] for pair in kept.pairs]


def test_a_matcher_of_tokens_ranks_captions_by_the_full_similarity(place, quick, monkeypatch):
    monkeypatch.setitem(MATCHERS._loaded, "late", Late)
    write_scenes(place / "token-scenes", 40, 6)
    chosen = {name: value for name, value in quick.items() if not name.startswith("pc2")}
    chosen |= {"out": str(place / "tokens"), "matcher": "late", "method": "plain", "min_count": 1}
    chosen |= {"plain.networks": 2, "plain.epochs.train": 1}
    run = fit(place / "token-scenes", chosen, progress=False)
    rows, ids, scores = mean_scores(run)
    pairs = run.prepared.pairs
    searches = (pairsift.open_run(run.folder, progress=False)._search, run._search)
    assert len(ids) <= 200  # so that the shortlist has all captions
    for search in searches:
        hits = search.by_image(pairs.paths[rows[3]], 5)
        assert [hit.score for hit in hits] == pytest.approx(np.sort(scores[3])[::-1][:5], abs=5e-3)
        assert all(hit.caption == pairs.captions[hit.pair] for hit in hits)
        assert len(search.by_pair(int(ids[0]), 4)) == 4


def test_search_imports_no_method(run):
    code = (
        "import sys; from pathlib import Path; from pairsift.runs.search import open_search; "
        f"open_search(Path({str(run.folder)!r})).by_pair(3, 2); print('pairsift.methods.base' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "False\n"


def test_a_run_without_index_and_source_says_so(copied):
    (copied / CAPTIONS).unlink()
    config = copied / "config.yaml"
    config.write_text(config.read_text().replace("source: ", "source: /nowhere"))
    with pytest.raises(InputError, match="there is nothing at /nowhere"):
        open_search(copied)


def test_a_large_run_gets_an_index_whose_recall_is_told_with_each_search(copied, run, capsys, monkeypatch):
    pytest.importorskip("faiss", reason="needs faiss-cpu: pip install 'pairsift[index]'")
    exact = [run.search("a red ball", 5), run.images_like(4, 5)]
    monkeypatch.setattr("pairsift.search.index.APPROXIMATE_FROM", 100)
    image = str(run.prepared.pairs.paths[0])
    for round_ in range(2):
        opened = pairsift.open_run(copied, progress=False)
        assert [opened.search("a red ball", 5), opened.images_like(4, 5)] == exact
        built = "building an index of 120 images, once\napproximate search: 100.0% of the 10 best are found"
        assert capsys.readouterr().err.startswith("" if round_ else built)
        assert main(["search", str(copied), "--image", image, "-k", "2"]) == 0
        assert "approximate search: " in capsys.readouterr().err
    assert opened._search.approximate_images is not None
    assert (copied / "model" / "images_approximate.safetensors").exists()


def test_without_faiss_a_large_run_is_searched_exactly(copied, run, monkeypatch):
    monkeypatch.setattr("pairsift.search.index.APPROXIMATE_FROM", 1)
    monkeypatch.setattr("pairsift.search.index.find_spec", lambda name: None)
    opened = pairsift.open_run(copied, progress=False)
    assert opened.search("a red ball", 5) == run.search("a red ball", 5)
    assert opened._search.approximate_images is None
