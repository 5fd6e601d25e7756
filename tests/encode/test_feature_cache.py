import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from encode_helpers import TinyImages, TinyTexts, make_pairs
from PIL import Image

from pairsift.cache_folder import default_cache
from pairsift.encode import cache as cache_module
from pairsift.encode import cache_entry as store
from pairsift.encode.cache import encode_pairs
from pairsift.encode.decode import open_image
from pairsift.encode.encoder import JoinedEncoder
from pairsift.encode.parallel import map_in_threads
from pairsift.errors import InputError
from pairsift.pairs.pairs import Noise

KINDS = ["vector", "tokens", "ids"]


def run(pairs, folder, images=None, texts=None, batch_size=3):
    return encode_pairs(pairs, images or TinyImages(), texts or TinyTexts(), folder, batch_size, progress=False)


def same(left, right) -> bool:
    equal = np.array_equal(left.values, right.values) and left.values.dtype == right.values.dtype
    offsets = (left.offsets is None) == (right.offsets is None)
    return equal and offsets and (left.offsets is None or np.array_equal(left.offsets, right.offsets))


@pytest.mark.parametrize("regions", [False, True])
def test_rows_are_images(tmp_path, regions):
    pairs, encoder = make_pairs(tmp_path / "data"), TinyImages(regions=regions)
    features, failures = run(pairs, tmp_path / "cache", encoder)
    assert failures == {}
    assert len(features.images) == pairs.n_images
    assert features.images.values.dtype == (np.float16 if regions else np.float32)
    for row, path in enumerate(pairs.paths):
        wanted = encoder.encode(encoder.prepare(open_image(path))[None])[0].numpy()
        np.testing.assert_allclose(features.images.values[row], wanted, rtol=1e-3)


class Flipped(TinyTexts):
    def key(self):
        return "f" * 32

    def encode(self, captions):
        return super().encode(captions)[:, ::-1]


def test_a_joined_encoder_takes_what_one_of_its_parts_has_encoded(tmp_path, monkeypatch):
    monkeypatch.setattr(cache_module, "CAPTIONS_PER_CHUNK", 4)
    pairs = make_pairs(tmp_path / "data")
    pairs.captions[3] = "  "
    fresh, _ = run(pairs, tmp_path / "other", texts=JoinedEncoder([TinyTexts(), Flipped()]))
    first, second = TinyTexts(), Flipped()
    run(pairs, tmp_path / "cache", texts=first)
    features, _ = run(pairs, tmp_path / "cache", texts=JoinedEncoder([first, second]))
    assert (first.seen, second.seen) == (len(pairs) - 1, len(pairs) - 1)
    assert same(features.texts, fresh.texts) and not features.texts.values[3].any()


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_captions(tmp_path, kind, monkeypatch):
    monkeypatch.setattr(cache_module, "CAPTIONS_PER_CHUNK", 4)
    pairs, encoder = make_pairs(tmp_path / "data"), TinyTexts(kind)
    pairs.captions[3] = "  "
    pairs.captions[5] = pairs.captions[6]
    features, _ = run(pairs, tmp_path / "cache", texts=encoder)
    assert encoder.seen == len(pairs) - 1
    wanted = TinyTexts(kind).encode([caption if caption.strip() else "x" for caption in pairs.captions])
    for row in range(len(pairs)):
        texts = features.texts
        offsets = texts.offsets
        got = texts.values[row] if offsets is None else texts.values[offsets[row] : offsets[row + 1]]
        if row == 3:
            assert not got.any() and (kind == "vector" or len(got) == 0)
        else:
            np.testing.assert_allclose(got, wanted[row], rtol=1e-3)
    assert texts.batch(np.array([3, 4])).values.shape[0] == 2


def test_a_second_call_decodes_nothing(tmp_path):
    pairs, images, texts = make_pairs(tmp_path / "data"), TinyImages(), TinyTexts("tokens")
    first, _ = run(pairs, tmp_path / "cache", images, texts)
    again, _ = run(pairs, tmp_path / "cache", images, texts)
    assert (images.prepared, texts.seen) == (pairs.n_images, len(pairs))
    assert isinstance(again.images.values, np.memmap)
    assert same(first.images, again.images) and same(first.texts, again.texts)


def test_noise_and_splits_change_nothing(tmp_path):
    pairs, images, texts = make_pairs(tmp_path / "data"), TinyImages(), TinyTexts()
    run(pairs, tmp_path / "cache", images, texts)
    moved = np.zeros_like(pairs.image_of)  # only image 0 is pointed at any more
    noisy = replace(pairs, image_of=moved, true_image_of=pairs.image_of, noise=Noise(1, 0, "caption", 1, "0"))
    run(noisy, tmp_path / "cache", images, texts)
    run(replace(pairs, split=np.full(len(pairs), "unused")), tmp_path / "cache", images, texts)
    run(pairs.skip_images({2: "bad"}), tmp_path / "cache", images, texts)
    assert (images.prepared, texts.seen) == (pairs.n_images, len(pairs))


def test_another_decoding_changes_the_key(tmp_path, monkeypatch):
    pairs, images = make_pairs(tmp_path / "data"), TinyImages()
    run(pairs, tmp_path / "cache", images)
    monkeypatch.setattr(cache_module, "DECODING", "another")
    run(pairs, tmp_path / "cache", images)
    assert images.prepared == 2 * pairs.n_images


def test_weights_images_and_captions_change_the_key(tmp_path):
    pairs, cache = make_pairs(tmp_path / "data"), tmp_path / "cache"
    run(pairs, cache)
    heavier = TinyImages(weight=2.0)
    run(pairs, cache, heavier)
    assert heavier.prepared == pairs.n_images
    pairs.paths[2].write_bytes(pairs.paths[3].read_bytes() + b"more")
    changed = TinyImages()
    features, _ = run(pairs, cache, changed)
    assert changed.prepared == 1
    assert (features.images.values[2] == features.images.values[3]).all()
    pairs.captions[1] = "another"
    texts = TinyTexts()
    run(pairs, cache, texts=texts)
    assert texts.seen == len(pairs)


@pytest.mark.parametrize("regions", [False, True])
def test_moved_images_are_not_encoded_again_and_new_ones_are(tmp_path, regions):
    pairs, cache = make_pairs(tmp_path / "data"), tmp_path / "cache"
    before, _ = run(pairs, cache, TinyImages(regions=regions))
    (tmp_path / "data").rename(tmp_path / "moved")
    new = tmp_path / "moved" / "new.png"
    Image.new("RGB", (12, 10), (1, 2, 3)).save(new)
    rows = [5, 1, 4, 6]
    paths = [*(tmp_path / "moved" / pairs.paths[row].name for row in rows), new]
    moved = replace(pairs, names=[path.name for path in paths], paths=paths, image_of=np.arange(14) % 5)
    encoder = TinyImages(regions=regions)
    after, failures = run(moved, cache, encoder)
    assert encoder.prepared == 1 and not failures
    assert (after.images.values[:4] == before.images.values[rows]).all()
    fresh, _ = run(moved, tmp_path / "other", TinyImages(regions=regions))
    np.testing.assert_allclose(after.images.values, fresh.images.values, rtol=1e-3)


def test_what_failed_or_was_cut_off_is_not_taken_from_earlier_calls(tmp_path):
    pairs, cache = make_pairs(tmp_path / "data"), tmp_path / "cache"
    pairs.paths[1].write_bytes(b"nothing")
    run(pairs, cache)
    os.utime(pairs.paths[2], ns=(1, 1))
    encoder = TinyImages()
    assert list(run(pairs, cache, encoder)[1]) == [1]
    assert encoder.prepared == 0
    for path in cache.glob("images-*.npy"):
        path.write_bytes(path.read_bytes()[:-1])
    for path in list(cache.glob("images-*.json"))[:1]:
        path.write_bytes(b"no journal")
    os.utime(pairs.paths[2], ns=(2, 2))
    run(pairs, cache, encoder)
    assert encoder.prepared == pairs.n_images - 1


def test_bad_images_are_listed_and_zero(tmp_path):
    pairs = make_pairs(tmp_path / "data")
    pairs.paths[1].write_bytes(b"nothing")
    pairs.paths[4].unlink()
    features, failures = run(pairs, tmp_path / "cache")
    assert sorted(failures) == [1, 4]
    assert "not an image" in failures[1] and "does not exist" in failures[4]
    assert features.images.values.any(1).tolist() == [row not in (1, 4) for row in range(pairs.n_images)]
    assert run(pairs, tmp_path / "cache")[1] == failures
    assert len(pairs.skip_images(failures).ids()) == len(pairs) - 4


def test_every_image_bad_and_no_image_at_all(tmp_path):
    pairs = make_pairs(tmp_path / "data")
    for path in pairs.paths:
        path.write_bytes(b"")
    features, failures = run(pairs, tmp_path / "cache", TinyImages(regions=True))
    assert len(failures) == pairs.n_images
    assert features.images.values.shape == (pairs.n_images, 4, 3)
    empty = replace(pairs, names=[], paths=[], captions=[], image_of=np.zeros(0, np.int64), split=np.zeros(0, "<U8"))
    for kind in KINDS:
        features, failures = run(empty, tmp_path / "cache", texts=TinyTexts(kind))
        assert (len(features.images), len(features.texts), failures) == (0, 0, {})


def test_only_images_of_usable_pairs_are_decoded(tmp_path):
    pairs, encoder = make_pairs(tmp_path / "data"), TinyImages()
    pairs.split[:4] = "skipped"
    pairs.paths[0].write_bytes(b"")
    features, failures = run(pairs, tmp_path / "cache", encoder)
    assert (encoder.prepared, failures) == (pairs.n_images - 2, {})
    assert not features.images.values[:2].any()
    pairs.split[:4] = "train"
    features, failures = run(pairs, tmp_path / "cache", encoder)  # now they are wanted
    assert sorted(failures) == [0]
    assert features.images.values[1].any()


def test_values_that_are_not_finite_are_failures(tmp_path):
    pairs, encoder = make_pairs(tmp_path / "data"), TinyImages()
    plain = encoder.prepare
    encoder.prepare = lambda image: plain(image) * (float("nan") if encoder.prepared == 2 else 1.0)
    features, failures = run(pairs, tmp_path / "cache", encoder, batch_size=100)
    assert len(failures) == 1
    assert np.isfinite(features.images.values).all()


@pytest.mark.parametrize("ending", [".npy", ".json"])
@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"garbage" * 40),
        lambda path: path.write_bytes(path.read_bytes()[:-3]),
        lambda path: path.unlink(),
    ],
)
def test_a_corrupt_file_is_rebuilt(tmp_path, ending, damage):
    pairs = make_pairs(tmp_path / "data")
    texts = TinyTexts("tokens")
    wanted, _ = run(pairs, tmp_path / "cache", texts=texts)
    wanted = store.Table(np.array(wanted.texts.values), wanted.texts.offsets)
    hits = [path for path in (tmp_path / "cache").glob("texts-*") if path.name.partition(".")[2] == ending[1:]]
    assert len(hits) == 1
    damage(hits[0])
    got, _ = run(pairs, tmp_path / "cache", texts=texts)
    assert same(got.texts, wanted)
    run(pairs, tmp_path / "cache", texts=texts)
    assert texts.seen == 2 * len(pairs)


def test_a_corrupt_journal_or_cut_off_file_starts_afresh(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "CHECKPOINT_SECONDS", 0.0)
    pairs = make_pairs(tmp_path / "data")
    wanted = run(pairs, tmp_path / "whole")[0].images
    for kind, data in (("npy", b""), ("json", b"{"), ("json", b"[]")):
        encoder = TinyImages()
        plain = encoder.encode
        encoder.encode = lambda batch, plain=plain: plain(batch) if len(batch) == 3 else 1 / 0  # dies in the last batch
        with pytest.raises(ZeroDivisionError):
            run(pairs, tmp_path / "cache", encoder)
        next((tmp_path / "cache").glob(f"images-*.{kind}")).write_bytes(data)
        assert same(run(pairs, tmp_path / "cache")[0].images, wanted)
        next((tmp_path / "cache").glob("images-*.json")).unlink()


ENCODING = """
import os, signal, sys
sys.path.insert(0, {here!r})
from pathlib import Path
from encode_helpers import *
from pairsift.encode import cache, cache_entry
from pairsift.encode.cache import encode_pairs
cache_entry.CHECKPOINT_SECONDS = 0.0
cache.CAPTIONS_PER_CHUNK = 4
class Killed(cache.Writer):
    def checkpoint(self):
        name = self.entry.journal.name
        if name.startswith({kind!r}) and self.progress.done >= {rows}:
            os.kill(os.getpid(), signal.SIGKILL)  # the values are written, and no journal counts them yet
        super().checkpoint()
cache.Writer = Killed
pairs = make_pairs(Path({data!r}), 40)
pairs.paths[7] = Path("missing")
encode_pairs(pairs, TinyImages(regions=True), TinyTexts("tokens"), Path({cache!r}), 2, False)
"""


def encoding(place, kind="nothing", rows=0):
    """The program that encodes 40 pairs, and is killed when it has written this number of rows of a kind."""
    code = ENCODING.format(
        here=str(Path(__file__).parent), data=str(place / "data"), cache=str(place / "cache"), kind=kind, rows=rows
    )
    return [sys.executable, "-c", code]


def journalled(cache, kind):
    [path] = cache.glob(f"{kind}-*.json")
    return json.loads(path.read_text())["done"]


@pytest.mark.slow
def test_killed_and_resumed_equals_uninterrupted(tmp_path, monkeypatch):
    pairs = make_pairs(tmp_path / "data", 40)
    pairs.paths[7] = Path("missing")
    for kind, rows, kept in (("images", 6, 4), ("images", 30, 28), ("texts", 12, 8)):
        assert subprocess.run(encoding(tmp_path, kind, rows), check=False).returncode == -signal.SIGKILL
        assert journalled(tmp_path / "cache", kind) == kept
    images = TinyImages(regions=True)
    monkeypatch.setattr(cache_module, "CAPTIONS_PER_CHUNK", 4)
    resumed, failures = run(pairs, tmp_path / "cache", images, TinyTexts("tokens"), 2)
    assert images.prepared == 0  # the images were complete when the third process was killed
    whole, wanted = run(pairs, tmp_path / "whole", TinyImages(regions=True), TinyTexts("tokens"), 2)
    assert same(resumed.images, whole.images) and same(resumed.texts, whole.texts)
    assert failures == wanted
    assert list(failures) == [7]
    assert {path.suffix for path in (tmp_path / "cache").iterdir()} == {".npy", ".json"}


@pytest.mark.slow
def test_a_resumed_call_prepares_only_the_images_that_no_journal_counts(tmp_path):
    pairs = make_pairs(tmp_path / "data", 40)
    pairs.paths[7] = Path("missing")
    assert subprocess.run(encoding(tmp_path, "images", 30), check=False).returncode == -signal.SIGKILL
    images = TinyImages(regions=True)
    run(pairs, tmp_path / "cache", images, TinyTexts("tokens"), 2)
    assert images.prepared == 40 - 28


@pytest.mark.slow
def test_two_processes_do_the_work_once(tmp_path):
    make_pairs(tmp_path / "data", 40)
    processes = [subprocess.Popen(encoding(tmp_path)) for _ in range(2)]
    assert [process.wait() for process in processes] == [0, 0]
    pairs = make_pairs(tmp_path / "data", 40)
    pairs.paths[7] = Path("missing")
    images = TinyImages(regions=True)
    got, _ = run(pairs, tmp_path / "cache", images, TinyTexts("tokens"), 2)
    assert images.prepared == 0
    assert same(got.images, run(pairs, tmp_path / "whole", images, TinyTexts("tokens"), 2)[0].images)


def test_who_waits_for_another_process_is_told(tmp_path, caplog):
    entry = store.Entry(tmp_path, "images-x")
    got = threading.Event()

    def second() -> None:
        with entry.lock():
            got.set()

    with entry.lock():
        assert not caplog.records
        threading.Thread(target=second).start()
        end = time.monotonic() + 10
        while not caplog.records and time.monotonic() < end:
            time.sleep(0.01)
        assert [record.levelname for record in caplog.records] == ["WARNING"]  # which the command line shows
        assert "waiting for it" in caplog.text and not got.is_set()
    assert got.wait(10)


def test_a_cache_that_cannot_be_written_is_one_line(tmp_path, monkeypatch):
    pairs = make_pairs(tmp_path / "data")
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written") as caught:
        run(pairs, tmp_path / "file" / "cache")
    assert "\n" not in str(caught.value)

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store.os, "fsync", full)
    with pytest.raises(InputError, match="No space left"):
        run(pairs, tmp_path / "cache")


def test_default_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_cache() == tmp_path / "pairsift"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_cache() == tmp_path / ".cache" / "pairsift"


def test_threads_keep_order_bounds_and_torch_as_it_was():
    before = torch.get_num_threads()
    taken = []

    def tasks():
        for at in range(50):
            taken.append(at)
            yield at

    cores = []

    def work(at: int) -> int:
        cores.append(torch.get_num_threads())
        time.sleep(0.001 * (at % 3))
        return at

    for wanted, got in enumerate(map_in_threads(work, tasks())):
        assert got == wanted
        assert len(taken) <= wanted + before + 2
    assert set(cores) == {1}
    assert torch.get_num_threads() == before
    seen = []
    thread = __import__("threading").Thread(target=lambda: seen.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert seen == [before]
    with pytest.raises(ZeroDivisionError):
        list(map_in_threads(lambda at: 1 // at, [1, 0, 1]))
