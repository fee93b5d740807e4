import gzip

import pytest
from toy_language import write_toy_lang

from pyasr.base.errors import UserError
from pyasr.lang.lang_dirs.lang_dir import LangDir
from pyasr.lang.ngrams.vocabulary import has_known_word, map_text, map_to_lang, read_sentences
from pyasr.lang.symbols import SymbolTable

WORDS = SymbolTable.of(["<eps>", "<unk>", "a", "b", "#0", "<s>", "</s>"])


def test_words_become_ids_and_unknown_ones_the_oov_word():
    mapped = map_text({"u1": "a b a", "u2": "a zig b zag zig"}, WORDS, oov=1)
    assert {key: ids.tolist() for key, ids in mapped.ids.items()} == {"u1": [2, 3, 2], "u2": [2, 1, 3, 1, 1]}
    assert mapped.oov == {"zig": 2, "zag": 1} and mapped.num_words == 8 and mapped.oov_only == []
    assert mapped.summary() == "3 of 8 words (37.50 %) are outside the vocabulary: zig (2), zag (1)"


def test_lines_with_only_oov_words_are_named():
    mapped = map_text({"u1": "zig", "u2": "", "u3": "a", "u4": "<unk> zag"}, WORDS, oov=1)
    assert (
        mapped.oov_only == ["u1", "u4"]
        and mapped.ids["u1"].tolist() == [1]
        and mapped.ids["u2"].tolist() == []
    )
    assert mapped.summary().endswith("; 2 utterance(s) have no word in it: u1, u4")


def test_mapping_with_a_lang_dir(tmp_path, caplog):
    lang = LangDir(write_toy_lang(tmp_path / "lang"))
    with caplog.at_level("INFO", "pyasr"):
        mapped = map_to_lang({"u1": "w0 stranger"}, lang)
    assert mapped.ids["u1"].tolist() == [lang.words["w0"], lang.oov]
    assert "1 of 2 words (50.00 %) are outside the vocabulary: stranger (1)" in caplog.text
    assert has_known_word(["stranger", "<unk> w0"], lang) and not has_known_word(["stranger", "<unk>"], lang)


def test_sentences_with_and_without_ids(tmp_path):
    (tmp_path / "text").write_text("u1 a b\nu2\n\nu3 c\n")
    assert read_sentences(tmp_path / "text") == [["a", "b"], [], ["c"]]
    assert read_sentences(tmp_path / "text", ids=False)[1] == ["u2"]
    (tmp_path / "text.gz").write_bytes(gzip.compress(b"u1 a b\n"))
    assert read_sentences(tmp_path / "text.gz") == [["a", "b"]]
    for content, message in (
        (gzip.compress(b"u1 a b\n" * 99)[:-9], "damaged or truncated gzip file"),
        (b"u1 \xff", "not UTF-8 text"),
    ):
        (tmp_path / "bad").write_bytes(content)
        with pytest.raises(UserError, match=r"bad(:1)?: " + message):
            read_sentences(tmp_path / "bad")


@pytest.mark.parametrize("blank", ["\u00a0", "\u3000", "\u2009", "\x0b", "\x1c", "\u0085"])
def test_unusual_blanks_are_reported(blank, tmp_path):
    (tmp_path / "text").write_bytes("u1 fine\tand\r\nu2 b\u00e9, \u20ac\u200b\n".encode())
    assert read_sentences(tmp_path / "text") == [["fine", "and"], ["b\u00e9,", "\u20ac\u200b"]]
    (tmp_path / "text").write_bytes(f"u1 fine\nu2 bonjour{blank}!\n".encode())
    with pytest.raises(
        UserError, match=rf"text:2: the blank U\+{ord(blank):04X} is neither a space nor a tab"
    ):
        read_sentences(tmp_path / "text")
    with pytest.raises(UserError, match="nothing: no such file"):
        read_sentences(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a 1\na 2\n", ":2: the symbol a occurs twice"),
        ("a 1\nb 1\n", "given to more than one symbol"),
        ("a\n", ":1: expected 'SYMBOL ID'"),
        ("a -1\n", ":1: expected 'SYMBOL ID'"),
    ],
)
def test_invalid_symbol_tables_are_refused(tmp_path, text, message):
    (tmp_path / "words.txt").write_text(text)
    with pytest.raises(UserError, match=message):
        SymbolTable.read(tmp_path / "words.txt")
