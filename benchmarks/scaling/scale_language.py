"""Random language models and dictionaries of any size for benchmarks/scaling/scale.py, like those of
benchmarks/graph.py."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import numpy as np
from graph import Benchmark, random_model
from scale_corpus import NOISE, NUM_WORDS, SILENCE, UNKNOWN, vocabulary

from pyasr.lang.lexicons.lexicon import Phones
from pyasr.lang.ngrams.arpa import write_arpa

_PER_WORD = 10  # n-grams, at least NUM_WORDS words
_MAX_WORDS = 60_000
_OF_PRUNED = 2.25  # bigrams, and trigrams, of each word of LibriSpeech's pruned trigram


def words_of(num_words: int) -> dict[str, Phones]:
    """Words with pronunciations, those of the contents first; beyond the CMU dictionary, artificial words
    with its pronunciations."""
    known = vocabulary(num_words)
    spoken = list(known.values())
    return known | {f"word{i:06d}": spoken[i % len(spoken)] for i in range(num_words - len(known))}


def write_model(out: Path, num_ngrams: int) -> None:
    """Write `out`/lm.arpa.gz, of about `num_ngrams` n-grams; its vocabulary includes the words of the
    contents."""
    words = list(words_of(min(max(num_ngrams // _PER_WORD, NUM_WORDS), _MAX_WORDS)))
    longer = num_ngrams - len(words)
    _write(out, words, longer // 2, longer - longer // 2)


def write_language(out: Path, num_words: int) -> None:
    """Write `out`/dict and `out`/lm.arpa.gz, with as many n-grams per word as LibriSpeech's pruned
    trigram."""
    words = words_of(num_words)
    _write(out, list(words), int(_OF_PRUNED * num_words), int(_OF_PRUNED * num_words))
    (out / "dict").mkdir()
    phones = sorted({phone for spoken in islice(words.values(), NUM_WORDS) for phone in spoken})
    lines = {
        "lexicon.txt": [
            f"{UNKNOWN} {NOISE}",
            *(f"{word} {' '.join(spoken)}" for word, spoken in words.items()),
        ],
        "nonsilence_phones.txt": phones,
        "silence_phones.txt": [SILENCE, NOISE],
        "optional_silence.txt": [SILENCE],
        "extra_questions.txt": [],
    }
    for name, content in lines.items():
        (out / "dict" / name).write_text("".join(f"{line}\n" for line in content), encoding="utf-8")


def _write(out: Path, words: list[str], num_bigrams: int, num_trigrams: int) -> None:
    out.mkdir(parents=True)
    sizes = Benchmark(num_bigrams=num_bigrams, num_trigrams=num_trigrams)
    write_arpa(out / "lm.arpa.gz", random_model(words, sizes, np.random.default_rng(0)))
