"""Images from outside a run: the same features as by the cache, and what is refused before it takes memory."""

import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from pairsift.encode import decode
from pairsift.encode.cache import encode_pairs
from pairsift.encode.decode import BadImage, decode_image
from pairsift.encode.registry import image_encoder, text_encoder
from pairsift.errors import InputError
from pairsift.pairs.pairs import Pairs
from pairsift.search.search import encode_query_image


def png(width, height, data, bits=8, kind=2):
    """A PNG file that claims a size, with any compressed data."""

    def chunk(name, content):
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    head = struct.pack(">IIBBBBB", width, height, bits, kind, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def content_of(image, kind="PNG", **options):
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


@pytest.mark.parametrize("regions", [False, True])
def test_a_file_and_its_bytes_have_the_features_of_the_cache(tmp_path, regions):
    rng = np.random.default_rng(0)
    Image.fromarray(rng.integers(0, 256, (900, 1200, 3), np.uint8)).save(tmp_path / "a.jpg")
    encoder = image_encoder(regions=regions)
    pairs = Pairs("", ["a"], [tmp_path / "a.jpg"], ["noise"], np.zeros(1, np.int64), np.array(["train"]))
    features, _ = encode_pairs(pairs, encoder, text_encoder(), tmp_path / "cache", progress=False)
    expected = features.images.batch(np.zeros(1, np.int64)).values.numpy()
    for image in (tmp_path / "a.jpg", (tmp_path / "a.jpg").read_bytes()):
        table = encode_query_image(image, encoder)
        assert len(table) == 1
        assert np.allclose(table.batch(np.zeros(1, np.int64)).values.numpy(), expected, atol=2e-3)


def test_what_is_no_image_is_refused_in_one_line(tmp_path):
    encoder = image_encoder()
    (tmp_path / "a.jpg").write_text("no image")
    with pytest.raises(InputError, match=r"a.jpg: the file is not an image of a known format$"):
        encode_query_image(tmp_path / "a.jpg", encoder)
    with pytest.raises(InputError, match=r"nowhere.png: the file does not exist$"):
        encode_query_image(tmp_path / "nowhere.png", encoder)
    with pytest.raises(InputError, match=r"^the file is not an image of a known format$"):
        encode_query_image(b"", encoder)
    with pytest.raises(InputError, match=r"^the image is broken or truncated"):
        encode_query_image(content_of(Image.new("RGB", (300, 200)))[:-30], encoder)


@pytest.mark.parametrize("side", [20_000, 12_000])
def test_pixels_beyond_the_limit_are_refused_before_they_are_decoded(side, monkeypatch):
    monkeypatch.setattr(Image.core, "new", lambda *size: pytest.fail("memory for the pixels"))
    monkeypatch.setattr(Image.core, "fill", lambda *size: pytest.fail("memory for the pixels"))
    rows = bytes(12_000_000)  # so long that the share of pixels to bytes is usual
    with pytest.raises(BadImage, match=r"too many pixels to decode \((400|144),000,000, at most 89,478,485\)"):
        decode_image(png(side, side, rows), 448)


def test_a_large_jpeg_is_decoded_smaller_where_that_is_enough(monkeypatch):
    monkeypatch.setattr(decode, "LARGE", 400 * 300)
    large = Image.new("RGB", (1600, 1200), "green")
    assert decode_image(content_of(large, "JPEG"), 150).size == (200, 150)
    with pytest.raises(BadImage, match="too many pixels to decode"):
        decode_image(content_of(large, "JPEG", progressive=True), 150)
    with pytest.raises(BadImage, match="it looks like a decompression bomb"):
        decode_image(content_of(large), 150)


def test_formats_whose_readers_run_other_programs_are_not_opened():
    with pytest.raises(BadImage, match="not an image of a known format"):
        decode_image(content_of(Image.new("RGB", (20, 20)), "EPS"), 448)
    for kind in ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF"):
        assert decode_image(content_of(Image.new("RGB", (20, 20), "red"), kind), 448).mode == "RGB"
