"""How bytes become text: what was written comes back, or the row says that its encoding cannot be told."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pair_sources import refused, touch
from pairsift.errors import InputError
from pairsift.pairs.readers import load
from pairsift.pairs.readers.separated import BEGINNING
from pairsift.pairs.readers.tables import check_columns
from pairsift.pairs.records import Columns
from pairsift.pairs.text import decode, how_read, undecodable

HERE = Path("x.csv")
WESTERN = [
    "ein Hund läuft über die Straße – „schnell“",
    "un garçon à vélo près de l’école, été 2019…",
    "el niño comió 3½ piñas; ¿por qué? ¡olé!",
    "«Où est-ce ?» cœur, maïs, CAFÉ, Noël",
    "20° C, 5 € or £4, ©2020 Ågård™, naïve façade",
    "smörgåsbord på ön, æble og rødgrød; sauna on täällä",
    "l´Hospitalet, paral·lel, nº 5, 1ª vez",
]
FOREIGN = {
    "cp1251": ["собака бежит по снегу", "девочка в красном платье", "два мальчика играют"],
    "cp1253": ["ένας σκύλος τρέχει", "το κορίτσι παίζει", "δύο άνθρωποι"],
    "cp1250": ["żółty pies biegnie", "chłopiec gra w piłkę", "mały kot śpi na łóżku"],
    "gbk": ["一只狗在雪地里跑", "两个男孩在踢足球", "穿红裙子的女孩"],
    "shift_jis": ["雪の中を走る犬", "赤いドレスの女の子", "二人の男の子"],
    "mac_roman": ["un garçon à l’école", "ein Hund läuft über die Straße", "fenêtre, côté"],
    "cp850": ["un garçon à l'école", "ein Hund läuft über die Straße", "el niño comió"],
}


@pytest.mark.parametrize("line", WESTERN)
def test_western_text_of_a_spreadsheet_comes_back(line):
    text = decode(f"image,caption\na.jpg,plain\nb.jpg,{line}\n".encode("cp1252"), HERE)
    assert text.content.split("\n")[2] == f"b.jpg,{line}"
    assert text.western == 1
    assert how_read([text]) == "lines that are not UTF-8 and were read as cp1252 (Western): 1"


@pytest.mark.parametrize("encoding", FOREIGN)
def test_text_of_other_encodings_is_not_taken_for_western(encoding):
    raw = b"".join(line.encode(encoding) + b"\n" for line in FOREIGN[encoding])
    text = decode(raw, HERE)
    assert text.western == 0
    assert all(undecodable(line) for line in text.content.splitlines())


latin = st.text(st.characters(codec="cp1252", categories=("L", "N", "P", "Zs"), max_codepoint=0x7F), max_size=20)


@given(st.lists(st.tuples(latin, st.sampled_from("éèüöäñçß€"), latin), min_size=1, max_size=8), st.data())
def test_lines_of_two_encodings_each_come_back(parts, data):
    lines = [f"{left} {accent}t {right}" for left, accent, right in parts]
    raw = b"\n".join(line.encode(data.draw(st.sampled_from(["utf-8", "cp1252"]))) for line in lines)
    assert decode(raw, HERE).content.split("\n") == lines


plain = st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=40)


@given(plain, st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-32"]))
def test_marked_files_and_utf8_come_back(text, encoding):
    read = decode(f"image,caption\n{text}".encode(encoding), HERE)
    assert read.content == f"image,caption\n{text}"
    assert read.western == 0


@given(plain, st.sampled_from(["utf-16-le", "utf-16-be"]))
@example("一只狗在雪地里跑" * 2, "utf-16-le")
def test_utf16_without_a_mark_is_told_by_its_zero_bytes(text, encoding):
    read = decode(f"image,caption\n{text}".encode(encoding), HERE)
    assert read.content == f"image,caption\n{text}"
    assert how_read([read]) == "files read as UTF-16: 1"


@given(st.binary(max_size=300))
def test_any_bytes_become_text_or_one_error(raw):
    try:
        text = decode(raw, HERE)
    except InputError as error:
        assert "not valid" in str(error)
        return
    try:
        plain = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        return
    assert text.content == plain or text.encoding != "utf-8"


def test_a_cut_utf16_file_is_refused(tmp_path):
    (tmp_path / "x.csv").write_bytes("image,caption\na.jpg,é\nd.jpg,犬".encode("utf-16")[:-1])
    assert "starts as UTF-16 and is not valid or cut off; save it as UTF-8" in refused(tmp_path / "x.csv")


@pytest.mark.parametrize("name", ["x.csv", "x.tsv", "x.txt", "x.TXT", "x.jsonl", "x.json"])
@pytest.mark.parametrize("encoding", ["cp1252", "utf-8", "utf-16", "utf-16-le", "utf-16-be"])
def test_tables_in_other_encodings(tmp_path, name, encoding):
    captions = ["Straße", "garçon à vélo", "“quoted” – dash"]
    touch(tmp_path, "à.jpg", "b.jpg", "c.jpg")
    rows = list(zip(["à.jpg", "b.jpg", "c.jpg"], captions, strict=True))
    if ".json" in name:
        objects = [f'{{"image": "{image}", "caption": "{caption}"}}' for image, caption in rows]
        text = "\n".join(objects) if name == "x.jsonl" else f"[{', '.join(objects)}]"
    else:
        separator = "," if name == "x.csv" else "\t"
        text = "\r\n".join(separator.join(row) for row in [("image", "caption"), *rows])
    (tmp_path / name).write_bytes(text.encode(encoding))
    pairs = load(tmp_path / name)
    assert pairs.captions == captions
    assert pairs.names == ["à.jpg", "b.jpg", "c.jpg"]
    assert not pairs.skipped
    assert ("cp1252" in pairs.description) == (encoding == "cp1252")
    assert ("UTF-16" in pairs.description) == encoding.startswith("utf-16")


def test_captions_of_a_folder_in_other_encodings(tmp_path):
    for name, encoding in [("a", "cp1252"), ("b", "utf-8-sig"), ("c", "utf-16"), ("d", "utf-16-be"), ("e", "cp1252")]:
        touch(tmp_path, f"{name}.jpg")
        (tmp_path / f"{name}.txt").write_bytes("une fille à l’école\nTür".encode(encoding))
    pairs = load(tmp_path)
    assert pairs.captions == ["une fille à l’école", "Tür"] * 5
    assert "files read as UTF-16: 2" in pairs.description
    assert "read as cp1252 (Western): 4" in pairs.description


def test_a_file_in_a_foreign_encoding_is_refused_with_the_reason():
    with tempfile.TemporaryDirectory() as folder:
        touch(Path(folder), "a.jpg", "b.jpg", "c.jpg")
        rows = [f"{name}.jpg,{line}" for name, line in zip("abc", FOREIGN["cp1251"], strict=True)]
        (Path(folder) / "x.csv").write_bytes("\n".join(["image,caption", *rows]).encode("cp1251"))
        assert "save the file as UTF-8" in refused(Path(folder) / "x.csv")


def test_a_text_of_a_spreadsheet_is_checked_before_anything_slow(tmp_path):
    """A character that the end of what is probed cuts in two does not matter."""
    touch(tmp_path, *(f"{name}.jpg" for name in "abc"))
    lines = "image\tcaption\r\n" + "".join(f"a.jpg\t{number:06}\r\n" for number in range(BEGINNING // 30))
    text = f"{lines}b.jpg\t{'x' * (BEGINNING // 2 - len(lines) - 7)}🐕\r\nc.jpg\tc\r\n"
    raw = text.encode("utf-16-le")
    assert raw[BEGINNING - 2 : BEGINNING + 2].decode("utf-16-le") == "🐕"
    (tmp_path / "x.txt").write_bytes(raw)
    check_columns(tmp_path / "x.txt", Columns())
    assert load(tmp_path / "x.txt").captions[-1] == "c"
    (tmp_path / "x.txt").write_text("image\tworte\r\na.jpg\tx\r\n")
    with pytest.raises(InputError, match="no caption column among the columns 'image', 'worte'"):
        check_columns(tmp_path / "x.txt", Columns())


def test_the_text_files_of_images_are_no_tables(tmp_path):
    (tmp_path / "a.txt").write_text("a caption")
    for name in ("b.csv", "c.csv"):
        (tmp_path / name).write_text("image,caption")
    line = "found 0 images, other files: 2 .csv, 1 .txt; read one of its tables: 'b.csv', 'c.csv'"
    assert refused(tmp_path).endswith(line)
