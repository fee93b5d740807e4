"""The page of published experiments on parallel training: claims with our verdicts, tables and pictures of all trainings."""

from __future__ import annotations

from pyasr.report import claims_table, rates_borne
from pyasr.report.cell_tables import overview, section, tables
from pyasr.report.experiment_pictures import experiment_pictures
from pyasr.report.experiments import Experiments
from pyasr.report.provenance import in_order, made_with

_HEAD = """# Parallel training on virtual learners

Written by `utils/collect_parallel.py`; not edited by hand. Real training of small networks by learners in simulated time: what is learnt
is real, what it takes is the declared network's and the declared minibatch's time. Loss is held-out cross-entropy, nats a frame, of the
model at the end: the consensus of all learners. Speed-up is against one learner's computing; those of `gradient` and `post-local` are lower
bounds, since no message of theirs is hidden behind the backward pass, as it is over MPI. The results and the command of each training are a
line of WORK.jsonl beside this page; `missing` is a training that is planned, and has not been run.
"""


def page(found: Experiments) -> str:
    """The whole page; its pictures are `pictures`."""
    claims = section("Claims", claims_table.HOW, claims_table.claims_table(found)) if found.claims else ""
    borne = rates_borne.rates_borne(found)
    rates = section("Rates that they bear", rates_borne.HOW, borne) if borne else ""
    parts = [_HEAD, _trainings(found), claims, rates, *tables(found)]
    links = "\n".join(f"![{name}]({name}.svg)" for name in pictures(found))
    end = ["## Pictures\n", links, "\n## Made with\n", made_with(in_order(run.made_by for run in found.runs)), ""]
    return "\n".join([*filter(None, parts), *end])


def pictures(found: Experiments) -> dict[str, str]:
    """SVGs by name."""
    return experiment_pictures(found.cells)


def _trainings(found: Experiments) -> str:
    told = f"{len(found.runs)} trainings are there"
    missing = f"; {found.num_missing} of {len(found.planned)} that are planned are missing" if found.planned else ""
    return section("Trainings", f"{told}{missing}.", overview(found))
