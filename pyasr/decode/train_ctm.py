"""When the words of transcripts were said, by alignments: a ctm as Kaldi's get_train_ctm.sh makes it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pyasr.base.left_out import LeftOutOptions, check_left_out
from pyasr.base.output import atomic_write
from pyasr.data.ctm import CtmLine, Recordings, utterance_lines
from pyasr.data.datadir import DataDir
from pyasr.hmm.gmm_dir import check_phones
from pyasr.hmm.model import MODEL, read_transitions
from pyasr.hmm.prons import Segment, WordFinder, word_segments
from pyasr.io.int_vectors import archives_of_job, read_int_vectors
from pyasr.io.text import read_table, write_table
from pyasr.lang.lang_dir import LangDir
from pyasr.lang.vocabulary import map_text


@dataclass(frozen=True)
class TrainCtmSpec:
    """The work of all jobs; job J takes every num_jobs-th archive of alignments."""

    data: Path
    lang: Path
    ali_dir: Path
    out: Path
    frame_shift_s: float
    num_jobs: int


def write_train_ctm(spec: TrainCtmSpec, job: int) -> None:
    """Write ctm.JOB with the words of a job's archives, as the transcript spells them, and left_out.JOB with the utterances without."""
    lang, recordings, lines, left_out = LangDir(spec.lang), Recordings(DataDir(spec.data)), list[CtmLine](), {}
    check_phones(spec.ali_dir, lang)
    texts = read_table(spec.data / "text")
    for utt, segments in _segments(spec, job, lang, texts):
        if segments is None:
            left_out[utt] = "its alignment does not hold the words of its transcript"
            continue
        times = [(segment.begin, segment.end) for segment in segments if segment.word]
        lines += utterance_lines(texts[utt].split(), times, [1.0] * len(times), recordings.locate(utt), spec.frame_shift_s)
    with atomic_write(spec.out / f"ctm.{job}") as f:
        f.writelines(f"{line}\n" for line in lines)
    write_table(spec.out / f"left_out.{job}", left_out)


def _segments(spec: TrainCtmSpec, job: int, lang: LangDir, texts: dict[str, str]) -> Iterator[tuple[str, list[Segment] | None]]:
    """(utterance, its words and silences) of a job's archives, where there is a transcript; None where the two do not fit together."""
    trans, finder = read_transitions(spec.ali_dir / MODEL), WordFinder(lang)
    for number in archives_of_job(spec.ali_dir, spec.num_jobs, job):
        alignments = read_int_vectors(spec.ali_dir / f"ali.{number}.gz")
        known = {utt: alignment for utt, alignment in alignments.items() if utt in texts}
        yield from word_segments(trans, finder, known, map_text({utt: texts[utt] for utt in known}, lang.words, lang.oov).ids)


def check_words(spec: TrainCtmSpec, options: LeftOutOptions) -> None:
    """Name the utterances without words. Raises UserError where they are too many: alignments of other data, or of another lexicon."""
    utterances, left_out = DataDir(spec.data).utterances, {}
    for job in range(1, spec.num_jobs + 1):
        left_out |= read_table(spec.out / f"left_out.{job}")
        (spec.out / f"left_out.{job}").unlink()
    check_left_out(left_out, len(utterances), options, str(spec.ali_dir), "give the data and language directory of the alignment")
