"""Captions that say nothing about a picture, and captions that only look so."""

import csv

import pytest
from PIL import Image

from pairsift.pairs.empty import NUMBER, says_nothing
from pairsift.pairs.readers import load

NOTHING = {
    "a missing value": (
        "nan|NaN|None|N/A|n/a|null|NULL|<NA>|#N/A|(none)|-|--|...|?|[]|{}|No caption|no_description|"
        "Not available|undefined|无"
    ),
    "a web address": (
        "https://shop.example/p/5?ref=feed|http://a.b|www.example.com/x|data:image/png;base64,AAAA|"
        "shop.example.com/p/1|a.b@example.com"
    ),
    "a file name": (
        "IMG_1234.jpg|IMG_1234|DSC00012|DSC_0042.JPG|photo-3.png|PXL_20230512_101530|dog.jpeg|"
        "Screenshot 2024-01-05 at 10.22.13|images/000001.jpg|image 12|Untitled-2|"
        "WhatsApp Image 2023-05-01 at 10.11.12.jpeg|Foto 7|frame_000123"
    ),
    "markup": ('<br>|<img src="a.jpg" alt="">|&nbsp;|<p></p>|{{caption}}|${title}|{caption}|<unk>|</s>'),
    "a filler": (
        "image|Image.|[image]|photo|untitled|Screenshot|alt text|No title|placeholder|Bild|imagen|画像|图片|"
        "изображение|صورة|사진|Ohne Titel|Sem título"
    ),
    NUMBER: (
        "12345|2019-05-03|3.14|#42|550e8400-e29b-41d4-a716-446655440000|"
        "d41d8cd98f00b204e9800998ecf8427e|SKU-12345|id: 4711|AB123456"
    ),
}
SOMETHING = (
    "blank|empty|title|MG 3|Sam 7|No. 5|"
    "Nan bread|None of the dogs|no dogs allowed|image of a cat|dog|Katze|chat|犬|狗在跑|قطة|собака|개|😀|"
    "🐶🐶|⚽|❤️|red|logo|icon|A dog.|a dog, 3 cats|2 dogs|F-150|A380|BMW 320i|iPhone 14|R2D2|Route 66|"
    "Boeing 747-400|U2|7up|nano|null island|unknown man with a hat|The missing child|Santa Na|"
    "photo of the year|photo finish|picture frame|Bildungsroman|fotografo con camara|"
    "a screenshot of a game|<b>a red car</b>|I <3 dogs|he said: 'image's of home'|"
    "a sign www.example.com on a wall|AC/DC|black/white cat|Café au lait|10 downing street|"
    "1st place|3D printer|4x4|5 o'clock|Mr. Brown|Dr. No|No. 10 Downing Street|St.Moritz/Engadin|"
    "a man (unknown)|empty street|blank wall|untitled painting by Rothko|"
    "two dogs run on the beach.gif|frame of a house|scan of a brain|ID card|sam|Sam 7th birthday|"
    "mg midget|title page|default settings of a printer|caption contest|test tube|not a cat|"
    "nil by mouth|deface|decade|facade|cab|fee|dad|added"
)


@pytest.mark.parametrize(
    ("kind", "caption"), [(kind, text) for kind, texts in NOTHING.items() for text in texts.split("|")]
)
def test_a_caption_that_says_nothing_has_its_reason(kind, caption):
    assert says_nothing(caption) == kind
    assert says_nothing(f"  {caption}\n") == kind


@pytest.mark.parametrize("caption", SOMETHING.split("|"))
def test_a_caption_that_may_say_something_has_none(caption):
    assert says_nothing(caption) == ""


def table(folder, captions):
    """A table of small pictures with these captions."""
    with (folder / "pairs.csv").open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(("image", "caption"))
        for k, caption in enumerate(captions):
            Image.new("RGB", (4, 4), (k, 0, 0)).save(folder / f"{k}.png")
            rows.writerow((f"{k}.png", caption))
    return folder / "pairs.csv"


def test_pairs_whose_captions_say_nothing_are_skipped_with_their_reasons(tmp_path):
    captions = [f"a red thing and {k} more" for k in range(40)]
    captions[3], captions[10], captions[20] = "nan", "IMG_4001.jpg", "https://shop.example/p/20?ref=feed"
    path = table(tmp_path, captions)
    pairs = load(path)
    assert [(skip.pair, skip.reason) for skip in pairs.skipped] == [
        (3, "the caption is a missing value: 'nan'"),
        (10, "the caption is a file name: 'IMG_4001.jpg'"),
        (20, "the caption is a web address: 'https://shop.example/p/20?ref=feed'"),
    ]
    assert len(pairs.ids()) == 37 and not {3, 10, 20} & set(pairs.ids().tolist())
    assert len(load(path, keep_empty=True).ids()) == 40


def test_where_most_captions_are_numbers_they_are_what_the_pictures_show(tmp_path):
    captions = [str(k % 10) for k in range(30)] + ["nan", "a seven"]
    pairs = load(table(tmp_path, captions))
    assert [skip.pair for skip in pairs.skipped] == [30]
    captions[:20] = ["a dog"] * 20
    pairs = load(table(tmp_path, captions))
    assert len(pairs.skipped) == 11
