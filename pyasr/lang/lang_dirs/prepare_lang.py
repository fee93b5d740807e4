"""Kaldi's language directory (`data/lang`) from a dictionary directory, laid out as by prepare_lang.sh."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path

from pyasr.base.cli.options import option
from pyasr.base.errors import UserError
from pyasr.io.openfst import Fst, write_fst
from pyasr.lang.lang_dirs.align_lexicon_files import write_align_lexicon
from pyasr.lang.lexicons.dict_dir import POSITIONS, DictDir, PhoneGroups
from pyasr.lang.lexicons.lexicon import Lexicon, Phones
from pyasr.lang.lexicons.lexicon_fst import OptionalSilence, Pronunciations, add_disambig, lexicon_fst
from pyasr.lang.lexicons.silence_lexicon_fst import silence_lexicon_fst
from pyasr.lang.lexicons.silence_probs import SilenceProbs
from pyasr.lang.symbols import EPSILON, SymbolTable, write_lines

_SILENCE_SUFFIXES = ("", *POSITIONS)
_BOUNDARY = {"": "nonword", "_B": "begin", "_E": "end", "_I": "internal", "_S": "singleton"}


@dataclass(frozen=True)
class LangOptions:
    """Options of a language directory."""

    position_dependent_phones: bool = option(
        True, "phones depend on their position: at the beginning, at the end or inside a word"
    )
    share_silence_phones: bool = option(
        False, "let all silence phones share one pdf per state, which the tree does not split"
    )
    sil_prob: float = option(
        0.5,
        "probability of silence between words; 0: no silence; unused if silprob.txt exists",
        minimum=0.0,
        maximum=0.999,
    )
    num_sil_states: int = option(5, "number of emitting states of silence phones", minimum=1)
    num_nonsil_states: int = option(3, "number of emitting states of the other phones", minimum=1)


def positioned(phones: Phones) -> Phones:
    """The phones of a word with their positions: (K AE T) -> (K_B AE_I T_E), (AH) -> (AH_S)."""
    if len(phones) == 1:
        return (phones[0] + "_S",)
    return (phones[0] + "_B", *(phone + "_I" for phone in phones[1:-1]), phones[-1] + "_E")


def silence_topology(num_states: int) -> list[list[tuple[int, float]]]:
    """(next state, probability) of each emitting state: the first and last are left to right, those between
    ergodic (from 4 states on)."""
    if num_states < 4:
        return bakis_topology(num_states)
    p = 1.0 / (num_states - 1)
    first = [(target, p) for target in range(num_states - 1)]
    middle = [(target, p) for target in range(1, num_states)]
    return [first, *[middle] * (num_states - 2), [(num_states - 1, 0.75), (num_states, 0.25)]]


def bakis_topology(num_states: int) -> list[list[tuple[int, float]]]:
    """Left to right: self-loop with 0.75, forward with 0.25."""
    return [[(state, 0.75), (state + 1, 0.25)] for state in range(num_states)]


def topology_text(entries: list[tuple[list[int], list[list[tuple[int, float]]]]]) -> list[str]:
    """Lines of Kaldi's `topo` for (phones, transitions) entries."""
    lines = ["<Topology>"]
    for phones, states in entries:
        lines += ["<TopologyEntry>", "<ForPhones>", " ".join(map(str, phones)), "</ForPhones>"]
        for state, transitions in enumerate(states):
            arcs = " ".join(f"<Transition> {target} {p:.8g}" for target, p in transitions)
            lines.append(f"<State> {state} <PdfClass> {state} {arcs} </State>")
        lines += [f"<State> {len(states)} </State>", "</TopologyEntry>"]
    return [*lines, "</Topology>"]


class _LangTables:
    """Tables of a language directory before they are written."""

    def __init__(self, content: DictDir, oov_word: str, options: LangOptions):
        if oov_word not in content.lexicon:
            raise UserError(
                f"the word for out-of-vocabulary words, '{oov_word}', is not in the lexicon; add a line "
                f"such as '{oov_word} SPN'"
            )
        self.content, self.oov_word, self.options = content, oov_word, options
        self.lexicon = self._positioned_lexicon()
        self.silence = [self._variants(group, _SILENCE_SUFFIXES) for group in content.silence]
        self.nonsilence = [self._variants(group, POSITIONS) for group in content.nonsilence]
        self.rows = self.lexicon.rows()
        self.silence_probs = self._positioned_silence_probs()
        self.marked, num_disambig = add_disambig([phones for _, _, phones in self.rows])
        # #0, those of the lexicon, and the one after silence
        self.disambig = [f"#{n}" for n in range(num_disambig + 2)]
        self.phones = SymbolTable.of([EPSILON, *_flat(self.silence), *_flat(self.nonsilence), *self.disambig])
        self.words = SymbolTable.of(
            [EPSILON, *sorted(self.lexicon.entries, key=str.encode), "#0", "<s>", "</s>"]
        )

    def _positioned_lexicon(self) -> Lexicon:
        if not self.options.position_dependent_phones:
            return self.content.lexicon
        lexicon = Lexicon()
        for word, probability, phones in self.content.lexicon.rows():
            lexicon.add(word, positioned(phones), probability)
        return lexicon

    def _positioned_silence_probs(self) -> SilenceProbs | None:
        """Silence around the words of `rows`, which have position-dependent phones."""
        probs = self.content.silence_probs
        if probs is None or not self.options.position_dependent_phones:
            return probs
        return replace(
            probs,
            words={(token[0], *positioned(token[1:])): silence for token, silence in probs.words.items()},
        )

    def _variants(self, group: Phones, suffixes: tuple[str, ...]) -> Phones:
        """All position-dependent variants of a group of phones, phone by phone."""
        if not self.options.position_dependent_phones:
            return group
        return tuple(phone + suffix for phone in group for suffix in suffixes)

    def write_lists(self, out: Path) -> None:
        """`phones/*.{txt,int,csl}`."""
        (out / "phones").mkdir()
        silence, nonsilence = _flat(self.silence), _flat(self.nonsilence)
        lists = {
            "silence": silence,
            "nonsilence": nonsilence,
            "context_indep": silence,
            "optional_silence": [self.content.optional_silence],
            "disambig": self.disambig,
        }
        for name, phones in lists.items():
            self._write_phones(out, name, [(phone,) for phone in phones])
            write_lines(out / f"phones/{name}.csl", [":".join(str(self.phones[phone]) for phone in phones)])
        self._write_phones(out, "sets", self._sets())
        self._write_phones(out, "extra_questions", self._extra_questions())
        self._write_phones(out, "roots", self._sets(), self._heads())
        if self.options.position_dependent_phones:
            kinds = [
                _BOUNDARY[phone[-2:] if phone.endswith(POSITIONS) else ""] for phone in silence + nonsilence
            ]
            write_lines(out / "phones/word_boundary.txt", map(" ".join, zip(silence + nonsilence, kinds)))
            write_lines(
                out / "phones/word_boundary.int",
                (f"{self.phones[p]} {kind}" for p, kind in zip(silence + nonsilence, kinds)),
            )

    def _write_phones(
        self, out: Path, name: str, groups: PhoneGroups, heads: list[str] | None = None
    ) -> None:
        heads = heads or [""] * len(groups)
        write_lines(
            out / f"phones/{name}.txt", (head + " ".join(group) for head, group in zip(heads, groups))
        )
        write_lines(
            out / f"phones/{name}.int",
            (head + " ".join(str(self.phones[p]) for p in group) for head, group in zip(heads, groups)),
        )

    def _sets(self) -> PhoneGroups:
        """Phones that share a root of the tree, and the pdfs of monophones."""
        silence = [tuple(_flat(self.silence))] if self.options.share_silence_phones else self.silence
        return silence + self.nonsilence

    def _heads(self) -> list[str]:
        """Prefix of each set: whether the states share the root, and whether it is split."""
        first = "not-shared not-split " if self.options.share_silence_phones else "shared split "
        return [first] + ["shared split "] * (len(self._sets()) - 1)

    def _extra_questions(self) -> PhoneGroups:
        """The user's questions over all variants, and questions about the position only."""
        silence = {phone for group in self.content.silence for phone in group}
        questions = [
            tuple(
                variant
                for phone in group
                for variant in self._variants((phone,), _SILENCE_SUFFIXES if phone in silence else POSITIONS)
            )
            for group in self.content.extra_questions
        ]
        if self.options.position_dependent_phones:
            questions += [
                tuple(p + suffix for group in self.content.nonsilence for p in group) for suffix in POSITIONS
            ]
            questions += [
                tuple(p + suffix for group in self.content.silence for p in group)
                for suffix in _SILENCE_SUFFIXES
            ]
        return questions

    def write_symbols(self, out: Path) -> None:
        """`phones.txt words.txt oov.{txt,int}`, the labels of #0, and the lexicon with its probabilities."""
        self.phones.write(out / "phones.txt")
        self.words.write(out / "words.txt")
        write_lines(out / "oov.txt", [self.oov_word])
        write_lines(out / "oov.int", [self.words[self.oov_word]])
        write_lines(out / "phones/wdisambig.txt", ["#0"])
        write_lines(out / "phones/wdisambig_phones.int", [self.phones["#0"]])
        write_lines(out / "phones/wdisambig_words.int", [self.words["#0"]])
        write_lines(
            out / "lexiconp.txt", (f"{word} {p:g} {' '.join(phones)}" for word, p, phones in self.rows)
        )

    def write_align_lexicon(self, out: Path) -> None:
        """`phones/align_lexicon.{txt,int}`; the optional silence belongs to no word."""
        spoken = ((word, phones) for word, _, phones in self.rows)
        write_align_lexicon(
            [(EPSILON, (self.content.optional_silence,)), *spoken], self.words, self.phones, out
        )

    def write_transducers(self, out: Path) -> None:
        """`L.fst`, and `L_disambig.fst` with disambiguation symbols and the #0 loop."""
        after_silence = self.phones[self.disambig[-1]]
        loop = (self.phones["#0"], self.words["#0"])
        write_fst(out / "L.fst", self._transducer([phones for _, _, phones in self.rows], 0, None))
        write_fst(out / "L_disambig.fst", self._transducer(self.marked, after_silence, loop))

    def _transducer(self, phones: list[Phones], disambig: int, self_loop: tuple[int, int] | None) -> Fst:
        """The lexicon with `phones` as pronunciations of its rows; silence is word-dependent if the
        dictionary has its probabilities."""
        lexicon, silence = self._pronunciations(phones), self.phones[self.content.optional_silence]
        if self.silence_probs is None:
            return lexicon_fst(lexicon, OptionalSilence(self.options.sil_prob, silence, disambig), self_loop)
        around = [self.silence_probs.around(word, plain) for word, _, plain in self.rows]
        return silence_lexicon_fst(lexicon, around, self.silence_probs, silence, disambig, self_loop)

    def _pronunciations(self, phones: list[Phones]) -> Pronunciations:
        return Pronunciations(
            [self.words[word] for word, _, _ in self.rows],
            [-math.log(p) for _, p, _ in self.rows],
            [tuple(self.phones[phone] for phone in variant) for variant in phones],
        )

    def write_topology(self, out: Path) -> None:
        """Write `topo`: Bakis topologies of the numbers of states that the options give."""
        entries = [
            (
                [self.phones[p] for p in _flat(self.nonsilence)],
                bakis_topology(self.options.num_nonsil_states),
            ),
            ([self.phones[p] for p in _flat(self.silence)], silence_topology(self.options.num_sil_states)),
        ]
        write_lines(out / "topo", topology_text(entries))


def _flat(groups: PhoneGroups) -> list[str]:
    return [phone for group in groups for phone in group]


def write_lang(content: DictDir, oov_word: str, options: LangOptions, out: Path) -> None:
    """Fill the existing directory `out`. Raises UserError if `oov_word` is not in the lexicon."""
    builder = _LangTables(content, oov_word, options)
    builder.write_lists(out)
    builder.write_symbols(out)
    builder.write_align_lexicon(out)
    builder.write_transducers(out)
    builder.write_topology(out)
