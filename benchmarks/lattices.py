#!/usr/bin/env python3
"""Size of lattices, and CPU seconds per hour of speech of all operations on them after the search.

Utterances of a data directory are decoded as by steps/decode.py. Then each operation is run on all lattices
in this process, twice; the CPU time is that of the second run, without compilation, reading and writing.
Depth is the mean number of arcs with frames that cross a frame, as in Kaldi's lattice-depth.

Example (in egs/amazon_queen/s5):
    ../../../benchmarks/lattices.py --model-dir exp/dnn --data data/test_fmllr --lm data/local/lm/fourgram
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from decoding import LM_WEIGHTS, PENALTIES, real_task

from pyasr.base.cli.options import group, option
from pyasr.base.cli.step import run_step
from pyasr.decode.align.align_lexicon import align_lexicon
from pyasr.decode.align.align_phones import align_phones
from pyasr.decode.align.align_words import align_words
from pyasr.decode.lattices.determinize import determinize
from pyasr.decode.lattices.lattice import sweep
from pyasr.decode.lattices.mbr import mbr_decode, mbr_sweep
from pyasr.decode.lattices.nbest import n_best
from pyasr.decode.lattices.word_graph import WordGraph
from pyasr.decode.rescoring.lm_rescore import rescore
from pyasr.decode.search.beam_search import Decoder
from pyasr.decode.search.decode_options import DecodeOptions
from pyasr.feats.frame_shift import FRAME_SHIFT_S
from pyasr.hmm.model.model_file import MODEL, read_transitions
from pyasr.lang.grammars.backoff_lm import BackoffLm
from pyasr.lang.lang_dirs.lang_dir import LangDir


@dataclass(frozen=True)
class Benchmark:
    graph_dir: str = option("exp/tri3/graph", "directory with HCLG.fst")
    model_dir: str = option("", "directory of the acoustic model; empty: the parent of --graph-dir")
    data: str = option("data/test", "data directory with features")
    lang: str = option("data/lang_prons_test", "lang directory of the graph")
    lm: str = option("", "language model to rescore with; empty: that of --lang")
    num_utterances: int = option(100, "utterances", minimum=1)
    decode: DecodeOptions = group(DecodeOptions)


class Table:
    """Rows of operations: CPU seconds, and size and depth of their lattices."""

    def __init__(self, num_frames: int):
        self.num_frames, self.hours = num_frames, num_frames * FRAME_SHIFT_S / 3600
        print(f"{'':<42}{'CPU s / hour':>14}{'arcs / frame':>14}{'depth':>9}", flush=True)

    def row(self, name: str, tool: Callable, items: list) -> list:
        """Run `tool` on every item, twice, and print its row; its results."""
        for _ in range(2):
            begin = time.process_time()
            results = [tool(item) for item in items]
            seconds = time.process_time() - begin
        line = f"{name:<42}{seconds / self.hours:>14.1f}"
        if hasattr(results[0], "depth"):
            depth = sum(lattice.depth * lattice.num_frames for lattice in results) / self.num_frames
            line += f"{sum(lattice.num_arcs for lattice in results) / self.num_frames:>14.2f}{depth:>9.1f}"
        print(line, flush=True)
        return results


def main(options: Benchmark) -> None:
    graph, tid2pdf, loglikes = real_task(options)
    lang, beams = LangDir(Path(options.lang)), options.decode
    trans = read_transitions(Path(options.model_dir or Path(options.graph_dir).parent) / MODEL)
    lexicon, scale = align_lexicon(lang.align_lexicon), beams.acoustic_scale
    old = BackoffLm.read(lang.path, lang.words, best=True)
    new = BackoffLm.read(Path(options.lm or lang.path), lang.words)
    decoder, table = Decoder(graph, tid2pdf, beams), Table(sum(map(len, loglikes)))
    raw = table.row("search: raw lattices", decoder.decode, loglikes)
    compact = table.row(
        "determinisation", lambda lattice: determinize(lattice, beams.lattice_beam, scale)[0], raw
    )
    table.row(
        "rescoring with another language model",
        lambda lattice: rescore(lattice, [(old, -1.0), (new, 1.0)]),
        compact,
    )
    table.row("alignment with phones", lambda lattice: align_phones(lattice, trans), compact)
    aligned = table.row("alignment with words", lambda lattice: align_words(lattice, trans, lexicon), compact)
    num_points = len(LM_WEIGHTS) * len(PENALTIES)
    table.row(
        f"best paths of {num_points} points, raw", lambda lattice: sweep(lattice, LM_WEIGHTS, PENALTIES), raw
    )
    table.row(
        f"best paths of {num_points} points", lambda lattice: sweep(lattice, LM_WEIGHTS, PENALTIES), compact
    )
    table.row(
        f"minimum risk of {num_points} points",
        lambda lattice: mbr_sweep(lattice, LM_WEIGHTS, PENALTIES),
        compact,
    )
    table.row(
        "words, times and confidences", lambda lattice: mbr_decode(WordGraph.of(lattice, scale)), aligned
    )
    table.row("50 best word sequences", lambda lattice: n_best(lattice, 50, scale), compact)


if __name__ == "__main__":
    run_step(Benchmark, main, __doc__)
