"""Scoring of a decode directory: a score for each point (LM weight, word insertion penalty), the chosen
point, and the output files.

OUT/hyp/LMWT_WIP.txt     hypotheses of a point as a text table; with an stm LMWT_WIP.ctm
OUT/wer_LMWT_WIP         WER, sentence error rate
OUT/best_wer             the WER at the chosen point and at the best point of this set, each with its
                         interval, signature and label
OUT/best_wer_NAME        the same for each subset of the stm
OUT/per_utt OUT/per_spk  tables of the chosen point; with an stm OUT/per_subset, by subsets and labels
OUT/summary.json         the same, machine-readable
"""

from __future__ import annotations

import json
from collections.abc import Container, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pyasr.base.cli.options import option
from pyasr.base.errors import UserError
from pyasr.base.files.foreign_json import read_object
from pyasr.base.outputs.output import atomic_write
from pyasr.data.tables.datadir import DataDir
from pyasr.score.filters import TextFilter
from pyasr.score.lm_weights import LmWeights
from pyasr.score.score_tables import counts_table, interval_text, per_speaker, wer_file, wer_line
from pyasr.score.text_scorer import TextScorer
from pyasr.score.wer import Score

SUMMARY = "summary.json"
Point = tuple[int, float]


class Scorer(Protocol):
    """Scores hypotheses of a data directory, against its transcripts (TextScorer) or an stm (StmScorer).

    utt2spk    {utterance: speaker} of all scored utterances
    signature  scoring method
    subsets    {name: utterances} with a separate WER
    parts      {name: utterances} with a row in per_subset
    """

    @property
    def utt2spk(self) -> Mapping[str, str]: ...

    @property
    def signature(self) -> str: ...

    @property
    def subsets(self) -> Mapping[str, list[str]]: ...

    @property
    def parts(self) -> Mapping[str, list[str]]: ...

    def score(self, hypothesis: Any) -> Score:
        """Counts of all utterances."""

    def per_utterance(self, hypothesis: Any) -> str:
        """Content of per_utt."""

    def write(self, directory: Path, name: str, hypothesis: Any) -> None:
        """Write a hypothesis to DIRECTORY/NAME plus a suffix."""


@dataclass(frozen=True)
class Chosen:
    """The point chosen on another set, and the decode directory of that set."""

    point: Point
    source: Path


@dataclass(frozen=True)
class PointOptions:
    """The point (LM weight, word insertion penalty) at which lattices are evaluated."""

    heading = "scoring"

    lmwt: int | None = option(None, "LM weight; none: the one chosen by steps/score.py", minimum=1)
    word_ins_penalty: float | None = option(
        None,
        "word insertion penalty; none: the one chosen by steps/score.py, or 0 with --lmwt if "
        "nothing was scored",
    )

    def inputs(self, decode_dir: Path) -> list[Path]:
        """The files that `of` reads."""
        summary = scoring_dir(decode_dir) / SUMMARY
        return [summary] if self.lmwt is None or (self.word_ins_penalty is None and summary.exists()) else []

    def of(self, decode_dir: Path) -> Point:
        """The point for a decode directory. Raises UserError if it needs an LM weight and the directory has
        not been scored."""
        if self.lmwt is not None and not self.inputs(decode_dir):
            return self.lmwt, self.word_ins_penalty or 0.0
        try:
            lm_weight, penalty = read_params(decode_dir)
        except UserError as error:
            raise UserError(f"{error}, or give --lmwt and --word-ins-penalty") from None
        return (
            lm_weight if self.lmwt is None else self.lmwt,
            penalty if self.word_ins_penalty is None else self.word_ins_penalty,
        )


def point_name(point: Point) -> str:
    """(10, 0.5) -> '10_0.5', as in Kaldi's wer_10_0.5."""
    return f"{point[0]}_{point[1]}"


def score_points(scorer: Scorer, hypotheses: Mapping[Point, Any]) -> dict[Point, Score]:
    """A score for each point."""
    return {point: scorer.score(hypothesis) for point, hypothesis in sorted(hypotheses.items())}


def best_point(scores: Mapping[Point, Score], first: Container[int] | None = None) -> Point:
    """The point with the fewest errors. Of several such points, those with one of the LM weights `first` are
    preferred, then those with the lowest LM weight, then the one with the lowest penalty. Raises UserError if
    there is no point."""
    if not scores:
        raise UserError(
            "no utterance was decoded, so there is nothing to score; check the log of the decoding for "
            "missing features"
        )
    return min(
        scores,
        key=lambda point: (scores[point].total.errors, first is not None and point[0] not in first, point),
    )


def scoring_dir(decode_dir: Path, mbr: bool = False) -> Path:
    """Directory of the scores of a decode directory.

    mbr  whether hypotheses are those of minimum Bayes risk decoding, not best paths
    """
    return Path(decode_dir) / ("scoring_mbr" if mbr else "scoring")


def read_params(decode_dir: Path, mbr: bool = False) -> Point:
    """The point chosen when `decode_dir` was scored. Raises UserError if it was not scored."""
    return tuple(read_summary(decode_dir, mbr)["chosen"]["point"])


def read_summary(decode_dir: Path, mbr: bool = False) -> dict:
    """Content of summary.json of the last scoring. Raises UserError if it is missing or damaged."""
    path = scoring_dir(decode_dir, mbr) / SUMMARY
    try:
        summary = read_object(path)
        if not {"data", "signature", "chosen", "best"} <= summary.keys():
            raise ValueError
        return summary
    except FileNotFoundError:
        raise UserError(
            f"{path}: no such file; score that directory first with "
            f"steps/score.py{' --decode-mbr true' * mbr}"
        ) from None
    except ValueError:
        raise UserError(f"{path}: damaged; score {decode_dir} again with steps/score.py --force") from None


def chosen_wer(decode_dir: Path, subset: str = "") -> float | None:
    """WER in per cent at the chosen point, of all utterances or of the named subset; None if they were not
    scored."""
    if not (scoring_dir(decode_dir) / SUMMARY).exists():
        return None
    summary = read_summary(decode_dir)
    entries = summary.get("subsets", {}).get(subset) if subset else summary
    return entries["chosen"]["wer"] if entries else None


def misfit(decode_dir: Path, weights: LmWeights, mbr: bool = False) -> str:
    """Why the last scoring does not match this range of LM weights; '' if it does, if nothing was scored, or
    if no range was recorded."""
    try:
        summary = read_summary(decode_dir, mbr)
    except UserError:
        return ""  # harmless: a missing or damaged file is written again
    record, best = summary.get("lm_weights"), summary["best"]
    return weights.misfit(record, best["point"][0], best["errors"]) if record else ""


def write_scoring(
    out: Path,
    data: DataDir,
    hypotheses: Mapping[Point, Any],
    filters: TextFilter,
    chosen: Chosen | None,
    seed: int = 0,
    scores: Mapping[Point, Score] | None = None,
    weights: LmWeights | None = None,
    scorer: Scorer | None = None,
) -> list[str]:
    """Write the files of the list at the beginning of this module to `out`. Returns the lines of best_wer and
    of best_wer_NAME of all subsets.

    chosen  None: this set chooses its own point
    scores  scores of all points from `score_points`, if known
    weights range of LM weights; of equally good ones, those of its first range are preferred
    scorer  default: a TextScorer of `data` and `filters`
    """
    scorer = scorer or TextScorer(data, filters)
    scores = scores or score_points(scorer, hypotheses)
    first = weights.first if weights else None
    point = chosen.point if chosen else best_point(scores, first)
    if chosen and point not in scores:
        raise UserError(
            f"LM weight {point[0]} and penalty {point[1]} of {chosen.source} are not in the sweep; "
            "widen --min-lmwt, --max-lmwt or --word-ins-penalties"
        )
    (out / "hyp").mkdir(exist_ok=True)
    for swept, score in scores.items():
        scorer.write(out / "hyp", point_name(swept), hypotheses[swept])
        _write(out / f"wer_{point_name(swept)}", wer_file(score))
    best = _Best(point, chosen, scorer.utt2spk, seed, first)
    lines, entries = best.write(out / "best_wer", scores)
    subsets = {}
    for name, utterances in scorer.subsets.items():
        parts = {swept: score.part(utterances) for swept, score in scores.items()}
        more, subsets[name] = best.write(out / f"best_wer_{name}", parts, f"subset {name}: ")
        lines += more
    _write(out / "per_utt", scorer.per_utterance(hypotheses[point]))
    _write(out / "per_spk", per_speaker(scores[point], scorer.utt2spk))
    if scorer.parts:
        _write(
            out / "per_subset",
            counts_table(
                "SUBSET", [(name, scores[point].part(utts).row) for name, utts in scorer.parts.items()]
            ),
        )
    summary = {
        "data": str(data.path),
        "params_from": str(chosen.source) if chosen else None,
        "seed": seed,
        "signature": scorer.signature,
        "lm_weights": weights and weights.record,
        **entries,
        **({"subsets": subsets} if subsets else {}),
    }
    _write(out / SUMMARY, json.dumps(summary, indent=1) + "\n")
    return lines


def _write(path: Path, content: str) -> None:
    with atomic_write(path) as f:
        f.write(content)


@dataclass(frozen=True)
class _Best:
    """Writes best_wer files: the WER at the chosen point and at the best point. If this set chose its own
    point and it is the best one, the file has one line."""

    point: Point
    chosen: Chosen | None
    utt2spk: Mapping[str, str]
    seed: int
    first: Container[int] | None

    def write(
        self, path: Path, scores: Mapping[Point, Score], prefix: str = ""
    ) -> tuple[list[str], dict[str, dict]]:
        """Write a file for these scores. Returns (its lines, the entries of the summary)."""
        best = best_point(scores, self.first)
        source = self.chosen.source if self.chosen else "this set"
        entries = {
            "chosen": self._entry(scores[self.point], self.point, f"{prefix}chosen on {source}"),
            "best": self._entry(scores[best], best, f"{prefix}best on this set: for comparison only"),
        }
        shown = list(entries.values())[: 2 if self.chosen or best != self.point else 1]
        lines = [_line(entry, scores[tuple(entry["point"])]) for entry in shown]
        _write(path, "".join(f"{line}\n" for line in lines))
        return lines, entries

    def _entry(self, score: Score, point: Point, label: str) -> dict:
        total = score.total
        return {
            "point": list(point),
            "label": label,
            "wer": total.wer,
            "errors": total.errors,
            "words": total.num_words,
            "ins": total.ins,
            "del": total.dele,
            "sub": total.sub,
            "interval": score.interval(self.seed),
            "speaker_interval": score.speaker_interval(self.utt2spk, self.seed),
            "num_speakers": len({self.utt2spk[utt] for utt in score.utterances}),
            "num_utterances": len(score.utterances),
            "missing": score.missing,
        }


def _line(entry: dict, score: Score) -> str:
    low, high = entry["speaker_interval"]
    speakers = (
        f" (by {entry['num_speakers']} speakers {low:.2f}-{high:.2f})" if entry["num_speakers"] > 1 else ""
    )
    return (
        f"{wer_line(score.total)} {interval_text(entry['interval'])}{speakers} "
        f"LMWT {entry['point'][0]} WIP {entry['point'][1]} ({entry['label']}) {score.signature}"
    )
