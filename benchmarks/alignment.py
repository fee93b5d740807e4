#!/usr/bin/env python3
"""One iteration of GMM training (alignment and statistics) on one core, against peers in the same run.

pyasr processes all of DATA. The peers process a sample of its utterances:
* a plain implementation with torch and numpy, over a fifth of the sample: all pdfs of an utterance by one
  matrix product, a vectorised Viterbi search without beam;
* with --peer-python, Kaldi's own C++ (graph compiler, FasterDecoder, GMMs) as packaged in kaldi-hmm-gmm,
  called for each utterance. That package needs an environment of its own: python3 -m venv V && V/bin/pip
  install kaldi-hmm-gmm==1.1.4 kaldifst==1.7.17 numpy

Reads a finished recipe's DATA, LANG and MODEL_DIR; prints frames per CPU second, their ratio, and the
percentage of frames with the same alignment. Fails if an iteration over 1.37 M frames would take more than 15
CPU seconds.

Example (in egs/amazon_queen/s5):
    ../../../benchmarks/alignment.py --peer-python /tmp/V/bin/python data/train data/lang exp/tri1
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from pyasr.base.cli.options import argument, option
from pyasr.base.cli.step import run_step
from pyasr.base.errors import UserError
from pyasr.feats.inputs import open_features
from pyasr.hmm.align.viterbi import AlignOptions
from pyasr.hmm.graphs.training_graphs import transition_costs
from pyasr.hmm.model.gmm_update import GmmUpdateOptions, update
from pyasr.hmm.model.model_file import read_model, read_tree
from pyasr.hmm.shards.gmm_shard import GmmShard
from pyasr.lang.lang_dirs.lang_dir import LangDir

TARGET_FRAMES, TARGET_S = 1.37e6, 15.0


@dataclass(frozen=True)
class Benchmark:
    data: Path = argument("data directory with features")
    lang: Path = argument("language directory")
    model_dir: Path = argument("directory of a GMM system")
    num_utterances: int = option(100, "number of utterances in the peers' sample", minimum=1)
    peer_python: str = option(
        "", "Python interpreter of an environment with kaldi-hmm-gmm; empty: only the plain peer"
    )


def timed(function):
    """(CPU seconds, result)."""
    begin = time.process_time()
    result = function()
    return time.process_time() - begin, result


class Plain:
    """The textbook algorithm: all Gaussians for every frame, and a dense Viterbi recursion."""

    def __init__(self, trans, gmm):
        self.trans, self.gmm, self.costs = trans, gmm, transition_costs(trans)
        self.means, self.inv_vars = (
            torch.from_numpy(x.astype(np.float32)) for x in (gmm.means, 1.0 / gmm.variances)
        )
        self.consts = torch.from_numpy(gmm.gconsts)

    def exponents(self, feats: np.ndarray) -> np.ndarray:
        x = torch.from_numpy(feats)
        return (self.consts + x @ (self.means * self.inv_vars).T - 0.5 * (x * x) @ self.inv_vars.T).numpy()

    def align(self, graph, feats: np.ndarray) -> np.ndarray:
        scores = (
            0.1
            * np.logaddexp.reduceat(self.exponents(feats), self.gmm.offsets[:-1], axis=1)[
                :, self.trans.tid2pdf[graph.tids]
            ]
        )
        sources = np.repeat(np.arange(graph.num_nodes), np.diff(graph.offsets))
        order = np.argsort(graph.successors, kind="stable")
        sources, targets = sources[order], graph.successors[order]
        edge_costs = graph.costs[order] + self.costs[graph.tids[targets]]
        entered, begins = np.unique(targets, return_index=True)
        stay = np.where(graph.loops > 0, self.costs[graph.loops], np.inf)
        best, back = scores[0] - graph.initial - self.costs[graph.tids], []
        for row in scores[1:]:
            offers = best[sources] - edge_costs
            coming = np.full(graph.num_nodes, -np.inf)
            coming[entered] = np.maximum.reduceat(offers, begins)
            first = np.full(graph.num_nodes, -1)
            winners = np.flatnonzero(offers == coming[targets])
            first[targets[winners]] = sources[winners]
            staying = best - stay
            back.append(np.where(staying >= coming, np.arange(graph.num_nodes), first))
            best = np.maximum(staying, coming) + row
        nodes = [int(np.argmax(best - graph.final))]
        for pointers in reversed(back):
            nodes.append(int(pointers[nodes[-1]]))
        nodes = np.array(nodes[::-1])
        return np.where(np.append(False, nodes[1:] == nodes[:-1]), graph.loops[nodes], graph.tids[nodes])

    def accumulate(self, feats: np.ndarray, tids: np.ndarray) -> np.ndarray:
        exponents = self.exponents(feats)
        sums = np.zeros((self.gmm.num_gauss, 1 + 2 * self.gmm.dim))
        for x, row, pdf in zip(feats.astype(np.float64), exponents, self.trans.tid2pdf[tids]):
            own = slice(self.gmm.offsets[pdf], self.gmm.offsets[pdf + 1])
            posterior = np.exp(row[own] - np.logaddexp.reduce(row[own]))
            sums[own] += posterior[:, None] * np.concatenate([[1.0], x, x * x])
        return sums


def kaldi(options: Benchmark, trans, gmm, feats, words) -> dict:
    """Alignments and CPU seconds of kaldi-hmm-gmm in its own environment."""
    with tempfile.TemporaryDirectory() as directory:
        task = Path(directory) / "task.npz"
        np.savez(
            task,
            offsets=gmm.offsets,
            weights=gmm.weights,
            means_invvars=gmm.means_invvars,
            inv_vars=gmm.inv_vars,
            log_probs=trans.log_prob,
            non_self_loop_log_probs=np.append(0.0, trans.non_self_loop_log_prob),
            feats=np.concatenate(feats),
            num_frames=[len(f) for f in feats],
            words=np.concatenate(words),
            num_words=[len(w) for w in words],
        )
        peer = Path(__file__).with_name("peer_kaldi_hmm_gmm.py")
        ended = subprocess.run(
            [options.peer_python, peer, task, options.lang, options.model_dir / "tree"],
            capture_output=True,
            text=True,
        )
    if ended.returncode:
        raise UserError(
            f"{options.peer_python}: the peer failed: "
            f"{(ended.stderr.strip().splitlines() or ['no message'])[-1]}"
        )
    return json.loads(ended.stdout.splitlines()[-1])


def line(
    name: str,
    num_frames: int,
    align_s: float,
    accumulate_s: float | None,
    ours: tuple[float, float],
    same: float,
) -> None:
    """Print a peer's row: frames per CPU second, and the speed of pyasr relative to it."""
    align = num_frames / align_s
    statistics = (
        f"{num_frames / accumulate_s:14,.0f} {ours[1] * accumulate_s / num_frames:7.1f}"
        if accumulate_s
        else f"{'-':>14} {'':7}"
    )
    print(f"{name:22} {align:14,.0f} {ours[0] / align:7.1f} {statistics} {100 * same:9.2f} %")


def main(options: Benchmark) -> None:
    torch.set_num_threads(1)
    lang = LangDir(options.lang)
    trans, gmm = read_model(options.model_dir / "final.mdl")
    shard = GmmShard.load(open_features(options.data, options.model_dir), lang, 1, 1)
    tree = read_tree(options.model_dir / "tree", trans)
    shard.compile_graphs(lang, trans, tree)
    shard.align_equal(0)  # compiles the kernels of graphs, too
    graphs_s, _ = timed(lambda: sum(1 for _ in shard.graphs()))
    shard.align(trans, gmm, AlignOptions(beam=1.0, retry_beam=0.0))
    align_s, report = timed(lambda: shard.align(trans, gmm, AlignOptions()))
    accumulate_s, (stats, _) = timed(lambda: shard.accumulate(trans, gmm))
    update_s, _ = timed(lambda: update(gmm, stats, GmmUpdateOptions()))
    num_frames = shard.num_frames
    print(
        f"{len(shard.keys)} utterances, {num_frames} frames, {gmm.num_pdfs} pdfs, {gmm.num_gauss} Gaussians; "
        f"{report.num_retried} retried, {len(report.failed)} failed"
    )
    print(
        f"CPU seconds: alignment {align_s:.2f}, of which graphs {graphs_s:.2f}, statistics "
        f"{accumulate_s:.2f}, update {update_s:.2f}"
    )
    total_s = (align_s + accumulate_s + update_s) * TARGET_FRAMES / num_frames
    print(
        f"one iteration over {TARGET_FRAMES / 1e6:.2f} M frames: {total_s:.2f} CPU s (target: below "
        f"{TARGET_S:.0f})\n"
    )
    compare(options, shard, trans, gmm, (num_frames / align_s, num_frames / accumulate_s))
    if total_s > TARGET_S:
        raise UserError(f"an iteration takes {total_s:.1f} CPU s, more than {TARGET_S:.0f}")


def compare(options: Benchmark, shard: GmmShard, trans, gmm, ours: tuple[float, float]) -> None:
    """Print the table of frames per CPU second; `ours`: alignment, statistics."""
    print(
        f"{'frames per CPU second':22} {'alignment':>14} {'ratio':>7} {'statistics':>14} {'ratio':>7} "
        f"{'same frames':>10}"
    )
    print(f"{'pyasr':22} {ours[0]:14,.0f} {'':7} {ours[1]:14,.0f}")
    shuffled = np.random.default_rng(0).permutation(len(shard.keys))
    sample = [i for i in shuffled if shard.tids(i)[0] > 0][: options.num_utterances]
    feats, graphs = [np.ascontiguousarray(shard.features(i)) for i in sample], dict(shard.graphs())
    tids = [shard.tids(i) for i in sample]
    sample_frames = sum(map(len, feats))
    plain, some = Plain(trans, gmm), slice(0, max(1, options.num_utterances // 5))
    plain_frames = sum(map(len, feats[some]))
    plain_s, aligned = timed(lambda: [plain.align(graphs[i], f) for i, f in zip(sample[some], feats[some])])
    statistics_s, _ = timed(lambda: [plain.accumulate(f, t) for f, t in zip(feats[some], tids[some])])
    line(
        "plain torch and numpy",
        plain_frames,
        plain_s,
        statistics_s,
        ours,
        np.mean(np.concatenate(aligned) == np.concatenate(tids[some])),
    )
    if options.peer_python:
        peer = kaldi(options, trans, gmm, feats, [shard.words[shard.keys[i]] for i in sample])
        same = np.mean(
            [
                a == b
                for theirs, own in zip(peer["alignments"], tids)
                for a, b in zip(theirs or [0] * len(own), own.tolist())
            ]
        )
        line("kaldi-hmm-gmm", sample_frames, peer["align_s"], None, ours, same)
        print(f"graphs of the sample: Kaldi {peer['graphs_s']:.3f} CPU s")


if __name__ == "__main__":
    run_step(Benchmark, main, __doc__)
