"""Scoring a decode directory: one score for each point (LM weight, word insertion penalty), the chosen point, and the files about them.

OUT/hyp/LMWT_WIP.txt     hypotheses of a point as a text table
OUT/wer_LMWT_WIP         WER, sentence error rate
OUT/best_wer             the chosen point and the best point of this set, each with interval, signature and label
OUT/per_utt OUT/per_spk  tables of the chosen point
OUT/summary.json         the same for programs
"""

from __future__ import annotations

import json
from collections.abc import Container, Mapping
from dataclasses import dataclass
from pathlib import Path

from pyasr.base.errors import UserError
from pyasr.base.foreign_json import read_object
from pyasr.base.options import option
from pyasr.base.output import atomic_write
from pyasr.data.datadir import DataDir
from pyasr.io.text import write_table
from pyasr.score.filters import TextFilter
from pyasr.score.tables import interval_text, per_speaker, per_utterance, wer_file, wer_line
from pyasr.score.wer import Score, score_texts

SUMMARY = "summary.json"
Point = tuple[int, float]


@dataclass(frozen=True)
class Chosen:
    """The point that another set chose, and the decode directory of that set."""

    point: Point
    source: Path


@dataclass(frozen=True)
class PointOptions:
    """The scales at which something is read from lattices: those that scoring has chosen, unless given."""

    lmwt: int | None = option(None, "LM weight; the one that steps/score.py has chosen unless given", minimum=1)
    word_ins_penalty: float | None = option(None, "word insertion penalty; the one that steps/score.py has chosen unless given, 0 with "
                                                  "--lmwt where nothing was scored")  # fmt: skip

    def inputs(self, decode_dir: Path) -> list[Path]:
        """The files that `of` reads."""
        summary = scoring_dir(decode_dir) / SUMMARY
        return [summary] if self.lmwt is None or (self.word_ins_penalty is None and summary.exists()) else []

    def of(self, decode_dir: Path) -> Point:
        """The point for a decode directory. Raises UserError where an LM weight is needed and the directory has not been scored."""
        if not self.inputs(decode_dir):
            return self.lmwt, self.word_ins_penalty or 0.0
        try:
            lm_weight, penalty = read_params(decode_dir)
        except UserError as error:
            raise UserError(f"{error}, or give --lmwt and --word-ins-penalty") from None
        return lm_weight if self.lmwt is None else self.lmwt, penalty if self.word_ins_penalty is None else self.word_ins_penalty


def point_name(point: Point) -> str:
    """(10, 0.5) -> '10_0.5', as in Kaldi's wer_10_0.5."""
    return f"{point[0]}_{point[1]}"


def score_points(data: DataDir, hypotheses: Mapping[Point, Mapping[str, str]], filters: TextFilter) -> dict[Point, Score]:
    """A score for each point; all of the data directory's transcripts count. Raises UserError for one that has no speaker."""
    stray = sorted(data.text.keys() - data.utt2spk.keys())
    if stray:
        raise UserError(f"{data.path}/utt2spk: no line for utterance '{stray[0]}' of text ({len(stray)} such); "
                        f"run utils/fix_data_dir.py {data.path}")
    return {point: score_texts(data.text, texts, filters, f"{data.path}/text") for point, texts in sorted(hypotheses.items())}


def best_point(scores: Mapping[Point, Score], first: Container[int] | None = None) -> Point:
    """The point with the fewest errors; among equals one of the weights `first`, if any, then the least LM weight, then the least penalty.
    Raises UserError where there is none."""
    if not scores:
        raise UserError("no utterance has been decoded, so there is nothing to score; see what the decoding says of missing features")
    return min(scores, key=lambda point: (scores[point].total.errors, first is not None and point[0] not in first, point))


def scoring_dir(decode_dir: Path, mbr: bool = False) -> Path:
    """Where the scores of a decode directory lie: of best paths, or of minimum Bayes risk decoding."""
    return Path(decode_dir) / ("scoring_mbr" if mbr else "scoring")


def read_params(decode_dir: Path, mbr: bool = False) -> Point:
    """The point that was chosen when `decode_dir` was scored. Raises UserError where it has not been."""
    return tuple(read_summary(decode_dir, mbr)["chosen"]["point"])


def read_summary(decode_dir: Path, mbr: bool = False) -> dict:
    """The content of summary.json of the last scoring. Raises UserError where it is missing or damaged."""
    path = scoring_dir(decode_dir, mbr) / SUMMARY
    try:
        summary = read_object(path)
        if not {"data", "signature", "chosen", "best"} <= summary.keys():
            raise ValueError
        return summary
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; score that directory first with steps/score.py{' --decode-mbr true' * mbr}") from None
    except ValueError:
        raise UserError(f"{path}: damaged; score {decode_dir} again with steps/score.py --force") from None


def write_scoring(out: Path, data: DataDir, hypotheses: Mapping[Point, Mapping[str, str]], filters: TextFilter, chosen: Chosen | None,
                  seed: int = 0, scores: Mapping[Point, Score] | None = None,
                  first: Container[int] | None = None) -> list[str]:  # fmt: skip
    """Write the files above into `out`; the lines of best_wer. `chosen` is None where this set chooses itself.

    scores  of all points, as `score_points` gives them, where they are known
    first   LM weights that are chosen before equally good ones
    """
    scores = scores or score_points(data, hypotheses, filters)
    best = best_point(scores, first)
    point = chosen.point if chosen else best
    if point not in scores:
        raise UserError(f"LM weight {point[0]} and penalty {point[1]} of {chosen.source} are not in the sweep; "
                        "widen --min-lmwt, --max-lmwt or --word-ins-penalties")
    (out / "hyp").mkdir(exist_ok=True)
    for swept, score in scores.items():
        write_table(out / "hyp" / f"{point_name(swept)}.txt", hypotheses[swept])
        _write(out / f"wer_{point_name(swept)}", wer_file(score))
    entries = {"chosen": _entry(scores, point, f"chosen on {chosen.source if chosen else 'this set'}", data, seed),
               "best": _entry(scores, best, "best on this set: for comparison only", data, seed)}
    lines = [_line(entry, scores[tuple(entry["point"])]) for entry in list(entries.values())[:2 if chosen else 1]]
    _write(out / "best_wer", "".join(f"{line}\n" for line in lines))
    _write(out / "per_utt", per_utterance(data.text, hypotheses[point], filters))
    _write(out / "per_spk", per_speaker(scores[point], data.utt2spk))
    summary = {"data": str(data.path), "params_from": str(chosen.source) if chosen else None, "seed": seed,
               "signature": filters.signature, **entries}
    _write(out / SUMMARY, json.dumps(summary, indent=1) + "\n")
    return lines


def _write(path: Path, content: str) -> None:
    with atomic_write(path) as f:
        f.write(content)


def _entry(scores: Mapping[Point, Score], point: Point, label: str, data: DataDir, seed: int) -> dict:
    score = scores[point]
    total = score.total
    return {"point": list(point), "label": label, "wer": total.wer, "errors": total.errors, "words": total.num_words, "ins": total.ins,
            "del": total.dele, "sub": total.sub, "interval": score.interval(seed),
            "speaker_interval": score.speaker_interval(data.utt2spk, seed),
            "num_speakers": len(data.spk2utt), "num_utterances": len(score.utterances), "missing": score.missing}


def _line(entry: dict, score: Score) -> str:
    low, high = entry["speaker_interval"]
    speakers = f" (by {entry['num_speakers']} speakers {low:.2f}-{high:.2f})" if entry["num_speakers"] > 1 else ""
    return (f"{wer_line(score.total)} {interval_text(entry['interval'])}{speakers} "
            f"LMWT {entry['point'][0]} WIP {entry['point'][1]} ({entry['label']}) {score.signature}")
