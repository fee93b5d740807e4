"""Transcripts that disagree with the decoded text: counts of errors, sorted by decreasing errors, divided
into good and bad.

OUT/all_info.sorted.txt   `UTTERANCE<tab>ERRORS<tab>WORDS<tab>DECODED<tab>TRANSCRIPT`, most errors first, as
                          in Kaldi's find_bad_utts.sh
OUT/per_utt               the two texts of each utterance, word by word
OUT/good_utts, bad_utts   utterances for `subset_data_dir.py --utt-list`; utterances that were not decoded are
                          bad
OUT/failed_utts           `UTTERANCE REASON` of utterances that were not decoded
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pyasr.base import log
from pyasr.base.cli.options import option
from pyasr.base.cli.skipped_utterances import counted_reasons
from pyasr.base.errors import UserError
from pyasr.base.outputs.output import atomic_write
from pyasr.io.text_tables import read_table, write_table
from pyasr.score.filters import TextFilter
from pyasr.score.score_tables import per_utterance
from pyasr.score.word_alignment import Counts, count

_AS_IT_IS = TextFilter(case="keep")


@dataclass(frozen=True)
class Comparison:
    """Transcript and decoded text of an utterance, as words, and the counts of their alignment."""

    transcript: list[str]
    decoded: list[str]
    counts: Counts

    @property
    def share(self) -> float:
        """Errors per word of the transcript."""
        return self.counts.errors / max(len(self.transcript), 1)


@dataclass(frozen=True)
class BadUttOptions:
    """An utterance is bad if its errors exceed both limits."""

    heading = "selection"

    max_errors: int = option(
        1, "number of errors up to which an utterance is good, whatever its length", minimum=0
    )
    max_error_share: float = option(
        0.25, "number of errors per word of the transcript up to which an utterance is good", minimum=0.0
    )

    def is_bad(self, comparison: Comparison) -> bool:
        return comparison.counts.errors > self.max_errors and comparison.share > self.max_error_share


def compare(transcripts: dict[str, list[str]], decoded: dict[str, str]) -> dict[str, Comparison]:
    """The decoded utterances, sorted by decreasing number of errors, then by decreasing error rate."""
    found = {}
    for utt, words in decoded.items():
        found[utt] = Comparison(transcripts[utt], words.split(), count(transcripts[utt], words.split()))
    return dict(sorted(found.items(), key=lambda item: (-item[1].counts.errors, -item[1].share, item[0])))


def write_report(
    out: Path, text: Mapping[str, str], words: set[str], oov_word: str, num_jobs: int, options: BadUttOptions
) -> None:
    """Compare decoded.JOB.txt in `out` with the transcripts `text`, in which words outside `words` become
    `oov_word`, and write all files.

    Raises UserError if nothing was decoded, or if no utterance is good.
    """
    decoded, failed = _read_jobs(out, num_jobs)
    if not decoded:
        fault = f"no utterance was decoded: {counted_reasons(failed)}"
        raise UserError(f"{fault}; check that data, language and model directory match")
    transcripts = {
        utt: [word if word in words else oov_word for word in text[utt].split()] for utt in decoded
    }
    found = compare(transcripts, decoded)
    bad = {utt for utt, comparison in found.items() if options.is_bad(comparison)}
    good = sorted(found.keys() - bad)
    if not good:
        raise UserError(
            f"all of {len(found)} utterances are bad; check that data, language and model directory match, "
            "or raise --max-error-share"
        )
    with atomic_write(out / "all_info.sorted.txt") as f:
        f.writelines(
            "\t".join(
                [
                    utt,
                    str(c.counts.errors),
                    str(len(c.transcript)),
                    " ".join(c.decoded),
                    " ".join(c.transcript),
                ]
            )
            + "\n"
            for utt, c in found.items()
        )
    with atomic_write(out / "per_utt") as f:
        f.write(
            per_utterance({utt: " ".join(words) for utt, words in transcripts.items()}, decoded, _AS_IT_IS)
        )
    for name, table in (("good_utts", good), ("bad_utts", bad | failed.keys()), ("failed_utts", failed)):
        write_table(out / name, {utt: table[utt] if isinstance(table, dict) else "" for utt in table})
    _log(found, bad, failed)


def _read_jobs(out: Path, num_jobs: int) -> tuple[dict[str, str], dict[str, str]]:
    """(decoded texts, reasons of failed utterances) of all jobs; removes their files."""
    decoded: dict[str, str] = {}
    failed: dict[str, str] = {}
    for job in range(1, num_jobs + 1):
        texts, reasons = out / f"decoded.{job}.txt", out / f"failed.{job}.json"
        decoded |= read_table(texts)
        failed |= json.loads(reasons.read_text(encoding="utf-8"))
        texts.unlink()
        reasons.unlink()
    return decoded, failed


def _log(found: dict[str, Comparison], bad: set[str], failed: dict[str, str]) -> None:
    total = sum((comparison.counts for comparison in found.values()), Counts())
    log.info(
        f"{len(found)} utterances: {total.errors} errors in {total.num_words} words ({total.wer:.2f} %), "
        f"{sum(not comparison.counts.errors for comparison in found.values())} utterances without errors"
    )
    log.info(f"{len(bad)} bad utterances, {len(failed)} utterances not decoded")
    for utt, comparison in list(found.items())[:5]:
        log.info(
            f"{utt}: {comparison.counts.errors} errors; transcript: {' '.join(comparison.transcript)}; "
            f"decoded: {' '.join(comparison.decoded)}"
        )
