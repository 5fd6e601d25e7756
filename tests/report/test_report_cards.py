"""The report's cards: which pairs, in which order, on which page, and what they say of the truth."""

from __future__ import annotations

import base64
import io
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image
from report_helpers import HOSTILE, Page, judged, make, metrics, section, shown, write

from pairsift.pairs.precomputed import Precomputed
from pairsift.report.images import SIDE, address, thumbnail


def test_cards_show_the_flagged_and_the_least_certain_pairs(tmp_path, folder):
    pairs, table = make(folder)
    source = write(tmp_path, pairs, table)
    ids, probability = table["pair"].to_pylist(), table["match_probability"].to_numpy()
    flagged = [pair for pair, flag in zip(ids, table["is_mismatch"].to_pylist(), strict=True) if flag]
    assert shown(section(source, "Suspects")) == flagged
    near = sorted(range(100), key=lambda row: abs(probability[row] - 0.5))[:12]
    assert shown(section(source, "Least certain")) == [ids[row] for row in near]
    images = [pairs.image_of[pair] for pair in shown(source)]
    assert source.count("image cannot be read") == images.count(3)


def test_cards_compare_the_flag_with_what_was_planted(tmp_path, folder):
    order = np.arange(100)
    pairs, table = judged(make(folder)[0], 0.5 + np.where(order % 2, -1, 1) * (order + 1) / 400)
    source = write(tmp_path, pairs, table)
    truth = pairs.mismatched()
    flag = dict(zip(table["pair"].to_pylist(), table["is_mismatch"].to_pylist(), strict=True))
    cards = {int(re.search(r"<b>pair (\d+)</b>", card)[1]): card for card in source.split('<li class="card pair">')[1:]}
    words = {(1, 1): "planted, found", (1, 0): "planted, missed", (0, 1): "flagged, not planted", (0, 0): None}
    assert {(truth[pair], flag[pair]) for pair in cards} == words.keys()
    for pair, card in cards.items():
        expected = words[truth[pair], flag[pair]]
        assert [word for word in words.values() if word and f">{word}<" in card] == ([expected] if expected else [])
        assert ">mismatched<" not in card and ">right<" not in card
    known = table.drop_columns(["truly_mismatched", "true_image"])
    unknown = write(tmp_path, replace(pairs, true_image_of=None, noise=None), known)
    assert "planted" not in " ".join(Page(unknown).texts) and ">mismatched<" in unknown


def test_where_no_pair_is_flagged_the_lowest_probabilities_are_shown(tmp_path, folder):
    pairs, table = judged(make(folder)[0], 0.5 + np.arange(100) / 200)
    source = write(tmp_path, pairs, table)
    assert "<h2>Suspects" not in source and "<h2>Least certain" not in source
    lowest = section(source, "Lowest match probabilities, not flagged")
    assert "No pair is flagged." in lowest and shown(lowest) == list(range(12))


def test_too_few_pairs_make_a_ranking(tmp_path, folder):
    pairs, table = make(folder)
    with_verdicts, n = write(tmp_path, pairs, table), len(table)
    for name, values in (("is_mismatch", [False] * n), ("verdict", ["unknown"] * n)):
        table = table.set_column(table.column_names.index(name), name, [values])
    source = write(tmp_path, pairs, table, {**metrics(table), "verdicts_given": False}, page=30)
    words = " ".join(" ".join(Page(source).texts).split())
    assert "There are no verdicts: the match probabilities are only a ranking" in words
    ranking = section(source, "Ranking")
    assert shown(source) == table["pair"].to_pylist() == shown(ranking)
    assert [len(shown(block)) for block in ranking.split("<details")] == [30, 30, 30, 10]
    for absent in ("Flagged as", "◂ flagged", "Suspects", "Least certain"):
        assert absent in with_verdicts and absent not in source, absent
    for absent in ("unknown", "planted, ", "Precision", ">flagged<"):
        assert absent not in source, absent
    assert ">mismatched<" not in ranking
    assert source.count('<span class="mark">planted</span>') == sum(pairs.mismatched()[shown(source)])
    assert "AUROC" in words
    whole = write(tmp_path, pairs, table, {"verdicts_given": False}, page=n)
    assert "These are all pairs, worst first." in whole and len(shown(whole)) == n


def test_names_link_to_the_files(tmp_path, folder):
    pairs, _ = make(folder, 20)
    long = f"{'deep/' * 60}a & <b>.jpg"
    paths = [folder / "a b#1?.jpg", Path("/far/away/from %41/x.jpg"), folder / "'\".jpg", folder / "z.jpg"]
    pairs, table = judged(replace(pairs, names=[long, "x.jpg", "y.jpg", "z.jpg"], paths=paths), np.zeros(20))
    page = Page(write(tmp_path, pairs, table, page=20))
    titles = {value for tag, key, value in page.attributes if (tag, key) == ("a", "title")}
    assert titles == {str(path) for path in paths}
    near = f"../{folder.name}/"
    links = {value for tag, key, value in page.attributes if (tag, key) == ("a", "href")} - {"skipped.csv"}
    links = {link for link in links if not link.startswith("#")}
    far = f"{'../' * (len(tmp_path.parts) - 1)}far/away/from%20%2541/x.jpg"
    assert links == {f"{near}a%20b%231%3F.jpg", far, f"{near}%27%22.jpg", f"{near}z.jpg"}
    words = "".join(page.texts)
    assert long not in words and "…" in words and "a & <b>.jpg" in words


def test_addresses_are_relative():
    run = Path("/home/me/runs/mine")
    assert address(Path("/home/me/images/ü 1.jpg"), run) == "../../images/%C3%BC%201.jpg"
    assert address(Path("/home/me/runs/mine/x:y.jpg"), run) == "x%3Ay.jpg"
    assert address(Path("/home/other/1.jpg"), run) == "../../../other/1.jpg"


def opened(uri):
    return Image.open(io.BytesIO(base64.b64decode(uri.removeprefix("data:image/jpeg;base64,"))))


def test_images_that_are_features_only_show_their_name(tmp_path, folder):
    pairs, table = make(folder)
    features = Precomputed((folder / "train_ims.npy",), (36, 2048), np.arange(20))
    names = table["image"].to_pylist()
    table = table.set_column(
        table.column_names.index("image"), "image", [[f"train/{name} {HOSTILE}" for name in names]]
    )
    source = write(tmp_path, replace(pairs, features=features), table, page=7)
    assert "<img" not in source and "image cannot be read" not in source
    links = {value for tag, key, value in Page(source).attributes if (tag, key) == ("a", "href")}
    assert {link for link in links if not link.startswith("#")} == {"skipped.csv"}
    assert source.count(f"features only: train/{names[0]}") >= 1 and "<script" not in source


def test_thumbnails(tmp_path, folder):
    assert opened(thumbnail(folder / "1.jpg")).size == (SIDE, SIDE // 2)
    Image.new("RGBA", (50, 50), (200, 0, 0, 0)).save(tmp_path / "clear.png")
    assert min(opened(thumbnail(tmp_path / "clear.png")).getpixel((25, 25))) > 250
    turned = Image.new("RGB", (400, 100))
    exif = turned.getexif()
    exif[0x0112] = 6
    turned.save(tmp_path / "turned.jpg", exif=exif)
    assert opened(thumbnail(tmp_path / "turned.jpg")).size == (SIDE // 4, SIDE)
    Image.new("P", (9, 9)).save(tmp_path / "palette.gif")
    assert opened(thumbnail(tmp_path / "palette.gif")).size == (9, 9)
    assert thumbnail(folder / "3.jpg") is None
    assert thumbnail(tmp_path / "nothing.jpg") is None
