#!/usr/bin/env python3
"""The GMM systems of egs/amazon_queen on the data split of Kaldi's results: WERs over several seeds, CPU time
of the chain.

Kaldi's results come from its own scripts: all 3.80 h of training speech (no development set), a trigram of
the training text, 4,632 test words without numbers, LM weight chosen on the test set. This program trains and
decodes the recipe's systems in the same way, without its pronunciation probabilities, with a seed for the
dither of the features and for each system. It prints every WER, the mean, and the difference to Kaldi.
Kaldi's CPU time was measured on another corpus, of 2.7 h.

Works in RUN_DIR. Complete outputs are not computed again; the times are those of this run only.

Example:
    benchmarks/gmm_chain.py --num-seeds 4 egs/amazon_queen/s5/corpus /tmp/gmm_chain
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from pyasr.base import log
from pyasr.base.cli.options import argument, option
from pyasr.base.cli.step import run_step
from pyasr.base.errors import UserError

ROOT = Path(__file__).resolve().parents[1]
RECIPE = ROOT / "egs/amazon_queen/s5"
KALDI = {  # system: WER %, insertions / deletions / substitutions
    "mono": (74.83, "200 / 789 / 2477"),
    "tri1": (66.11, "259 / 659 / 2144"),
    "tri2 (LDA+MLLT)": (62.48, "244 / 579 / 2071"),
    "tri3 (SAT), without adaptation": (64.92, "330 / 525 / 2152"),
    "tri3 (SAT), fMLLR": (58.44, "327 / 457 / 1923"),
}
KALDI_CHAIN_S = 185.0  # CPU seconds per hour of speech, from mono to SAT
TARGET_SHARE = 0.7


@dataclass(frozen=True)
class Benchmark:
    corpus: Path = argument("corpus directory created by local/get_corpus.py")
    run_dir: Path = argument("working directory")
    num_seeds: int = option(3, "number of chains to train, with seeds 0, 1, ...", minimum=1)
    nj: int = option(2, "parallel jobs", minimum=1)


class Runner:
    """Runs programs of the toolkit in RUN_DIR and sums their times."""

    def __init__(self, directory: Path, num_jobs: int):
        self.directory, self.num_jobs = directory, num_jobs
        self.cpu_s, self.wall_s = Counter(), Counter()

    def __call__(self, part: str, program: str, *arguments) -> None:
        """Run `program` with `arguments`; its time counts for `part`. Raises UserError if it fails."""
        before, begin = os.times(), time.perf_counter()
        words = [str(word) for word in (program, *arguments)]
        ended = subprocess.run(words, cwd=self.directory, capture_output=True, text=True)
        after = os.times()
        if ended.returncode:
            raise UserError(f"{' '.join(words)}: {(ended.stdout + ended.stderr).strip().splitlines()[-1]}")
        self.cpu_s[part] += (
            after.children_user + after.children_system - before.children_user - before.children_system
        )
        self.wall_s[part] += time.perf_counter() - begin

    def step(self, part: str, name: str, *arguments) -> None:
        """Run a step with the recipe's number of jobs."""
        self(part, ROOT / f"steps/{name}.py", "--nj", self.num_jobs, *arguments)


def prepare(run: Runner, corpus: Path) -> None:
    """Prepare data, lang directory and language model, which all seeds share."""
    run(
        "data",
        RECIPE / "local/prepare_data.py",
        "--dev-actor",
        "none",
        "--numbers",
        "drop",
        "--nj",
        run.num_jobs,
        corpus,
        "data",
    )
    run("data", ROOT / "utils/prepare_dict.py", "data/train/text", "data/local/dict")
    run("data", ROOT / "utils/prepare_lang.py", "data/local/dict", "<unk>", "data/lang")
    run(
        "data",
        ROOT / "utils/train_lm.py",
        "data/train/text",
        "data/local/dict/lexicon.txt",
        "data/local/lm/trigram",
    )
    run(
        "data",
        ROOT / "utils/make_grammar.py",
        "data/lang",
        "data/local/lm/trigram/lm.arpa.gz",
        "data/lang_test",
    )


def features(run: Runner, seed: int) -> list[str]:
    """Data directories of train and test with features of one seed."""
    directories = [f"data/{part}_seed{seed}" for part in ("train", "test")]
    for part, directory in zip(("train", "test"), directories):
        run("features", ROOT / "utils/copy_data_dir.py", f"data/{part}", directory)
        run.step("features", "make_mfcc", "--seed", seed, "--config", RECIPE / "conf/mfcc.conf", directory)
        run("features", ROOT / "steps/compute_cmvn.py", directory)
    return directories


def train(run: Runner, train_data: str, out: str, seed: int) -> None:
    """Train the systems of stage 4 of the recipe, without the pronunciation probabilities of the last one."""
    own = "--boost-silence", 1.25
    seeded = *own, "--seed", seed
    places = train_data, "data/lang"
    run.step("chain", "train_mono", *seeded, *places, f"{out}/mono")
    run.step("chain", "align_si", *own, *places, f"{out}/mono", f"{out}/mono_ali")
    run.step(
        "chain",
        "train_deltas",
        *seeded,
        "--num-leaves",
        1200,
        "--num-gauss",
        9000,
        *places,
        f"{out}/mono_ali",
        f"{out}/tri1",
    )
    run.step("chain", "align_si", *own, *places, f"{out}/tri1", f"{out}/tri1_ali")
    run.step(
        "chain",
        "train_lda_mllt",
        *seeded,
        "--num-leaves",
        1800,
        "--num-gauss",
        15000,
        *places,
        f"{out}/tri1_ali",
        f"{out}/tri2",
    )
    run.step("chain", "align_si", *own, *places, f"{out}/tri2", f"{out}/tri2_ali")
    run.step(
        "chain",
        "train_sat",
        *seeded,
        "--num-leaves",
        2000,
        "--num-gauss",
        20000,
        *places,
        f"{out}/tri2_ali",
        f"{out}/tri3",
    )


def decode(run: Runner, test_data: str, out: str) -> list[tuple[float, str]]:
    """(WER %, insertions / deletions / substitutions) of each system of KALDI."""
    found = []
    for system in ("mono", "tri1", "tri2", "tri3"):
        graph, decode_dir = f"{out}/{system}/graph", f"{out}/{system}/decode"
        run("decoding", ROOT / "utils/make_graph.py", "data/lang_test", f"{out}/{system}", graph)
        run.step("decoding", "decode_fmllr" if system == "tri3" else "decode", graph, test_data, decode_dir)
        for directory in ([f"{decode_dir}.si"] if system == "tri3" else []) + [decode_dir]:
            run.step("decoding", "score", "--max-lmwt", 25, test_data, "data/lang_test", directory)
            found.append(read_wer(run.directory / directory / "best_wer"))
    return found


def read_wer(path: Path) -> tuple[float, str]:
    """Read the first line of a `best_wer`."""
    wer, *counts = re.search(
        r"%WER (\S+) \[ \d+ / \d+, (\d+) ins, (\d+) del, (\d+) sub", path.read_text(encoding="utf-8")
    ).groups()
    return float(wer), " / ".join(counts)


def report(found: list[list[tuple[float, str]]]) -> None:
    """Print a row per system; `found` has one list per seed."""
    seeds = f"{'seeds':{9 * len(found) - 2}}"
    print(
        f"| {'test WER %, LM weight on test':30} | {seeds} | mean  | Kaldi | difference | seed 0: ins / del "
        "/ sub | Kaldi's |"
    )
    for (system, (kaldi, counts)), *ours in zip(KALDI.items(), *found):
        wers = [wer for wer, _ in ours]
        mean = sum(wers) / len(wers)
        cells = "  ".join(f"{wer:7.2f}" for wer in wers)
        print(
            f"| {system:30} | {cells} | {mean:.2f} | {kaldi:.2f} | {mean - kaldi:+10.2f} | {ours[0][1]:23} "
            f"| {counts} |"
        )


def report_times(run: Runner, num_seeds: int) -> None:
    """Print the CPU time of the chain per hour of speech, compared with Kaldi's."""
    hours = (
        sum(float(line.split()[1]) for line in (run.directory / "data/train/utt2dur").open(encoding="utf-8"))
        / 3600
    )
    chain_s = run.cpu_s["chain"] / num_seeds
    for part in run.cpu_s:
        print(f"{part}: {run.cpu_s[part]:.0f} CPU s, {run.wall_s[part]:.0f} s")
    print(
        f"mono to SAT: {chain_s:.0f} CPU s for {hours:.2f} h of speech, {chain_s / hours:.0f} CPU s an hour; "
        f"Kaldi {KALDI_CHAIN_S:.0f}; ratio {chain_s / hours / KALDI_CHAIN_S:.2f} (target: at most "
        f"{TARGET_SHARE})"
    )


def main(options: Benchmark) -> None:
    options.run_dir.mkdir(parents=True, exist_ok=True)
    run = Runner(options.run_dir, options.nj)
    prepare(run, options.corpus.resolve())
    found = []
    for seed in range(options.num_seeds):
        train_data, test_data = features(run, seed)
        train(run, train_data, f"exp/seed{seed}", seed)
        found.append(decode(run, test_data, f"exp/seed{seed}"))
        log.info(
            f"seed {seed}: " + "  ".join(f"{system} {wer}" for system, (wer, _) in zip(KALDI, found[-1]))
        )
    report(found)
    report_times(run, options.num_seeds)


if __name__ == "__main__":
    run_step(Benchmark, main, __doc__)
