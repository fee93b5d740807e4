"""N-gram models of texts and a vocabulary, for utils/train_lm.py."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pyasr.base import log
from pyasr.base.cli.options import option
from pyasr.base.errors import UserError
from pyasr.base.outputs.output import atomic_write
from pyasr.lang.lexicons.dict_dir import RESERVED_WORDS, reserved
from pyasr.lang.ngrams.arpa import Arpa, perplexity, read_arpa, write_arpa
from pyasr.lang.ngrams.arpa_kernels import map_lines, word_table
from pyasr.lang.ngrams.ngram import estimate
from pyasr.lang.ngrams.vocabulary import read_lines_of_words, read_sentences, read_vocabulary

ARPA_FILE, PERPLEXITY_FILE = "lm.arpa.gz", "perplexity.txt"


@dataclass(frozen=True)
class TextOptions:
    """How the texts of a language model are read."""

    heading = "data"

    oov_word: str = option("<unk>", "word that replaces out-of-vocabulary words")
    text_ids: bool = option(True, "the first field of each line is an utterance id")


@dataclass(frozen=True)
class NgramOptions(TextOptions):
    """How an n-gram model is estimated."""

    heading = "language model"

    order: int = option(3, "maximum length of n-grams, words", minimum=1, maximum=20)
    min_counts: str = option(
        "1",
        "minimum counts of n-grams of order 2, 3, ..., such as 1,2; the last one also applies to higher "
        "orders",
    )


def make_lm(
    texts: list[Path], lexicon: Path, options: NgramOptions, out: Path, eval_text: Path | None = None
) -> None:
    """Write the model of texts to the directory `out`, and its perplexity on `eval_text`."""
    sentences = read_eval_text(eval_text, options) if eval_text else []
    model = train(texts, read_vocabulary(lexicon), options)
    write_lm(model, out)
    if eval_text:
        write_perplexity(model, eval_text, sentences, options, out)


def write_lm(model: Arpa, out: Path) -> None:
    """Write the model to the directory `out` and log the numbers of its n-grams."""
    write_arpa(out / ARPA_FILE, model)
    log.info(", ".join(f"{len(table)} {n}-grams" for n, table in enumerate(model.tables, 1)))


def write_perplexity(
    model: Arpa, text: Path, sentences: list[list[str]], options: TextOptions, out: Path
) -> None:
    """Write and log the perplexity of the model on the sentences of a text."""
    sentence = f"{text}: {perplexity(model, sentences, options.oov_word)}"
    log.info(sentence)
    with atomic_write(out / PERPLEXITY_FILE) as f:
        f.write(f"{sentence}\n")


def arpa_file(source: Path) -> Path:
    """ARPA file of a model: `source` itself, or `lm.arpa.gz` in a directory."""
    return source / ARPA_FILE if source.is_dir() else source


def check_lm_dir(out: Path) -> None:
    """Raise UserError for an output directory with the name of an ARPA file."""
    if out.name.endswith((".arpa", ".gz")):
        raise UserError(
            f"{out}: the output is a directory with {ARPA_FILE} in it; give a name that does not end like "
            "that of an ARPA file"
        )


def read_eval_text(path: Path, options: TextOptions) -> list[list[str]]:
    """Sentences of a held-out text. Raises UserError for reserved words, and for a text without words."""
    sentences = read_sentences(path, options.text_ids)
    words = [word for words in sentences for word in words]
    _check_not_reserved(path, [word for word in words if word in RESERVED_WORDS])
    if not words:
        raise UserError(f"{path}: no words in it; give a text of sentences")
    return sentences


def perplexity_lines(text: Path, models: list[Path], options: TextOptions) -> Iterator[str]:
    """A line with the perplexity of each model, an ARPA file. Raises UserError for a model without any word
    of the text."""
    sentences = read_eval_text(text, options)
    for path in models:
        found = perplexity(read_arpa(path), sentences, options.oov_word)
        if found.num_oov == found.num_words:
            raise UserError(f"{path}: has none of the words of {text}; give a text of its words")
        oov = f"{found.num_oov} OOV ({found.oov_percent:.2f} %)"
        counts = f"{found.num_sentences} sentences, {found.num_words} words, {oov}"
        results = f"ppl {found.perplexity:.3f}, ppl1 {found.perplexity_of_words:.3f}"
        yield f"{path}: {counts}, log10 probability {found.logprob:.2f}, {results}"


def train(texts: list[Path], vocabulary: list[str], options: NgramOptions) -> Arpa:
    """The model of text files; words outside the vocabulary count as `options.oov_word`, lines without words
    are skipped.

    Raises UserError if a word of a text and the OOV word are both outside the vocabulary, if all words are
    outside it, if there are none, and for `<s>`, `</s>`, `<eps>` and `#0`, which are not words.
    """
    least = _min_counts(options.min_counts, options.order)
    parts = [read_ids(text, vocabulary, options) for text in texts]
    flat, lengths = map(np.concatenate, zip(*parts)) if len(parts) > 1 else parts[0]
    return estimate((flat, lengths), vocabulary, options.order, least)


def read_ids(path: Path, vocabulary: list[str], options: TextOptions) -> tuple[np.ndarray, np.ndarray]:
    """Indices into `vocabulary` of all words of a text, int64, and the number of words of each line; lines
    without words are skipped.

    Raises UserError as `train` does.
    """
    lines = np.frombuffer(read_lines_of_words(path, options.text_ids), np.uint8)
    flat = np.empty(len(lines) // 2 + 1, np.int64)
    lengths = np.empty(int((lines == ord("\n")).sum()) + 1, np.int64)
    table = word_table([word.encode() for word in (*vocabulary, *RESERVED_WORDS)])
    num_words, num_lines = map_lines(lines, *table, int(options.text_ids), flat, lengths)
    flat, lengths = flat[:num_words], lengths[:num_lines]
    _check_not_reserved(
        path, [RESERVED_WORDS[number] for number in flat[flat >= len(vocabulary)][:1] - len(vocabulary)]
    )
    if (flat < 0).any() and options.oov_word not in vocabulary:
        known = set(vocabulary)
        stranger = next(
            word
            for sentence in read_sentences(path, options.text_ids)
            for word in sentence
            if word not in known
        )
        raise UserError(
            f"neither '{stranger}' nor the OOV word '{options.oov_word}' that would replace it is in the "
            f"vocabulary; add '{options.oov_word}' to the lexicon or give --oov-word"
        )
    _report_oov(path, flat < 0, lengths, options.oov_word)
    flat[flat < 0] = vocabulary.index(options.oov_word) if options.oov_word in vocabulary else -1
    return flat, lengths


def _check_not_reserved(path: Path, found: list[str]) -> None:
    if found:
        raise UserError(
            f"{path}: '{found[0]}' {reserved(found[0])}; remove it from the text, whose lines are the "
            "sentences"
        )


def _report_oov(path: Path, outside: np.ndarray, lengths: np.ndarray, oov_word: str) -> None:
    """Log the number of words, and of whole lines, outside the vocabulary. Raises UserError if all are."""
    if outside.size and outside.all():
        raise UserError(f"{path}: none of its words is in the vocabulary; give the lexicon of this text")
    if outside.any():
        only = int(np.logical_and.reduceat(outside, np.cumsum(lengths) - lengths).sum())
        share = f"{outside.sum()} of {len(outside)} words ({100 * outside.mean():.2f} %)"
        lines = f"; {only} of {len(lengths)} lines contain no other words" if only else ""
        (log.warning if only else log.info)(
            f"{path}: {share} are outside the vocabulary and count as {oov_word}{lines}"
        )


def _min_counts(text: str, order: int) -> tuple[int, ...]:
    try:
        found = tuple(int(field) for field in text.split(","))
    except ValueError:
        raise UserError(f"--min-counts: '{text}' is not a list of whole numbers such as 1,2") from None
    if len(found) > max(order - 1, 1):
        raise UserError(
            f"--min-counts: {len(found)} numbers in '{text}', but --order {order} has {order - 1} above 1; "
            "omit some"
        )
    return found
