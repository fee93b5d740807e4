"""From a text and a vocabulary to an n-gram model: what utils/train_lm.py does."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pyasr.base import log
from pyasr.base.errors import UserError
from pyasr.base.options import option
from pyasr.base.output import atomic_write
from pyasr.lang.arpa import Arpa, perplexity, write_arpa
from pyasr.lang.arpa_kernels import map_lines, word_table
from pyasr.lang.dict_dir import RESERVED_WORDS, reserved
from pyasr.lang.ngram import estimate
from pyasr.lang.vocabulary import read_lines_of_words, read_sentences, read_vocabulary

ARPA_FILE, PERPLEXITY_FILE = "lm.arpa.gz", "perplexity.txt"


@dataclass(frozen=True)
class TextOptions:
    """How a language model's texts are read."""

    oov_word: str = option("<unk>", "word of the lexicon that words outside it are mapped to")
    text_ids: bool = option(True, "the first field of each line is an utterance id")


@dataclass(frozen=True)
class NgramOptions(TextOptions):
    """How an n-gram model is estimated."""

    order: int = option(3, "longest n-gram", minimum=1, maximum=20)
    min_counts: str = option("1", "least counts of n-grams of order 2, 3, ...; the last one holds for all above, as 1,2")


def make_lm(text: Path, lexicon: Path, options: NgramOptions, out: Path, eval_text: Path | None = None) -> None:
    """The model of `text` in the directory `out`, and its perplexity on `eval_text`."""
    model = train(text, read_vocabulary(lexicon), options)
    write_arpa(out / ARPA_FILE, model)
    log.info(", ".join(f"{len(table)} {n}-grams" for n, table in enumerate(model.tables, 1)))
    if eval_text:
        sentences = read_sentences(eval_text, options.text_ids)
        _check_not_reserved(eval_text, [word for words in sentences for word in words if word in RESERVED_WORDS])
        sentence = f"{eval_text}: {perplexity(model, sentences, options.oov_word)}"
        log.info(sentence)
        with atomic_write(out / PERPLEXITY_FILE) as f:
            f.write(f"{sentence}\n")


def train(text: Path, vocabulary: list[str], options: NgramOptions) -> Arpa:
    """The model of a text file; words outside the vocabulary count as `options.oov_word`, lines without words are left out.

    Raises UserError when a word of the text is outside the vocabulary and the OOV word is too, when all words are outside it, when
    there are none, and for `<s>`, `</s>`, `<eps>` and `#0`, which are no words.
    """
    sentences = read_ids(text, vocabulary, options)
    return estimate(sentences, vocabulary, options.order, _min_counts(options.min_counts, options.order))


def read_ids(path: Path, vocabulary: list[str], options: TextOptions) -> tuple[np.ndarray, np.ndarray]:
    """Indices into `vocabulary` of all words of a text, int64, and the numbers of words of its lines; lines without words are left out.

    Raises UserError as `train` does.
    """
    lines = np.frombuffer(read_lines_of_words(path, options.text_ids), np.uint8)
    flat, lengths = np.empty(len(lines) // 2 + 1, np.int64), np.empty(int((lines == ord("\n")).sum()) + 1, np.int64)
    table = word_table([word.encode() for word in (*vocabulary, *RESERVED_WORDS)])
    num_words, num_lines = map_lines(lines, *table, int(options.text_ids), flat, lengths)
    flat, lengths = flat[:num_words], lengths[:num_lines]
    _check_not_reserved(path, [RESERVED_WORDS[number] for number in flat[flat >= len(vocabulary)][:1] - len(vocabulary)])
    if (flat < 0).any() and options.oov_word not in vocabulary:
        known = set(vocabulary)
        stranger = next(word for sentence in read_sentences(path, options.text_ids) for word in sentence if word not in known)
        raise UserError(
            f"'{stranger}' is not in the vocabulary, nor is the OOV word '{options.oov_word}' that it would be mapped to; "
            f"add '{options.oov_word}' to the lexicon or give --oov-word"
        )
    _tell_oov(path, flat < 0, lengths, options.oov_word)
    flat[flat < 0] = vocabulary.index(options.oov_word) if options.oov_word in vocabulary else -1
    return flat, lengths


def _check_not_reserved(path: Path, found: list[str]) -> None:
    if found:
        raise UserError(f"{path}: '{found[0]}' {reserved(found[0])}; remove it from the text, whose lines are the sentences")


def _tell_oov(path: Path, outside: np.ndarray, lengths: np.ndarray, oov_word: str) -> None:
    """Say how many words, and how many whole lines, are outside the vocabulary. Raises UserError when all words are."""
    if outside.size and outside.all():
        raise UserError(f"{path}: not one of its words is in the vocabulary; give the lexicon that was made for this text")
    if outside.any():
        only = int(np.logical_and.reduceat(outside, np.cumsum(lengths) - lengths).sum())
        share = f"{outside.sum()} of {len(outside)} words ({100 * outside.mean():.2f} %)"
        lines = f"; {only} of {len(lengths)} lines hold nothing else" if only else ""
        (log.warning if only else log.info)(f"{path}: {share} are outside the vocabulary and count as {oov_word}{lines}")


def _min_counts(text: str, order: int) -> tuple[int, ...]:
    try:
        found = tuple(int(field) for field in text.split(","))
    except ValueError:
        raise UserError(f"--min-counts: '{text}' is not a list of whole numbers such as 1,2") from None
    if len(found) > max(order - 1, 1):
        raise UserError(f"--min-counts: {len(found)} numbers in '{text}', but --order {order} has {order - 1} above 1; leave some out")
    return found
