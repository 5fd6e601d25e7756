"""Folders of precomputed features: what becomes of rows, captions, ids, and of files that do not fit."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pair_sources import reasons, refused
from pairsift.noise.planted import read_index
from pairsift.pairs.readers import choose, load


def features(images: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(images, 3, 4)).astype(np.float32)


def write(folder: Path, stem: str, values: np.ndarray, lines: list[str], ending: str = "caps.txt") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / f"{stem}_ims.npy", values)
    (folder / f"{stem}_{ending}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def five(images: int, word: str) -> list[str]:
    return [f"{word} {image} said {time}" for image in range(images) for time in range(5)]


@pytest.fixture
def flickr(tmp_path):
    folder = tmp_path / "f30k_precomp"
    write(folder, "train", features(4), five(4, "train"))
    write(folder, "dev", features(2, 1), five(2, "dev"))
    write(folder, "test", features(2, 2), five(2, "test"))
    return folder


def row_values(pairs, image: int) -> np.ndarray:
    """An image's features by way of the parts, loaded whole."""
    assert pairs.features is not None
    return np.concatenate([np.load(part) for part in pairs.features.parts])[pairs.features.rows[image]]


def test_five_captions_of_an_image_in_a_row(flickr):
    pairs = load(flickr)
    assert pairs.image_of.tolist() == [n // 5 for n in range(40)]
    assert pairs.split.tolist() == ["train"] * 20 + ["dev"] * 10 + ["test"] * 10
    assert pairs.captions[7] == "train 1 said 2" and pairs.names[:2] == ["train/0", "train/1"]
    assert pairs.features.shape == (3, 4) and not pairs.features.ids and pairs.features.vocabulary is None
    np.testing.assert_array_equal(row_values(pairs, 5), features(2, 1)[1])  # the second of dev
    assert "train_ims.npy (4 images, 5 captions each)" in pairs.description and "3 x 4" in pairs.description


def test_repeated_images_are_taken_once(flickr):
    write(flickr, "dev", np.repeat(features(2, 1), 5, axis=0), five(2, "dev"))
    pairs = load(flickr)
    assert pairs.image_of.tolist() == [n // 5 for n in range(40)]
    assert pairs.features.rows.tolist() == [0, 1, 2, 3, 4, 9, 14, 15]
    np.testing.assert_array_equal(row_values(pairs, 5), features(2, 1)[1])
    assert "2 images, every 5th row, 5 captions each" in pairs.description


def test_one_caption_each_is_no_repetition(tmp_path):
    folder = tmp_path / "cc152k_precomp"
    for stem, images in (("train", 10), ("dev", 5), ("test", 5)):
        lines = [f'{stem}-{n}\ta "quoted" caption {n}' for n in range(images)]
        write(folder, stem, features(images), lines, "caps.tsv")
    pairs = load(folder)
    assert pairs.image_of.tolist() == list(range(20)) and pairs.names[11] == "dev/dev-1"
    assert pairs.captions[1] == 'a "quoted" caption 1'


def test_broken_rows_of_a_tsv_are_skipped_and_stray_quotes_swallow_nothing(tmp_path):
    folder = tmp_path / "own"
    lines = [f"{n}\tcaption {n}" for n in range(12)]
    lines[2], lines[4], lines[7] = "no tab", '4\t"opened and not closed', '7\tlater "quoted" and closed"'
    write(folder, "train", features(12), lines, "caps.tsv")
    pairs = load(folder)
    assert len(pairs) == 12 and pairs.captions[4] == '"opened and not closed' and pairs.captions[5] == "caption 5"
    assert reasons(pairs) == {2: ("train_caps.tsv line 3", "has no second column")}
    lines[4] = '4\t"a whole ""quoted"" caption"'
    write(folder, "train", features(12), lines, "caps.tsv")
    assert load(folder).captions[4] == 'a whole "quoted" caption'


def test_testall_stands_for_test_and_val_for_dev(flickr):
    write(flickr, "testall", features(3, 5), five(3, "all"))
    for ending in ("ims.npy", "caps.txt"):
        (flickr / f"dev_{ending}").rename(flickr / f"val_{ending}")
    pairs = load(flickr)
    assert [pairs.captions[n] for n in pairs.ids("test")] == five(3, "all")
    assert [pairs.captions[n] for n in pairs.ids("dev")] == five(2, "dev")
    assert "testall_ims.npy" in pairs.description and "test_ims.npy" not in pairs.description
    (flickr / "testall_ims.npy").unlink()
    assert "; test_ims.npy" in load(flickr).description


def test_missing_splits_are_drawn_from_train(tmp_path):
    write(tmp_path / "own", "train", features(20), five(20, "train"))
    pairs = load(tmp_path / "own")
    assert {name: len(pairs.images(name)) for name in ("train", "dev", "test")} == {"train": 16, "dev": 2, "test": 2}
    assert "dev and test drawn from train" in pairs.description


@pytest.mark.parametrize("per", ["image", "caption, the image's", "caption, its own", "none that fits"])
def test_ids(flickr, per):
    lines = {
        "image": ["x0", "x1", "x2", "x3"],
        "caption, the image's": [f"x{n // 5}" for n in range(20)],
        "caption, its own": [f"c{n}" for n in range(20)],
        "none that fits": ["x0", "x1"],
    }[per]
    (flickr / "train_ids.txt").write_text("\n".join(lines) + "\n")
    pairs = load(flickr)
    named = per in ("image", "caption, the image's")
    assert pairs.names[:4] == [f"train/{'x' * named}{n}" for n in range(4)]


def test_every_line_counts_so_that_published_noise_indices_fit(flickr, tmp_path):
    lines = five(4, "train")
    lines[3] = lines[2]  # an image has the same caption twice
    lines[8] = ""
    write(flickr, "train", features(4), lines)
    pairs = load(flickr)
    assert len(pairs.ids("train")) == 19
    assert reasons(pairs) == {8: ("train_caps.txt line 9", "the caption is empty")}
    write(flickr, "train", features(4), five(4, "train"))
    np.save(tmp_path / "index.npy", np.array([0, 0, 1, 0, 0] * 4))
    noisy = read_index(load(flickr), tmp_path / "index.npy")
    assert noisy.image_of[:20].tolist() == [0, 0, 1, 0, 0] * 4


def test_blank_lines_at_the_end_are_no_captions(flickr):
    with (flickr / "train_caps.txt").open("a") as stream:
        stream.write("\n  \n")
    assert len(load(flickr)) == 40


def test_what_does_not_fit_is_told_in_one_line(flickr):
    (flickr / "train_caps.txt").write_text("one\ntwo\nthree\n")
    line = refused(flickr)
    assert "train_caps.txt" in line and "3 captions for the 4 images in train_ims.npy" in line
    write(flickr, "train", features(4), five(4, "train"))
    np.save(flickr / "dev_ims.npy", features(2)[:, :2])
    assert "dev_ims.npy: a row is (2, 4) where train_ims.npy has (3, 4)" in refused(flickr)
    (flickr / "dev_ims.npy").unlink()
    assert "has only one of dev_ims.npy and dev_caps.txt" in refused(flickr)
    (flickr / "dev_caps.txt").unlink()
    whole = (flickr / "train_ims.npy").read_bytes()
    for broken, says in ((whole[:-9], "no whole .npy file"), (b"", "no whole .npy file"), (b"abc" * 9, "no whole")):
        (flickr / "train_ims.npy").write_bytes(broken)
        assert says in refused(flickr)
    np.save(flickr / "train_ims.npy", np.array([{}]), allow_pickle=True)
    assert "no whole .npy file of numbers" in refused(flickr)
    np.save(flickr / "train_ims.npy", np.zeros((4, 3), np.int64))
    assert "holds int64 of shape (4, 3)" in refused(flickr)
    (flickr / "train_ims.npy").unlink()
    assert "has only one of train_ims.npy and train_caps.txt" in refused(flickr, "precomp")


@pytest.mark.parametrize(
    "place", ["f30k_precomp_vocab.json", "vocab/f30k_precomp_vocab.json", "../vocab/f30k_precomp_vocab.json"]
)
def test_the_vocabulary_is_found_in_and_beside_the_folder(flickr, place):
    (flickr / place).parent.mkdir(exist_ok=True)
    (flickr / place).write_text("{}")
    pairs = load(flickr)
    assert pairs.features.vocabulary == (flickr / place).resolve()
    assert "f30k_precomp_vocab.json" in pairs.description


def test_the_hash_covers_features(flickr):
    pairs = load(flickr)
    assert pairs.hash() == load(flickr).hash()
    assert pairs.hash() != replace(pairs, features=None).hash()
    assert pairs.hash() != replace(pairs, features=replace(pairs.features, shape=(36, 2048))).hash()
    assert pairs.hash() != replace(pairs, features=replace(pairs.features, rows=pairs.features.rows[::-1])).hash()


@pytest.fixture
def noise_of_web(tmp_path):
    folder = tmp_path / "h5100k_precomp"
    for stem, images in (("train", 5), ("dev", 2), ("test", 2)):
        for shift, tokens in enumerate(("bpe", "bert", "jieba")):
            lines = [f"{100 * shift + n},7,{n}" for n in range(images)]
            write(folder, stem, features(images), lines, f"caps_{tokens}.txt")
        (folder / f"{stem}_ids.txt").write_text("\n".join(str(1000 + n) for n in range(images)))
    (tmp_path / "vocab").mkdir()
    for tokens in ("bpe", "jieba"):
        (tmp_path / "vocab" / f"now100k_precomp_vocab_{tokens}.json").write_text(json.dumps({"word2idx": {}}))
    return folder


def test_noise_of_web(noise_of_web):
    assert choose(noise_of_web) == "now"
    pairs = load(noise_of_web)
    assert pairs.features.ids and pairs.captions[:2] == ["200 7 0", "201 7 1"]
    assert pairs.names[6] == "dev/1001" and pairs.image_of.tolist() == list(range(9))
    assert pairs.features.vocabulary.name == "now100k_precomp_vocab_jieba.json"
    assert "train_caps_jieba.txt" in pairs.description and "token ids" in pairs.description
    assert load(noise_of_web, caption_column="bpe").captions[1] == "1 7 1"
    bert = load(noise_of_web, caption_column="bert")
    assert bert.captions[1] == "101 7 1" and bert.features.vocabulary is None
    assert "no train_caps_word.txt; its token ids are 'jieba', 'bpe', 'bert'" in refused(
        noise_of_web, caption_column="word"
    )


def test_ids_that_are_none_are_skipped(noise_of_web):
    lines = ["3,4,,5,", "3 4", "3,x,4", "3,-1", "", "3,9999999999999", "9" * 5000, "²", "1.5", "007"]
    write(noise_of_web, "train", features(10), lines, "caps_jieba.txt")
    pairs = load(noise_of_web)
    assert [pairs.captions[n] for n in pairs.ids("train")] == ["3 4 5", "3 4", "7"]
    found = {pair: reason for pair, (_, reason) in reasons(pairs).items()}
    assert found[2] == "'x' is no token id" and found[4] == "the caption is empty" and len(found) == 7


def test_a_folder_with_other_files_is_read_as_before(tmp_path):
    (tmp_path / "a.txt").write_text("a caption")
    assert choose(tmp_path) == "folder"
    assert "has no train_ims.npy" in refused(tmp_path / "a.txt", "precomp")
