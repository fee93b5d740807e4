#!/usr/bin/env python3
"""Score the lattices of a decode directory over LM weights and word insertion penalties, and choose the best,
or those of another set.

Reads   DATA/{text,utt2spk}, DECODE_DIR/{lat.*.gz,words.txt}, LANG/words.txt if DECODE_DIR has none,
        --params-from DIR: DIR/scoring/summary.json
        if DATA has an stm: DATA/{stm,glm,stm_subsets} instead of the text, and what steps/get_ctm.py reads
Writes  DECODE_DIR/scoring/{best_wer,per_utt,per_spk,wer_*,hyp/*,summary.json}, copies
        DECODE_DIR/{best_wer,wer_LMWT_WIP}
        with an stm also scoring/per_subset and, for each subset, scoring/best_wer_NAME and a copy of it
        with --decode-mbr true instead DECODE_DIR/scoring_mbr/... without copies

    steps/score.py data/dev data/lang exp/tri1/decode_dev
    steps/score.py --params-from exp/tri1/decode_dev data/test data/lang exp/tri1/decode_test
"""

import contextlib
import dataclasses
import math
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from pyasr.base import log
from pyasr.base.cli.job_options import JobOptions
from pyasr.base.cli.option_uses import if_set
from pyasr.base.cli.options import argument, group, option
from pyasr.base.cli.step import output_of, run_step
from pyasr.base.errors import UserError
from pyasr.base.files import durable
from pyasr.cluster.ranks.jobs import run_jobs
from pyasr.data.checks.backup import back_up
from pyasr.data.tables.datadir import DataDir
from pyasr.data.transcripts.glm import read_glm
from pyasr.data.transcripts.stm import read_stm
from pyasr.decode.lattice_jobs.ctm_sweep import CtmSweepSpec, read_ctm_sweep
from pyasr.decode.lattice_jobs.decoded import Decoded
from pyasr.decode.lattice_jobs.lattice_dir import archives, words_file
from pyasr.decode.lattice_jobs.sweep_dir import Point, SweepSpec, read_sweep
from pyasr.decode.lattices.mbr import MbrOptions
from pyasr.feats.frame_shift import frame_shift_files
from pyasr.hmm.model.model_file import answer_shift_s
from pyasr.score.filters import SIGNATURE, TextFilter
from pyasr.score.hub5.ctm_elements import CtmEntry, ctm_entries
from pyasr.score.hub5.scored_words import DROPPED, scored_lines
from pyasr.score.hub5.scorer import StmScorer
from pyasr.score.lm_weights import LmWeights, first_range
from pyasr.score.score_dir import (
    SUMMARY,
    Chosen,
    Scorer,
    misfit,
    read_params,
    read_summary,
    score_points,
    scoring_dir,
    write_scoring,
)
from pyasr.score.text_scorer import TextScorer
from pyasr.score.wer import Score

MAX_NAMED = 20  # maximum number of utterances without hypothesis in a warning


@dataclass(frozen=True)
class ScoreOptions:
    heading = "scoring"

    data: Path = argument("data directory that was decoded")
    lang: Path = argument("lang directory of the graph")
    decode_dir: Path = argument("directory of the lattices")
    params_from: Path | None = option(
        None,
        "scored decode directory whose LM weight and word insertion penalty are used; none: the "
        "best ones for DATA",
    )
    min_lmwt: int | None = option(
        None, "minimum LM weight; none: 7, or less as long as the minimum is the best weight", minimum=1
    )
    max_lmwt: int | None = option(
        None,
        "maximum LM weight; none: 17, or more, up to 100, as long as the maximum is the best weight",
        minimum=1,
    )
    word_ins_penalties: str = option("0.0,0.5,1.0", "word insertion penalties, separated by commas")
    mbr: MbrOptions = group(MbrOptions, only={"posterior_scale": if_set("decode-mbr")})
    seed: int = option(0, "random seed of the 95 % intervals")
    stm: bool = option(
        True,
        "score against DATA/stm if it exists, with DATA/glm and DATA/stm_subsets; false: against DATA/text",
    )
    model_dir: Path | None = option(
        None, "directory of the acoustic model, needed with an stm; none: the parent of DECODE_DIR"
    )
    filters: TextFilter = group(TextFilter)
    jobs: JobOptions = group(JobOptions)


def penalties(text: str) -> tuple[float, ...]:
    found: set[float] = set()
    with contextlib.suppress(ValueError):  # a word that is not a number: reported below
        found = {float(word) for word in text.split(",")}
    if not found or not all(map(math.isfinite, found)):
        raise UserError(f"--word-ins-penalties: '{text}' is not a list of numbers such as 0.0,0.5,1.0")
    return tuple(sorted(found))


class Texts:
    """Scoring of utterances' words against DATA/text."""

    worker = "pyasr.decode.lattice_jobs.sweep_dir:sweep_shard"

    def __init__(self, options: ScoreOptions):
        if options.model_dir:
            raise UserError("--model-dir has no effect without an stm to score against; omit the option")
        self.options, self.words = options, words_file(options.decode_dir, options.lang)

    def inputs(self) -> list[Path]:
        data = self.options.data
        return [data / "text", data / "utt2spk", self.words, *archives(self.options.decode_dir)]

    def scorer(self) -> TextScorer:
        return TextScorer(DataDir(self.options.data), self.options.filters)

    def spec(self, out: Path, num_jobs: int, weights: tuple[int, ...], acoustic_scale: float) -> SweepSpec:
        options = self.options
        return SweepSpec(
            options.decode_dir,
            self.words,
            out,
            num_jobs,
            weights,
            penalties(options.word_ins_penalties),
            options.mbr,
            acoustic_scale,
        )

    def read(self, out: Path, num_jobs: int) -> dict[Point, dict[str, str]]:
        return read_sweep(out, num_jobs)


class TimedWords:
    """Scoring of words with times against DATA/stm."""

    worker = "pyasr.decode.lattice_jobs.ctm_sweep:ctm_sweep_shard"

    def __init__(self, options: ScoreOptions):
        if options.filters != TextFilter():
            raise UserError(
                f"--case and --drop have no effect with {options.data}/stm; omit them, or give --stm false"
            )
        self.options, self.data = options, DataDir(options.data)
        self.glm, self.subsets = (
            options.data / name if self.data.has(name) else None for name in ("glm", "stm_subsets")
        )
        self.decoded = Decoded.of(
            options.data, options.lang, options.decode_dir, options.model_dir, options.jobs.nj
        )

    def inputs(self) -> list[Path]:
        data = self.options.data
        times = [data / name for name in ("segments", "reco2file_and_channel") if self.data.has(name)]
        return [
            data / "stm",
            *filter(None, (self.glm, self.subsets)),
            *self.decoded.files(),
            *times,
            *frame_shift_files(data),
        ]

    def scorer(self) -> StmScorer:
        return StmScorer(
            read_stm(self.options.data / "stm"),
            read_glm(self.glm) if self.glm else None,
            self.subsets,
            DROPPED,
        )

    def spec(self, out: Path, num_jobs: int, weights: tuple[int, ...], acoustic_scale: float) -> CtmSweepSpec:
        frame_shift_s = answer_shift_s(self.options.data, self.decoded.model_dir)
        return CtmSweepSpec(
            self.decoded,
            out,
            weights,
            penalties(self.options.word_ins_penalties),
            self.options.mbr,
            acoustic_scale,
            frame_shift_s,
        )

    def read(self, out: Path, num_jobs: int) -> dict[Point, list[CtmEntry]]:
        return {
            point: ctm_entries(scored_lines(lines)) for point, lines in read_ctm_sweep(out, num_jobs).items()
        }


def sweep(
    options: ScoreOptions,
    task: Texts | TimedWords,
    scorer: Scorer,
    out: Path,
    num_jobs: int,
    weights: LmWeights,
) -> tuple[dict, dict]:
    """(hypotheses, scores) of all points, with further LM weights as long as the best one is at an end of the
    range."""
    hypotheses: dict[Point, object] = {}
    scores: dict[Point, Score] = {}
    wanted = list(weights.first)
    while wanted:
        spec = task.spec(out, num_jobs, tuple(wanted), 1.0 / median(weights.first))
        run_jobs(options.jobs, out / "log" / "sweep.JOB.log", task.worker, spec, num_jobs=num_jobs)
        found = task.read(out, num_jobs)
        hypotheses, scores = hypotheses | found, scores | score_points(scorer, found)
        if wanted := weights.further(scores):
            log.info(
                f"the best LM weight is at the end of the range, trying more: {weights.low} to {weights.high}"
            )
    for job in range(1, num_jobs + 1):
        (out / f"sweep.{job}.txt").unlink()
    return hypotheses, scores


def main(options: ScoreOptions) -> None:
    mbr = options.mbr.decode_mbr
    chosen = (
        Chosen(read_params(options.params_from, mbr), options.params_from) if options.params_from else None
    )
    task = (TimedWords if options.stm and DataDir(options.data).has("stm") else Texts)(options)
    paths = task.inputs() + ([scoring_dir(options.params_from, mbr) / SUMMARY] if options.params_from else [])
    scoring = scoring_dir(options.decode_dir, mbr)
    num_jobs = min(options.jobs.nj, len(archives(options.decode_dir)))
    weights = LmWeights(options.min_lmwt, options.max_lmwt, chosen.point[0] if chosen else None)
    least, greatest = first_range(options.min_lmwt, options.max_lmwt)
    made_with = dataclasses.replace(options, min_lmwt=least, max_lmwt=greatest)
    also = [] if mbr else [options.decode_dir / "best_wer"]
    outdated = misfit(options.decode_dir, weights, mbr)
    with output_of(made_with, scoring, paths, also=also, outdated=outdated) as out:
        scorer = task.scorer()
        hypotheses, scores = sweep(options, task, scorer, out, num_jobs, weights)
        lines = write_scoring(
            out,
            DataDir(options.data),
            hypotheses,
            options.filters,
            chosen,
            options.seed,
            scores,
            weights,
            scorer,
        )
    if not mbr:
        publish(scoring, options.decode_dir)
    report(options, lines, weights)


def publish(scoring: Path, decode_dir: Path) -> None:
    """Copy results to where Kaldi users expect them; results of another toolkit are moved to
    DECODE_DIR/.backup."""
    for old in filter(Path.is_file, decode_dir.glob("wer_*")):
        if SIGNATURE not in old.read_text(encoding="utf-8", errors="replace"):
            log.warning(f"{old} belongs to another toolkit: moved to {back_up(old)}")
        old.unlink()
    for old in decode_dir.glob("best_wer_*"):
        old.unlink()
    for path in [*scoring.glob("wer_*"), *scoring.glob("best_wer*")]:
        durable.copy(path, decode_dir / path.name)


def report(options: ScoreOptions, lines: list[str], weights: LmWeights) -> None:
    for line in lines:
        log.info(line)
    chosen = read_summary(options.decode_dir, options.mbr.decode_mbr)["chosen"]
    if chosen["missing"]:
        named = " ".join(chosen["missing"][:MAX_NAMED]) + " ..." * (len(chosen["missing"]) > MAX_NAMED)
        log.warning(f"{len(chosen['missing'])} utterance(s) have no hypothesis and count as deleted: {named}")
    if not options.params_from and chosen["errors"] and (remedy := weights.remedy(chosen["point"][0])):
        log.warning(f"the best LM weight {chosen['point'][0]} is at the end of the range; {remedy}")


if __name__ == "__main__":
    run_step(ScoreOptions, main, __doc__)
