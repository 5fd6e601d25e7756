import struct
import threading
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw

from pairsift.encode import decode
from pairsift.encode.decode import BadImage, open_image


def save(path: Path, mode: str, color, **options) -> Path:
    Image.new(mode, (6, 4), color).save(path, **options)
    return path


def first_pixel(path: Path) -> tuple[int, ...]:
    image = open_image(path)
    assert image.mode == "RGB"
    return image.getpixel((0, 0))


@pytest.mark.parametrize(
    ("name", "mode", "color", "wanted"),
    [
        ("rgb.png", "RGB", (10, 20, 30), (10, 20, 30)),
        ("grey.png", "L", 77, (77, 77, 77)),
        ("bit.png", "1", 1, (255, 255, 255)),
        ("clear.png", "RGBA", (10, 20, 30, 0), (255, 255, 255)),
        ("solid.png", "RGBA", (10, 20, 30, 255), (10, 20, 30)),
        ("greyalpha.png", "LA", (40, 0), (255, 255, 255)),
        ("cmyk.tif", "CMYK", (0, 255, 255, 0), (255, 0, 0)),
        ("sixteen.png", "I;16", 65535, (255, 255, 255)),
        ("sixteen_half.png", "I;16", 32896, (128, 128, 128)),
        ("float.tif", "F", 0.5, (128, 128, 128)),
        ("int.tif", "I", 1 << 20, (255, 255, 255)),
    ],
)
def test_every_mode_becomes_rgb(tmp_path, name, mode, color, wanted):
    assert first_pixel(save(tmp_path / name, mode, color)) == wanted


def test_half_transparent_lies_over_white(tmp_path):
    pixel = first_pixel(save(tmp_path / "half.png", "RGBA", (0, 0, 0, 128)))
    assert pixel[0] == pytest.approx(127, abs=1)


def test_palette_with_transparency_lies_over_white(tmp_path):
    image = Image.new("P", (6, 4), 1)
    image.putpalette([0, 0, 0, 200, 0, 0])
    image.save(tmp_path / "plain.png")
    image.save(tmp_path / "clear.png", transparency=1)
    assert first_pixel(tmp_path / "plain.png") == (200, 0, 0)
    assert first_pixel(tmp_path / "clear.png") == (255, 255, 255)


def icon(color: tuple[int, ...], mode: str = "RGBA", ground=(0, 0, 0, 0), size: int = 100) -> Image.Image:
    """A disc on a ground, transparent by default."""
    image = Image.new("RGBA", (size, size), ground)
    ImageDraw.Draw(image).ellipse((size // 4, size // 4, 3 * size // 4, 3 * size // 4), fill=color)
    return image.convert(mode)


@pytest.mark.parametrize("ground", [(255, 255, 255, 0), (0, 0, 0, 0)])
@pytest.mark.parametrize(
    ("color", "corner"),
    [
        ((255, 255, 255, 255), 0),
        ((240, 240, 240, 255), 0),
        ((255, 255, 255, 128), 0),
        ((0, 0, 0, 255), 255),
        ((0, 0, 0, 60), 255),
        ((255, 255, 0, 255), 255),  # yellow is seen on white
        ((120, 120, 120, 255), 255),
    ],
)
def test_a_transparent_image_lies_over_the_ground_that_lets_it_be_seen(tmp_path, ground, color, corner):
    icon(color, ground=ground).save(tmp_path / "icon.png")
    pixels = np.asarray(open_image(tmp_path / "icon.png"), int)
    assert (pixels[0, 0] == corner).all()
    assert np.abs(pixels[50, 50] - pixels[0, 0]).max() > 50


def test_the_ground_is_chosen_by_what_is_visible_in_every_mode(tmp_path):
    icon((255, 255, 255, 255), "LA").save(tmp_path / "grey.png")
    icon((255, 255, 255, 255), "RGBA").quantize(8).save(tmp_path / "palette.png")
    assert first_pixel(tmp_path / "grey.png") == first_pixel(tmp_path / "palette.png") == (0, 0, 0)
    thin = icon((250, 250, 250, 255), size=400)
    ImageDraw.Draw(thin).ellipse((100, 100, 300, 300), outline=(0, 0, 0, 255), width=8)
    thin.save(tmp_path / "outlined.png")  # a white disc with a black outline is seen on white
    assert first_pixel(tmp_path / "outlined.png") == (255, 255, 255)


def test_first_frame_of_an_animation(tmp_path):
    frames = [Image.new("RGB", (6, 4), color) for color in ("red", "blue")]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    assert first_pixel(tmp_path / "a.gif") == (255, 0, 0)


def test_exif_orientation_is_applied(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by 90 degrees
    save(tmp_path / "turned.jpg", "RGB", "red", exif=exif)
    assert open_image(tmp_path / "turned.jpg").size == (4, 6)


def test_broken_exif_is_no_reason_to_lose_the_image(tmp_path):
    save(tmp_path / "a.jpg", "RGB", "white", exif=b"Exif\0\0" + b"\xff" * 40)
    assert first_pixel(tmp_path / "a.jpg") == (255, 255, 255)


def test_large_jpeg_is_decoded_smaller_but_large_enough(tmp_path):
    Image.new("RGB", (1000, 800), "green").save(tmp_path / "a.jpg")
    assert min(open_image(tmp_path / "a.jpg", smallest=150).size) in range(150, 401)
    assert open_image(tmp_path / "a.jpg", smallest=900).size == (1000, 800)
    assert open_image(tmp_path / "a.jpg").size == (1000, 800)


def png_header_only(width: int, height: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("width", "height", "says"),
    [(10_000, 10_000, "too many pixels for its file"), (60_000, 60_000, "at most 1,073,741,824")],
)
def test_a_huge_image_is_refused_before_it_is_decoded(tmp_path, width, height, says, monkeypatch):
    (tmp_path / "huge.png").write_bytes(png_header_only(width, height))
    monkeypatch.setattr(Image.Image, "load", lambda self: pytest.fail("decoded"))
    limit = Image.MAX_IMAGE_PIXELS
    with pytest.raises(BadImage, match=says):
        open_image(tmp_path / "huge.png")
    assert limit == Image.MAX_IMAGE_PIXELS


def gradient(width: int, height: int) -> Image.Image:
    """Red grows to the right and green downwards, with noise, which does not compress."""
    x, y = np.meshgrid(np.linspace(0, 240, width), np.linspace(0, 240, height))
    noise = np.random.default_rng(0).integers(0, 16, (height, width))
    return Image.fromarray(np.stack([x, y, noise], 2).astype(np.uint8))


@pytest.mark.filterwarnings("error")
def test_an_image_above_pillows_limit_is_decoded_smaller(tmp_path):
    assert decode.LARGE == Image.MAX_IMAGE_PIXELS
    Image.radial_gradient("L").resize((12_000, 8_000)).save(tmp_path / "a.jpg")
    assert open_image(tmp_path / "a.jpg", smallest=400).size == (750, 500)
    assert open_image(tmp_path / "a.jpg").size == (6000, 4000)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("ending", ["png", "jpg", "tif", "webp", "bmp", "gif"])
@pytest.mark.parametrize("smallest", [None, 30])
def test_large_images_of_every_format_keep_their_looks(tmp_path, monkeypatch, ending, smallest):
    gradient(400, 200).save(tmp_path / f"a.{ending}")
    whole = open_image(tmp_path / f"a.{ending}")
    monkeypatch.setattr(decode, "LARGE", 50_000)
    monkeypatch.setattr(decode, "KEPT_SIDE", 60)
    small = open_image(tmp_path / f"a.{ending}", smallest)
    assert (smallest or 60) <= small.height <= 100
    assert abs(small.width - 2 * small.height) <= 1
    wanted = np.asarray(whole.resize(small.size, Image.Resampling.BOX), float)
    assert np.abs(np.asarray(small, float) - wanted).mean() < 3


@pytest.mark.parametrize("mode", ["1", "L", "P", "LA", "RGBA", "CMYK", "I;16", "I", "F"])
def test_large_images_of_every_mode_become_rgb(tmp_path, monkeypatch, mode):
    image = gradient(400, 200)
    image = image.convert("L").convert("I").convert("I;16") if mode == "I;16" else image.convert(mode)
    name = "a.tif" if mode in ("CMYK", "F", "I") else "a.png"
    image.save(tmp_path / name)
    whole = open_image(tmp_path / name)
    monkeypatch.setattr(decode, "LARGE", 50_000)
    small = open_image(tmp_path / name, smallest=50)
    assert (small.mode, small.size) == ("RGB", (100, 50))
    wanted = np.asarray(whole.resize(small.size, Image.Resampling.BOX), float)
    assert np.abs(np.asarray(small, float) - wanted).mean() < 12


def test_a_large_image_is_turned_upright(tmp_path, monkeypatch):
    exif = Image.Exif()
    exif[0x0112] = 6
    for ending in ("jpg", "png", "tif", "webp"):
        gradient(400, 200).save(tmp_path / f"a.{ending}", exif=exif)
    monkeypatch.setattr(decode, "LARGE", 50_000)
    sizes = [open_image(tmp_path / f"a.{ending}", 50).size for ending in ("jpg", "png", "tif", "webp")]
    assert sizes == [(50, 100)] * 4


def test_what_a_large_image_may_take(tmp_path, monkeypatch):
    gradient(400, 200).save(tmp_path / "a.jpg")
    gradient(400, 200).save(tmp_path / "progressive.jpg", progressive=True)
    gradient(400, 200).save(tmp_path / "a.png")
    Image.new("RGB", (400, 200)).save(tmp_path / "flat.png")
    monkeypatch.setattr(decode, "LARGE", 50_000)
    monkeypatch.setattr(decode, "LARGEST_DECODED", 60_000)
    assert open_image(tmp_path / "a.jpg", 50).size == (100, 50)
    for name in ("a.png", "progressive.jpg"):
        with pytest.raises(BadImage, match="80,000, at most 60,000"):
            open_image(tmp_path / name, 50)
    monkeypatch.setattr(decode, "LARGEST_DECODED", 100_000)
    assert open_image(tmp_path / "a.png", 50).size == (100, 50)
    with pytest.raises(BadImage, match="400x200 in"):
        open_image(tmp_path / "flat.png", 50)
    monkeypatch.setattr(decode, "LARGEST", 70_000)
    with pytest.raises(BadImage, match="at most 70,000 in all"):
        open_image(tmp_path / "a.jpg", 50)


def test_several_images_in_one_file_as_phones_write_them(tmp_path):
    frames = [gradient(400, 200), Image.new("RGB", (400, 200), "blue")]
    frames[0].save(tmp_path / "a.mpo", save_all=True, append_images=frames[1:])
    (tmp_path / "a.mpo").rename(tmp_path / "a.jpg")
    assert open_image(tmp_path / "a.jpg", 50).size == (100, 50)
    assert open_image(tmp_path / "a.jpg", 50).getpixel((99, 25))[2] < 60


def bad_files(folder: Path) -> dict[str, str]:
    whole = save(folder / "whole.jpg", "RGB", "red").read_bytes()
    noise = np.random.default_rng(0).integers(0, 256, (40, 40, 3), np.uint8)
    Image.fromarray(noise).save(folder / "noise.png")
    png = bytearray((folder / "noise.png").read_bytes())
    (folder / "cut.jpg").write_bytes(whole[: len(whole) // 2])
    (folder / "cut.png").write_bytes(png[: len(png) // 2])
    png[100:200] = b"\0" * 100
    (folder / "damaged.png").write_bytes(png)
    (folder / "empty.jpg").write_bytes(b"")
    (folder / "text.jpg").write_text("<html>not found</html>")
    (folder / "zero.png").write_bytes(png_header_only(0, 5))
    (folder / "folder.jpg").mkdir()
    return {
        "cut.jpg": "broken",
        "cut.png": "broken",
        "damaged.png": "broken",
        "empty.jpg": "empty",
        "text.jpg": "known format",
        "zero.png": "",
        "folder.jpg": "not a file",
        "missing.jpg": "not exist",
        "nul\0.jpg": "reached",
    }


def test_bad_files_say_why_in_one_line(tmp_path):
    for name, reason in bad_files(tmp_path).items():
        with pytest.raises(BadImage) as caught:
            open_image(tmp_path / name)
        assert reason in caught.value.reason
        assert "\n" not in caught.value.reason
        assert not caught.value.reason.endswith(".")


@pytest.mark.filterwarnings("ignore")
def test_no_cut_or_changed_file_raises_anything_else(tmp_path):
    rng = np.random.default_rng(1)
    for ending in ("png", "jpg", "gif", "tif", "webp"):
        Image.fromarray(rng.integers(0, 256, (9, 9, 3), np.uint8)).save(tmp_path / f"a.{ending}")
        whole = (tmp_path / f"a.{ending}").read_bytes()
        for at in range(60):
            data = bytearray(whole)
            for position in rng.integers(0, len(data), 4):
                data[position] = rng.integers(0, 256)
            (tmp_path / "b").write_bytes(data[: rng.integers(1, len(data) + 1)] if at % 2 else data)
            try:
                assert open_image(tmp_path / "b").mode == "RGB"
            except BadImage as error:
                assert error.reason


def test_threads_share_nothing(tmp_path):
    path = save(tmp_path / "a.png", "RGB", (1, 2, 3))
    seen = []
    threads = [threading.Thread(target=lambda: seen.append(first_pixel(path))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [(1, 2, 3)] * 8
