#!/usr/bin/env python3
"""Score the lattices of a decode directory over LM weights and word insertion penalties; choose the best, or take what another set chose.

Reads   DATA/{text,utt2spk}, DECODE_DIR/{lat.*.gz,words.txt}, LANG/words.txt if DECODE_DIR has none,
        --params-from DIR: DIR/scoring/summary.json
Writes  DECODE_DIR/scoring/{best_wer,per_utt,per_spk,wer_*,hyp/*,summary.json}, copies DECODE_DIR/{best_wer,wer_LMWT_WIP}
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

from pyasr.base import durable, log
from pyasr.base.errors import UserError
from pyasr.base.job_options import JobOptions
from pyasr.base.option_uses import if_set
from pyasr.base.options import argument, group, option
from pyasr.base.step import output_of, run_step
from pyasr.cluster.jobs import run_jobs
from pyasr.data.backup import back_up
from pyasr.data.datadir import DataDir
from pyasr.decode.lattice_dir import archives, words_file
from pyasr.decode.mbr import MbrOptions
from pyasr.decode.sweep_dir import SweepSpec, read_sweep
from pyasr.score.decode_dir import SUMMARY, Chosen, read_params, read_summary, score_points, scoring_dir, write_scoring
from pyasr.score.filters import SIGNATURE, TextFilter
from pyasr.score.lm_weights import LmWeights, first_range


@dataclass(frozen=True)
class ScoreOptions:
    data: Path = argument("data directory that was decoded")
    lang: Path = argument("lang directory of the graph")
    decode_dir: Path = argument("directory of the lattices")
    params_from: Path | None = option(None, "decode directory, scored before, whose LM weight and penalty are taken")
    min_lmwt: int | None = option(None, "least LM weight; 7 unless given, and less while the best one is there", minimum=1)
    max_lmwt: int | None = option(None, "greatest LM weight; 17 unless given, and up to 100 while the best one is there", minimum=1)
    word_ins_penalties: str = option("0.0,0.5,1.0", "word insertion penalties")
    mbr: MbrOptions = group(MbrOptions, only={"posterior_scale": if_set("decode-mbr")})
    seed: int = option(0, "seed of the 95 % intervals")
    filters: TextFilter = group(TextFilter)
    jobs: JobOptions = group(JobOptions)


def penalties(text: str) -> tuple[float, ...]:
    found: set[float] = set()
    with contextlib.suppress(ValueError):  # a word that is no number: refused below
        found = {float(word) for word in text.split(",")}
    if not found or not all(map(math.isfinite, found)):
        raise UserError(f"--word-ins-penalties: '{text}' is not a list of numbers such as 0.0,0.5,1.0")
    return tuple(sorted(found))


def input_files(options: ScoreOptions) -> list[Path]:
    needed = [options.data / "text", options.data / "utt2spk", words_file(options.decode_dir, options.lang), *archives(options.decode_dir)]
    return needed + ([scoring_dir(options.params_from, options.mbr.decode_mbr) / SUMMARY] if options.params_from else [])


def sweep(options: ScoreOptions, out: Path, num_jobs: int, weights: LmWeights) -> tuple[dict, dict]:
    """(hypotheses, scores) of all points, at more LM weights as long as the best one is at an end."""
    data, words, scale = DataDir(options.data), words_file(options.decode_dir, options.lang), 1.0 / median(weights.first)
    hypotheses, scores, wanted = {}, {}, list(weights.first)
    while wanted:
        spec = SweepSpec(options.decode_dir, words, out, num_jobs, tuple(wanted), penalties(options.word_ins_penalties), options.mbr, scale)
        run_jobs(options.jobs, out / "log" / "sweep.JOB.log", "pyasr.decode.sweep_dir:sweep_shard", spec, num_jobs=num_jobs)
        found = read_sweep(out, num_jobs)
        hypotheses, scores = hypotheses | found, scores | score_points(data, found, options.filters)
        if wanted := weights.further(scores):
            log.info(f"the best LM weight is at the end of the range: more are tried, {weights.low} to {weights.high}")
    for job in range(1, num_jobs + 1):
        (out / f"sweep.{job}.txt").unlink()
    return hypotheses, scores


def main(options: ScoreOptions) -> None:
    chosen = Chosen(read_params(options.params_from, options.mbr.decode_mbr), options.params_from) if options.params_from else None
    paths = input_files(options)
    scoring = scoring_dir(options.decode_dir, options.mbr.decode_mbr)
    num_jobs = min(options.jobs.nj, len(archives(options.decode_dir)))
    weights = LmWeights(options.min_lmwt, options.max_lmwt, chosen and chosen.point[0])
    least, greatest = first_range(options.min_lmwt, options.max_lmwt)
    made_with = dataclasses.replace(options, min_lmwt=least, max_lmwt=greatest)
    with output_of(made_with, scoring, paths, also=[] if options.mbr.decode_mbr else [options.decode_dir / "best_wer"]) as out:
        hypotheses, scores = sweep(options, out, num_jobs, weights)
        lines = write_scoring(out, DataDir(options.data), hypotheses, options.filters, chosen, options.seed, scores, weights.first)
    if not options.mbr.decode_mbr:
        publish(scoring, options.decode_dir)
    report(options, lines, weights)


def publish(scoring: Path, decode_dir: Path) -> None:
    """Copies where Kaldi's users look for them; what another toolkit has put there is kept in DECODE_DIR/.backup."""
    for old in filter(Path.is_file, decode_dir.glob("wer_*")):
        if SIGNATURE not in old.read_text(encoding="utf-8", errors="replace"):
            log.warning(f"{old} is another toolkit's: moved to {back_up(old)}")
        old.unlink()
    for path in [*scoring.glob("wer_*"), scoring / "best_wer"]:
        durable.copy(path, decode_dir / path.name)


def report(options: ScoreOptions, lines: list[str], weights: LmWeights) -> None:
    for line in lines:
        log.info(line)
    chosen = read_summary(options.decode_dir, options.mbr.decode_mbr)["chosen"]
    if chosen["missing"]:
        log.warning(f"{len(chosen['missing'])} utterance(s) have no hypothesis and count as deleted: {' '.join(chosen['missing'])}")
    if not options.params_from and chosen["errors"] and (remedy := weights.remedy(chosen["point"][0])):
        log.warning(f"the best LM weight {chosen['point'][0]} is at the end of the range; {remedy}")


if __name__ == "__main__":
    run_step(ScoreOptions, main, __doc__)
