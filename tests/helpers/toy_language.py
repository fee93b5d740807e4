"""Small random languages for tests of graphs: lexicons with homophones and prefixes, n-gram models with
gaps."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pyasr.lang.lang_dirs.prepare_lang import LangOptions, write_lang
from pyasr.lang.lexicons.dict_dir import DictDir
from pyasr.lang.lexicons.lexicon import Lexicon


def write_toy_lang(out: Path, seed: int = 0, num_words: int = 40, num_phones: int = 6, **options) -> Path:
    """A lang dir of words w0, w1, ... with one or two random pronunciations of one to four phones P0, P1,
    ..."""
    rng = np.random.default_rng(seed)
    phones = [f"P{i}" for i in range(num_phones)]
    lexicon = Lexicon()
    for word in range(num_words):
        lexicon.add(f"w{word}", tuple(rng.choice(phones, rng.integers(1, 5))), 1.0)
        if rng.random() < 0.4:
            lexicon.add(f"w{word}", tuple(rng.choice(phones, rng.integers(1, 5))), 0.5)
    lexicon.add("<unk>", ("SPN",), 1.0)
    out.mkdir(parents=True)
    write_lang(
        DictDir(lexicon, [("SIL",), ("SPN",)], [(phone,) for phone in phones], "SIL", []),
        "<unk>",
        LangOptions(**options),
        out,
    )
    return out


def random_ngrams(
    seed: int, words: list[str], counts: tuple[int, ...] = (0, 150, 150)
) -> list[dict[tuple[str, ...], tuple[float, float]]]:
    """Per order {words: (log10 probability, log10 backoff)}: all unigrams, then random extensions of lower
    n-grams.

    Some n-grams are listed without their suffix, many histories have neither an extension nor an end, and
    `</s>` ends some.
    """
    rng = np.random.default_rng(seed)
    orders = [
        {
            (word,): (float(-rng.uniform(0.5, 3)), float(-rng.uniform(0, 1)))
            for word in [*words, "<s>", "</s>"]
        }
    ]
    for count in counts[1:]:
        histories = [gram for gram in orders[-1] if gram[-1] != "</s>"]
        grams = {}
        for _ in range(count):
            gram = (*histories[rng.integers(len(histories))], [*words, "</s>"][rng.integers(len(words) + 1)])
            grams[gram] = (
                float(-rng.uniform(0.1, 2)),
                0.0 if gram[-1] == "</s>" else float(-rng.uniform(0, 1)),
            )
        orders.append(grams)
    return orders


def write_arpa_text(path: Path, orders) -> None:
    lines = ["\\data\\", *(f"ngram {n}={len(grams)}" for n, grams in enumerate(orders, 1))]
    for n, grams in enumerate(orders, 1):
        lines += ["", f"\\{n}-grams:"]
        for gram, (logprob, backoff) in grams.items():
            lines.append(
                f"{logprob:.6f}\t{' '.join(gram)}"
                + (f"\t{backoff:.6f}" if n < len(orders) and gram[-1] != "</s>" else "")
            )
    path.write_text("\n".join([*lines, "", "\\end\\", ""]))


def sentence_log10(orders, sentence: list[str]) -> float:
    """log10 p(sentence, end | begin) by the back-off recursion."""
    return sum(token_log10s(orders, sentence))


def token_log10s(orders, sentence: list[str]) -> list[float]:
    """log10 p of each word and of the end."""

    def word(history: tuple[str, ...], target: str) -> float:
        gram = (*history, target)
        if gram in orders[len(gram) - 1]:
            return orders[len(gram) - 1][gram][0]
        backoff = orders[len(history) - 1].get(history, (0.0, 0.0))[1]
        return backoff + word(history[1:], target)

    found, history = [], ("<s>",)
    for target in [*sentence, "</s>"]:
        history = history[len(history) - min(len(history), len(orders) - 1) :]
        found.append(word(history, target))
        history = (*history, target)
    return found
