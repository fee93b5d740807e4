"""Texts as sequences of word ids, with the counts of out-of-vocabulary words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from pyasr.base import log
from pyasr.base.errors import UserError
from pyasr.lang.lang_dirs.lang_dir import LangDir
from pyasr.lang.lexicons.dict_dir import RESERVED_WORDS
from pyasr.lang.symbols import SymbolTable, read_word_lines, read_words

_HEAD_BYTES = 1 << 16  # size of the beginning of a text in which ids are distinguished from words


@dataclass
class MappedText:
    """Texts in word ids.

    ids       utterance -> int64 (num_words)
    oov       words outside the vocabulary with their counts; they were replaced by the id of the OOV word
    oov_only  utterances with only words outside the vocabulary: valid, but almost useless for training
    reserved  utterance -> its first symbol that is not a word (`RESERVED_WORDS`); such utterances have no
              `ids`
    """

    ids: dict[str, np.ndarray] = field(default_factory=dict)
    num_words: int = 0
    oov: Counter = field(default_factory=Counter)
    oov_only: list[str] = field(default_factory=list)
    reserved: dict[str, str] = field(default_factory=dict)

    def summary(self) -> str:
        """One sentence: number of words outside the vocabulary, the most frequent ones, and utterances with
        no other words."""
        num_oov = sum(self.oov.values())
        most = ", ".join(f"{word} ({count})" for word, count in self.oov.most_common(5))
        lines = (
            f"{num_oov} of {self.num_words} words ({100 * num_oov / max(self.num_words, 1):.2f} %) are "
            "outside the vocabulary"
        )
        only = (
            f"; {len(self.oov_only)} utterance(s) have no word in it: {', '.join(self.oov_only[:3])}"
            if self.oov_only
            else ""
        )
        return lines + (f": {most}" if most else "") + only


def map_text(texts: Mapping[str, str], words: SymbolTable, oov: int) -> MappedText:
    """Word ids of every text (utterance -> words separated by blanks) without reserved symbols; unknown words
    become `oov`. The OOV word itself counts as OOV."""
    mapped, ids, reserved = MappedText(), words.ids, frozenset(RESERVED_WORDS)
    for utterance, text in texts.items():
        tokens = text.split()
        if not reserved.isdisjoint(tokens):
            mapped.reserved[utterance] = next(word for word in tokens if word in reserved)
            continue
        numbers = np.array([ids.get(word, oov) for word in tokens], np.int64)
        mapped.ids[utterance] = numbers
        mapped.num_words += len(tokens)
        outside = numbers == oov
        if outside.any():
            mapped.oov.update(word for word, out in zip(tokens, outside) if out)
            if outside.all():
                mapped.oov_only.append(utterance)
    return mapped


def map_to_lang(texts: dict[str, str], lang: LangDir) -> MappedText:
    """`map_text` with the vocabulary and the OOV word of a language directory; logs the words outside it.

    Lines of only OOV words are valid, but usually a mistake in the text: with them, the log line is a
    warning.
    """
    mapped = map_text(texts, lang.words, lang.oov)
    if mapped.oov:
        say = log.warning if mapped.oov_only else log.info
        say(f"{lang.path}/words.txt: {mapped.summary()}")
    return mapped


def has_known_word(texts: Iterable[str], lang: LangDir) -> bool:
    """Whether any word of the texts is in the vocabulary and is not the OOV word."""
    return any(lang.words.get(word, lang.oov) != lang.oov for text in texts for word in text.split())


def read_lines_of_words(path: Path, ids: bool) -> bytes:
    """A text, plain or compressed. Raises UserError if it should have utterance ids and has none."""
    content = read_words(path)
    if ids:
        _check_ids(path, content)
    return content


def _check_ids(path: Path, content: bytes) -> None:
    """Raise UserError if lines begin with a word instead of an id: several lines have the same first field,
    which is also inside a line."""
    lines = [fields for line in content[:_HEAD_BYTES].split(b"\n") if (fields := line.split())]
    firsts = Counter(fields[0] for fields in lines)
    twice = {first for first, count in firsts.items() if count > 1}
    words = {word for fields in lines for word in fields[1:]} if twice else set()
    if found := sorted(twice & words, key=lambda word: (-firsts[word], word)):
        fault = (
            f"{firsts[found[0]]} lines begin with '{found[0].decode('utf-8', 'replace')}', which is "
            "also a word, not an utterance id"
        )
        raise UserError(f"{path}: {fault}; give --text-ids false for sentences without ids")


def read_sentences(path: Path, ids: bool = True) -> list[list[str]]:
    """Words of every line of a text, plain or compressed. With `ids`, the first field, the utterance, is
    removed. Empty sentences are kept."""
    lines = read_lines_of_words(path, ids).decode("utf-8").split("\n")
    return [line.split()[1:] if ids else line.split() for line in lines if line.strip()]


def read_vocabulary(path: Path) -> list[str]:
    """Words of a lexicon, a words.txt or a list of words: the first field of each line, without symbols that
    are not words."""
    words = dict.fromkeys(line.split()[0] for line in read_word_lines(path) if line.strip())
    return [word for word in words if word not in RESERVED_WORDS]
