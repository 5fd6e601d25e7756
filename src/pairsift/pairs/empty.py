"""Captions that say nothing about a picture: traces of missing ones, file names, addresses, numbers, markup."""

from __future__ import annotations

import re
import unicodedata

NUMBER = "a number or an id"

# In several languages, separated by spaces; _ stands for a space or a hyphen within.
MISSING_WORDS = (
    "aucun caption_missing desconocido inconnu k.a keine keine_angabe missing missing_caption n/a na "
    "nan nat nil no_alt_text no_caption no_data no_description no_text none none_available not_applicable "
    "not_available not_set null sin_datos tba tbd todo unavailable undefined unknown неизвестно нет なし 无 暂无 "
    "없음"
)
FILLER_WORDS = (
    "a_photo a_picture afbeelding afbeeldingen alt alt_text an_image bild bilde bilder bildschirmfoto billede "
    "caption captura_de_pantalla default default_image description featured_image foto fotografie fotos gambar "
    "image image_caption image_description image_may_contain image_not_available image_not_found "
    "image_placeholder image_unavailable imagem imagen images img immagine immagini kuva main_image no_image "
    "no_image_available no_title obraz obrazek ohne_titel photo photo_description photograph photographie "
    "photography photos pic pics picture pictures placeholder placeholder_image platzhalter product_image "
    "product_photo resim sans_titre screen_shot screenshot senza_titolo spacer stock_photo the_image thumbnail "
    "unbenannt untitled valokuva zonder_titel bez_tytułu capture_d'écran capture_d’écran fotografía "
    "fotoğraf görsel hình_ảnh imágenes kép obrázek sem_título sin_título zdjęcie εικόνα φωτογραφία без_названия "
    "зображення изображение картинка фото фотография תמונה تصویر صورة عکس चित्र छवि तस्वीर ภาพ รูปภาพ ảnh 写真 图像 "
    "图片 圖片 无标题 無題 照片 画像 相片 사진 이미지 제목_없음"
)
MISSING, FILLERS = (frozenset(words.replace("_", "\0").split()) for words in (MISSING_WORDS, FILLER_WORDS))
ENDINGS = "jpe?g|jfif|png|gif|webp|bmp|tiff?|heic|heif|avif|svg|ico|psd|dng|cr2|nef|raw|pdf|mp4|mov"
CAMERA = (
    "_?img|_mg|dsc[nf]?|_dsc|dcim|dji|pict|pxl|mvi|vid|gopr|gopro|cimg|wp|fb_img|received|scan|snapchat|signal|"
    "whatsapp image|frame|screen ?shot|bildschirmfoto|capture|pic|picture|photo|image|foto|bild|untitled|unnamed"
)
FILE = re.compile(rf"\S+(\s\S+)?\.({ENDINGS})|({CAMERA})[\W\d]+(at|um|à|WA|[\W\d])*\.({ENDINGS})", re.IGNORECASE)
NUMBERED = re.compile(
    rf"({CAMERA})[\W_]*\d[\d\W_]*((at|um|à|a las|wa|[ap]m|copy|edit|burst|hdr|pano)[\d\W_]*)*", re.IGNORECASE
)
ADDRESS = re.compile(
    r"([a-z][a-z0-9+.-]{1,9}://|www\.|data:[a-z]+/|mailto:)\S+|(?-i:[a-z0-9-]+(\.[a-z0-9-]+)*\.[a-z]{2,6}/\S*)|"
    r"[\w.+-]+@[\w-]+(\.[\w-]+)+",
    re.IGNORECASE,
)
TAGS = re.compile(r"(\s*(<[^<>]+>|&\w+;|&#\w+;))+\s*|\{\{.*\}\}|\$\{.*\}|\{\w+\}|%\w", re.DOTALL)
HEX = re.compile(r"(0x)?[0-9a-f]{12,}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
LABELLED = re.compile(r"(id|sku|asin|isbn|ean|upc|gtin|item|ref|uuid)[\W_]*\d[\w-]*", re.IGNORECASE)
SENTENCE = re.compile(r"(?:[^\W\d_]+[,;:]?\s+){4}[^\W\d_]")  # a beginning that nothing of the above has
LONGEST = 300  # characters of a caption that count
MANY_DIGITS = 5  # fewer may be the name of a thing, such as A380 or BMW 320i


def says_nothing(caption: str) -> str:
    """Return why a caption says nothing about a picture, in a few words, or an empty string if it may say something.

    Only whole captions count: "None of the dogs", "image of a cat" and "Nan bread" say something, and so do single
    words and emoji.
    """
    if SENTENCE.match(caption):
        return ""
    text = " ".join(caption.split())[:LONGEST]
    word = text.casefold().strip("\"'`“”‘’«»<>[](){}#*.,:;!?-–—_~|/\\ …。、「」（）")
    spaced = re.sub(r"[\s_-]+", "\0", word)
    if spaced in MISSING or not _has_content(text):
        return "a missing value"
    if ADDRESS.fullmatch(text):
        return "a web address"
    if FILE.fullmatch(text) or NUMBERED.fullmatch(text):
        return "a file name"
    if TAGS.fullmatch(text):
        return "markup"
    return "a filler" if spaced in FILLERS else NUMBER if _is_number(text) else ""


def _has_content(text: str) -> bool:
    """Return whether a text has a letter, a digit or a symbol such as an emoji."""
    return any(unicodedata.category(sign)[0] in "LN" or unicodedata.category(sign) == "So" for sign in text)


def _is_number(text: str) -> bool:
    """Return whether a text is a number, a date, a hash or a code of many digits."""
    if not any(map(str.isdigit, text)):
        return False
    if HEX.fullmatch(text) or LABELLED.fullmatch(text):
        return True
    kinds = [unicodedata.category(sign) for sign in text]
    digits = sum(kind == "Nd" for kind in kinds)
    if "So" in kinds or not digits:
        return False
    letters = sum(kind[0] == "L" for kind in kinds)
    return not letters or (" " not in text and text.isascii() and digits >= MANY_DIGITS)
