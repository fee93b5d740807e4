"""Reading Kaldi's language directory (`data/lang`): symbols, phone lists, lexicon, topology."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from pyasr.base.errors import UserError
from pyasr.io.text import read_lines
from pyasr.lang.dict_dir import POSITIONS
from pyasr.lang.lexicon import Lexicon, read_lexicon
from pyasr.lang.symbols import EPSILON, SymbolTable


class LangDir:
    """A language directory made by us or by Kaldi; every table is read when it is first asked for.

    Lists of phones are sorted lists of integers. Raises UserError naming the file that is missing or damaged.
    """

    def __init__(self, path: Path):
        self.path = Path(path)
        if not (self.path / "phones.txt").exists():
            raise UserError(f"{self.path}: not a language directory (no phones.txt); make it with utils/prepare_lang.py")

    @property
    def topo(self) -> Path:
        return self.path / "topo"

    @property
    def lexicon_fst(self) -> Path:
        return self.path / "L.fst"

    @property
    def lexicon_disambig_fst(self) -> Path:
        return self.path / "L_disambig.fst"

    @property
    def grammar_fst(self) -> Path:
        return self.path / "G.fst"

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
        return self._phone_list("nonsilence")

    @cached_property
    def real_phones(self) -> list[int]:
        """All phones that have HMMs: silence and non-silence."""
        return sorted(self.silence_phones + self.nonsilence_phones)

    @cached_property
    def context_indep_phones(self) -> list[int]:
        return self._phone_list("context_indep")

    @cached_property
    def disambig_phones(self) -> list[int]:
        """The ids of #0, #1, ..."""
        return self._phone_list("disambig")

    @cached_property
    def backoff_phone(self) -> int:
        """#0 among the phones."""
        return self._id(self.phones, "#0", "phones.txt")

    @cached_property
    def backoff_word(self) -> int:
        """#0 among the words."""
        return self._id(self.words, "#0", "words.txt")

    @cached_property
    def optional_silence(self) -> int:
        """The silence phone that may stand between words."""
        return self._single("phones/optional_silence.int")

    @cached_property
    def oov_word(self) -> str:
        return read_lines(self.path / "oov.txt")[0].strip()

    @cached_property
    def oov(self) -> int:
        """The id of the word that stands for all words outside the vocabulary."""
        return self._id(self.words, self.oov_word, "words.txt")

    @cached_property
    def sets(self) -> list[list[int]]:
        """Variants of one phone (positions, stress) that questions are built from together."""
        return self._int_lines("phones/sets.int")

    @cached_property
    def extra_questions(self) -> list[list[int]]:
        return self._int_lines("phones/extra_questions.int")

    @cached_property
    def roots(self) -> list[tuple[bool, bool, list[int]]]:
        """Roots of the decision tree: (states share a root, it may be split, phones)."""
        rows = []
        for number, line in enumerate(read_lines(self.path / "phones/roots.int"), 1):
            shared, split, *phones = line.split()
            if shared not in ("shared", "not-shared") or split not in ("split", "not-split"):
                raise UserError(f"{self.path}/phones/roots.int:{number}: expected '[not-]shared [not-]split PHONES', found '{line}'")
            rows.append((shared == "shared", split == "split", [int(phone) for phone in phones]))
        return rows

    @cached_property
    def word_boundary(self) -> dict[int, str]:
        """Phone -> nonword, begin, end, internal or singleton; empty where phones do not depend on their position."""
        path = self.path / "phones/word_boundary.int"
        return {int(phone): kind for phone, kind in (line.split() for line in read_lines(path))} if path.exists() else {}

    @cached_property
    def align_lexicon(self) -> list[tuple[int, tuple[int, ...]]]:
        """(word, phones) of all pronunciations, in numbers; word 0 with the silences that may stand between words."""
        rows = self._int_lines("phones/align_lexicon.int")
        short = [number for number, row in enumerate(rows, 1) if len(row) < 3]
        if short:
            raise UserError(f"{self.path}/phones/align_lexicon.int:{short[0]}: expected 'WORD WORD PHONES' in numbers; "
                            "make the directory with utils/prepare_lang.py")
        return [(word, tuple(phones)) for _, word, *phones in rows]

    @cached_property
    def lexicon(self) -> Lexicon:
        """Words, their pronunciations in position-dependent phones, probabilities (1 where Kaldi made the directory: it keeps none)."""
        path = self.path / "lexiconp.txt"
        if path.exists():
            return read_lexicon(path)
        lexicon = Lexicon()
        for line in read_lines(self.path / "phones/align_lexicon.txt"):
            word, _, *phones = line.split()
            if word != EPSILON:
                lexicon.add(word, tuple(phones))
        return lexicon

    @cached_property
    def pronunciation_ids(self) -> dict[tuple[int, ...], list[int]]:
        """Phone ids of a pronunciation -> the words that have it, as ids."""
        found: dict[tuple[int, ...], list[int]] = {}
        for word, _, phones in self.lexicon.rows():
            found.setdefault(tuple(self.phones[phone] for phone in phones), []).append(self.words[word])
        return found

    def base_phone(self, phone: int) -> str:
        """The phone without its position in the word: AA_B -> AA."""
        name = self.phones.symbol(phone)
        return name[:-2] if name.endswith(POSITIONS) else name

    def _phone_list(self, name: str) -> list[int]:
        return sorted(phone for line in self._int_lines(f"phones/{name}.int") for phone in line)

    def _int_lines(self, name: str) -> list[list[int]]:
        try:
            return [[int(field) for field in line.split()] for line in read_lines(self.path / name)]
        except ValueError as error:
            raise UserError(f"{self.path / name}: not a list of whole numbers ({error}); run utils/validate_lang.py") from None

    def _single(self, name: str) -> int:
        values = [value for line in self._int_lines(name) for value in line]
        if len(values) != 1:
            raise UserError(f"{self.path / name}: expected one number, found {len(values)}")
        return values[0]

    def _id(self, table: SymbolTable, symbol: str, name: str) -> int:
        if symbol not in table:
            raise UserError(f"{self.path / name}: no entry for '{symbol}'; run utils/validate_lang.py")
        return table[symbol]
