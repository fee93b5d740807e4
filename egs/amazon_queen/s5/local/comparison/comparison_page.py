"""The page of published experiments on parallel training: claims with our verdicts, tables and pictures of
all trainings."""

from __future__ import annotations

from comparison import claims_table, stable_rates
from comparison.cell_tables import overview, section, tables
from comparison.experiment_pictures import experiment_pictures
from comparison.experiments import Experiments
from pyasr.report.provenance import in_order, made_with

_HEAD = """# Parallel training on virtual learners

Written by `local/collect_parallel.py`; do not edit by hand. Small networks are trained by virtual learners. \
The training is real. Time is
simulated: it follows from the declared network between hosts and the declared time of a minibatch. The \
trainings of `systems` are on real
MPI ranks.

* *Loss* is the cross-entropy of held-out frames in nats per frame. It is that of the final model, \
the consensus of all learners.
* *Speed-up* is relative to the computing time of one learner. The speed-ups of `gradient` and \
`post-local` are lower bounds: over MPI their
  messages overlap with the backward pass, in the simulation they do not.
* Each training is a line of WORK.jsonl in this directory, with its results and its command.
* `missing` marks a planned training without a result.
"""


def page(found: Experiments) -> str:
    """The whole page; its pictures are `pictures`."""
    claims = section("Claims", claims_table.HOW, claims_table.claims_table(found)) if found.claims else ""
    borne = stable_rates.stable_rates(found)
    rates = section("Limits of batch and learning rate", stable_rates.HOW, borne) if borne else ""
    parts = [_HEAD, _trainings(found), claims, rates, *tables(found)]
    links = "\n".join(f"![{name}]({name}.svg)" for name in pictures(found))
    end = [
        "## Pictures\n",
        links,
        "\n## Made with\n",
        made_with(in_order(run.made_by for run in found.runs)),
        "",
    ]
    return "\n".join([*filter(None, parts), *end])


def pictures(found: Experiments) -> dict[str, str]:
    """SVGs by name."""
    return experiment_pictures(found.cells)


def _trainings(found: Experiments) -> str:
    summary = f"{len(found.runs)} trainings have results"
    missing = (
        f"; {found.num_missing} of {len(found.planned)} planned trainings are missing"
        if found.planned
        else ""
    )
    return section("Trainings", f"{summary}{missing}.", overview(found))
