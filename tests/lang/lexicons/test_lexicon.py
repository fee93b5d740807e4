import re

import pytest

from pyasr.base.errors import UserError
from pyasr.lang.lang_dirs.check_lang import find_problems
from pyasr.lang.lang_dirs.prepare_lang import LangOptions, write_lang
from pyasr.lang.lexicons.dict_dir import read_dict_dir
from pyasr.lang.lexicons.lexicon import read_cmudict, read_lexicon, without_stress
from pyasr.lang.ngrams.vocabulary import read_vocabulary
from pyasr.lang.pronouncing.prepare_dict import DictOptions, as_dict_dir, write_dict
from pyasr.lang.symbols import SymbolTable


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_cmudict_variants_comments_and_stress(tmp_path):
    path = write(
        tmp_path / "small.dict",
        ";;; old comment\na AH0\na(2) EY1\naalborg AO1 L B AO0 R G # place, danish\nrecord R AH0 K AO1 R D\n"
        "record(2) R EH1 K ER0 D\n",
    )
    plain, stressed = read_cmudict(path), read_cmudict(path, stress=True)
    assert plain.pronunciations("a") == [("AH",), ("EY",)]
    assert stressed.pronunciations("a") == [("AH0",), ("EY1",)]
    assert plain.pronunciations("aalborg") == [("AO", "L", "B", "AO", "R", "G")]
    assert len(plain) == 3


def test_pronunciations_differing_only_in_stress_are_merged(tmp_path):
    path = write(tmp_path / "small.dict", "import IH0 M P AO1 R T\nimport(2) IH1 M P AO0 R T\n")
    assert read_cmudict(path).pronunciations("import") == [("IH", "M", "P", "AO", "R", "T")]
    assert len(read_cmudict(path, stress=True).pronunciations("import")) == 2


def test_installed_cmudict_is_found_without_importing_it():
    import sys

    lexicon = read_cmudict()
    assert len(lexicon) > 120_000 and len(lexicon.phones()) == 39
    assert "cmudict" not in sys.modules


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a AH\nb\n", ":2: the pronunciation of 'b' is empty"),
        ("a AH\nb B IY\na AH\n", ":3: 'a AH' is already on line 1"),
        ("a AH\n\nb B IY\n", ":2: an empty line"),
        ("", "no entries"),
    ],
)
def test_invalid_lexicon_is_refused(tmp_path, text, message):
    with pytest.raises(UserError, match="lexicon.txt.*" + message):
        read_lexicon(write(tmp_path / "lexicon.txt", text))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a 0.5 AH\nb B IY\n", ":2: 'B' is not a probability"),
        ("a 0.0 AH\n", ":1: the probability 0.0 of 'a'"),
        ("a 1.5 AH\n", r"not in \(0, 1\]"),
        ("a 1\n", "pronunciation of 'a' is empty"),
    ],
)
def test_invalid_lexiconp_is_refused(tmp_path, text, message):
    with pytest.raises(UserError, match=message):
        read_lexicon(write(tmp_path / "lexiconp.txt", text))


@pytest.mark.parametrize("line", ["New{}York 1 N UW", "New{}1 N UW", "New 1 N{}UW"])
@pytest.mark.parametrize(("blank", "name"), [("\u00a0", r"U\+00A0"), ("\u3000", r"U\+3000")])
def test_unusual_blanks_in_lexicon_are_reported_with_line(tmp_path, line, blank, name):
    text = "a 1 AH\n" + line.format(blank) + "\n"
    for file, read in (
        ("lexiconp.txt", read_lexicon),
        ("lexicon.txt", read_lexicon),
        ("small.dict", read_cmudict),
    ):
        with pytest.raises(
            UserError,
            match=rf"{file}:2: the blank {name} is neither a space nor a tab; replace it by a space",
        ):
            read(write(tmp_path / file, text))


def test_unusual_blanks_in_phone_and_word_lists_are_reported(tmp_path):
    with pytest.raises(UserError, match=r"silence_phones.txt:2: the blank U\+00A0"):
        read_dict_dir(dict_dir(tmp_path, silence_phones="SIL\nSPN\u00a0NSN\n"))
    (tmp_path / "lexicon.txt").rename(tmp_path / "lexiconp_silprob.txt")
    write(tmp_path / "silence_phones.txt", "SIL\nSPN\n")
    write(tmp_path / "lexiconp_silprob.txt", "new\u3000york 1 0.5 1 1 AH\n")
    write(tmp_path / "words.txt", "new\u3000york\n")
    with pytest.raises(UserError, match=r"lexiconp_silprob.txt:1: the blank U\+3000"):
        read_dict_dir(tmp_path)
    with pytest.raises(UserError, match=r"words.txt:1: the blank U\+3000"):
        read_vocabulary(tmp_path / "words.txt")


def test_lexicon_that_is_not_utf8_is_reported_with_line(tmp_path):
    (tmp_path / "lexicon.txt").write_bytes(b"a AH\nb\xe9 B\n")
    with pytest.raises(UserError, match="lexicon.txt:2: not UTF-8 text; convert"):
        read_lexicon(tmp_path / "lexicon.txt")


def dict_dir(tmp_path, **changes):
    files = {
        "lexicon": "<unk> SPN\na AH\ncat K AE T\n",
        "silence_phones": "SIL\nSPN\n",
        "nonsilence_phones": "AH\nAE\nK\nT\n",
        "optional_silence": "SIL\n",
        **changes,
    }
    for name, text in files.items():
        write(tmp_path / f"{name}.txt", text)
    return tmp_path


def test_dict_dir_survives_round_trip(tmp_path):
    content = read_dict_dir(dict_dir(tmp_path, extra_questions="K T\n"))
    content.write(tmp_path)
    again = read_dict_dir(tmp_path)
    assert again.lexicon.entries == content.lexicon.entries
    assert (again.silence, again.nonsilence, again.extra_questions) == (
        [("SIL",), ("SPN",)],
        [("AH",), ("AE",), ("K",), ("T",)],
        [("K", "T")],
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"nonsilence_phones": "AH\nAE\nK\n"}, "the phone T of 'cat' is in neither phone list"),
        ({"nonsilence_phones": "AH\nAE\nK\nT\nSPN\n"}, "the phone SPN is listed twice"),
        (
            {"optional_silence": "K\n"},
            "optional_silence.txt must contain one phone of silence_phones.txt, not 'K'",
        ),
        ({"optional_silence": "SIL SPN\n"}, "not 'SIL SPN'"),
        ({"extra_questions": "K X\n"}, "unknown phone X"),
        (
            {"lexicon": "<s> AH\n"},
            (
                r"'<s>' is reserved and cannot be a word \(words.txt uses it for the beginning of a "
                r"sentence\), "
                r"remove it from"
            ),
        ),
        (
            {"lexicon": "#0 AH\n"},
            (
                r"'#0' is reserved and cannot be a word \(words.txt uses it for the back-off arcs of a "
                r"grammar\), remove it"
            ),
        ),
    ],
)
def test_invalid_dict_dir_is_refused(tmp_path, changes, message):
    with pytest.raises(UserError, match=message):
        read_dict_dir(dict_dir(tmp_path, **changes))


RESERVED_PHONES = {
    "T_B": "prepare_lang.py adds _B to phones at the beginning of a word",
    "T_S": "prepare_lang.py adds _S to phones that are a whole word",
    "T_I": "prepare_lang.py adds _I to phones inside a word",
    "T_E": "prepare_lang.py adds _E to phones at the end of a word",
    "#1": "#0, #1 and so on are the disambiguation symbols of phones.txt",
    "<eps>": "phones.txt uses this symbol for arcs without a phone",
}


@pytest.mark.parametrize("phone", RESERVED_PHONES)
@pytest.mark.parametrize("name", ["silence_phones", "nonsilence_phones"])
def test_reserved_phone_names_are_reported_with_file_and_line(phone, name, tmp_path):
    written = {"silence_phones": "SIL\nSPN\n", "nonsilence_phones": "AH\nAE\nK\nT\n"}[name]
    report = (
        f"{tmp_path}/{name}.txt:{written.count(chr(10)) + 1}: '{phone}' cannot be the name of a phone, "
        f"since {RESERVED_PHONES[phone]}; "
    )
    with pytest.raises(UserError, match=f"^{re.escape(report)}rename it in the lexicon and the phone lists$"):
        read_dict_dir(dict_dir(tmp_path, **{name: f"{written}{phone}\n"}))


@pytest.mark.parametrize(
    ("phone", "name"), [*((phone, "own.txt") for phone in RESERVED_PHONES), ("T_B", "own.dict")]
)
def test_reserved_phone_names_in_dictionary_are_reported_with_line(phone, name, tmp_path):
    dictionary = write(tmp_path / name, f"a AH\ncat K {phone} T\ndog K T\n")
    text, out = write(tmp_path / "text", "u1 a cat\n"), tmp_path / "dict"
    out.mkdir()
    report = (
        f"{dictionary}:2: '{phone}' cannot be the name of a phone, since {RESERVED_PHONES[phone]}; "
        "rename it in the dictionary"
    )
    with pytest.raises(UserError, match=f"^{re.escape(report)}$"):
        write_dict(text, DictOptions(str(dictionary)), out)
    assert not list(out.iterdir())
    # for a word that is not in the lexicon
    write_dict(write(tmp_path / "text", "u1 a dog\n"), DictOptions(str(dictionary), "none"), out)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"lexicon": "<unk> SPN\na AH\ncat K AE T\ntack T AE K\n"},
            "lexicon.txt has 'tack T AE K', but lexiconp.txt does not have it; write it into both, or remove",
        ),
        (
            {"lexicon": "<unk> SPN\na AH\na AE\ncat K AE T\n"},
            "lexicon.txt has 'a AE', but lexiconp.txt does not have it;",
        ),
        (
            {"lexicon": "<unk> SPN\n"},
            r"lexiconp.txt has 'a AH', but lexicon.txt does not have it \(nor 1 more\);",
        ),
    ],
)
def test_lexicons_with_different_entries_are_refused(tmp_path, changes, message):
    with pytest.raises(UserError, match=message):
        read_dict_dir(dict_dir(tmp_path, lexiconp="<unk> 1 SPN\na 1 AH\ncat 0.5 K AE T\n", **changes))


def test_order_of_lexicons_does_not_matter(tmp_path):
    content = read_dict_dir(dict_dir(tmp_path, lexiconp="cat 0.5 K AE T\n<unk> 1 SPN\na 1 AH\n"))
    assert content.lexicon.entries["cat"] == {("K", "AE", "T"): 0.5}


def test_all_problems_are_reported_at_once(tmp_path):
    with pytest.raises(UserError) as error:
        read_dict_dir(dict_dir(tmp_path, nonsilence_phones="AH\nAE\n", optional_silence="X\n"))
    assert "optional_silence" in str(error.value) and "phone K" in str(error.value)


TEXT = "utt1 a cat unga's [laugh] zzyzzyx\nutt2\nutt3 Cat\n"
DICTIONARY = "a AH0\ncat K AE1 T\nunga AH1 N G AH0\ndog D AO1 G\nzip Z IH1 P\nyax Y AE1 K S\n"


def prepare(tmp_path, **options):
    text, dictionary = write(tmp_path / "text", TEXT), write(tmp_path / "small.dict", DICTIONARY)
    out = tmp_path / "dict"
    out.mkdir()
    return write_dict(text, DictOptions(dictionary=str(dictionary), **options), out), out


def test_missing_words_are_dropped_without_fallback(tmp_path):
    vocabulary, out = prepare(tmp_path, fallback="none")
    lexicon = read_dict_dir(out).lexicon
    assert sorted(lexicon.entries) == ["<unk>", "Cat", "[laugh]", "a", "cat"]
    assert lexicon.pronunciations("[laugh]") == lexicon.pronunciations("<unk>") == [("SPN",)]
    assert (out / "missing_words.txt").read_text().splitlines() == ["1 unga's left-out", "1 zzyzzyx left-out"]
    assert vocabulary.summary().startswith(
        "2 of 6 words (2 of 6 running) are not in the dictionary: 2 left out"
    )


def test_missing_words_get_letter_to_sound_pronunciations(tmp_path):
    _, out = prepare(tmp_path)
    content = read_dict_dir(out)
    assert content.lexicon.pronunciations("unga's") == [("AH", "N", "G", "AH", "Z")]
    assert content.lexicon.pronunciations("zzyzzyx")
    assert not any(phone[-1].isdigit() for phone in content.lexicon.phones())


def test_letters_are_phones_without_dictionary(tmp_path):
    (tmp_path / "dict").mkdir()
    write_dict(
        write(tmp_path / "text", "u1 Été l'eau [bruit] \u0928\u092e\u0938\u094d\u0924\u0947\n"),
        DictOptions("letters"),
        tmp_path / "dict",
    )
    content = read_dict_dir(tmp_path / "dict")
    assert content.lexicon.entries.keys() == {
        "<unk>",
        "Été",
        "l'eau",
        "[bruit]",
        "नमस्ते",
    } and content.silence == [("SIL",), ("SPN",)]
    assert content.lexicon.pronunciations("Été") == [("é", "t", "é")] and content.lexicon.pronunciations(
        "[bruit]"
    ) == [("SPN",)]
    assert (
        content.lexicon.pronunciations("नमस्ते") == [tuple("नमस्ते")]
        and (tmp_path / "dict/missing_words.txt").read_text() == ""
    )


def test_typographic_apostrophes_match_plain_ones(tmp_path):
    dictionary = write(tmp_path / "small.dict", "don't D OW1 N T\ndo D UW1\n")
    (tmp_path / "dict").mkdir()
    vocabulary = write_dict(
        write(tmp_path / "text", "u1 don\u2019t Don\u2019t\n"),
        DictOptions(str(dictionary)),
        tmp_path / "dict",
    )
    assert not vocabulary.missing
    assert vocabulary.lexicon.pronunciations("Don\u2019t") == [("D", "OW", "N", "T")]


def test_stress_gives_phone_sets_and_questions(tmp_path):
    vocabulary, _ = prepare(tmp_path, stress=True)
    content = as_dict_dir(vocabulary.lexicon)
    assert ("AH0", "AH1") in content.nonsilence
    assert ("AE1", "AH1") in content.extra_questions


@pytest.mark.parametrize(
    "phones", ["m a1/m a2/m a3/m a4", "M AA1/M AA2/M AA3/M AA4", "m 2/m 2:/m 9/m a6", "M AI1/M AI2"]
)
@pytest.mark.parametrize("stress", [False, True])
def test_tones_and_digits_of_other_alphabets_are_not_stress(tmp_path, phones, stress):
    dictionary = write(
        tmp_path / "other.txt", "".join(f"w{i} {variant}\n" for i, variant in enumerate(phones.split("/")))
    )
    (tmp_path / "dict").mkdir()
    write_dict(
        write(tmp_path / "text", "utt1 w0 w1 w2 w3\n"),
        DictOptions(str(dictionary), "none", stress),
        tmp_path / "dict",
    )
    content = read_dict_dir(tmp_path / "dict")
    assert [
        " ".join(*content.lexicon.pronunciations(f"w{i}")) for i in range(phones.count("/") + 1)
    ] == phones.split("/")
    assert sorted(content.nonsilence) == sorted((phone,) for phone in set(phones.replace("/", " ").split()))
    assert len(content.extra_questions) == 2


def test_extra_words_join_the_vocabulary(tmp_path):
    words = write(tmp_path / "words", "dog ignored\nzip\n")
    _, out = prepare(tmp_path, words=words)
    assert {"dog", "zip"} <= set(read_dict_dir(out).lexicon.entries)


def test_extra_words_may_come_from_words_txt(tmp_path):
    SymbolTable.of(["<eps>", "<unk>", "dog", "#0", "<s>", "</s>"]).write(tmp_path / "words.txt")
    _, out = prepare(tmp_path, words=tmp_path / "words.txt", fallback="none")
    assert sorted(read_dict_dir(out).lexicon.entries) == ["<unk>", "Cat", "[laugh]", "a", "cat", "dog"]


def prepare_text(tmp_path, text, **options):
    dictionary = write(tmp_path / "small.dict", DICTIONARY)
    (tmp_path / "dict").mkdir()
    return write_dict(
        write(tmp_path / "text", text), DictOptions(dictionary=str(dictionary), **options), tmp_path / "dict"
    )


@pytest.mark.parametrize(
    ("text", "fallback"),
    [("u1 \u043c\u0438\u0440 \u0434\u0430\n", "letters"), ("u1 catty [laugh] <unk>\n", "none")],
)
def test_text_without_pronounceable_words_is_refused(tmp_path, text, fallback):
    with pytest.raises(
        UserError,
        match=r"text: none of its words has a pronunciation .*small.dict.*; give .* with --dictionary FILE",
    ):
        prepare_text(tmp_path, text, fallback=fallback)


@pytest.mark.parametrize(
    ("text", "level"),
    [("u1 \u0434\u0430 a cat a\n", "INFO"), ("u1 \u0434\u0430 \u0434\u0430 a cat a\n", "WARNING")],
)
def test_many_dropped_words_give_warning(tmp_path, caplog, text, level):
    with caplog.at_level("INFO", "pyasr"):
        prepare_text(tmp_path, text)
    output = next(record for record in caplog.records if "1 left out" in record.message)
    assert output.levelname == level and ("--dictionary FILE" in output.message) == (level == "WARNING")


BRACKETS = (
    "[laughter] LAU\n[noise] NSN\n<sil> SIL\n<qr> IH0 K R\n{mr} IH0 M R\n<er> ER0\nyes Y EH1 S\nno N "
    "OW1\nher HH ER0\n"
)


def test_bracketed_words_have_phones_of_dictionary(tmp_path, caplog):
    """Only bracketed words that it lacks are spoken noise. Phones that occur only in bracketed words are
    silence phones."""
    dictionary = write(tmp_path / "dict.txt", BRACKETS)
    text = write(
        tmp_path / "text", "u1 yes [LAUGHTER] no <qr> [cough] [cough]\nu2 no [noise] <sil> {mr} <er> <beep>\n"
    )
    (tmp_path / "dict").mkdir()
    with caplog.at_level("INFO", "pyasr"):
        vocabulary = write_dict(text, DictOptions(dictionary=str(dictionary)), tmp_path / "dict")
    content = read_dict_dir(tmp_path / "dict")
    expected = {
        "[LAUGHTER]": "LAU",
        "[noise]": "NSN",
        "<sil>": "SIL",
        "<qr>": "IH K R",
        "{mr}": "IH M R",
        "<er>": "ER",
        "yes": "Y EH S",
        "no": "N OW",
        "[cough]": "SPN",
        "<beep>": "SPN",
        "<unk>": "SPN",
    }
    assert {
        word: " ".join(*content.lexicon.pronunciations(word)) for word in content.lexicon.entries
    } == expected
    assert content.silence == [("SIL",), ("SPN",), ("LAU",), ("NSN",)] and content.optional_silence == "SIL"
    assert sorted(content.nonsilence) == sorted((phone,) for phone in "IH K R M Y EH S N OW ER".split())
    assert content.extra_questions[0] == ("SIL", "SPN", "LAU", "NSN")
    assert vocabulary.summary() == (
        "all 8 other words are in the dictionary; 2 in brackets, such as <beep>, are not in it and become "
        "spoken noise"
    )
    assert (
        "LAU NSN: in silence_phones.txt, because each is the only phone of a word in brackets and occurs "
        "nowhere else"
    ) in caplog.text


def test_lang_directory_with_bracketed_noise_words(tmp_path):
    dictionary = write(tmp_path / "dict.txt", BRACKETS)
    (tmp_path / "dict").mkdir()
    (tmp_path / "lang").mkdir()
    write_dict(
        write(tmp_path / "text", "u1 yes [laughter] <er>\n"),
        DictOptions(dictionary=str(dictionary)),
        tmp_path / "dict",
    )
    write_lang(read_dict_dir(tmp_path / "dict"), "<unk>", LangOptions(), tmp_path / "lang")
    silence = (tmp_path / "lang/phones/silence.txt").read_text().split()
    assert {phone.split("_")[0] for phone in silence} == {"SIL", "SPN", "LAU"} and find_problems(
        tmp_path / "lang"
    ) == []


@pytest.mark.parametrize(
    ("line", "phones", "silence"),
    [
        ("<unk> GBG\n", "GBG", ["SIL", "SPN", "GBG"]),
        ("<unk> N OW\n", "N OW", ["SIL", "SPN"]),
        ("", "SPN", ["SIL", "SPN"]),
    ],
)
def test_oov_word_has_phones_of_dictionary(line, phones, silence, tmp_path):
    dictionary = write(tmp_path / "dict.txt", f"no N OW\n{line}")
    (tmp_path / "dict").mkdir()
    vocabulary = write_dict(
        write(tmp_path / "text", "u1 no\n"), DictOptions(dictionary=str(dictionary)), tmp_path / "dict"
    )
    content = read_dict_dir(tmp_path / "dict")
    assert content.lexicon.pronunciations("<unk>") == [tuple(phones.split())]
    assert [phone for group in content.silence for phone in group] == silence
    assert vocabulary.summary() == "all 1 words are in the dictionary"


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("<s>", r"is reserved and cannot be a word \(words.txt uses it for the beginning"),
        ("a b", "not one word"),
        ("", "not one word"),
    ],
)
def test_invalid_oov_words_are_refused(word, message, tmp_path):
    with pytest.raises(UserError, match=f"--oov-word '{word}': {message}.*; give another, such as <unk>"):
        prepare_text(tmp_path, "u1 a cat\n", oov_word=word)


def test_texts_with_no_or_reserved_words_are_refused(tmp_path):
    for text, message in (("utt1\nutt2\n", "no words"), ("utt1 a </s> b\n", "'</s>' is reserved")):
        with pytest.raises(UserError, match=message):
            write_dict(write(tmp_path / "text", text), DictOptions(), tmp_path)


def test_stress_marks_are_removed():
    assert without_stress(("AH0", "T", "EY1", "ER2")) == ("AH", "T", "EY", "ER")
    assert without_stress(("AH3", "2", "a1", "K2", "AI0")) == ("AH3", "2", "a1", "K2", "AI0")
