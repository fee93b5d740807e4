#!/usr/bin/env python3
"""CPU time and memory of the programs for n-gram models in utils/ at the scale of Fisher and Switchboard.

Markov chains whose words follow Zipf's law imitate two texts; the second has other favourite word pairs and a tenth of the words.
Each program runs as a process of its own, on one core. Seconds are its CPU time, gigabytes its peak resident memory.

Example:
    benchmarks/ngram_scale.py --num-words 30000000
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from pyasr.base.cli.options import option
from pyasr.base.cli.step import run_step
from pyasr.base.compiled.kernels import njit
from pyasr.base.errors import UserError
from pyasr.lang.ngrams.arpa import read_arpa, write_arpa

UTILS = Path(__file__).resolve().parents[1] / "utils"
FOLLOWERS = 300
HELD_OUT_WORDS = 100_000


@dataclass(frozen=True)
class Benchmark:
    num_words: int = option(30_000_000, "running words of the greater text", minimum=100_000)
    vocabulary: int = option(40_000, "different words", minimum=100, maximum=99_999)
    min_counts: str = option("1,2", "--min-counts of train_lm.py for the greater text")
    threshold: float = option(1e-8, "--threshold of prune_lm.py")
    scratch: str = option("", "directory for texts and models, which are kept there; empty: a temporary one")


@njit(nogil=True)
def chain(free, favourite, bound, vocabulary, domain):
    """Words 0 ... vocabulary - 1 by Zipf's law: favourites of the word before where `bound`, else any. int32 (num)."""
    words, word = np.empty(len(free), np.int32), 0
    for i in range(len(free)):
        draw = (word * 7919 + int(favourite[i]) * 104729 + domain * 31337) % 65537 / 65537
        word = int(vocabulary**draw) - 1 if bound[i] else int(free[i])
        words[i] = word
    return words


def imitate(path: Path, num_words: int, vocabulary: int, domain: int) -> None:
    """Write sentences of 12 words on average. All words have the same length, so one array of bytes is the text."""
    rng = np.random.default_rng(domain)
    ranks = (vocabulary, FOLLOWERS + 1)
    free, favourite = (np.exp(rng.random(num_words) * np.log(top)).astype(np.int32) - 1 for top in ranks)
    words = chain(free, favourite, rng.random(num_words) < 0.8, vocabulary, domain)
    table = np.frombuffer("".join(f"{word} " for word in names(vocabulary)).encode(), np.uint8).reshape(vocabulary, -1)
    text = table[words]
    text[rng.random(num_words) < 1 / 12, -1] = ord("\n")
    text[-1, -1] = ord("\n")
    path.write_bytes(text.tobytes())


def names(vocabulary: int) -> list[str]:
    return [f"w{word:05d}" for word in range(vocabulary)]


def run(name: str, program: str, *words) -> None:
    """Run a program of utils/; print its CPU time, its memory and the last line of its output."""
    command = [sys.executable, UTILS / program, *map(str, words)]
    with tempfile.TemporaryFile() as told:
        process = subprocess.Popen(command, stdout=told, stderr=told)
        _, process.returncode, usage = os.wait4(process.pid, 0)
        told.seek(0)
        lines = told.read().decode().splitlines()
    if process.returncode:
        raise UserError(f"{program} failed: {lines[-1] if lines else process.returncode}")
    seconds, gigabytes = usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 2**20
    print(f"{name:<34}{seconds:>9.1f} CPU s{gigabytes:>8.2f} GB   {lines[-1][-90:]}", flush=True)


def time_files(path: Path, scratch: Path) -> None:
    """CPU seconds of reading and writing an ARPA file."""
    begin = time.process_time()
    model = read_arpa(path)
    read = time.process_time()
    write_arpa(scratch / "copy.arpa.gz", model)
    written = time.process_time()
    num = sum(map(len, model.tables))
    print(f"{num} n-grams: reading {read - begin:.1f} CPU s, writing {written - read:.1f} CPU s", flush=True)


def write_texts(options: Benchmark, great: Path, small: Path, held: Path) -> None:
    """Both training texts, and a held-out one that continues the smaller."""
    imitate(great, options.num_words, options.vocabulary, 1)
    imitate(small, options.num_words // 10 + HELD_OUT_WORDS, options.vocabulary, 2)
    lines = small.read_bytes().splitlines(keepends=True)
    held.write_bytes(b"".join(lines[: HELD_OUT_WORDS // 12]))
    small.write_bytes(b"".join(lines[HELD_OUT_WORDS // 12 :]))


def bench(options: Benchmark, scratch: Path) -> None:
    great, small, held = (scratch / name for name in ("great.txt", "small.txt", "heldout.txt"))
    writing = get_context("spawn").Process(target=write_texts, args=(options, great, small, held))
    writing.start()  # a process of its own: programs started here would count the memory of this one as theirs
    writing.join()
    if writing.exitcode:
        raise UserError("writing the texts failed; see above")
    (scratch / "words").write_text("\n".join(["<unk>", *names(options.vocabulary)]) + "\n", encoding="utf-8")
    plain, models = ("--text-ids", "false"), [scratch / name for name in ("great", "small")]
    run("train_lm.py, greater text", "train_lm.py", *plain, "--min-counts", options.min_counts, great, scratch / "words", models[0])
    run("train_lm.py, smaller text", "train_lm.py", *plain, small, scratch / "words", models[1])
    run("mix_lms.py --heldout", "mix_lms.py", *plain, "--heldout", held, scratch / "mixed", *models)
    run("prune_lm.py --threshold", "prune_lm.py", "--threshold", options.threshold, scratch / "mixed", scratch / "pruned")
    run("prune_lm.py --lowprobs", "prune_lm.py", "--lowprobs", scratch / "mixed", scratch / "lowprobs")
    for name in ("mixed", "pruned", "lowprobs"):
        run(f"compute_perplexity.py, {name}", "compute_perplexity.py", *plain, held, scratch / name)
    time_files(scratch / "mixed/lm.arpa.gz", scratch)


def main(options: Benchmark) -> None:
    if options.scratch:
        Path(options.scratch).mkdir(parents=True, exist_ok=True)
        bench(options, Path(options.scratch))
        return
    with tempfile.TemporaryDirectory(prefix="pyasr-ngram-") as name:
        bench(options, Path(name))


if __name__ == "__main__":
    run_step(Benchmark, main, __doc__)
