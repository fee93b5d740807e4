"""User grammars: an FST in OpenFst's text or binary format, checked and converted to the G.fst of a lang dir.

    0 1 call            FROM TO WORD [COST] of an acceptor, FROM TO INPUT OUTPUT [COST] of a transducer
    1 2 ann 0.7
    1 2 bob 0.7
    2 0 <eps>
    2 0.1               STATE [COST]: a final state; the start is the state of the first line

Words are symbols of words.txt or their ids; costs are -ln of probabilities. Arcs without a word get the input
#0, as in Kaldi's `eps2disambig.pl`, so that the composition with L_disambig.fst can be determinised.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pyasr.base import log
from pyasr.base.errors import UserError
from pyasr.base.utf8 import text_of
from pyasr.io.openfst import Fst, is_binary_fst, parse_fst
from pyasr.lang.fst import fst_ops as ops
from pyasr.lang.lexicons.dict_dir import reserved
from pyasr.lang.symbols import BACKOFF, EPSILON, SymbolTable

MAX_COST = 228.0  # cost of a probability of 1e-99
_FORMS = {
    True: "'FROM TO WORD [COST]' or 'STATE [COST]'",
    False: "'FROM TO INPUT OUTPUT [COST]' or 'STATE [COST]'",
}
_STATE = re.compile(r"[0-9]{1,9}")
_COST = re.compile(r"[+-]?(([0-9]+(\.[0-9]*)?|\.[0-9]+)(e[+-]?[0-9]+)?|inf(inity)?)", re.IGNORECASE)
_HEAD_BYTES = 1 << 16  # size of the beginning of a file from which its format is detected
_NAMED = 10  # maximum number of words in a message
_MIN_TRIED = 20_000  # minimum limit of states in the attempt to determinise a grammar


@dataclass
class _Draft:
    """A grammar before the checks: arrays over its arcs, labels are ids of words.txt; `lines` are line
    numbers of a text, else None."""

    path: Path
    start: int
    sources: np.ndarray
    targets: np.ndarray
    ilabels: np.ndarray
    olabels: np.ndarray
    costs: np.ndarray
    finals: np.ndarray
    lines: np.ndarray | None = None

    def place(self, arc: int) -> str:
        """Location of an arc, for messages."""
        return (
            f"{self.path}: an arc from state {self.sources[arc]}"
            if self.lines is None
            else f"{self.path}:{self.lines[arc]}"
        )


def is_grammar_fst(content: bytes) -> bool:
    """Whether the content of a file is a binary FST, or text that begins with an arc or a final state."""
    if is_binary_fst(content):
        return True
    head = content[:_HEAD_BYTES]
    fields = head.lstrip().partition(b"\n")[0].split()
    is_row = 0 < len(fields) <= 5 and fields[0].isdigit() and (len(fields) < 3 or fields[1].isdigit())
    return is_row and not re.search(rb"(?m)^\\data\\", head)


def read_grammar_fst(content: bytes, path: Path, words: SymbolTable, acceptor: bool | None = None) -> Fst:
    """The G.fst of the content of a grammar file, arcs sorted by input label.

    words     words.txt of the lang dir
    acceptor  whether arcs of a text have one label; None if the lines are unambiguous

    Raises UserError, with the line number in a text, for words that are not in words.txt, `<s>` and `</s>`,
    costs that are not finite, unreachable final states, cycles without a word, and a grammar that cannot be
    determinised.
    """
    path = Path(path)
    if is_binary_fst(content):
        if acceptor is not None:
            raise UserError(f"--acceptor cannot be used with {path}, a binary FST; omit --acceptor")
        draft = _of_binary(content, path, words)
    else:
        draft = _TextReader(text_of(content, path), path, words, acceptor).draft()
    _check_labels(draft, words)
    _check_costs(draft)
    grammar = _useful_part(_with_backoff_labels(draft, words[BACKOFF]), path)
    _check_silent_cycles(grammar, words[BACKOFF], path)
    _check_determinisable(grammar, words, path)
    return grammar.arcsort("ilabel")


def _of_binary(content: bytes, path: Path, words: SymbolTable) -> _Draft:
    """Labels by the symbol tables in the file, which may number words differently, or as ids of words.txt."""
    fst, tables = parse_fst(content, path)
    if fst.start < 0:
        raise UserError(f"{path}: the grammar is empty; give one with a start state and a final state")
    ids = {str(number): number for number in words.ids.values()}
    ilabels, olabels = (
        _ids_of(column, table, words.ids if table else ids, path)
        for column, table in zip((fst.ilabels, fst.olabels), tables)
    )
    return _Draft(
        path,
        fst.start,
        fst.sources,
        fst.nextstates,
        ilabels,
        olabels,
        fst.weights.astype(np.float64),
        fst.finals,
    )


def _ids_of(labels: np.ndarray, table: dict[int, str], ids: dict[str, int], path: Path) -> np.ndarray:
    """Ids of words.txt of labels, which `table` maps to words or which are ids themselves."""
    distinct, where = np.unique(labels, return_inverse=True)
    names = [EPSILON if label == 0 and table else table.get(int(label), str(label)) for label in distinct]
    _check_known([name for name in names if name not in ids], ids, f"{path}")
    return np.array([ids[name] for name in names], np.int64)[where.reshape(labels.shape)]


def _check_known(unknown: list[str], ids: dict[str, int], where: str) -> None:
    """Raise UserError if labels are not in words.txt."""
    if unknown := list(dict.fromkeys(unknown)):
        shown = " ".join(unknown[:_NAMED]) + " ..." * (len(unknown) > _NAMED)
        cases = {word.casefold(): word for word in ids}
        other = next((cases[word.casefold()] for word in unknown if word.casefold() in cases), "")
        hint = (
            f"; words.txt has {other}: change the case of one of the two, as by tr A-Z a-z" if other else ""
        )
        fault = f"{len(unknown)} label(s) are not in words.txt: {shown}"
        raise UserError(f"{where}: {fault}; add the words to the dictionary, or remove them{hint}")


class _TextReader:
    """Lines of OpenFst's text format; states may have any numbers."""

    def __init__(self, text: str, path: Path, words: SymbolTable, acceptor: bool | None):
        self.path = path
        self.rows = [
            (number, fields) for number, line in enumerate(text.split("\n"), 1) if (fields := line.split())
        ]
        arcs = [fields for _, fields in self.rows if len(fields) > 2]
        inputs = {fields[2] for fields in arcs}
        by_id = not inputs <= words.ids.keys() and all(map(_STATE.fullmatch, inputs))
        self.ids = {str(number): number for number in words.ids.values()} if by_id else words.ids
        if not arcs:
            raise UserError(f"{path}: no arcs; give lines {_FORMS[True]}")
        self.acceptor = self._is_acceptor(arcs) if acceptor is None else acceptor
        self.states: dict[str, int] = {}

    def _is_acceptor(self, arcs: list[list[str]]) -> bool:
        """Decided by the number of columns, else by whether the fourth column contains costs or labels."""
        widths = {len(fields) for fields in arcs}
        if 5 in widths or 3 in widths:
            return 5 not in widths
        are_costs = all(_COST.fullmatch(fields[3]) for fields in arcs)
        are_labels = all(fields[3] in self.ids for fields in arcs)
        if are_costs and are_labels and any(fields[2] != fields[3] for fields in arcs):
            raise UserError(
                f"{self.path}: the fourth column may be labels or costs; give --acceptor true for 'FROM TO "
                "WORD COST', --acceptor false for 'FROM TO INPUT OUTPUT'"
            )
        return are_costs and not are_labels

    def draft(self) -> _Draft:
        """The grammar. Raises UserError for malformed lines, and for all labels that are not in words.txt at
        once."""
        arcs, finals, lines = [], {}, []
        self._check_labels()
        for number, fields in self.rows:
            where = f"{self.path}:{number}"
            if len(fields) <= 2:
                state = self._state(fields[0], where)
                if state in finals:
                    raise UserError(
                        f"{where}: state {fields[0]} is also final on an earlier line; remove one of the two"
                    )
                finals[state] = self._cost(fields[1:], where)
            else:
                arcs.append(self._arc(fields, where))
                lines.append(number)
        sources, targets, ilabels, olabels, costs = map(np.array, zip(*arcs))
        costs_of_states = np.array([finals.get(state, np.inf) for state in range(len(self.states))])
        return _Draft(
            self.path, 0, sources, targets, ilabels, olabels, costs, costs_of_states, np.array(lines)
        )

    def _check_labels(self) -> None:
        end = 3 if self.acceptor else 4
        labels = (
            (number, label) for number, fields in self.rows if len(fields) > 2 for label in fields[2:end]
        )
        if unknown := [(number, label) for number, label in labels if label not in self.ids]:
            _check_known([label for _, label in unknown], self.ids, f"{self.path}:{unknown[0][0]}")

    def _arc(self, fields: list[str], where: str) -> tuple[int, int, int, int, float]:
        """(from, to, input, output, cost)."""
        width = 1 if self.acceptor else 2
        if not 2 + width <= len(fields) <= 3 + width:
            raise UserError(
                f"{where}: {len(fields)} columns, expected {_FORMS[self.acceptor]}; correct the line"
            )
        source, target = (self._state(field, where) for field in fields[:2])
        labels = [self.ids[label] for label in fields[2 : 2 + width]]
        return source, target, labels[0], labels[-1], self._cost(fields[2 + width :], where)

    def _state(self, field: str, where: str) -> int:
        if not _STATE.fullmatch(field):
            raise UserError(
                f"{where}: '{field}' is not a state number, expected {_FORMS[self.acceptor]}; correct the "
                "line"
            )
        return self.states.setdefault(field, len(self.states))

    @staticmethod
    def _cost(fields: list[str], where: str) -> float:
        """Cost in zero or one fields."""
        if fields and not _COST.fullmatch(fields[0]):
            raise UserError(f"{where}: '{fields[0]}' is not a cost; give -ln of a probability, or omit it")
        return float(fields[0]) if fields else 0.0


def _check_labels(draft: _Draft, words: SymbolTable) -> None:
    """Raise UserError for sentence marks, which have no pronunciation."""
    for symbol in ("<s>", "</s>"):
        number = words.get(symbol, -1)
        found = np.flatnonzero((draft.ilabels == number) | (draft.olabels == number))
        if len(found):
            fault = "sentences begin at the start state and end at final states, write <eps> instead"
            raise UserError(f"{draft.place(found[0])}: '{symbol}' {reserved(symbol)}; {fault}")


def _check_costs(draft: _Draft) -> None:
    """Raise UserError for costs out of range; a final cost may be infinite, if a state is not final."""
    for arc in np.flatnonzero(~(np.abs(draft.costs) <= MAX_COST))[:1]:
        fault = f"a cost of {draft.costs[arc]:g} is not between -{MAX_COST:g} and {MAX_COST:g}, that of 1e-99"
        raise UserError(f"{draft.place(arc)}: {fault}; remove the arc, or give it another cost")
    for state in np.flatnonzero(~((np.abs(draft.finals) <= MAX_COST) | (draft.finals == np.inf)))[:1]:
        fault = f"a final cost of {draft.finals[state]:g} is not between -{MAX_COST:g} and {MAX_COST:g}"
        raise UserError(
            f"{draft.path}: {fault}; give another one, or remove the line if the state is not final"
        )


def _with_backoff_labels(draft: _Draft, backoff: int) -> Fst:
    """#0 as the input of arcs without a word; #0 removed from the outputs, because it is not a word."""
    ilabels = np.where(draft.ilabels == 0, backoff, draft.ilabels)
    olabels = np.where(draft.olabels == backoff, 0, draft.olabels)
    return Fst.from_arcs(
        len(draft.finals),
        draft.start,
        draft.sources,
        ilabels,
        olabels,
        draft.costs,
        draft.targets,
        draft.finals,
    )


def _useful_part(grammar: Fst, path: Path) -> Fst:
    """The states on paths from the start to a final state. Raises UserError if there are none."""
    useful = ops.connect(grammar)
    if useful.start < 0:
        raise UserError(
            f"{path}: no final state can be reached from the start; end with a line 'STATE [COST]' for each "
            "final state"
        )
    if unused := grammar.num_states - useful.num_states:
        log.warning(
            f"{path}: {unused} of {grammar.num_states} states are on no path from the start to a final "
            "state and are removed"
        )
    return useful


def _check_silent_cycles(grammar: Fst, backoff: int, path: Path) -> None:
    """Raise UserError for a cycle of arcs without an input word, which a sentence can repeat at will."""
    silent = np.flatnonzero(grammar.ilabels == backoff)
    sources = grammar.sources
    while len(silent):
        continues = np.zeros(grammar.num_states, bool)
        continues[sources[silent]] = True
        left = silent[continues[grammar.nextstates[silent]]]
        if len(left) == len(silent):
            fault = f"{len(left)} arc(s) without an input word are in a cycle or lead into one"
            raise UserError(f"{path}: {fault}; remove epsilons (fstrmepsilon), or one arc of the cycle")
        silent = left


def _check_determinisable(grammar: Fst, words: SymbolTable, path: Path) -> None:
    """Raise UserError if states have several arcs for a word and determinisation, which a graph needs, does
    not terminate."""
    order = np.lexsort((grammar.ilabels, grammar.sources))
    sources, labels = grammar.sources[order], grammar.ilabels[order]
    twice = np.flatnonzero((sources[1:] == sources[:-1]) & (labels[1:] == labels[:-1]))
    if not len(twice):
        return
    try:
        ops.determinize_star(grammar, max_states=max(_MIN_TRIED, 10 * grammar.num_states))
    except UserError:
        word = words.symbol(labels[twice[0]])
        fault = (
            f"it cannot be determinised: {len(twice)} arcs have the same word as another arc of their "
            f"state, the first of them {word}"
        )
        hint = (
            "give a state one arc per word if paths of the same words continue with different costs or "
            "outputs"
        )
        raise UserError(f"{path}: {fault}; {hint}") from None
