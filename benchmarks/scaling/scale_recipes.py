"""Cost of the recipes for 300, 960 and 2,000 hours, from plans of their calls (`run.sh --plan true`) and
benchmarks/rates.json.

A recipe is run with programs that only record their calls (tests/recipes/recorded_calls.py); its corpora have
the published hours.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from scale_ground import ROOT

from pyasr.base.errors import UserError
from pyasr.corpora.hub5.hub5_sets import EVAL2000, RT03, EvaluationSet
from pyasr.corpora.librispeech import parts
from pyasr.corpora.switchboard import swbd_calls as switchboard
from pyasr.report.plan.derived_dirs import Speech
from pyasr.report.plan.disk import disk_below
from pyasr.report.plan.estimate import Cost, Plan, make_plan
from pyasr.report.plan.planned_calls import parse_call
from pyasr.report.plan.planned_data import WORDS_PER_HOUR, Disk, PlannedCorpus
from pyasr.report.plan.rates import Rates

sys.path.append(str(ROOT / "tests" / "recipes"))
from recorded_calls import calls, options_of_all, recorded_recipe  # noqa: E402

_FISHER = Speech(1960.0, 2_220_000)  # hours of both parts, lines of their transcripts
_GROUPS = {  # group of programs: beginnings of their names
    "features": tuple(
        "make_mfcc make_plp make_fbank make_fmllr paste compute_cmvn extract_ivectors train_ivector".split()
    ),
    "GMMs and alignments": tuple(
        "train_mono train_deltas train_lda train_sat align get_prons build_chain".split()
    ),
    "networks": tuple("train_dnn pretrain train_smbr train_lfmmi train_ctc".split()),
    "decoding": tuple("decode score lm_rescore get_ctm".split()),
}
_OTHERS = "language models and graphs"


@dataclass(frozen=True)
class Recipe:
    """A recipe with its prepared corpora by data directory; `jobs` and `ranks` are the values of --nj and
    --num-ranks."""

    name: str
    folder: str
    speech: dict[str, Speech]
    jobs: int
    ranks: int


def librispeech_speech() -> dict[str, Speech]:
    """Speech of the parts with published hours."""
    return {
        f"data/{part.replace('-', '_')}": Speech(numbers["hours"][0], numbers["utterances"][0])
        for part, numbers in parts.PUBLISHED.items()
        if "hours" in numbers
    }


def _of(published: list) -> dict[str, float]:
    return {row.quantity: row.values[0] for row in published}


def _evaluated(given: EvaluationSet) -> Speech:
    """Speech of an evaluation set, with hours estimated from its words."""
    numbers = _of(given.published)
    return Speech(numbers["words"] / WORDS_PER_HOUR, numbers["utterances"])


def recipes() -> list[Recipe]:
    """The recipes for 300, 960 and 2,000 hours."""
    numbers = _of(switchboard.PUBLISHED)
    swbd = Speech(numbers["hours"], numbers["utterances"])
    tests = {"data/eval2000": _evaluated(EVAL2000), "data/rt03": _evaluated(RT03)}
    both = {"data/swbd/train": swbd, "data/fisher": _FISHER}
    return [
        Recipe("Switchboard, 300 h", "swbd", {"data/train": swbd, **tests}, 16, 4),
        Recipe("LibriSpeech, 960 h", "librispeech", librispeech_speech(), 32, 8),
        Recipe("Fisher and Switchboard, 2,000 h", "fisher_swbd", {**both, **tests}, 64, 16),
    ]


def group_of(name: str) -> str:
    """The group of the program of this name."""
    return next((group for group, begins in _GROUPS.items() if name.startswith(begins)), _OTHERS)


def plan_of(recipe: Recipe, rates: Rates) -> Plan:
    """Costs by group of programs. Raises UserError if the recipe fails."""
    folder = ROOT / "egs" / recipe.folder / "s5"
    given = [*options_of_all(folder, "run.sh")[0], "--nj", recipe.jobs, "--num-ranks", recipe.ranks]
    with tempfile.TemporaryDirectory() as scratch:
        try:
            recorded = calls(recorded_recipe(Path(scratch) / "s5", folder), "run.sh", *map(str, given))
        except AssertionError as error:
            raise UserError(f"{folder}/run.sh: {error}") from None
    named = [parse_call(program, words, group_of(Path(program).stem), folder) for program, *words in recorded]
    disk = Disk(recipe.speech.get, network=disk_below(folder).network)
    return make_plan(named, PlannedCorpus(disk), rates)


def costs(rates: Rates) -> Iterator[tuple[Recipe, dict[str, Cost], Cost]]:
    """(recipe, costs by group of programs, total cost)."""
    for recipe in recipes():
        plan = plan_of(recipe, rates)
        groups = {group: plan.stages[group] for group in (*_GROUPS, _OTHERS) if group in plan.stages}
        yield recipe, groups, plan.total
