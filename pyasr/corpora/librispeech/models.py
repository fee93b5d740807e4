"""The published lexicon and language models of LibriSpeech (OpenSLR 11), under their published names or those
of Kaldi's recipe."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pyasr.base import log
from pyasr.base.errors import UserError
from pyasr.corpora.librispeech.parts import folders_below
from pyasr.lang.lexicons.lexicon import Lexicon
from pyasr.lang.symbols import read_word_lines

LEXICON = "lexicon"
GRAPH_MODEL = "tgsmall"
_PAGE = "www.openslr.org/11"


@dataclass(frozen=True)
class _File:
    """A published file: its names, the published one first, and its size in bytes."""

    names: tuple[str, ...]
    num_bytes: int


_FILES = {
    LEXICON: _File(("librispeech-lexicon.txt",), 5_627_653),
    "tgsmall": _File(
        ("3-gram.pruned.3e-7.arpa.gz", "3-gram.pruned.3e-7.arpa", "lm_tgsmall.arpa.gz"), 13_654_242
    ),
    "tgmed": _File(("3-gram.pruned.1e-7.arpa.gz", "3-gram.pruned.1e-7.arpa", "lm_tgmed.arpa.gz"), 34_094_057),
    "tglarge": _File(("3-gram.arpa.gz", "3-gram.arpa", "lm_tglarge.arpa.gz"), 759_636_181),
    "fglarge": _File(("4-gram.arpa.gz", "4-gram.arpa", "lm_fglarge.arpa.gz"), 1_355_172_078),
}
RESCORING_MODELS = tuple(name for name in _FILES if name not in (LEXICON, GRAPH_MODEL))


def find_files(places: list[Path], rescoring: list[str]) -> dict[str, Path]:
    """{lexicon, tgsmall and the models of `rescoring`: file} at or below `places`.

    Raises UserError that names all missing files, and the remedy.
    """
    found: dict[str, Path] = {}
    wanted = [LEXICON, GRAPH_MODEL, *rescoring]
    for folder in folders_below(places):
        for name in wanted:
            for path in (folder / file for file in _FILES[name].names):
                if name not in found and path.is_file():
                    found[name] = path
    if missing := [name for name in wanted if name not in found]:
        raise _missing(missing, places)
    for name, path in found.items():
        _check_size(name, path)
    return found


def _missing(names: list[str], places: list[Path]) -> UserError:
    listed = ", ".join(f"{_FILES[name].names[0]} ({name})" for name in names)
    advice = f"download from {_PAGE}, and give their directory with --lm-dir"
    if set(names) <= set(RESCORING_MODELS):
        advice += ", or remove these models from --rescoring"
    return UserError(
        f"LibriSpeech's lexicon and language models: no {listed} below {', '.join(map(str, places))}; "
        f"{advice}"
    )


def _check_size(name: str, path: Path) -> None:
    """Warn if a file with its published name has another size, as after an interrupted download."""
    size, expected = path.stat().st_size, _FILES[name].num_bytes
    if path.name == _FILES[name].names[0] and size != expected:
        log.warning(f"{path}: {size:,} bytes, published {expected:,}: truncated, or another file")


def read_lexicon(path: Path) -> Lexicon:
    """The lexicon, in which an entry may occur several times. Raises UserError for a word without phones, and
    if there are no words."""
    lexicon = Lexicon()
    for number, line in enumerate(read_word_lines(path), 1):
        word, *phones = line.split() or [""]
        if word and not phones:
            raise UserError(
                f"{path}:{number}: the pronunciation of '{word}' is empty; download the file again from "
                f"{_PAGE}"
            )
        if word:
            lexicon.add(word, tuple(phones))
    if not lexicon.entries:
        raise UserError(f"{path}: no words in it; download the file again from {_PAGE}")
    return lexicon
