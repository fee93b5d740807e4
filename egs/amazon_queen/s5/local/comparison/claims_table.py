"""The table of published claims: published numbers, our results, and verdicts."""

from __future__ import annotations

import math
from statistics import mean

from comparison.claims import NOT_TRIED, Cells, Claim, ClaimPart
from comparison.experiments import Experiments, spread, verdicts
from pyasr.report.text_table import markdown_table

HOW = """\
Trainings with the same seed are compared. A claim is *confirmed* or *refuted* if they differ by \
more than chance. With three or more seeds,
chance is Student's 95 % interval of the difference of logarithms; with fewer, it is 1 % of losses and 3 % \
of WERs. A claim is *not shown*
if the difference is within chance, and *not tried* if trainings are missing. Numbers are means over seeds, \
with minimum and maximum in
brackets. The relative difference of the first cell from the second follows, with its interval. Times are \
virtual seconds."""
_HEAD = ["claim", "source", "published", "ours", "verdict", "command"]
_FORMS = {"wer": ".1f", "learner-wer": ".1f", "epoch": ".0f"}


def claims_table(found: Experiments) -> str:
    """A row for each claim."""
    return markdown_table(
        _HEAD,
        [
            [
                claim.sentence,
                claim.source,
                claim.published,
                _ours(claim, found.cells),
                _verdict(claim, found.cells),
                _commands(claim),
            ]
            for claim in found.claims
        ],
    )


def _verdict(claim: Claim, cells: Cells) -> str:
    verdict = claim.verdict(cells)
    why = next((part.why for part in claim.parts if part.why), None)
    return f"{verdict}: {why}" if verdict == NOT_TRIED and why else f"**{verdict}**"


def _commands(claim: Claim) -> str:
    """The commands that train the claim's cells, one of each work."""
    works: dict[str, list[str]] = {}
    for name in claim.cells:
        work, _, cell = name.partition("/")
        works.setdefault(work, []).append(cell)
    return (
        ", ".join(
            f'`local/experiments/{work}.sh --only "{" ".join(cells)}"`' for work, cells in works.items()
        )
        or "-"
    )


def _ours(claim: Claim, cells: Cells) -> str:
    """The numbers for each part of the test, then the missing cells."""
    missing = [_short(name) for name in claim.cells if name not in cells]
    message = dict.fromkeys(filter(None, (_of_part(part, cells) for part in claim.parts)))
    return "; ".join([*message, *([f"missing: {', '.join(missing)}"] if missing else [])]) or "-"


def _of_part(part: ClaimPart, cells: Cells) -> str:
    """Verdicts on networks and losses, or two numbers and their difference; empty without trainings."""
    if part.state and part.cell in cells:
        runs = list(cells[part.cell].values())
        return (
            f"{_short(part.cell)} {verdicts(runs)} ({spread([run.loss for run in runs], '.3f')}), "
            f"{_seeds(len(runs))}"
        )
    pairs = part.pairs(cells)
    if not pairs:
        return ""
    form = ".0f" if part.measure.startswith("to-") else _FORMS.get(part.measure, ".3f")
    a, b = (spread(numbers, form) for numbers in zip(*pairs))
    return (
        f"{part.measure} {_short(part.a)} {a}, {_short(part.b)} {b}{_difference(part, pairs)}, "
        f"{_seeds(len(pairs))}"
    )


def _difference(part: ClaimPart, pairs: list[tuple[float, float]]) -> str:
    """The difference of the first number from the second, with its interval; empty if one is infinite."""
    low, high = part.interval(pairs)
    if not math.isfinite(low):
        return ""
    return ": {:+.1%} ({:+.1%} to {:+.1%})".format(*(math.expm1(x) for x in (mean([low, high]), low, high)))


def _short(name: str) -> str:
    """The name of a cell without its work."""
    return name.partition("/")[2]


def _seeds(number: int) -> str:
    return f"{number} seed{'s' * (number > 1)}"
