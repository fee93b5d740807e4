"""Reading Kaldi's language directory (`data/lang`): symbols, phone lists, lexicon, topology."""

from __future__ import annotations

import re
from functools import cached_property
from pathlib import Path

from pyasr.base.errors import UserError
from pyasr.io.text_tables import read_lines
from pyasr.lang.lexicons.dict_dir import POSITIONS
from pyasr.lang.lexicons.lexicon import Lexicon, read_lexicon
from pyasr.lang.symbols import EPSILON, SymbolTable

_MAX_INT32 = (1 << 31) - 1
_ROOT = re.compile(r"(shared|not-shared)\s+(split|not-split)((?:\s+[0-9]{1,9})+)")
_BOUNDARY = re.compile(r"([0-9]{1,9})\s+(nonword|begin|end|internal|singleton)")


class LangDir:
    """A language directory of pyasr or Kaldi; each table is read at its first use.

    Lists of phones are sorted lists of integers. Raises UserError with the name of a missing or damaged file.
    """

    def __init__(self, path: Path):
        self.path = Path(path)
        if not (self.path / "phones.txt").exists():
            raise UserError(
                f"{self.path}: not a language directory (no phones.txt); create it with utils/prepare_lang.py"
            )

    @property
    def topo(self) -> Path:
        return self.path / "topo"

    @property
    def lexicon_fst(self) -> Path:
        return self.path / "L.fst"

    @property
    def lexicon_disambig_fst(self) -> Path:
        return self.path / "L_disambig.fst"

    @cached_property
    def phones(self) -> SymbolTable:
        return SymbolTable.read(self.path / "phones.txt")

    @cached_property
    def words(self) -> SymbolTable:
        return SymbolTable.read(self.path / "words.txt")

    @cached_property
    def silence_phones(self) -> list[int]:
        return self._phone_list("silence")

    @cached_property
    def nonsilence_phones(self) -> list[int]:
        found = self._phone_list("nonsilence")
        if not found:
            raise UserError(
                f"{self.path}/phones/nonsilence.int: no phones except silence; run utils/validate_lang.py"
            )
        return found

    @cached_property
    def real_phones(self) -> list[int]:
        """All phones that have HMMs: silence and non-silence."""
        return sorted(self.silence_phones + self.nonsilence_phones)

    @cached_property
    def context_indep_phones(self) -> list[int]:
        return self._phone_list("context_indep")

    @cached_property
    def disambig_phones(self) -> list[int]:
        """Ids of #0, #1, ..."""
        return self._phone_list("disambig")

    @cached_property
    def optional_silence(self) -> int:
        """Id of the optional silence phone between words."""
        return self._single("phones/optional_silence.int")

    @cached_property
    def oov_word(self) -> str:
        words = "".join(read_lines(self.path / "oov.txt")).split()
        if len(words) != 1:
            raise UserError(
                f"{self.path}/oov.txt: expected one word, that of out-of-vocabulary words, found "
                f"{len(words)}; correct it"
            )
        return words[0]

    @cached_property
    def oov(self) -> int:
        """Id of the word that replaces out-of-vocabulary words."""
        return self._id(self.words, self.oov_word, "words.txt")

    @cached_property
    def sets(self) -> list[list[int]]:
        """Variants of a phone (positions, stress), whose statistics are pooled for the questions."""
        return self._int_lines("phones/sets.int")

    @cached_property
    def extra_questions(self) -> list[list[int]]:
        return self._int_lines("phones/extra_questions.int")

    @cached_property
    def roots(self) -> list[tuple[bool, bool, list[int]]]:
        """Roots of the decision tree: (states share a root, it may be split, phones)."""
        rows = []
        for number, line in enumerate(read_lines(self.path / "phones/roots.int"), 1):
            match = _ROOT.fullmatch(line.strip())
            if not match:
                raise UserError(
                    f"{self.path}/phones/roots.int:{number}: expected '[not-]shared [not-]split PHONES', "
                    f"found '{line}'"
                )
            rows.append(
                (match[1] == "shared", match[2] == "split", [int(phone) for phone in match[3].split()])
            )
        return rows

    @cached_property
    def word_boundary(self) -> dict[int, str]:
        """Phone -> nonword, begin, end, internal or singleton; empty if phones do not depend on position."""
        path, found = self.path / "phones/word_boundary.int", {}
        for number, line in enumerate(read_lines(path) if path.exists() else [], 1):
            match = _BOUNDARY.fullmatch(line.strip())
            if not match:
                raise UserError(
                    f"{path}:{number}: expected 'PHONE nonword|begin|end|internal|singleton', found "
                    f"'{line}'; correct the line"
                )
            found[int(match[1])] = match[2]
        return found

    @cached_property
    def align_lexicon(self) -> list[tuple[int, tuple[int, ...]]]:
        """(word, phones) of all pronunciations, as ids; word 0 with the optional silences between words."""
        rows = self._int_lines("phones/align_lexicon.int")
        short = [number for number, row in enumerate(rows, 1) if len(row) < 3]
        if short:
            raise UserError(
                f"{self.path}/phones/align_lexicon.int:{short[0]}: expected 'WORD WORD PHONES' in numbers; "
                "create the directory with utils/prepare_lang.py"
            )
        return [(word, tuple(phones)) for _, word, *phones in rows]

    @cached_property
    def lexicon(self) -> Lexicon:
        """Words, their pronunciations in position-dependent phones, probabilities (1 in directories of Kaldi,
        which do not store them)."""
        path = self.path / "lexiconp.txt"
        if path.exists():
            return read_lexicon(path)
        lexicon = Lexicon()
        for number, line in enumerate(read_lines(self.path / "phones/align_lexicon.txt"), 1):
            fields = line.split()
            if len(fields) < 3:
                raise UserError(
                    f"{self.path}/phones/align_lexicon.txt:{number}: expected 'WORD WORD PHONES', found "
                    f"'{line}'; correct it"
                )
            if fields[0] != EPSILON:
                lexicon.add(fields[0], tuple(fields[2:]))
        return lexicon

    @property
    def pronunciation_files(self) -> list[Path]:
        """Files that define the pronunciations and silences, for the fingerprints of a stage output."""
        lexicon = "lexiconp.txt" if (self.path / "lexiconp.txt").exists() else "phones/align_lexicon.txt"
        return [
            self.path / name
            for name in ("phones.txt", "words.txt", "oov.txt", "phones/optional_silence.int", lexicon)
        ]

    @cached_property
    def pronunciation_ids(self) -> dict[tuple[int, ...], list[int]]:
        """Phone ids of a pronunciation -> ids of the words that have it."""
        found: dict[tuple[int, ...], list[int]] = {}
        for word, _, phones in self.lexicon.rows():
            ids = tuple(self._id(self.phones, phone, "phones.txt") for phone in phones)
            found.setdefault(ids, []).append(self._id(self.words, word, "words.txt"))
        return found

    def base_phone(self, phone: int) -> str:
        """Name of the phone without its position in the word: AA_B -> AA."""
        name = self.phones.symbol(phone)
        return name[:-2] if name.endswith(POSITIONS) else name

    def _phone_list(self, name: str) -> list[int]:
        return sorted(phone for line in self._int_lines(f"phones/{name}.int") for phone in line)

    def _int_lines(self, name: str) -> list[list[int]]:
        try:
            rows = [[int(field) for field in line.split()] for line in read_lines(self.path / name)]
        except ValueError as error:
            raise UserError(
                f"{self.path / name}: not a list of whole numbers ({error}); run utils/validate_lang.py"
            ) from None
        if any(not 0 <= number <= _MAX_INT32 for row in rows for number in row):
            raise UserError(
                f"{self.path / name}: a number below 0 or above {_MAX_INT32}; run utils/validate_lang.py"
            )
        return rows

    def _single(self, name: str) -> int:
        values = [value for line in self._int_lines(name) for value in line]
        if len(values) != 1:
            raise UserError(f"{self.path / name}: expected one number, found {len(values)}")
        return values[0]

    def _id(self, table: SymbolTable, symbol: str, name: str) -> int:
        if symbol not in table:
            raise UserError(f"{self.path / name}: no entry for '{symbol}'; run utils/validate_lang.py")
        return table[symbol]
