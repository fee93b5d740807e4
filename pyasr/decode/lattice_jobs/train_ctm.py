"""Times of the words of transcripts from alignments: a ctm as written by Kaldi's get_train_ctm.sh."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pyasr.base.cli.skipped_utterances import SkippedOptions, check_skipped, log_reasons
from pyasr.base.errors import UserError
from pyasr.base.outputs.output import atomic_write
from pyasr.data.tables.datadir import DataDir
from pyasr.data.transcripts.ctm import Recordings, utterance_lines
from pyasr.hmm.align.prons import WordFinder, word_segments
from pyasr.hmm.model.gmm_dir import check_phones
from pyasr.hmm.model.model_file import MODEL, read_transitions
from pyasr.io.int_vectors import archives_of_job, read_int_vectors
from pyasr.io.lazy_tables import Joined, at_hand
from pyasr.io.tables import Table, TableBuilder
from pyasr.io.text_tables import write_table
from pyasr.lang.lang_dirs.lang_dir import LangDir
from pyasr.lang.ngrams.vocabulary import map_text


@dataclass(frozen=True)
class TrainCtmSpec:
    """Parameters of all jobs; job J processes every num_jobs-th archive of alignments."""

    data: Path
    lang: Path
    ali_dir: Path
    out: Path
    frame_shift_s: float
    num_jobs: int


def write_train_ctm(spec: TrainCtmSpec, job: int) -> None:
    """Write ctm.JOB with the words of a job's archives, spelled as in the transcript, and aligned.JOB with
    the utterances of the archives and the reason why an utterance has no words in ctm.JOB, else an empty
    string."""
    lang, data, aligned = LangDir(spec.lang), DataDir(spec.data), TableBuilder()
    check_phones(spec.ali_dir, lang)
    recordings = Recordings(data)
    trans, finder = read_transitions(spec.ali_dir / MODEL), WordFinder(lang)
    with atomic_write(spec.out / f"ctm.{job}") as f:
        for number in archives_of_job(spec.ali_dir, spec.num_jobs, job):
            alignments, faults = read_int_vectors(spec.ali_dir / f"ali.{number}.gz"), dict[str, str]()
            texts = _transcripts_of(data, alignments)
            words = map_text(texts, lang.words, lang.oov).ids
            for utt, segments in word_segments(trans, finder, {utt: alignments[utt] for utt in texts}, words):
                if segments is None:
                    faults[utt] = "its alignment does not contain the words of its transcript"
                    continue
                times = [(segment.begin, segment.end) for segment in segments if segment.word]
                lines = utterance_lines(
                    texts[utt].split(), times, [1.0] * len(times), recordings.locate(utt), spec.frame_shift_s
                )
                f.writelines(f"{line}\n" for line in lines)
            for utt in alignments:
                aligned.add(utt, faults.get(utt, ""))
    write_table(spec.out / f"aligned.{job}", aligned.table())


def _transcripts_of(data: DataDir, utterances: Iterable[str]) -> dict[str, str]:
    """{utterance: words} of the utterances that have words in the data directory."""
    return {utt: data.text[utt] for utt in utterances if _has_words(data, utt)}


def _has_words(data: DataDir, utt: str) -> bool:
    return utt in data.utt2spk and bool(data.text.get(utt))


def check_words(spec: TrainCtmSpec, options: SkippedOptions) -> None:
    """Log the utterances without words in the ctm, and alignments without a transcript. Raises UserError if
    too many utterances lack words, as with alignments of other data or another lexicon."""
    data, files = DataDir(spec.data), [spec.out / f"aligned.{job}" for job in range(1, spec.num_jobs + 1)]
    num_wanted = sum(1 for utt in data.utterances if _has_words(data, utt))
    if not num_wanted:
        raise UserError(
            f"{data.path}/text: no utterance of utt2spk has words; run utils/fix_data_dir.py {data.path}"
        )
    aligned = at_hand(Joined([Table.read(file) for file in files]))
    for file in files:
        file.unlink()
    silent = [utt for utt in aligned if not _has_words(data, utt)]
    log_reasons(dict.fromkeys(silent, f"no words in {spec.data}/text"), f"of {spec.ali_dir} left out")
    wanted = (utt for utt in data.utterances if _has_words(data, utt))
    skipped = {utt: fault for utt in wanted if (fault := aligned.get(utt, f"no alignment in {spec.ali_dir}"))}
    check_skipped(
        skipped,
        num_wanted,
        options,
        str(spec.ali_dir),
        "give the data and language directory of the alignment",
    )
