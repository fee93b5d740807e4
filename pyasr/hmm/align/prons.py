"""The pronunciation of each word and the silences in phone alignments (Kaldi's get_prons.sh).

OUT/prons.N.gz     lines `UTTERANCE FIRST_FRAME NUM_FRAMES WORD PHONES...` with words and position-dependent
                   phones, `<eps>` for the optional silence between words; nbest-to-prons writes the same with
                   ids
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pyasr.base.cli.skipped_utterances import counted_reasons, log_reasons
from pyasr.base.errors import UserError
from pyasr.base.outputs.output import atomic_write
from pyasr.hmm.model.gmm_dir import check_phones
from pyasr.hmm.model.model_file import read_transitions
from pyasr.hmm.model.transitions import TransitionModel
from pyasr.hmm.trees.phone_segments import groups, split_to_phones
from pyasr.io.int_vectors import archives_of_job, num_archives, read_int_vectors
from pyasr.io.tables import Table
from pyasr.io.text_tables import read_table, write_table
from pyasr.lang.lang_dirs.lang_dir import LangDir
from pyasr.lang.lexicons.pron_counts import PronCounts
from pyasr.lang.ngrams.vocabulary import map_text
from pyasr.lang.symbols import EPSILON, read_bytes


@dataclass(frozen=True)
class PronsSpec:
    """The work of all jobs; job J processes every num_jobs-th archive of alignments."""

    data: Path
    lang: Path
    ali_dir: Path
    out: Path
    num_jobs: int


@dataclass(frozen=True)
class WordSegment:
    """A word in an utterance, or silence (word 0): phone ids, frames `begin:end`."""

    word: int
    phones: tuple[int, ...]
    begin: int
    end: int


class WordFinder:
    """Finds the words of a transcript in the phones of its alignment."""

    def __init__(self, lang: LangDir):
        self._silence = lang.optional_silence
        self._prons: dict[int, list[tuple[int, ...]]] = {}
        for word, _, phones in lang.lexicon.rows():
            self._prons.setdefault(lang.words[word], []).append(tuple(lang.phones[phone] for phone in phones))

    def find(self, phones: tuple[int, ...], words) -> list[tuple[int, int]] | None:
        """(word, number of phones) in order, with word 0 for a silence; None if the phones are not a
        pronunciation of `words`.

        If several segmentations are possible, the first pronunciation in the lexicon's order is used, and a
        phone is assigned to a word rather than to a silence.
        """
        reached: list[dict[int, tuple]] = [self._with_silence(phones, {0: ()})]
        for word in words:
            after: dict[int, tuple] = {}
            for place in reached[-1]:
                for pron in self._prons.get(int(word), ()):
                    if phones[place : place + len(pron)] == pron:
                        after.setdefault(place + len(pron), (int(word), len(pron), place))
            reached.append(self._with_silence(phones, after))
        return _trace(reached, len(phones))

    def _with_silence(self, phones, places: dict[int, tuple]) -> dict[int, tuple]:
        """`places` and the places after a silence."""
        behind = {
            place + 1: (0, 1, place) for place in places if phones[place : place + 1] == (self._silence,)
        }
        return places | {place: step for place, step in behind.items() if place not in places}


def _trace(reached: list[dict[int, tuple]], place: int) -> list[tuple[int, int]] | None:
    if place not in reached[-1]:
        return None
    steps, level = [], len(reached) - 1
    while level > 0 or place > 0:
        word, length, before = reached[level][place]
        steps.append((word, length))
        level, place = level - (word > 0), before
    return steps[::-1]


def word_segments(
    trans: TransitionModel,
    finder: WordFinder,
    alignments: dict[str, np.ndarray],
    words: dict[str, np.ndarray],
) -> Iterator[tuple[str, list[WordSegment] | None]]:
    """(utterance, its words and silences) of alignments with the transcripts `words` (ids); None if they do
    not match, or if an utterance has no transcript."""
    for group in groups(alignments):
        found = split_to_phones(trans, group)
        first_phones = np.searchsorted(found.utts, np.arange(len(group) + 1))
        for i, utt in enumerate(group):
            span = slice(first_phones[i], first_phones[i + 1])
            phones = tuple(found.phones[span].tolist())
            starts = (found.starts[span.start : span.stop + 1] - found.starts[span.start]).tolist()
            steps = finder.find(phones, words[utt]) if utt in words else None
            yield utt, steps if steps is None else _segments(steps, phones, starts)


def _segments(steps, phones, starts) -> list[WordSegment]:
    segments, place = [], 0
    for word, length in steps:
        segments.append(
            WordSegment(word, phones[place : place + length], starts[place], starts[place + length])
        )
        place += length
    return segments


def write_prons(spec: PronsSpec, job: int) -> None:
    """Write prons.N.gz for each ali.N.gz of a job, and skipped_utterances.N: {utterance: reason}."""
    lang = LangDir(spec.lang)
    check_phones(spec.ali_dir, lang)
    trans = read_transitions(spec.ali_dir / "final.mdl")
    finder = WordFinder(lang)
    texts = Table.read(spec.data / "text")
    for number in archives_of_job(spec.ali_dir, spec.num_jobs, job):
        lines, skipped = _lines(
            spec, read_int_vectors(spec.ali_dir / f"ali.{number}.gz"), texts, trans, finder, lang
        )
        write_table(_skipped_file(spec.out, number), skipped)
        with (
            atomic_write(spec.out / f"prons.{number}.gz", "wb") as raw,
            gzip.GzipFile("", "wb", 3, raw, mtime=0) as f,
        ):
            f.write("".join(lines).encode())


def _lines(
    spec: PronsSpec,
    alignments: dict[str, np.ndarray],
    texts: Mapping[str, str],
    trans: TransitionModel,
    finder: WordFinder,
    lang: LangDir,
) -> tuple[list[str], dict[str, str]]:
    """(lines, {skipped utterance: reason})."""
    words = map_text({utt: texts[utt] for utt in alignments if utt in texts}, lang.words, lang.oov).ids
    known = {utt: alignment for utt, alignment in alignments.items() if utt in words}
    lines = []
    skipped = {utt: _why_no_words(utt, texts, spec.data) for utt in alignments if utt not in words}
    for utt, segments in word_segments(trans, finder, known, words):
        if segments is None:
            skipped[utt] = "its alignment does not contain the words of its transcript"
        lines += [_line(utt, segment, lang) for segment in segments or ()]
    return lines, skipped


def _why_no_words(utt: str, texts: Mapping[str, str], data: Path) -> str:
    return "its transcript has a symbol that is not a word" if utt in texts else f"no line in {data}/text"


def _skipped_file(out: Path, number: int) -> Path:
    return out / f"skipped_utterances.{number}"


def _line(utt: str, segment: WordSegment, lang: LangDir) -> str:
    word = lang.words.symbol(segment.word) if segment.word else EPSILON
    return (
        f"{utt} {segment.begin} {segment.end - segment.begin} {word} "
        f"{' '.join(map(lang.phones.symbol, segment.phones))}\n"
    )


def count_all(spec: PronsSpec) -> PronCounts:
    """Counts over the files of all jobs; logs the skipped alignments. Raises UserError if no alignment
    matches its transcript."""
    num_files, skipped = num_archives(spec.ali_dir), dict[str, str]()
    for number in range(1, num_files + 1):
        skipped |= read_table(_skipped_file(spec.out, number))
        _skipped_file(spec.out, number).unlink()
    log_reasons(skipped, f"of {spec.ali_dir} skipped")
    counts = count_prons(spec.out, num_files)
    if not counts.prons:
        found = (
            f"no alignment contains the words of {spec.data}/text in the pronunciations of {spec.lang}: "
            f"{counted_reasons(skipped)}"
        )
        raise UserError(f"{spec.ali_dir}: {found}; give the data and language directory of the alignment")
    return counts


def count_prons(out: Path, num_files: int) -> PronCounts:
    """Counts over prons.1.gz ... prons.NUM_FILES.gz in `out`."""
    counts = PronCounts()
    for number in range(1, num_files + 1):
        for utterance in _utterances(out / f"prons.{number}.gz"):
            counts.add(utterance)
    return counts


def _utterances(path: Path) -> Iterator[list[tuple[str, ...]]]:
    """The (word, phones...) of each utterance in a file of pronunciations."""
    last, tokens = None, list[tuple[str, ...]]()
    for line in read_bytes(path).decode().splitlines():
        utt, _, _, *token = line.split()
        if utt != last and tokens:
            yield tokens
            tokens = []
        last = utt
        tokens.append(tuple(token))
    if tokens:
        yield tokens
