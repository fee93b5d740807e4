#!/usr/bin/env python3
"""Real-time factor and memory of pyasr's decoder, which computes lattices, and of kaldi-decoder's
FasterDecoder, which computes one path.

Both decode the same log-likelihoods on the same graph with the same beam, max-active and min-active, in
separate processes. The CPU seconds are those of the search only (pyasr: including the lattice as arrays;
peer: including the traceback). The costs of the best paths are compared. Then pyasr's decoder runs in 1 and 2
threads of one process. A loop of plain arithmetic is the control: it shows the speed-up that two threads can
reach on this machine at this moment. These are wall seconds, which are reliable only on an idle machine.

    --graph-dir and --data   a real graph, and features of a data directory scored by --model-dir (default:
                             the parent of the graph)
    otherwise                a synthetic graph of --num-words words, and likelihoods with noise

Example:
    benchmarks/decoding.py --graph-dir egs/amazon_queen/s5/exp/tri1/graph --data egs/amazon_queen/s5/data/test
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numba import njit
from peers import peer

from pyasr.base.cli.options import group, option
from pyasr.base.cli.step import run_step
from pyasr.decode.decoding.decode_dir import load_scorer
from pyasr.decode.lattices.lattice import best_path, sweep
from pyasr.decode.search.beam_search import Decoder
from pyasr.decode.search.decode_options import DecodeOptions
from pyasr.feats.frame_shift import FRAME_SHIFT_S
from pyasr.feats.inputs import open_features
from pyasr.io.openfst import read_fst, write_fst

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "decode"))
LM_WEIGHTS, PENALTIES = range(7, 18), (0.0, 0.5, 1.0)
_PEERS = "kaldi_decoder", "kaldifst"


@dataclass(frozen=True)
class Benchmark:
    graph_dir: str = option("", "directory with HCLG.fst; empty: a synthetic graph")
    model_dir: str = option("", "directory of the acoustic model; empty: the parent of --graph-dir")
    data: str = option("", "data directory with features")
    num_utterances: int = option(60, "utterances", minimum=1)
    num_words: int = option(5000, "words of the synthetic graph", minimum=1)
    num_bigrams: int = option(50000, "word pairs of the synthetic graph", minimum=1)
    num_pdfs: int = option(1200, "pdfs of the synthetic graph", minimum=1)
    noise: float = option(2.0, "standard deviation of the noise on synthetic log-likelihoods", minimum=0.0)
    num_runs: int = option(2, "runs per side; the fastest counts", minimum=1)
    side: str = option("", "used internally by the benchmark's processes", choices=("", "ours", "peer"))
    work: str = option("", "used internally by the benchmark's processes")
    decode: DecodeOptions = group(DecodeOptions)


def real_task(options: Benchmark):
    """(graph, tid2pdf, log-likelihoods) of evenly spaced utterances."""
    graph, data = Path(options.graph_dir), Path(options.data)
    model_dir = Path(options.model_dir or graph.parent)
    scorer, tid2pdf = load_scorer(model_dir)
    reader = open_features(data, model_dir)
    keys = reader.keys[:: max(1, len(reader.keys) // options.num_utterances)][: options.num_utterances]
    return (
        read_fst(graph / "HCLG.fst"),
        tid2pdf,
        [np.asarray(scorer.log_likelihoods(reader[key]), np.float32) for key in keys],
    )


def synthetic_task(options: Benchmark):
    from synthetic import make_loglikes, make_task

    task = make_task(options.num_words, options.num_bigrams, options.num_pdfs)
    lengths = np.random.default_rng(0).integers(100, 500, options.num_utterances)
    return (
        task.fst,
        task.tid2pdf,
        [make_loglikes(task, int(n), options.noise, i) for i, n in enumerate(lengths)],
    )


def save_task(options: Benchmark, work: Path) -> tuple[int, int]:
    """Write the input of both sides; labels of the peer's graph are pdf + 1. Returns (frames, arcs)."""
    fst, tid2pdf, loglikes = real_task(options) if options.graph_dir else synthetic_task(options)
    write_fst(work / "ours.fst", fst)
    labels = np.where(fst.ilabels > 0, tid2pdf[fst.ilabels] + 1, 0).astype(np.int32)
    write_fst(work / "peer.fst", fst.replaced(ilabels=labels), "const")
    np.savez(work / "loglikes.npz", *loglikes)
    np.save(work / "tid2pdf.npy", tid2pdf)
    print(
        f"graph of {fst.num_states} states, {fst.num_arcs} arcs; {int(tid2pdf.max()) + 1} pdfs; "
        f"{len(loglikes)} utterances, {sum(map(len, loglikes))} frames; beam {options.decode.beam:g}, "
        f"lattice beam {options.decode.lattice_beam:g}, max-active {options.decode.max_active}",
        flush=True,
    )
    return sum(map(len, loglikes)), fst.num_arcs


def load_loglikes(work: Path) -> list[np.ndarray]:
    with np.load(work / "loglikes.npz") as file:
        return [file[name] for name in file.files]


def memory_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def our_side(options: Benchmark, work: Path) -> dict:
    decoder = Decoder(read_fst(work / "ours.fst"), np.load(work / "tid2pdf.npy"), options.decode)
    loglikes, scale = load_loglikes(work), options.decode.acoustic_scale
    decoder.decode(loglikes[0][:20])
    seconds = []
    for _ in range(options.num_runs):
        begin = time.process_time()
        lattices = [decoder.decode(x) for x in loglikes]
        seconds.append(time.process_time() - begin)
    peak = memory_mb()
    paths = [best_path(lattice, scale) for lattice in lattices]
    sweep(lattices[0], LM_WEIGHTS, PENALTIES)
    begin = time.process_time()
    for lattice in lattices:
        sweep(lattice, LM_WEIGHTS, PENALTIES)
    sweep_s = (time.process_time() - begin) / len(lattices)
    return {
        "cpu_s": min(seconds),
        "peak_mb": peak,
        "costs": [path.graph_cost + scale * path.acoustic_cost for path in paths],
        "sweep_s": sweep_s,
        "arcs": sum(lattice.num_arcs for lattice in lattices),
        "tokens": sum(lattice.stats.num_tokens for lattice in lattices),
        "threads": scaling(decoder, loglikes),
    }


def scaling(decoder: Decoder, loglikes: list[np.ndarray]) -> dict:
    """Minimum wall and CPU seconds of search and control with 1 and 2 threads, over two rounds."""

    def search(num_threads):
        for _ in decoder.decode_many(((str(i), x) for i, x in enumerate(loglikes)), num_threads):
            pass

    def control(num_threads):
        with ThreadPoolExecutor(num_threads) as pool:
            list(pool.map(_spin, [4_000_000] * 16))

    _spin(1)
    found = {f"{work.__name__} {n}": (np.inf, np.inf) for work in (search, control) for n in (1, 2)}
    for _ in range(2):
        for work in (search, control):
            for n in (1, 2):
                wall, cpu = time.perf_counter(), time.process_time()
                work(n)
                found[f"{work.__name__} {n}"] = min(
                    found[f"{work.__name__} {n}"], (time.perf_counter() - wall, time.process_time() - cpu)
                )
    return found


@njit(nogil=True, cache=True)
def _spin(count):
    x = 0.0
    for i in range(count):
        x += np.sin(x + i)
    return x


def peer_side(options: Benchmark, work: Path) -> dict:
    kaldi_decoder, kaldifst = map(peer, _PEERS)
    fst, beams = kaldifst.StdConstFst.read(str(work / "peer.fst")), options.decode
    scaled = [x * np.float32(beams.acoustic_scale) for x in load_loglikes(work)]
    config = kaldi_decoder.FasterDecoderOptions(beams.beam, beams.max_active, beams.min_active)
    seconds = []
    for _ in range(options.num_runs):
        begin = time.process_time()
        paths = []
        for x in scaled:
            decoder = kaldi_decoder.FasterDecoder(fst, config)
            decoder.decode(kaldi_decoder.DecodableCtc(x))
            paths.append(decoder.get_best_path()[1])
        seconds.append(time.process_time() - begin)
    weights = [kaldifst.get_linear_symbol_sequence(path)[3] for path in paths]
    return {
        "cpu_s": min(seconds),
        "peak_mb": memory_mb(),
        "costs": [weight.value1 + weight.value2 for weight in weights],
    }


def run_side(side: str, work: Path) -> dict:
    """Run this benchmark as the process of one side, with the same options."""
    words = [sys.executable, __file__, *sys.argv[1:], "--side", side, "--work", str(work)]
    return json.loads(subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout)


def main(options: Benchmark) -> None:
    if options.side:
        print(json.dumps((our_side if options.side == "ours" else peer_side)(options, Path(options.work))))
        return
    for name in _PEERS:
        peer(name)  # before any work
    with tempfile.TemporaryDirectory() as folder:
        frames, _ = save_task(options, Path(folder))
        ours, theirs = run_side("ours", Path(folder)), run_side("peer", Path(folder))
    audio_s = frames * FRAME_SHIFT_S
    difference = np.array(ours["costs"]) - np.array(theirs["costs"])
    print(f"{'':<36}{'ours (lattices)':>16}{'FasterDecoder':>16}{'peer / ours':>13}")
    rows = (
        ("real-time factor (CPU, search)", "cpu_s", audio_s, 4),
        ("peak memory of the process, MB", "peak_mb", 1, 0),
    )
    for title, key, unit, digits in rows:
        print(
            f"{title:<36}{ours[key] / unit:>16.{digits}f}{theirs[key] / unit:>16.{digits}f}"
            f"{theirs[key] / ours[key]:>13.2f}"
        )
    print(
        f"best path's cost, ours - theirs: mean {difference.mean():+.4f}, from {difference.min():+.4f} to "
        f"{difference.max():+.4f}"
    )
    print(
        f"{ours['tokens'] / frames:.0f} active tokens, {ours['arcs'] / frames:.1f} lattice arcs a frame; "
        f"{len(LM_WEIGHTS) * len(PENALTIES)}-point sweep {1000 * ours['sweep_s']:.2f} ms an utterance"
    )
    report_threads(ours["threads"])


def report_threads(found: dict) -> None:
    for name in ("search", "control"):
        (wall, cpu), (wall_2, cpu_2) = found[f"{name} 1"], found[f"{name} 2"]
        print(
            f"2 threads, {name}: {wall / wall_2:.2f} times as fast as 1 ({wall_2:.2f} s for {wall:.2f} s), "
            f"{cpu_2 / cpu:.2f} times the CPU seconds"
        )
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    run_step(Benchmark, main, __doc__)
