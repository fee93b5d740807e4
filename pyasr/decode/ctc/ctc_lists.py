"""N-best lists of a search without a graph, as files and as lattices.

DECODE_DIR/nbest.JOB.txt  `UTTERANCE CTC_COST LM_COST WORD WORD ...`, best first
DECODE_DIR/words.txt      the words found, which are the words of the lattices
DECODE_DIR/lat.JOB.gz     lattices: graph costs are those of the language model, acoustic costs are 10 times
                          the CTC costs
DECODE_DIR/hyp.JOB.txt    `UTTERANCE WORD WORD ...`, the best words
"""

from __future__ import annotations

from pathlib import Path
from typing import TextIO

import numpy as np

from pyasr.base.outputs.output import atomic_write
from pyasr.decode.ctc.ctc_hypotheses import CtcHypothesis
from pyasr.decode.lattices.compact_lattice import CompactLattice
from pyasr.decode.lattices.determinize import determinize
from pyasr.decode.lattices.lattice import from_arcs
from pyasr.decode.lattices.lattice_io import LatticeWriter
from pyasr.lang.symbols import EPSILON, SymbolTable
from pyasr.nn.scales import ACOUSTIC_FACTOR

_NO_WORDS = "<none>"


def list_path(out: Path, job: int) -> Path:
    """The path of a job's N-best lists."""
    return out / f"nbest.{job}.txt"


def write_list(f: TextIO, utt: str, hypotheses: list[CtcHypothesis]) -> None:
    """Write an utterance's lines of an nbest.JOB.txt."""
    f.writelines(
        f"{' '.join([utt, f'{one.ctc_cost:.6f}', f'{one.lm_cost:.6f}', *one.words])}\n" for one in hypotheses
    )


def read_list(path: Path) -> dict[str, list[CtcHypothesis]]:
    """{utterance: hypotheses, best first} of an nbest.JOB.txt. The hypotheses have no units, which the file
    does not contain."""
    found: dict[str, list[CtcHypothesis]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        utt, ctc_cost, lm_cost, *words = line.split(" ")
        found.setdefault(utt, []).append(CtcHypothesis(tuple(words), (), float(ctc_cost), float(lm_cost)))
    return found


def join_lists(out: Path, num_jobs: int) -> int:
    """Write words.txt, lat.JOB.gz and hyp.JOB.txt from nbest.JOB.txt. Returns the number of utterances."""
    lists = [read_list(list_path(out, job)) for job in range(1, num_jobs + 1)]
    spoken = {
        word for found in lists for hypotheses in found.values() for one in hypotheses for word in one.words
    }
    words = SymbolTable.of([EPSILON, *sorted(spoken or {_NO_WORDS}, key=str.encode)])
    words.write(out / "words.txt")
    for job, found in enumerate(lists, 1):
        with LatticeWriter(out / f"lat.{job}.gz") as writer, atomic_write(out / f"hyp.{job}.txt") as f:
            for utt, hypotheses in found.items():
                writer.write(utt, list_lattice(hypotheses, words))
                f.write(" ".join([utt, *hypotheses[0].words]) + "\n")
    return sum(map(len, lists))


def list_lattice(hypotheses: list[CtcHypothesis], words: SymbolTable) -> CompactLattice:
    """The lattice of distinct word sequences, with graph costs lm_cost and acoustic costs ACOUSTIC_FACTOR *
    ctc_cost.

    It has no transition-ids, because a word sequence has many alignments.
    """
    sources: list[int] = []
    targets: list[int] = []
    labels: list[int] = []
    costs: list[tuple[float, float]] = []
    finals: dict[int, float] = {}
    num_states = 1
    for one in hypotheses:
        first, state = len(sources), 0
        for word in one.words or [EPSILON]:
            sources.append(state)
            targets.append(num_states)
            labels.append(words[word])
            costs.append((0.0, 0.0))
            state, num_states = num_states, num_states + 1
        costs[first] = (one.lm_cost, ACOUSTIC_FACTOR * one.ctc_cost)
        finals[state] = 0.0
    ends = np.array([finals.get(state, np.inf) for state in range(num_states)], np.float32)
    graph, acoustic = np.array(costs).reshape(-1, 2).T
    lattice = from_arcs(0, sources, targets, np.zeros(len(sources)), labels, graph, acoustic, ends)
    widest = float(np.ptp(graph + acoustic / ACOUSTIC_FACTOR)) if len(sources) else 0.0
    return determinize(lattice, widest + 1.0, 1 / ACOUSTIC_FACTOR)[0]
