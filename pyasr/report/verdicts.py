"""Whether what was published comes out here, in sentences of a few words; and how much of a difference may be chance."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from statistics import mean

from pyasr.report.systems import paired
from pyasr.score.bootstrap import difference_interval

PUBLISHED_NOISE = 0.015  # of a published error, which has no interval: 0.3 of 18 % WER is about a standard error of 20,000 words
# By how much two trainings with the same seed differ at most in 19 of 20 cases where neither is better, relative to what they measure. From
# 12 systems of egs/amazon_queen/s5/run_averaging.sh with 3 seeds each, as `chance` has it: residual standard deviations 0.34 and 1.1 %.
LOSS_NOISE, WER_NOISE = 0.01, 0.03
_MARGIN = 1.96 * math.sqrt(2)  # of a difference of two, in standard deviations of one
_SPEED_TOLERANCE = 1.15
_VERDICTS = ("disagrees on", "does not show", "agrees on")


@dataclass(frozen=True)
class Measured:
    """Ours of several: `values`, of which less is better; `same(a, b)`: whether their difference may be chance."""

    values: Mapping[Hashable, float]
    same: Callable[[Hashable, Hashable], bool]


def losses(values: Mapping, noise: float) -> Measured:
    """Held-out losses; infinite where a training has diverged."""
    return Measured(values, lambda a, b: math.isclose(values[a], values[b], rel_tol=noise))


def word_errors(runs: Mapping) -> Measured:
    """WERs of scored runs. Two differ where the paired bootstrap over the test set says so (95 %), and by more than another seed does."""
    values = {name: run.wer for name, run in runs.items()}

    def same(a, b) -> bool:
        pair = paired(runs[a], runs[b])
        low, high = difference_interval(*pair) if pair else (-math.inf, math.inf)
        return low <= 0 <= high or math.isclose(values[a], values[b], rel_tol=WER_NOISE)

    return Measured(values, same)


def compared(what: str, theirs: Mapping, runs: Mapping, noise: float) -> list[str]:
    """Of published WERs: a sentence on our WERs, of those that were decoded, then one on held-out losses."""
    decoded = {name: run for name, run in runs.items() if run.wer is not None}
    return [agreement(f"{what}, WER", theirs, word_errors(decoded)),
            agreement(f"{what}, held-out loss", theirs, losses({name: run.loss for name, run in runs.items()}, noise))]  # fmt: skip


def agreement(what: str, theirs: Mapping, ours: Measured) -> str:
    """One sentence, or none: does what is better there (less error) come out better here? Differences that may be chance say nothing."""
    names = [name for name in theirs if name in ours.values]
    pairs = [(a, b) for a, b in itertools.permutations(names, 2) if theirs[a] < (1 - PUBLISHED_NOISE) * theirs[b]]
    if len(names) < 2:
        return ""
    if not pairs:
        return f"{what}: published as equal within {PUBLISHED_NOISE:.1%}; ours {_spread(names, ours)}."
    told: dict[str, list[str]] = {}
    for a, b in pairs:
        told.setdefault(_verdict(a, b, ours), []).append(f"{_text(a)} < {_text(b)}")
    parts = [f"{verdict} {', '.join(told[verdict])}" for verdict in _VERDICTS if verdict in told]
    return f"{what}: {'; '.join(parts)}."


def _verdict(a, b, ours: Measured) -> str:
    """On that a is better than b."""
    if ours.same(a, b):
        return "does not show"
    return "agrees on" if ours.values[a] < ours.values[b] else "disagrees on"


def _text(name) -> str:
    return " ".join(map(str, name)) if isinstance(name, tuple) else str(name)


def _spread(names: list, ours: Measured) -> str:
    values = [ours.values[name] for name in names]
    if math.isinf(max(values)):
        return "agree: all have diverged" if math.isinf(min(values)) else "disagree: some have diverged"
    equal = all(ours.same(a, b) for a, b in itertools.combinations(names, 2)) or max(values) <= (1 + PUBLISHED_NOISE) * min(values)
    return f"{'agree' if equal else 'disagree'}, within {max(values) / min(values) - 1:.1%}"


def ratio(what: str, both: Mapping[int, tuple[float, float]]) -> str:
    """By how much (published, ours) differ at most, by learners."""
    ratios = {num: ours / theirs for num, (theirs, ours) in both.items()}
    farthest = max(ratios, key=lambda num: abs(math.log(ratios[num])))
    verdict = "agrees" if 1 / _SPEED_TOLERANCE < ratios[farthest] < _SPEED_TOLERANCE else "disagrees"
    return f"{what}: {verdict}, at most {ratios[farthest] - 1:+.0%} ({farthest} learners)."


def learns_longer(what: str, scheme: Mapping[int, bool], other: Mapping[int, bool]) -> str:
    """Whether a scheme learns with greater batches than another; {batch: whether it diverged}. Nothing is said of no batch in common."""
    batches = sorted(scheme.keys() & other.keys())
    if not batches:
        return ""
    limits = [min((batch for batch in batches if diverged[batch]), default=math.inf) for diverged in (scheme, other)]
    verdict = "does not show it" if limits[0] == limits[1] else "agrees" if limits[0] > limits[1] else "disagrees"
    told = ["at none of these" if limit == math.inf else f"at {limit}" for limit in limits]
    return f"{what}: {verdict}; of {', '.join(map(str, batches))} it diverges {told[0]}, synchronous SGD {told[1]}."


def chance(table: Mapping[Hashable, Mapping[Hashable, float]]) -> float:
    """By how much two trainings with the same seed differ at most in 19 of 20 cases where neither is better, relative to what they measure.

    table   {seed: {system: value}}; only systems that all seeds have count, and those whose training did not diverge
    Returns 1.96 sqrt(2) times the standard deviation that is left of the logarithms when each system's and each seed's mean have been
    taken away, with (systems - 1) (seeds - 1) degrees of freedom; NaN where there is none.
    """
    systems = [name for name in next(iter(table.values()), {}) if all(math.isfinite(row.get(name, math.inf)) for row in table.values())]
    rows = [[math.log(row[name]) for name in systems] for row in table.values()]
    if len(systems) < 2 or len(rows) < 2:
        return math.nan
    freedom = (len(systems) - 1) * (len(rows) - 1)
    seeds, columns, whole = [mean(row) for row in rows], [mean(column) for column in zip(*rows)], mean(map(mean, rows))
    left = [x - seed - column + whole for row, seed in zip(rows, seeds) for x, column in zip(row, columns)]
    return _MARGIN * math.sqrt(sum(x * x for x in left) / freedom)
