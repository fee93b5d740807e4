"""Networks trained with several seeds: the rows of a page, and the results recorded from run to run.

The networks of a page may take days and several machines. The results of each, with their commands, are
therefore recorded in a file next to the page, to which the next run adds its own.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from pathlib import Path
from statistics import mean, stdev

from pyasr.base.errors import UserError
from pyasr.base.files.foreign_json import read_object
from pyasr.base.outputs.output import atomic_write
from pyasr.report.provenance import facts, records
from pyasr.report.systems import ScoredSystem, family_of
from pyasr.report.text_table import markdown_table, value_range


@dataclass(frozen=True)
class SeedRun:
    """One network of several seeds, or one way of decoding it."""

    name: str  # KIND/seedN, or KIND/seedN DECODE_DIR
    # %; None if LM weight and penalty were chosen on the test set or another system's
    dev_wer: float | None
    test_wer: float  # %
    signature: str  # signature of the scoring
    interval_seed: int  # seed of the bootstrap
    train_seed: int | None
    training_s: float | None
    made_by: tuple[dict, ...]  # facts of all steps, earliest first

    @property
    def family(self) -> str:
        """The common name of the networks of one kind."""
        found = family_of(self.name)
        assert found is not None
        return found


def seed_runs(systems: list[ScoredSystem]) -> list[SeedRun]:
    """The results of systems trained with several seeds, from the records in their directories."""
    return [_of_system(system) for system in systems if system.family]


def _of_system(system: ScoredSystem) -> SeedRun:
    return SeedRun(
        system.name,
        system.dev["chosen"]["wer"] if system.dev else None,
        system.test["chosen"]["wer"],
        system.test["signature"],
        system.test["seed"],
        system.seed,
        system.training_s,
        tuple(map(facts, records(system.directories))),
    )


def together(kept: list[SeedRun], runs: list[SeedRun]) -> list[SeedRun]:
    """All of them by name; of two with the same name, that of `runs`."""
    return sorted(
        ({run.name: run for run in kept} | {run.name: run for run in runs}).values(), key=lambda run: run.name
    )


def families_table(runs: list[SeedRun]) -> str:
    """A row per kind of network: mean and spread of its WERs over seeds."""
    head = [
        "system",
        "seeds",
        "dev WER %, mean",
        "test WER %, mean",
        "least - greatest",
        "standard deviation",
        "training, s, mean",
    ]
    return markdown_table(head, [_row(name, family) for name, family in _families(runs).items()])


def family_means(runs: list[SeedRun]) -> list[tuple[float, float, str]]:
    """(mean dev WER in %, mean test WER in %, kind and number of seeds) of each kind of network with a dev
    set for all seeds."""
    found = []
    for name, family in _families(runs).items():
        dev = [run.dev_wer for run in family if run.dev_wer is not None]
        if len(dev) == len(family):
            test = mean(run.test_wer for run in family)
            found.append((mean(dev), test, f"{name} (mean of {len(family)})"))
    return found


def _families(runs: list[SeedRun]) -> dict[str, list[SeedRun]]:
    """The networks of each kind, by the names of the kinds."""
    return {
        name: [run for run in runs if run.family == name] for name in sorted({run.family for run in runs})
    }


def _row(name: str, family: list[SeedRun]) -> list[str]:
    test = [run.test_wer for run in family]
    dev = [run.dev_wer for run in family if run.dev_wer is not None]
    seconds = [run.training_s for run in family if run.training_s is not None]
    return [
        name,
        str(len(family)),
        f"{mean(dev):.2f}" if dev else "-",
        f"{mean(test):.2f}",
        value_range((min(test), max(test))),
        f"{stdev(test):.2f}" if len(test) > 1 else "-",
        f"{mean(seconds):.0f}" if seconds else "-",
    ]


def families_notes(runs: list[SeedRun]) -> str:
    """Notes on the numbers of `families_table`."""
    signatures = sorted({f"`{run.signature}`" for run in runs})
    return (
        "\n* LM weight and word insertion penalty of each seed are chosen on dev. Signature "
        f"{', '.join(signatures)}.\n* Seconds are those of a network's own training, not of a network, "
        "alignments or lattices that it began with."
    )


def read_seed_runs(path: Path) -> list[SeedRun]:
    """The results in a file of `write_seed_runs`; empty if it does not exist. Raises UserError for another
    kind of file."""
    if not Path(path).exists():
        return []
    try:
        kept = read_object(path)
        return [_run(values, kept["steps"]) for values in kept["runs"]]
    except (ValueError, KeyError, TypeError, IndexError):
        raise UserError(
            f"{path}: not a file of results written by collect_results.py; give another file with --kept"
        ) from None


def _run(values: dict, steps: list[dict]) -> SeedRun:
    run = SeedRun(**{**values, "made_by": tuple(facts(steps[i]) for i in values["made_by"])})
    if family_of(run.name) is None or not isinstance(run.test_wer, float):
        raise ValueError(run.name)
    return run


def write_seed_runs(path: Path, runs: list[SeedRun]) -> None:
    """Write `runs` to a file, one line each, preceded by one line per step that made them."""
    steps = {json.dumps(step): step for run in runs for step in run.made_by}
    number = {line: i for i, line in enumerate(steps)}
    lines = [
        json.dumps(
            {field.name: getattr(run, field.name) for field in fields(run)}
            | {"made_by": [number[json.dumps(step)] for step in run.made_by]}
        )
        for run in runs
    ]
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as f:
        f.write('{"steps": [\n' + ",\n".join(steps) + '\n],\n"runs": [\n' + ",\n".join(lines) + "\n]}\n")
