"""Which captions wordllama does not know: every language left out of English is seen, and no kind of English is."""

import pytest
from foreign_captions import FOREIGN, LATIN, SCRIPTS, english, foreign

from pairsift.encode.languages import MIN_LATIN, unknown_language
from pairsift.encode.muse import MuseEncoder
from pairsift.encode.ngrams import NgramEncoder
from pairsift.encode.registry import text_encoder

KINDS = ("sentences", "keywords", "titles", "files", "numbers")


@pytest.fixture(scope="module")
def wordllama():
    return text_encoder("wordllama")


@pytest.mark.parametrize("language", SCRIPTS)
def test_a_script_that_is_cut_to_pieces_is_unknown(wordllama, language):
    found = unknown_language(foreign(language), wordllama)
    assert found.checked == 60 and found.unknown == found.scripts[language] == 60
    assert f"all captions are in scripts or languages that wordllama does not know ({language}):" in (found.message)


@pytest.mark.parametrize("language", LATIN)
def test_a_language_in_latin_script_is_unknown(wordllama, language):
    found = unknown_language(foreign(language), wordllama)
    assert found.checked == 60 and found.unknown >= 30
    assert list(found.scripts) == ["languages other than English in Latin script"]


@pytest.mark.parametrize("kind", KINDS)
def test_english_is_known(wordllama, kind):
    assert unknown_language(english(kind), wordllama) is None


def test_a_mixture_of_all_is_told_with_its_scripts(wordllama):
    captions = [caption for language in FOREIGN for caption in foreign(language, 10)] + english("sentences", 60)
    found = unknown_language(captions, wordllama)
    assert found.checked == 250 and found.unknown == sum(found.scripts.values())
    assert {name: found.scripts[name] for name in SCRIPTS} == dict.fromkeys(SCRIPTS, 10)
    assert (
        found.message.startswith(f"at least {found.unknown * 100 // 250}% of the captions")
        and "leave --text-encoder out" in found.message
    )


def test_muse_knows_the_scripts_of_its_languages_alone():
    muse = MuseEncoder()
    known = ["собака на берегу", "كلب يجري", "狗在海滩上跑", "犬が走る", "개가 달린다", "สุนัขวิ่ง", "ein Hund am Strand"]
    assert unknown_language(known * 9, muse) is None
    found = unknown_language(known * 9 + ["ένας σκύλος τρέχει", "एक कुत्ता"] * 9, muse)
    assert found.scripts == {"Greek": 9, "Devanagari": 9} and found.unknown == 18 and found.checked == 81
    assert "that muse does not know (Greek, Devanagari): --encoders e5 knows about 100 languages" in found.message


def test_half_german_is_told_and_a_little_is_not(wordllama):
    assert unknown_language(english("sentences", 100) + foreign("German", 100), wordllama).unknown > 60
    assert unknown_language(english("sentences", 100) + foreign("German", 20), wordllama) is None
    assert unknown_language(english("sentences", 200) + foreign("Japanese", 5), wordllama) is None
    assert unknown_language(english("sentences", 200) + foreign("Japanese", 25), wordllama).unknown == 25


def test_an_accented_brand_in_every_caption_makes_no_language(wordllama):
    assert unknown_language([f"{caption} Pokémon" for caption in english("sentences")], wordllama) is None


def test_nothing_is_said_of_few_captions_or_of_other_encoders(wordllama):
    assert unknown_language(foreign("German", MIN_LATIN - 1), wordllama) is None
    assert unknown_language([], wordllama) is None
    assert unknown_language(["", " ", "123", "\ud800", "👍"], wordllama) is None
    russian = foreign("Cyrillic")
    assert unknown_language(russian, NgramEncoder.build(russian)) is None


def test_of_many_captions_a_sample_tells(wordllama):
    found = unknown_language(foreign("Greek", 6_000) + english("sentences", 6_000), wordllama)
    assert found.checked == 5_000 and found.unknown == pytest.approx(2_500, abs=150)
    assert found == unknown_language(foreign("Greek", 6_000) + english("sentences", 6_000), wordllama)
