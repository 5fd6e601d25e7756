"""Images decoded when gathered, and what stands before a CLIP."""

import os
import threading
import time

import numpy as np
import pytest
import torch
from encode_helpers import make_pairs
from PIL import Image

from clip_helpers import LENGTH, SIDE, save_clip
from pairsift.encode.clip_preprocessor import ClipPreprocessor
from pairsift.encode.decode import open_image
from pairsift.encode.features import Table
from pairsift.encode.lazy_rows import ImagePixels
from pairsift.encode.parallel import map_ahead
from pairsift.errors import InputError


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return save_clip(tmp_path_factory.mktemp("clip"))


def to_bytes(image: Image.Image) -> np.ndarray:
    return np.asarray(image, np.uint8).transpose(2, 0, 1)


def test_gathered_images_are_the_files_in_the_order_asked_for_each_decoded_once(tmp_path):
    pairs = make_pairs(tmp_path, images=6)
    seen = []
    pixels = ImagePixels(pairs.paths, lambda image: seen.append(1) or to_bytes(image), (3, 10, 12))
    wanted = np.stack([np.asarray(Image.open(path)).transpose(2, 0, 1) for path in pairs.paths])
    for rows in ([4, 1, 1, 5, 4], [0, 2, 5], [3], []):
        seen.clear()
        found = Table(pixels).batch(np.array(rows, np.int64)).values
        assert found.dtype == torch.uint8 and len(seen) == len(set(rows))
        np.testing.assert_array_equal(found.numpy(), wanted[rows])
    assert Table(pixels).lengths.tolist() == [1] * 6 and len(Table(pixels)) == 6


def test_images_behind_each_other_are_one_table(tmp_path):
    left, right = (make_pairs(tmp_path / side, images=4).paths for side in "ab")
    right[2].write_bytes(b"broken")
    tables = [Table(ImagePixels(paths, to_bytes, (3, 10, 12), broken)) for paths, broken in ((left, ()), (right, {2}))]
    both = tables[0].joined(tables[1], np.array([3, 2, 0]))
    assert len(both) == 7 and both.lengths.tolist() == [1] * 7 and isinstance(both.values, ImagePixels)
    found = both.batch(np.array([6, 5, 1, 4])).values.numpy()
    for place, path in ((0, right[0]), (2, left[1]), (3, right[3])):
        np.testing.assert_array_equal(found[place], np.asarray(Image.open(path)).transpose(2, 0, 1))
    assert not found[1].any()


def test_decoding_runs_in_several_threads_ahead_of_the_batch_in_use(tmp_path, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    pairs, names, together = make_pairs(tmp_path, images=6), [], threading.Barrier(3, timeout=20)

    def crop(image):
        together.wait()  # three images are decoded at once, or this fails
        names.append(threading.current_thread().name)
        return to_bytes(image)

    pixels = ImagePixels(pairs.paths, crop, (3, 10, 12))
    batches = map_ahead(pixels.__getitem__, [np.arange(3), np.arange(3, 6), np.arange(3)])
    assert next(batches).shape == (3, 3, 10, 12)
    limit = time.monotonic() + 20
    while len(names) < 9 and time.monotonic() < limit:  # nobody asks for the other batches meanwhile
        time.sleep(0.01)
    assert len(names) == 9 and len(set(names)) == 3
    assert threading.current_thread().name not in names


def test_an_image_that_is_gone_ends_in_one_line(tmp_path):
    pairs = make_pairs(tmp_path)
    os.remove(pairs.paths[2])
    with pytest.raises(InputError, match=r"2\.png: the file does not exist; it was readable before"):
        ImagePixels(pairs.paths, to_bytes, (3, 10, 12))[np.arange(4)]


@pytest.mark.parametrize("old", [False, True])
def test_pixels_are_those_of_the_checkpoints_own_processor(tmp_path, old):
    import transformers

    front = ClipPreprocessor(str(save_clip(tmp_path / "clip", old)))
    own = transformers.AutoImageProcessor.from_pretrained(tmp_path / "clip", backend="pil")
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (47, 90, 3), np.uint8))
    wanted = own(image, return_tensors="np")["pixel_values"][0]
    mean, std = (np.array(part)[:, None, None] for part in (front.mean, front.std))
    made = front.crop(image)
    assert made.dtype == np.uint8 and front.size == made.shape == (3, SIDE, SIDE)
    np.testing.assert_allclose((made * front.factor - mean) / std, wanted, atol=1e-5)


def test_photographs_decoded_at_a_reduced_size_give_nearly_the_pixels_of_a_full_decode(tmp_path, checkpoint):
    import transformers

    front, path = ClipPreprocessor(str(checkpoint)), tmp_path / "photograph.jpg"
    own = transformers.AutoImageProcessor.from_pretrained(checkpoint, backend="pil")
    for height, width in ((150, 200), (400, 300)):
        y, x = np.mgrid[:height, :width] / np.array([height, width]).reshape(2, 1, 1)
        smooth = np.stack([255 * x, 255 * y, 127 + 100 * np.sin(6 * x)], 2)
        detail = 60 * np.sign(np.sin(50 * x) * np.sin(40 * y))[..., None]
        Image.fromarray(np.clip(smooth + detail, 0, 255).astype(np.uint8)).save(path, quality=90)
        whole = Image.open(path).convert("RGB")
        wanted = own(whole, do_rescale=False, do_normalize=False, return_tensors="np")["pixel_values"][0]
        found = ImagePixels([path], front.crop, front.size)[np.array([0])][0]
        assert 0 < np.abs(found - wanted.astype(float)).mean() < 3
        eighth = front.crop(open_image(path, smallest=1))
        assert np.abs(eighth - wanted.astype(float)).mean() > 6


def test_captions_are_numbered_by_the_checkpoints_own_tokenizer_and_cut_at_its_length(checkpoint):
    import transformers

    own = transformers.AutoTokenizer.from_pretrained(checkpoint)
    captions = ["a red ball", "A  RED ball", "the boat 狗", "grass " * 50]
    found = ClipPreprocessor(str(checkpoint)).encode([*captions, "\ud800"])
    for ids, caption in zip(found, captions, strict=False):
        assert ids.tolist() == own(caption, truncation=True, max_length=LENGTH)["input_ids"]
    assert len(found[3]) == LENGTH and found[3][-1] == found[0][-1] == own.eos_token_id
    assert found[0].tolist() == found[1].tolist() and len(found[4]) > 2


def test_broken_images_are_found_once_and_told(tmp_path, checkpoint, monkeypatch):
    pairs = make_pairs(tmp_path / "images")
    pairs.paths[3].write_bytes(pairs.paths[3].read_bytes()[:60])
    front = ClipPreprocessor(str(checkpoint))
    features, failures = front.features(pairs, tmp_path / "cache", progress=False)
    assert list(failures) == [3] and "broken" in failures[3]
    found = features.images.batch(np.array([4, 3, 0])).values
    assert found.shape == (3, 3, SIDE, SIDE)
    assert found[1].sum() == 0 and found[0].sum() > 0 and not torch.equal(found[0], found[2])
    assert len(features.texts) == len(pairs) and features.texts.batch(np.arange(3)).values.dtype == torch.int64

    def never(image):
        raise AssertionError("decoded again")

    monkeypatch.setattr(front, "crop", never)
    assert front.features(pairs, tmp_path / "cache", progress=False)[1] == failures


def test_what_is_saved_makes_the_same_without_the_checkpoint(tmp_path, checkpoint):
    whole = ClipPreprocessor(str(checkpoint))
    whole.save(tmp_path)
    assert not list(tmp_path.glob("*.safetensors"))
    again = ClipPreprocessor(str(tmp_path), pretrained=False)
    image = Image.fromarray(np.random.default_rng(1).integers(0, 256, (47, 90, 3), np.uint8))
    np.testing.assert_array_equal(again.crop(image), whole.crop(image))
    assert again.key() == whole.key() and (again.mean, again.std) == (whole.mean, whole.std)
    assert again.encode(["a boat"])[0].tolist() == whole.encode(["a boat"])[0].tolist()
    assert again.model().state_dict().keys() == whole.model().state_dict().keys()


def edit(folder, name, old, new):
    text = (folder / name).read_text()
    assert old in text
    (folder / name).write_text(text.replace(old, new))


def test_what_is_no_whole_clip_is_refused_in_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    broken = {name: save_clip(tmp_path / name) for name in ("size", "end", "words", "type", "bare", "half")}
    edit(broken["size"], "preprocessor_config.json", f": {SIDE}", ": 24")
    edit(broken["end"], "config.json", '"eos_token_id": 5', '"eos_token_id": 4')
    edit(broken["words"], "config.json", '"vocab_size": ', '"vocab_size": 9, "was": ')
    edit(broken["type"], "config.json", '"model_type": "clip"', '"model_type": "bert"')
    os.remove(broken["bare"] / "model.safetensors")
    (broken["half"] / "tokenizer.json").write_text("{}")
    (tmp_path / "empty").mkdir()
    says = {
        str(tmp_path / "none"): "there is no such folder",
        "nobody/nothing": "cannot be loaded",
        str(tmp_path / "empty"): "cannot be loaded",
        str(broken["size"]): "24 x 24 pixels, its model takes 32",
        str(broken["end"]): "tokenizer belongs to another model",
        str(broken["words"]): "tokenizer belongs to another model",
        str(broken["type"]): "is a bert and no CLIP or SigLIP",
        str(broken["bare"]): "holds no weights",
        str(broken["half"]): "cannot be loaded",
    }
    for place, said in says.items():
        with pytest.raises(InputError, match=said) as caught:
            ClipPreprocessor(place)
        assert "\n" not in str(caught.value) and place in str(caught.value)


def test_weights_that_are_broken_or_incomplete_are_refused_in_one_line(tmp_path):
    from safetensors.torch import load_file, save_file

    front, file = ClipPreprocessor(str(save_clip(tmp_path))), tmp_path / "model.safetensors"
    weights = load_file(file)
    weights.pop("logit_scale")
    save_file(weights, file, {"format": "pt"})
    with pytest.raises(InputError, match="lack 1 tensors, among them logit_scale"):
        front.model()
    file.write_bytes(b"broken")
    with pytest.raises(InputError, match="cannot be loaded") as caught:
        front.model()
    assert "\n" not in str(caught.value)


class Evil:
    def __reduce__(self):
        return os.mkdir, (os.environ["PAIRSIFT_EVIL"],)


def test_weights_of_the_older_kind_are_read_and_nothing_in_them_is_run(tmp_path, monkeypatch):
    front, file = ClipPreprocessor(str(save_clip(tmp_path / "clip"))), tmp_path / "clip" / "pytorch_model.bin"
    weights = front.model().state_dict()
    os.remove(file.with_name("model.safetensors"))
    torch.save(weights, file)
    again = ClipPreprocessor(str(tmp_path / "clip")).model().state_dict()
    assert all(torch.equal(again[name], value) for name, value in weights.items())
    monkeypatch.setenv("PAIRSIFT_EVIL", str(tmp_path / "made"))
    torch.save({**weights, "logit_scale": Evil()}, file)
    with pytest.raises(InputError, match="cannot be loaded"):
        front.model()
    assert not (tmp_path / "made").exists()


def test_without_transformers_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "transformers", None)
    with pytest.raises(InputError, match=r"pip install 'pairsift\[hf\]'"):
        ClipPreprocessor("anything")
