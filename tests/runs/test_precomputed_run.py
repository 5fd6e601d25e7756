"""The whole way from features that came with the source: fit, evaluate, audit, search, opened again; and refusals."""

import csv
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from flat_options import fit

import pairsift
from pairsift.cli import main
from pairsift.encode.vocabularies import BytePairs, GivenIds, Vocabulary, read_numbering

pytestmark = pytest.mark.slow

COLOURS = ("red", "green", "blue", "white", "black", "brown")
THINGS = ("dog", "cat", "horse", "bird", "car", "boat")
WORDS = ("<pad>", "<start>", "<end>", "<unk>", "a", "the", ".", *COLOURS, *THINGS)
PLAIN = {
    "matcher": "vse",
    "method": "plain",
    "plain.epochs.warmup": 0,
    "plain.epochs.train": 4,
    "plain.networks": 1,
    "vse.dim": 16,
    "vse.word_dim": 8,
    "batch_size": 16,
    "device": "cpu",
    "threads": 1,
}


def write_source(folder: Path, ids: bool = False) -> Path:
    """Images of a coloured thing: three regions that hold the colour, the thing and noise; two captions each."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for stem, images in (("train", 36), ("dev", 12), ("test", 12)):
        colour, thing = rng.integers(0, 6, images), rng.integers(0, 6, images)
        values = rng.normal(scale=0.1, size=(images, 3, 12)).astype(np.float32)
        values[np.arange(images), 0, colour] += 1
        values[np.arange(images), 1, 6 + thing] += 1
        np.save(folder / f"{stem}_ims.npy", values)
        captions = [
            f"{article} {COLOURS[c]} {THINGS[t]} ."
            for c, t in zip(colour, thing, strict=True)
            for article in ("a", "The")
        ]
        if ids:
            captions = [",".join(str(WORDS.index(word.lower())) for word in caption.split()) for caption in captions]
        (folder / f"{stem}_caps{'_jieba' * ids}.txt").write_text("\n".join(captions) + "\n")
    (folder / "train_ids.txt").write_text("\n".join(f"photo{n}" for n in range(36)))
    return folder


def options(out: Path, **more: object) -> dict[str, object]:
    return {**PLAIN, "out": str(out), "cache": str(out.parent / "cache"), **more}


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    folder = write_source(tmp_path_factory.mktemp("precomp") / "tiny_precomp")
    (folder.parent / "vocab").mkdir()
    numbers = {word: at for at, word in enumerate(WORDS)}
    (folder.parent / "vocab" / "tiny_precomp_vocab.json").write_text(json.dumps({"word2idx": numbers, "idx": 19}))
    return folder


@pytest.fixture(scope="module")
def run(source):
    return fit(source, options(source.parent / "run", noise=0.25), progress=False)


def test_a_run_on_features(run, source, capsys):
    assert run.prepared.features.images.values.shape == (60, 3, 12)
    table = run.pairs().to_pylist()
    assert len(table) == 120 and {row["image"] for row in table} >= {"train/photo0", "dev/0", "test/11"}
    assert set(run.metrics["test"]["ensemble"]) >= {"rsum"} and "detection" in run.metrics
    assert "tiny_precomp_vocab.json" in run.metrics["data"]["description"]
    page = (run.folder / "report.html").read_text()
    assert "features only: " in page and "cannot be read" not in page and "<img" not in page
    with (run.folder / "suspects.csv").open(newline="") as stream:
        assert all(row["image"].split("/")[0] in ("train", "dev", "test") for row in csv.DictReader(stream))
    assert main(["evaluate", str(run.folder), "--split", "dev"]) == 0
    assert main(["audit", str(run.folder), "--worst", "2"]) == 0
    assert main(["search", str(run.folder), "a red dog", "-k", "3"]) == 0
    found = capsys.readouterr().out.splitlines()[-3:]
    assert all(line.split()[1].split("/")[0] in ("train", "dev", "test") for line in found)
    assert main(["search", str(run.folder), "--like", "2", "-k", "3", "--json"]) == 0
    hits = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert all(run.prepared.pairs.captions[hit["pair"]] == hit["caption"] for hit in hits) and len(hits) == 3
    assert main(["search", str(run.folder), "--image", "any.jpg"]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "features instead of images, so no image can be searched by" in err


def test_new_features_are_scored(run, source, tmp_path, capsys):
    write_source(tmp_path / "new_precomp")
    assert run.score(tmp_path / "new_precomp", tmp_path / "scored.parquet") == 120
    table = pq.read_table(tmp_path / "scored.parquet").to_pylist()
    assert [row["pair"] for row in table] == list(range(120)) and table[0]["image"] == "train/photo0"
    ids = write_source(tmp_path / "now", ids=True)
    assert main(["score", str(run.folder), str(ids), "--out", str(tmp_path / "s.csv")]) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert "holds rows of 3 x 12 for images and captions as token ids, and the run was made of" in line
    assert "and captions as text" in line


def test_it_opens_again_without_the_vocabulary_of_the_source(run, source):
    saved = read_numbering((run.folder / "vocabulary.json").read_text())
    assert isinstance(saved, Vocabulary) and saved.splitter == "treebank" and len(saved) == len(WORDS)
    assert saved.ids("a red zebra.").tolist() == [1, 4, 7, 3, 6, 2]
    file = source.parent / "vocab" / "tiny_precomp_vocab.json"
    text = file.read_text()
    file.unlink()
    try:
        opened = pairsift.open_run(run.folder, progress=False)
        assert opened.evaluate("test")["ensemble"] == pytest.approx(run.metrics["test"]["ensemble"])
        assert [name for name, _ in opened.search("a red dog", 4)] == [name for name, _ in run.search("a red dog", 4)]
    finally:
        file.write_text(text)


def test_features_that_changed_shape_are_another_source(run, source):
    file = source / "test_ims.npy"
    values = np.load(file)
    try:
        for name in ("train", "dev", "test"):
            part = source / f"{name}_ims.npy"
            np.save(part, np.load(part)[:, :2])
        with pytest.raises(pairsift.InputError, match="has changed since"):
            _ = pairsift.open_run(run.folder, progress=False).prepared
    finally:
        write_source(source.parent / "again")
        for part in source.glob("*_ims.npy"):
            part.write_bytes((source.parent / "again" / part.name).read_bytes())
    np.testing.assert_array_equal(np.load(file), values)


def test_vectors_are_means_over_regions(source):
    more = {"matcher": "two_tower", "two_tower.dim": 8, "batch_size": 16}
    kept = {name: value for name, value in options(source.parent / "towers", **more).items() if "vse" not in name}
    run = fit(source, kept, progress=False)
    values = np.load(source / "train_ims.npy")[[7, 2]]
    found = run.prepared.features.images.batch(np.array([7, 2])).values.numpy()
    np.testing.assert_allclose(found, [(one[0] + one[1] + one[2]) / 3 for one in values], rtol=1e-5, atol=1e-6)
    assert not (run.folder / "vocabulary.json").exists()
    assert len(run.search("a red dog", 2)) == 2


@pytest.mark.parametrize(
    ("more", "kind"),
    [
        ({"text_encoder": "bpe", "bpe_size": 290}, "bpe"),
        ({"min_count": 1, "splitter": "jieba"}, "jieba"),
        ({"min_count": 30}, "plain"),
        ({"splitter": "plain"}, "plain of the file"),
    ],
)
def test_other_ways_to_number_words(source, more, kind):
    run = fit(source, options(source.parent / kind, **{"plain.epochs.train": 1}, **more), progress=False)
    saved = read_numbering((run.folder / "vocabulary.json").read_text())
    if kind == "bpe":
        assert isinstance(saved, BytePairs) and len(saved) == 290
    else:
        assert isinstance(saved, Vocabulary) and saved.splitter == kind.split()[0]
        assert (list(saved.numbers) == list(WORDS)) == (kind == "plain of the file")
    if kind == "plain":  # 48 images of train and dev have each article and the full stop 48 times
        assert set(saved.numbers) == {*WORDS[:4], "a", "the", "."}
    opened = pairsift.open_run(run.folder, progress=False)
    assert opened.evaluate("test")["ensemble"] == pytest.approx(run.metrics["test"]["ensemble"])
    assert len(opened.search("a red zebra", 3)) == 3


def test_captions_that_are_token_ids(tmp_path, capsys):
    folder = write_source(tmp_path / "now100k_precomp", ids=True)
    (tmp_path / "now100k_precomp_vocab_jieba.json").write_text(
        json.dumps({"word2idx": {"<start>": 1, "<end>": 2, "<unk>": 30}})
    )
    run = fit(folder, options(tmp_path / "run", **{"plain.epochs.train": 1}), progress=False)
    saved = read_numbering((run.folder / "vocabulary.json").read_text())
    assert saved == GivenIds(31, 1, 2)
    assert run.pairs()["given_caption"][0].as_py().replace(" ", "").isdigit()
    assert len(pairsift.open_run(run.folder, progress=False).search("4, 7 13", 3)) == 3
    assert main(["search", str(run.folder), "a dog"]) == 2
    assert "'a' is no token id" in capsys.readouterr().err
    (tmp_path / "now100k_precomp_vocab_jieba.json").write_text("[]")
    (run.folder / "vocabulary.json").unlink()
    assert pairsift.open_run(run.folder, progress=False).prepared.vocabulary == GivenIds(19)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--image-encoder", "efficientnet-lite0"], "has features and no images for efficientnet-lite0"),
        (["--text-encoder", "ids"], "'a' is no token id"),
        (["--vocabulary", "nowhere.json"], "there is no vocabulary file"),
        (["--vocabulary", "BAD"], "gives one id to several words"),
        (["--vocabulary", "IDS"], "is a vocabulary of ids, which the text encoder words cannot use"),
        (["--vocabulary", "BAD", "--min-count", "2"], "exclude each other"),
        (["--text-encoder", "bpe", "--splitter", "jieba"], "--splitter has no effect on the text encoder bpe"),
        (["--text-encoder", "bpe", "--bpe-size", "9"], "bpe_size is 9"),
        (["--splitter", "nltk"], "--splitter"),
        (["--matcher", "two_tower", "--vocabulary", "BAD"], "--vocabulary has no effect on the text encoder wordllama"),
        (["--matcher", "two_tower", "--text-encoder", "bpe"], "matcher two_tower cannot read the text encoder bpe"),
        (["NOW", "--matcher", "two_tower"], "token ids, which matcher two_tower cannot read; choose from vse"),
        (["NOW", "--text-encoder", "words"], "leave --text-encoder out"),
        (["NOW", "--caption-column", "bert"], "has no train_caps_bert.txt"),
    ],
)
def test_what_cannot_be_is_one_line(source, tmp_path, capsys, words, says):
    files = {"BAD": '{"word2idx": {"a": 1, "b": 1}}', "IDS": GivenIds(5).to_json()}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    words = [str(tmp_path / word) if word in files else word for word in words]
    if words[0] == "NOW":
        words[0] = str(write_source(tmp_path / "now", ids=True))
    else:
        words.insert(0, str(source))
    matcher = [] if "--matcher" in words else ["--matcher", "vse"]
    command = [
        "fit",
        *words,
        *matcher,
        "--method",
        "plain",
        f"--out={tmp_path / 'out'}",
        f"--cache={tmp_path / 'cache'}",
    ]
    assert main(command) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and says in err, err
    assert not (tmp_path / "out").exists()


def test_options_are_kept_in_the_configuration(run):
    kept = yaml.safe_load((run.folder / "config.yaml").read_text())
    assert kept["image_encoder"] is None and kept["vocabulary"] is None and kept["min_count"] is None
