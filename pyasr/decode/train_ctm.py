"""When the words of transcripts were said, by alignments: a ctm as Kaldi's get_train_ctm.sh makes it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pyasr.base.errors import UserError
from pyasr.base.left_out import LeftOutOptions, check_left_out, log_reasons
from pyasr.base.output import atomic_write
from pyasr.data.ctm import CtmLine, Recordings, utterance_lines
from pyasr.data.datadir import DataDir
from pyasr.hmm.gmm_dir import check_phones
from pyasr.hmm.model import MODEL, read_transitions
from pyasr.hmm.prons import WordFinder, word_segments
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
    """Write ctm.JOB with the words of a job's archives, as the transcript spells them, and aligned.JOB with the utterances of the archives:
    why one has no words there, or nothing."""
    lang, data, lines, aligned = LangDir(spec.lang), DataDir(spec.data), list[CtmLine](), dict[str, str]()
    check_phones(spec.ali_dir, lang)
    recordings = Recordings(data)
    trans, finder = read_transitions(spec.ali_dir / MODEL), WordFinder(lang)
    for number in archives_of_job(spec.ali_dir, spec.num_jobs, job):
        alignments = read_int_vectors(spec.ali_dir / f"ali.{number}.gz")
        aligned |= dict.fromkeys(alignments, "")
        texts = _transcripts_of(data, alignments)
        known = {utt: alignments[utt] for utt in texts}
        words = map_text(texts, lang.words, lang.oov).ids
        for utt, segments in word_segments(trans, finder, known, words):
            if segments is None:
                aligned[utt] = "its alignment does not hold the words of its transcript"
                continue
            times = [(segment.begin, segment.end) for segment in segments if segment.word]
            lines += utterance_lines(texts[utt].split(), times, [1.0] * len(times), recordings.locate(utt), spec.frame_shift_s)
    with atomic_write(spec.out / f"ctm.{job}") as f:
        f.writelines(f"{line}\n" for line in lines)
    write_table(spec.out / f"aligned.{job}", aligned)


def transcripts(data: DataDir) -> dict[str, str]:
    """{utterance: words} of those of a data directory that have any. Raises UserError where none has."""
    texts = _transcripts_of(data, data.utterances)
    if not texts:
        raise UserError(f"{data.path}/text: no words of any utterance of utt2spk; run utils/fix_data_dir.py {data.path}")
    return texts


def _transcripts_of(data: DataDir, utterances: Iterable[str]) -> dict[str, str]:
    """{utterance: words} of those of these utterances that a data directory has, with words."""
    return {utt: data.text[utt] for utt in utterances if utt in data.utt2spk and data.text.get(utt)}


def check_words(spec: TrainCtmSpec, options: LeftOutOptions) -> None:
    """Name the utterances without words, and alignments without a transcript. Raises UserError where the former are too many: alignments of
    other data, or of another lexicon."""
    wanted, aligned = transcripts(DataDir(spec.data)), {}
    for job in range(1, spec.num_jobs + 1):
        aligned |= read_table(spec.out / f"aligned.{job}")
        (spec.out / f"aligned.{job}").unlink()
    log_reasons(dict.fromkeys(aligned.keys() - wanted.keys(), f"no words in {spec.data}/text"), f"of {spec.ali_dir} left out")
    faults = {utt: aligned.get(utt, f"no alignment in {spec.ali_dir}") for utt in wanted}
    left_out = {utt: fault for utt, fault in faults.items() if fault}
    check_left_out(left_out, len(wanted), options, str(spec.ali_dir), "give the data and language directory of the alignment")
