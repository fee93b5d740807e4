"""Counts of pronunciations and of the silences around them, in the files of Kaldi's get_prons.sh.

pron_counts.txt               `COUNT WORD PHONES...`, phones as in the language directory, `<eps>` for the
                              silences between words
pron_counts_nowb.txt          the same without the positions of phones in words, as in dictionaries
sil_counts_nowb.txt           `SILENCE_BEFORE NONE_BEFORE SILENCE_AFTER NONE_AFTER WORD PHONES...`, with <s>
                              and </s> as words
pron_bigram_counts_nowb.txt   `COUNT<tab>WORD PHONES...<tab>WORD PHONES...`: adjacent words, with or without
                              silence between them
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from pyasr.base.errors import UserError
from pyasr.io.text_tables import read_lines
from pyasr.lang.lexicons.dict_dir import POSITIONS
from pyasr.lang.symbols import EPSILON, write_lines

BEGIN, END = ("<s>",), ("</s>",)
PRON_COUNTS = "pron_counts_nowb.txt"
SILENCE_COUNTS = "sil_counts_nowb.txt"
BIGRAM_COUNTS = "pron_bigram_counts_nowb.txt"
Token = tuple[str, ...]  # a word and its phones


@dataclass
class SilenceCounts:
    """Counts with and without silence before and after a pronunciation: C(s w), C(n w), C(w s), C(w n)."""

    before: int = 0
    none_before: int = 0
    after: int = 0
    none_after: int = 0


@dataclass
class PronCounts:
    """Counts over utterances.

    prons      (word, phones...) with positions -> count, including silences
    silences   (word, phones...) without positions -> SilenceCounts
    bigrams    pairs of those -> count, with or without silence between them
    """

    prons: Counter = field(default_factory=Counter)
    silences: dict[Token, SilenceCounts] = field(default_factory=dict)
    bigrams: Counter = field(default_factory=Counter)

    def add(self, utterance: list[Token]) -> None:
        """Add the words and silences (`<eps>`) of an utterance, in order."""
        self.prons.update(utterance)
        last: Token = BEGIN
        silent = False
        for token in [*map(without_positions, utterance), END]:
            if token[0] == EPSILON:
                silent = True
                continue
            self._pair(last, token, silent)
            last, silent = token, False

    def _pair(self, left: Token, right: Token, silent: bool) -> None:
        self.bigrams[left, right] += 1
        one, two = (self.silences.setdefault(token, SilenceCounts()) for token in (left, right))
        if silent:
            one.after += 1
            two.before += 1
        else:
            one.none_after += 1
            two.none_before += 1

    def write(self, out: Path) -> None:
        """Write the four files to `out`."""
        plain: Counter = Counter()
        for token, count in self.prons.items():
            plain[without_positions(token)] += count
        for name, counts in (("pron_counts.txt", self.prons), (PRON_COUNTS, plain)):
            ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
            write_lines(out / name, (f"{count} {' '.join(token)}" for token, count in ordered))
        rows = sorted(self.silences.items())
        write_lines(
            out / SILENCE_COUNTS,
            (f"{' '.join(map(str, vars(counts).values()))} {' '.join(token)}" for token, counts in rows),
        )
        pairs = sorted(self.bigrams.items())
        write_lines(
            out / BIGRAM_COUNTS,
            (f"{count}\t{' '.join(left)}\t{' '.join(right)}" for (left, right), count in pairs),
        )


def without_positions(token: Token) -> Token:
    """The word with its phones without _B, _E, _I, _S."""
    return (token[0], *(phone[:-2] if phone.endswith(POSITIONS) else phone for phone in token[1:]))


def read_pron_counts(directory: Path) -> PronCounts:
    """Counts in a directory of `PronCounts.write` or of Kaldi's get_prons.sh; `prons` are without positions.

    Raises UserError with file and line for malformed lines.
    """
    counts = PronCounts()
    for _, (count,), token in _rows(directory / PRON_COUNTS, 1):
        counts.prons[token] += count
    for where, numbers, token in _rows(directory / SILENCE_COUNTS, 4):
        if token in counts.silences:
            raise UserError(f"{where}: '{' '.join(token)}' occurs twice; count again with steps/get_prons.py")
        counts.silences[token] = SilenceCounts(*numbers)
    for number, line in enumerate(read_lines(directory / BIGRAM_COUNTS), 1):
        fields = line.split("\t")
        if len(fields) != 3 or not fields[0].strip().isdigit():
            raise UserError(
                f"{directory / BIGRAM_COUNTS}:{number}: expected 'COUNT<tab>WORD PHONES<tab>WORD PHONES', "
                f"found '{line}'"
            )
        counts.bigrams[tuple(fields[1].split()), tuple(fields[2].split())] += int(fields[0])
    return counts


def _rows(path: Path, num_numbers: int):
    """(file and line, counts, word with its phones) of each line."""
    for number, line in enumerate(read_lines(path), 1):
        fields = line.split()
        if len(fields) <= num_numbers or not all(field.isdigit() for field in fields[:num_numbers]):
            raise UserError(
                f"{path}:{number}: expected {num_numbers} count(s), a word and its phones, found "
                f"'{line.strip()}'"
            )
        yield f"{path}:{number}", [int(field) for field in fields[:num_numbers]], tuple(fields[num_numbers:])
