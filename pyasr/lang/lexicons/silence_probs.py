"""Probabilities of silence around words: Kaldi's `lexiconp_silprob.txt` and `silprob.txt`.

lexiconp_silprob.txt   `WORD P(pron | word) P(s | w) F(s | w) F(n | w) PHONES...`;
                       pyasr.lang.lexicons.pron_probs defines them
silprob.txt            four lines: `<s> P(s | <s>)`, `</s>_s F(s | </s>)`, `</s>_n F(n | </s>)`,
                       `overall P(s)`
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pyasr.base.errors import UserError
from pyasr.lang.lexicons.lexicon import Lexicon, Phones
from pyasr.lang.symbols import read_word_lines, write_lines

LEXICON_FILE, SILENCE_FILE = "lexiconp_silprob.txt", "silprob.txt"
_ENDS = ("<s>", "</s>_s", "</s>_n", "overall")


@dataclass(frozen=True)
class WordSilence:
    """P(silence after a word), and the corrections after silence and without it."""

    after: float
    before_silence: float
    before_none: float


@dataclass(frozen=True)
class SilenceProbs:
    """WordSilence of each (word, phones...); silence after the beginning; corrections at the end with and
    without silence; P(silence)."""

    words: dict[tuple[str, ...], WordSilence]
    begin: float
    end_silence: float
    end_none: float
    overall: float

    def around(self, word: str, phones: Phones) -> WordSilence:
        """The probabilities of a pronunciation."""
        token = (word, *phones)
        return self.words[token]

    def write(self, directory: Path, lexicon: Lexicon) -> None:
        """Write both files, with the pronunciation probabilities of `lexicon`."""
        rows = ((word, p, self.around(word, phones), phones) for word, p, phones in lexicon.rows())
        write_lines(
            directory / LEXICON_FILE,
            (
                f"{word} {p:.6g} {silence.after:.6g} {silence.before_silence:.6g} {silence.before_none:.6g} "
                f"{' '.join(phones)}"
                for word, p, silence, phones in rows
            ),
        )
        ends = zip(_ENDS, (self.begin, self.end_silence, self.end_none, self.overall))
        write_lines(directory / SILENCE_FILE, (f"{name} {value:.6g}" for name, value in ends))


def read_silence_probs(directory: Path) -> tuple[Lexicon, SilenceProbs]:
    """(lexicon with probabilities, silence) of a dictionary directory. Raises UserError with file and line
    for invalid lines."""
    lexicon, words = Lexicon(), {}
    for number, line in enumerate(read_word_lines(directory / LEXICON_FILE), 1):
        where = f"{directory / LEXICON_FILE}:{number}"
        word, probability, silence, phones = _entry(line.split(), where)
        token = (word, *phones)
        if token in words:
            raise UserError(f"{where}: '{word} {' '.join(phones)}' occurs twice; remove one of the lines")
        words[token] = silence
        lexicon.add(word, phones, probability)
    if not words:
        raise UserError(
            f"{directory / LEXICON_FILE}: no entries; create it with utils/dict_dir_add_pronprobs.py"
        )
    return lexicon, SilenceProbs(words, *_read_ends(directory / SILENCE_FILE))


def _entry(fields: list[str], where: str) -> tuple[str, float, WordSilence, Phones]:
    try:
        probability, after, *corrections = map(float, fields[1:5])
    except ValueError:
        fields = []
    if len(fields) < 6:
        raise UserError(
            f"{where}: expected 'WORD PRON_PROB SIL_PROB CORRECTION CORRECTION PHONES...'; create the file "
            "again"
        )
    if not (
        0.0 < probability <= 1.0
        and 0.0 < after < 1.0
        and all(0.0 < factor < float("inf") for factor in corrections)
    ):
        raise UserError(
            f"{where}: the probabilities of '{fields[0]}' must be above 0, the second below 1; create the "
            "file again"
        )
    return fields[0], probability, WordSilence(after, *corrections), tuple(fields[5:])


def _read_ends(path: Path) -> tuple[float, ...]:
    """begin, end_silence, end_none, overall."""
    found = {}
    for number, line in enumerate(read_word_lines(path), 1):
        name, _, value = line.strip().partition(" ")
        try:
            found[name] = float(value)
        except ValueError:
            raise UserError(
                f"{path}:{number}: expected a name and a number, found '{line.strip()}'; create the file "
                "again"
            ) from None
    if set(found) != set(_ENDS):
        raise UserError(f"{path}: expected the four lines {', '.join(_ENDS)}; create the file again")
    if not (0.0 < found["<s>"] < 1.0 and all(value > 0.0 for value in found.values())):
        raise UserError(f"{path}: all numbers must be above 0, that of <s> below 1; create the file again")
    return tuple(found[name] for name in _ENDS)
