"""Checks of a language directory, which report all problems at once."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np

from pyasr.base.errors import UserError
from pyasr.io.openfst import Fst, read_fst
from pyasr.io.text_tables import read_lines
from pyasr.lang.fst.fst_ops import infinite_arcs
from pyasr.lang.lang_dirs.subwords import BLANK
from pyasr.lang.symbols import EPSILON, SymbolTable

_LISTS = ("silence", "nonsilence", "optional_silence", "disambig", "context_indep")
_GROUPS = ("sets", "roots", "extra_questions", "align_lexicon")
_KINDS = ("nonword", "begin", "end", "internal", "singleton")
_HEADS = {"roots": 2, "align_lexicon": 2}  # leading fields that are not phones


def find_problems(directory: Path) -> list[str]:
    """Inconsistencies of a language directory, one sentence each with its repair; empty if there are none.

    Checks the symbol tables, the lists of phones in their three forms, roots, sets, questions, word
    boundaries, the OOV word, the topology and both lexicon transducers (also G.fst, if it exists). In a
    directory of CTC units, which have neither word positions nor HMMs, it checks the symbol tables, the
    disambiguation symbols, the spellings and the transducers.
    """
    check = _Check(Path(directory))
    check.symbol_tables()
    if check.phones and check.words:
        for part in check.parts():
            part()
    return check.problems


class _Check:
    def __init__(self, directory: Path):
        self.directory = directory
        self.problems: list[str] = []
        self.maker = "utils/prepare_lang.py"
        self.phones = SymbolTable({})
        self.words = SymbolTable({})
        self.lists: dict[str, list[str]] = {}

    def add(self, name: str, problem: str) -> None:
        """Add a problem of the file `name`."""
        self.problems.append(f"{self.directory / name}: {problem}")

    def lines(self, name: str, needed: bool = True) -> list[list[str]]:
        """Fields of the lines of a file; a missing file is a problem if it is needed."""
        if not (self.directory / name).exists():
            if needed:
                self.add(name, f"missing; create the directory again with {self.maker}")
            return []
        try:
            return [line.split() for line in read_lines(self.directory / name)]
        except UserError as error:
            self.problems.append(str(error))
            return []

    def symbol_tables(self) -> None:
        """phones.txt and words.txt: readable, numbered from 0 without gaps, with the symbols that every
        directory has."""
        self.phones, self.words = (self._table(name) for name in ("phones.txt", "words.txt"))
        for symbol in ("#0", "<s>", "</s>"):
            if self.words and symbol not in self.words:
                self.add("words.txt", f"no '{symbol}'; add it at the end")

    def _table(self, name: str) -> SymbolTable:
        try:
            table = SymbolTable.read(self.directory / name)
        except UserError as error:
            self.problems.append(str(error))
            return SymbolTable({})
        if table.get(EPSILON) != 0:
            self.add(name, f"'{EPSILON}' must have the id 0")
        if sorted(table.ids.values()) != list(range(len(table))):
            self.add(name, f"the ids are not 0 to {len(table) - 1} without gaps; renumber the symbols")
        return table

    def parts(self) -> tuple[Callable[[], None], ...]:
        """The other checks: fewer files if the first phone is the blank, because phones are then units of a
        CTC network."""
        if self.phones.get(BLANK) == 1:
            self.maker = "utils/prepare_ctc_lang.py"
            return self.units, self.transducers
        return (
            self.phone_lists,
            self.partition,
            self.groups,
            self.word_boundaries,
            self.oov,
            self.topology,
            self.transducers,
        )

    def units(self) -> None:
        """phones/{disambig,align_lexicon}: existing units, the same in .txt and .int."""
        self._phone_list("disambig")
        self._backoff_symbol()
        self._group("align_lexicon")

    def phone_lists(self) -> None:
        """phones/{silence,nonsilence,...}: existing phones, the same in .txt, .int and .csl."""
        for name in _LISTS:
            ids = self._phone_list(name)
            colons = [field for row in self.lines(f"phones/{name}.csl") for field in row]
            if colons and colons != [":".join(str(i) for row in ids for i in row)]:
                self.add(f"phones/{name}.csl", f"differs from {name}.txt; write its ids joined by colons")

    def _phone_list(self, name: str) -> list[list[str]]:
        """Ids of phones/NAME.txt by line."""
        rows = self.lines(f"phones/{name}.txt")
        self.lists[name] = [phone for row in rows for phone in row]
        self._known(f"phones/{name}.txt", self.lists[name])
        return self._same_as_int(name, rows, 0)

    def _known(self, name: str, phones: list[str]) -> None:
        unknown = [phone for phone in phones if phone not in self.phones]
        if unknown:
            self.add(
                name, f"{len(unknown)} phone(s) are not in phones.txt, such as {unknown[0]}; remove them"
            )

    def _same_as_int(self, name: str, rows: list[list[str]], heads: int) -> list[list[str]]:
        """Ids of `rows`; a problem if phones/NAME.int differs. The first `heads` fields are copied
        (align_lexicon: word ids)."""
        table = {symbol: str(number) for symbol, number in self.phones.ids.items()}
        first = (
            {word: str(number) for word, number in self.words.ids.items()} if name == "align_lexicon" else {}
        )
        expected = [
            [first.get(field, field) for field in row[:heads]]
            + [table.get(field, "?") for field in row[heads:]]
            for row in rows
        ]
        found = self.lines(f"phones/{name}.int")
        if found and found != expected:
            line = next(
                (n for n, (a, b) in enumerate(zip(found, expected), 1) if a != b),
                min(len(found), len(expected)) + 1,
            )
            self.add(f"phones/{name}.int:{line}", f"differs from {name}.txt; write the ids of its phones")
        return expected

    def partition(self) -> None:
        """Silence, non-silence and disambiguation symbols: together all phones, each once."""
        kinds = [
            phone for name in ("silence", "nonsilence", "disambig") for phone in self.lists.get(name, [])
        ]
        for phone in sorted({p for p in kinds if kinds.count(p) > 1}):
            self.add("phones", f"{phone} is listed twice in silence, nonsilence and disambig; remove one")
        for phone in sorted(set(self.phones.symbols) - set(kinds) - {EPSILON}):
            self.add(
                "phones.txt",
                f"{phone} is not in phones/silence.txt, nonsilence.txt or disambig.txt; add it to one",
            )
        self._backoff_symbol()
        if len(self.lists["optional_silence"]) != 1 or not set(self.lists["optional_silence"]) <= set(
            self.lists["silence"]
        ):
            self.add("phones/optional_silence.txt", "must contain exactly one phone of silence.txt")

    def _backoff_symbol(self) -> None:
        if "#0" not in self.lists["disambig"]:
            self.add("phones/disambig.txt", "no #0; the grammar's back-off arcs need it")

    def groups(self) -> None:
        """phones/{sets,roots,extra_questions,align_lexicon}: the same in .txt and .int; each phone once in
        sets and in roots."""
        real = set(self.lists["silence"]) | set(self.lists["nonsilence"])
        for name in _GROUPS:
            phones = self._group(name, needed=name != "align_lexicon")
            if name in ("sets", "roots") and sorted(phones) != sorted(real):
                odd = sorted(real ^ set(phones)) or sorted({p for p in phones if phones.count(p) > 1})
                self.add(
                    f"phones/{name}.txt",
                    f"must contain every silence and non-silence phone once; check {odd[0]}",
                )

    def _group(self, name: str, needed: bool = True) -> list[str]:
        """Phones of phones/NAME.txt, without the leading fields of its lines."""
        heads, rows = _HEADS.get(name, 0), self.lines(f"phones/{name}.txt", needed)
        phones = [phone for row in rows for phone in row[heads:]]
        self._known(f"phones/{name}.txt", phones)
        self._same_as_int(name, rows, heads)
        return phones

    def word_boundaries(self) -> None:
        """phones/word_boundary, if it exists: a kind for each phone, the same in .txt and .int."""
        rows = self.lines("phones/word_boundary.txt", needed=False)
        if not rows:
            return
        bad = next((n for n, row in enumerate(rows, 1) if len(row) != 2 or row[1] not in _KINDS), None)
        if bad:
            self.add(
                f"phones/word_boundary.txt:{bad}",
                f"expected 'PHONE KIND' with KIND one of {', '.join(_KINDS)}",
            )
            return
        if sorted(row[0] for row in rows) != sorted(self.lists["silence"] + self.lists["nonsilence"]):
            self.add("phones/word_boundary.txt", "must contain every silence and non-silence phone once")
        expected = [[str(self.phones.get(phone, "?")), kind] for phone, kind in rows]
        if self.lines("phones/word_boundary.int") != expected:
            self.add(
                "phones/word_boundary.int", "differs from word_boundary.txt; write the ids of its phones"
            )

    def oov(self) -> None:
        """oov.txt and oov.int: one word of words.txt, and its id."""
        word = [field for row in self.lines("oov.txt") for field in row]
        number = [field for row in self.lines("oov.int") for field in row]
        if len(word) != 1 or word[0] not in self.words:
            self.add("oov.txt", "must contain one word of words.txt")
        elif number != [str(self.words[word[0]])]:
            self.add("oov.int", f"must contain {self.words[word[0]]}, the id of {word[0]}")

    def topology(self) -> None:
        """topo: every phone with HMM states, once."""
        text = " ".join(field for row in self.lines("topo") for field in row)
        named = [
            field for part in re.findall(r"<ForPhones>(.*?)</ForPhones>", text) for field in part.split()
        ]
        real = {self.phones.get(phone) for phone in self.lists["silence"] + self.lists["nonsilence"]}
        if text and sorted(named) != sorted(map(str, real)):
            self.add("topo", "must contain every silence and non-silence phone once")

    def transducers(self) -> None:
        """L.fst, L_disambig.fst and, if it exists, G.fst: labels in the tables, finite costs, all words
        pronounced, the #0 loop."""
        lexicon, disambig = self._fst("L.fst"), self._fst("L_disambig.fst")
        symbols = [self.phones[phone] for phone in self.lists["disambig"] if phone in self.phones]
        if lexicon and np.isin(lexicon.ilabels, symbols).any():
            self.add("L.fst", "has disambiguation symbols, which only L_disambig.fst may have")
        loop = (self.phones.get("#0"), self.words.get("#0"))
        if (
            disambig
            and not (
                (disambig.ilabels == loop[0])
                & (disambig.olabels == loop[1])
                & (disambig.sources == disambig.nextstates)
            ).any()
        ):
            self.add(
                "L_disambig.fst", "no #0 self-loop; a grammar with back-off arcs cannot be composed with it"
            )
        spoken = set(self.words.ids.values()) - {
            self.words.get(word) for word in (EPSILON, "#0", "<s>", "</s>")
        }
        for name, fst in (("L.fst", lexicon), ("L_disambig.fst", disambig)):
            silent = spoken - set(np.unique(fst.olabels).tolist()) if fst else ()
            if silent:
                self.add(
                    name,
                    f"{len(silent)} word(s) have no pronunciation, such as "
                    f"'{self.words.symbol(min(silent))}'",
                )
        if (self.directory / "G.fst").exists():
            self._fst("G.fst", of_words=True)

    def _fst(self, name: str, of_words: bool = False) -> Fst | None:
        if not (self.directory / name).exists():
            self.add(name, f"missing; create the directory again with {self.maker}")
            return None
        try:
            fst = read_fst(self.directory / name)
        except UserError as error:
            self.problems.append(str(error))
            return None
        for labels, table, side in (
            (fst.ilabels, self.words if of_words else self.phones, "input"),
            (fst.olabels, self.words, "output"),
        ):
            if len(labels) and (labels.min() < 0 or labels.max() >= len(table)):
                self.add(
                    name,
                    f"an {side} label is not in the symbol table; it was built with other symbols, build it "
                    "again",
                )
                return None
        if problem := infinite_arcs(fst):
            self.add(name, problem)
        if not np.isfinite(fst.finals).any():
            self.add(name, "no final state; build it again")
        return fst
