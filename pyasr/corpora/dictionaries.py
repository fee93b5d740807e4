"""Common part of programs that create a corpus's dictionary directory: options, word counts, phone lists."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pyasr.base import log
from pyasr.base.cli.options import argument
from pyasr.base.cli.step import output_of
from pyasr.lang.lexicons.dict_dir import DictDir
from pyasr.lang.lexicons.lexicon import Lexicon
from pyasr.lang.ngrams.vocabulary import read_sentences

MISSING_FILE = "missing_words.txt"


@dataclass(frozen=True)
class CorpusDictOptions:
    """Options of a program that creates the dictionary directory of a text."""

    text: Path = argument("text whose words need pronunciations")
    dict_dir: Path = argument("dictionary directory to create")


def make_dict_dir(
    options: CorpusDictOptions, inputs: list[Path], write: Callable[[Path, Counter[str]], Lexicon]
) -> None:
    """Create DICT_DIR of `options` unless it is up to date.

    inputs  input files in addition to the text
    write   function that fills a directory, given {word of the text: count}, and returns its lexicon
    """
    with output_of(options, options.dict_dir, [options.text, *inputs]) as out:
        lexicon = write(out, Counter(word for sentence in read_sentences(options.text) for word in sentence))
    log.info(f"{options.dict_dir}: {len(lexicon)} words, {len(lexicon.rows())} pronunciations")


def dict_dir_of(lexicon: Lexicon, silence: list[str], questions: list[tuple[str, ...]]) -> DictDir:
    """Dictionary directory of a lexicon with these silence phones; the first is optional between words."""
    spoken = sorted(lexicon.phones() - set(silence))
    return DictDir(
        lexicon, [(phone,) for phone in silence], [(phone,) for phone in spoken], silence[0], questions
    )


def by_count(counts: Counter[str]) -> list[tuple[str, int]]:
    """(word, count), most frequent first, equally frequent ones in C order."""
    return sorted(counts.items(), key=lambda row: (-row[1], row[0]))
