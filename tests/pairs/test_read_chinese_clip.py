"""The layout that Chinese-CLIP trains on: images as base64 in one file, texts with ids of images in another."""

import base64
import json

import pytest

from pair_sources import reasons, refused
from pairsift.pairs.readers import load

PNG = b"\x89PNG\r\n\x1a\n"


def chinese_clip(folder, split="train", n=4, texts=None, urlsafe=False):
    """Images 1000, 1001 ... of a split with a text each; of `texts`, other lines."""
    folder.mkdir(exist_ok=True)
    encode = base64.urlsafe_b64encode if urlsafe else base64.b64encode
    images = {1000 + k: encode(PNG + f"{split} {k}?>~\xff".encode("latin-1")).decode() for k in range(n)}
    (folder / f"{split}_imgs.tsv").write_text("".join(f"{name}\t{data}\n" for name, data in images.items()))
    lines = texts or [{"text_id": k, "text": f"{split} 图片 {k}", "image_ids": [1000 + k]} for k in range(n)]
    (folder / f"{split}_texts.jsonl").write_text(
        "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), encoding="utf-8"
    )
    return folder


@pytest.mark.parametrize("urlsafe", [False, True])
def test_images_and_texts_of_all_splits(tmp_path, urlsafe):
    for split, n in (("train", 4), ("valid", 2), ("test", 3)):
        source = chinese_clip(tmp_path / "source", split, n, urlsafe=urlsafe)
    for _ in range(2):  # the second time from the cache
        pairs = load(source, cache=tmp_path / "cache")
        assert pairs.description.startswith("chinese_clip: ") and not pairs.skipped
        assert [len(pairs.ids(split)) for split in ("train", "dev", "test")] == [4, 2, 3]
        for pair, caption in enumerate(pairs.captions):
            split, _, number = caption.split()
            assert pairs.names[pairs.image_of[pair]] == f"{split}/{1000 + int(number)}"
            assert pairs.paths[pairs.image_of[pair]].read_bytes() == PNG + f"{split} {number}?>~\xff".encode("latin-1")
        assert pairs.columns["text_id"][:3] == ["0", "1", "2"]
    assert len(load(source / "train_texts.jsonl", cache=tmp_path / "cache").ids()) == 4
    assert "takes no --image-folder" in refused(source, image_folder=tmp_path)


def test_texts_of_several_images_and_images_of_no_text_are_counted(tmp_path):
    texts = [
        {"text_id": 1, "text": "two", "image_ids": [1000, 1001]},
        {"text_id": 2, "text": "one", "image_ids": ["1002"]},
        {"text_id": 3, "text": "none", "image_ids": []},
        {"text_id": 4, "text": "gone", "image_ids": [7]},
        {"text_id": 5, "image_ids": [1001]},
        {"text_id": 6, "text": "broken", "image_ids": [1005]},
    ]
    source = chinese_clip(tmp_path / "source", "train", 4, texts)
    with (source / "train_imgs.tsv").open("a") as file:
        file.write("1005\tno base64!\n")
    pairs = load(source, cache=tmp_path / "cache")
    assert [pairs.captions[pair] for pair in pairs.ids()] == ["two", "two", "one"]
    assert "texts with several images, each a pair: 1; images without a text: 1" in pairs.description
    assert {pair: reason for pair, (_, reason) in reasons(pairs).items()} == {
        3: "names no image",
        4: "image 7 is not in train_imgs.tsv",
        5: "the caption is empty",
        6: "its image is no base64",
    }


def test_other_folders_are_refused(tmp_path):
    (tmp_path / "train_texts.jsonl").write_text('{"text": "x", "image_ids": [1]}\n')
    assert "needs files such as train_imgs.tsv and train_texts.jsonl" in refused(tmp_path, reader="chinese_clip")
    assert "no image column" in refused(tmp_path / "train_texts.jsonl")


def test_two_images_of_one_id_have_no_texts(tmp_path):
    source = chinese_clip(tmp_path / "source")
    with (source / "train_imgs.tsv").open("a") as file:
        file.write(f"1001\t{base64.b64encode(PNG + b'another').decode()}\n")
    for _ in range(2):  # the second time from the cache
        pairs = load(source, cache=tmp_path / "cache")
        assert [reason for _, reason in reasons(pairs).values()] == ["its image is one of several under this id"]
        assert [pairs.captions[pair] for pair in pairs.ids()] == [f"train 图片 {k}" for k in (0, 2, 3)]
