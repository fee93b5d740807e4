"""Subword units, trained on text, and their ids as outputs of a CTC network. Only this module uses
sentencepiece.

T. Kudo, J. Richardson, "SentencePiece: a simple and language independent subword tokenizer and detokenizer
for neural text processing", EMNLP 2018; unigram models: T. Kudo, ACL 2018; byte pair encoding: R. Sennrich et
al., ACL 2016.

UNITS_DIR/units.model   sentencepiece's model
UNITS_DIR/units.txt     `UNIT ID`: <blk> 0, <unk> 1, then the model's pieces; those that begin a word begin
                        with U+2581
UNITS_DIR/words.txt     the words of the training text, one a line, in C order

The word <unk>, which stands for unintelligible speech, is spelled with U+2581 and the unit <unk>; its letters
are not trained. In other words, this unit stands for letters that are in no unit.
"""

from __future__ import annotations

import io
import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from pyasr.base.cli.options import option
from pyasr.base.errors import UserError
from pyasr.base.outputs.output import atomic_write
from pyasr.io.content import read_file
from pyasr.io.text_tables import read_table
from pyasr.lang.symbols import SymbolTable, write_lines

MODEL, UNITS, WORDS = "units.model", "units.txt", "words.txt"
UNITS_DIR = "units"  # in the directory of a network
BLANK, UNKNOWN, BOUNDARY = "<blk>", "<unk>", "\u2581"
UNKNOWN_ID = 1
_OFFSET = 1  # the blank precedes sentencepiece's pieces
_NO_LETTER = "\0"
_LONGEST_LINE = 1 << 20  # bytes; sentencepiece skips longer lines
_NO_UNIT = "\u2585"  # sentencepiece's mark of unknown letters; never a unit
_OF_UNITS = {  # symbols that a word must not contain, and why
    BOUNDARY: "which marks the beginning of a word in units",
    _NO_UNIT: "which sentencepiece reserves for unknown letters",
    _NO_LETTER: "which ends strings in sentencepiece",
    UNKNOWN: "which stands for a whole word",
}
_UNSPELLABLE = re.compile(rf"[{BOUNDARY}{_NO_UNIT}{_NO_LETTER}]|(?<=\S){UNKNOWN}|{UNKNOWN}(?=\S)")


@dataclass(frozen=True)
class SubwordOptions:
    """Choice of the units."""

    num_units: int = option(
        500, "number of units including <blk> and <unk>, which is the number of network outputs", minimum=3
    )
    kind: str = option(
        "unigram",
        "training of the units; unigram: unigram language model; bpe: byte pair encoding",
        choices=("unigram", "bpe"),
    )


class Subwords:
    """Units of a directory, or of the bytes of a sentencepiece model: converts words to unit ids and back."""

    def __init__(self, model: bytes):
        import sentencepiece

        self.model = model
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)

    @classmethod
    def read(cls, units_dir: Path) -> Subwords:
        """The units of a directory. Raises UserError if there is no valid sentencepiece model."""
        path = Path(units_dir) / MODEL
        if not path.exists():
            raise UserError(f"{path}: no such file; create it with utils/train_subwords.py")
        try:
            found = cls(read_file(path))
            found.encode(found.units[-1])  # sentencepiece loads damaged models, and fails when they are used
            return found
        except (RuntimeError, ValueError):
            raise UserError(
                f"{path}: not a sentencepiece model; create it again with utils/train_subwords.py"
            ) from None

    @cached_property
    def units(self) -> list[str]:
        """All units in the order of their ids."""
        return [BLANK, *(self._processor.id_to_piece(n) for n in range(self._processor.get_piece_size()))]

    def __len__(self) -> int:
        return len(self.units)

    @cached_property
    def begins_word(self) -> np.ndarray:
        """Whether a unit begins a word, bool (num_units)."""
        return np.array([unit.startswith(BOUNDARY) for unit in self.units])

    def encode(self, text: str) -> np.ndarray:
        """Unit ids of the best segmentation of a text, int64; <unk> for that word, and for letters that are
        not in the training text."""
        pieces: list[int] = []
        for is_unknown, group in itertools.groupby(text.replace(BOUNDARY, _NO_UNIT).split(), UNKNOWN.__eq__):
            words = list(group)
            pieces += (
                len(words) * self._unknown_word if is_unknown else self._processor.encode(" ".join(words))
            )
        return np.array(pieces, np.int64) + _OFFSET

    @cached_property
    def _unknown_word(self) -> list[int]:
        """The pieces of the word <unk>."""
        return [self._processor.piece_to_id(BOUNDARY), self._processor.unk_id()]

    def strange_letters(self, text: str) -> set[str]:
        """Letters of a text that are in no unit; the word <unk> has none."""
        words = " ".join(word for word in text.split() if word != UNKNOWN)
        pieces = zip(self._processor.encode(words), self._processor.encode(words, out_type=str))
        letters = {
            letter for number, piece in pieces if number == self._processor.unk_id() for letter in piece
        }
        return letters | {BOUNDARY} & set(words)

    def spellings(self, word: str, num_best: int = 1) -> list[tuple[int, ...]]:
        """Up to `num_best` segmentations of a word without <unk>, best first. A byte pair model has one."""
        best = [self.encode(word).tolist()]
        if num_best > 1 and self.has_several:
            pieces_of_all = self._processor.nbest_encode(
                word.replace(BOUNDARY, _NO_UNIT), nbest_size=num_best
            )
            best += [[piece + _OFFSET for piece in pieces] for pieces in pieces_of_all]
        spellings = dict.fromkeys(tuple(units) for units in best if units and UNKNOWN_ID not in units)
        return list(spellings)[:num_best]

    @cached_property
    def has_several(self) -> bool:
        """Whether the model can give several segmentations of a word."""
        try:
            self._processor.nbest_encode("a", nbest_size=2)
        except RuntimeError:
            return False
        return True

    def words(self, units: Iterable[int]) -> list[str]:
        """The words that units spell."""
        return words_of(self.units[unit] for unit in units)

    def write(self, out: Path, words: Iterable[str]) -> None:
        """Write the files above to an existing directory."""
        with atomic_write(Path(out) / MODEL, "wb") as f:
            f.write(self.model)
        SymbolTable.of(self.units).write(Path(out) / UNITS)
        write_lines(Path(out) / WORDS, sorted(words, key=str.encode))


def words_of(units: Iterable[str]) -> list[str]:
    """The words of a sequence of units, as written in units.txt. <unk> is not a letter of a word; a word of
    only <unk> is <unk>."""
    words = "".join(_NO_LETTER if unit == UNKNOWN else unit for unit in units).replace(BOUNDARY, " ").split()
    return [word.replace(_NO_LETTER, "") or UNKNOWN for word in words]


def read_units(units_dir: Path) -> list[str]:
    """The units in the order of their ids, from units.txt. Raises UserError if it is missing or does not
    number units from the blank on."""
    path = Path(units_dir) / UNITS
    table = SymbolTable.read(path)
    if list(table.ids.values()) != list(range(len(table))) or table.symbols[:2] != [BLANK, UNKNOWN]:
        raise UserError(
            f"{path}: expected '{BLANK} 0', '{UNKNOWN} 1' and so on; create it again with "
            "utils/train_subwords.py"
        )
    return table.symbols


def train_subwords(sentences: Sequence[str], options: SubwordOptions, source: str) -> Subwords:
    """Units trained on a text with words separated by blanks; the same text gives the same bytes.

    source  name of the text in messages

    Raises UserError if the text has no words, or a word that the units could not restore, and if `num_units`
    is too large or too small for the text.
    """
    import sentencepiece

    lines = [" ".join(sentence.split()) for sentence in sentences if sentence.strip()]
    if not lines:
        raise UserError(f"{source}: no words to train units on; check the file")
    if line := next(filter(_UNSPELLABLE.search, lines), ""):
        word, mark = next((word, found[0]) for word in line.split() if (found := _UNSPELLABLE.search(word)))
        name = mark if mark == UNKNOWN else f"U+{ord(mark):04X}"
        raise UserError(
            f"{source}: the word '{word}' contains {name}, {_OF_UNITS[mark]}; remove it, or put spaces "
            "around it"
        )
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_writer=model,
            model_type=options.kind,
            vocab_size=options.num_units - _OFFSET,
            character_coverage=1.0,
            normalization_rule_name="identity",
            unk_id=0,
            unk_piece=UNKNOWN,
            bos_id=-1,
            eos_id=-1,
            pad_id=-1,
            num_threads=1,
            shuffle_input_sentence=False,
            max_sentence_length=_LONGEST_LINE,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise UserError(f"{source}: {_reason(str(error), options)}") from None
    return Subwords(model.getvalue())


def _reason(message: str, options: SubwordOptions) -> str:
    """sentencepiece's message in terms of `--num-units`."""
    too_high = re.search(r"Vocabulary size too high .*<= (\d+)", message)
    if too_high:
        most = int(too_high[1]) + _OFFSET
        return (
            f"the text is too small for {options.num_units} {options.kind} units; give --num-units "
            f"{most} or fewer"
        )
    too_low = re.search(r"smaller than required_chars\. \d+ vs (\d+)", message)
    if too_low:
        least = int(too_low[1]) + _OFFSET
        return (
            f"the text has more letters than {options.num_units} units can spell; give --num-units "
            f"{least} or more"
        )
    return f"sentencepiece cannot train units on it ({message.splitlines()[0]}); check the text"


def subwords_of_data(data: Path, options: SubwordOptions, out: Path) -> Subwords:
    """Fill `out` with units trained on the transcripts of a data directory."""
    texts = list(read_table(Path(data) / "text").values())
    subwords = train_subwords(texts, options, f"{data}/text")
    subwords.write(out, {word for text in texts for word in text.split()})
    return subwords
