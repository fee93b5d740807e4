"""Normalisation of texts: each rule of docs/own_corpus.md with its example, and the choice of the
language."""

import pytest

from pyasr.base.errors import UserError
from pyasr.intake.own.language import LanguageOptions, choose_language
from pyasr.intake.own.words import Normaliser
from pyasr.lang.pronouncing.english_numbers import cardinal, ordinal, plural, year
from pyasr.lang.pronouncing.graphemes import letter_lexicon
from pyasr.lang.pronouncing.prepare_dict import read_dictionary

ENGLISH = [
    ("Hello, there!", "hello there"),
    ("I don\u2019t know; it\u2019s O\u2019Brien\u2019s.", "i don't know it's o'brien's"),
    ("\u2018Quoted\u2019 \u201cwords\u201d", "quoted words"),
    ("GOOD-BYE, well-known e-mail", "good-bye well-known e-mail"),
    ("a half-eaten apple - really", "a half eaten apple really"),
    (
        "In 1944 he had 12,345.60 dollars",
        "in nineteen forty four he had twelve thousand three hundred forty five point six zero dollars",
    ),
    ("In 2005, the 21st, 1960s", "in two thousand five the twenty first nineteen sixties"),
    ("$5, 3% & 7:30 or 8:00", "five dollars three percent and seven thirty or eight o clock"),
    ("Model X7", "model x seven"),
    ("call 0049 now", "call zero zero four nine now"),
    ("Mr. Smith vs. Dr. Who", "mister smith versus doctor who"),
    ("yes [noise] no <laughter> maybe {cough}", "yes [noise] no <laughter> maybe {cough}"),
    ("yes [two people laugh] no", "yes no"),
    ("soft\u00adhyphen\u200b and\u00a0blank", "softhyphen and blank"),
    ("...", ""),
]


@pytest.fixture(scope="module")
def cmudict():
    return frozenset(read_dictionary("cmudict").entries)


@pytest.mark.parametrize("text, words", ENGLISH)
def test_english_texts_are_normalised(text, words, cmudict):
    assert Normaliser(cmudict, english=True)(text) == words


OTHER = [
    ("Grüße, Müller!", "grüße müller"),
    ("C'est l'été\u2026", "c'est l'été"),
    ("Привет, мир!", "привет мир"),
    ("नमस्ते दुनिया।", "नमस्ते दुनिया"),
    ("¿Qué tal? ¡Bien!", "qué tal bien"),
    ("Ich habe 5 Äpfel", None),
    ("e\u0301te\u0301", "été"),
]


@pytest.mark.parametrize("text, words", OTHER)
def test_texts_of_other_languages_are_normalised(text, words):
    assert Normaliser(frozenset(), english=False)(text) == words


def test_dictionary_decides_case_and_word_characters():
    known = frozenset(("Haus", "der", "USA", "e-mail", "5", "rock'n'roll"))
    assert (
        Normaliser(known, english=False)("Der Haus HAUS, usa E-Mail 5 Rock'n'Roll fremd-Wort")
        == "der Haus Haus USA e-mail 5 rock'n'roll fremd wort"
    )


def test_english_numbers_are_spelled_out():
    assert [cardinal(n) for n in (0, 13, 40, 99, 100, 905, 1000, 2_000_014, 999_999_999)] == [
        "zero",
        "thirteen",
        "forty",
        "ninety nine",
        "one hundred",
        "nine hundred five",
        "one thousand",
        "two million fourteen",
        "nine hundred ninety nine million nine hundred ninety nine thousand nine hundred ninety nine",
    ]
    assert [year(n) for n in (1100, 1905, 1944, 2000, 2005, 2013)] == [
        "eleven hundred",
        "nineteen oh five",
        "nineteen forty four",
        "two thousand",
        "two thousand five",
        "twenty thirteen",
    ]
    assert [ordinal(cardinal(n)) for n in (1, 2, 3, 5, 8, 9, 12, 20, 33, 100)] == [
        "first",
        "second",
        "third",
        "fifth",
        "eighth",
        "ninth",
        "twelfth",
        "twentieth",
        "thirty third",
        "one hundredth",
    ]
    assert (
        plural("nineteen sixty") == "nineteen sixties"
        and plural("six") == "sixes"
        and plural("ten") == "tens"
    )


LANGUAGES = {
    "english": (["The cat sat on the mat.", "I don't know what you mean, Mr. Zqxwy."], "cmudict", "English"),
    "german": (
        ["Ich habe keine Ahnung, was du meinst.", "Der Hund läuft über die Straße."],
        "letters",
        "Latin script",
    ),
    "russian": (["Я не знаю, что ты имеешь в виду."], "letters", "Cyrillic script"),
    "hindi": (["मुझे नहीं पता कि आपका क्या मतलब है।"], "letters", "Devanagari script"),
}


@pytest.mark.parametrize("name", LANGUAGES)
def test_language_is_detected_by_alphabet_and_dictionary(name):
    texts, dictionary, expected_message = LANGUAGES[name]
    found = choose_language(texts, LanguageOptions())
    assert found.dictionary == dictionary and expected_message in found.message


def test_given_lexicon_or_language_is_used(tmp_path):
    lexicon = tmp_path / "lexicon.txt"
    lexicon.write_text("Hund H U N T\nder D E R\n", encoding="utf-8")
    found = choose_language(["Der Hund bellt"], LanguageOptions(lexicon=lexicon))
    assert (
        found.dictionary == str(lexicon)
        and found.known == {"Hund", "der"}
        and "66.7 %" in found.message
        and not found.is_english
    )
    assert choose_language(["the cat"], LanguageOptions(language="letters")).dictionary == "letters"
    assert choose_language(["der Hund"], LanguageOptions(language="english")).is_english


@pytest.mark.parametrize(
    "texts, sentence",
    [
        (["今天天气很好我们去公园玩吧好不好呀大家一起去吧你觉得怎么样呢"], "without blanks"),
        ([" ".join(chr(0x4E00 + i) for i in range(400))], "not an alphabet"),
        (["123", "..."], "the texts contain no words"),
    ],
)
def test_unusable_texts_are_refused(texts, sentence):
    with pytest.raises(UserError, match=sentence):
        choose_language(texts, LanguageOptions())


def test_letters_are_used_as_phones():
    lexicon = letter_lexicon(["Été", "l'eau", "नमस्ते", "'"])
    assert lexicon.pronunciations("Été") == [("é", "t", "é")] and lexicon.pronunciations("l'eau") == [
        ("l", "e", "a", "u")
    ]
    assert lexicon.pronunciations("नमस्ते") == [tuple("नमस्ते")] and "'" not in lexicon
