"""What became of the utterances in an alignment: how many have one, and why others have none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from pyasr.base import log
from pyasr.base.cli.skipped_utterances import LeftOutOptions, log_reasons, told_reasons
from pyasr.base.errors import UserError
from pyasr.data.tables.datadir import DataDir
from pyasr.io.text_tables import read_table, write_table

FAILED_FILE = "failed_utterances"
MOST_MISSING = 0.1  # transcripts of real speech have their faults, and the shortest utterances are too short for some of the words
NO_PATH = "no path within the beams ends with the utterance (too short for its words, or other words)"


@dataclass
class AlignReport:
    """What an alignment pass did: counts, and why utterances have no alignment."""

    num_aligned: int = 0
    num_retried: int = 0
    failed: dict[str, str] = field(default_factory=dict)

    def add(self, other: AlignReport) -> AlignReport:
        """Add what another pass did with other utterances; returns itself."""
        self.num_aligned += other.num_aligned
        self.num_retried += other.num_retried
        self.failed |= other.failed
        return self

    def gathered(self, comm) -> AlignReport:
        """On rank 0 the report of all ranks, which holds the names of all that failed, elsewhere that of the rank itself."""
        total = AlignReport()
        for part in comm.gather(self) or [self]:
            total.add(part)
        return total

    def log(self, what: str) -> None:
        """One line, and one more naming the first utterances of every kind of failure."""
        log.info(f"{what}: {self.num_aligned} utterances aligned, {self.num_retried} with the retry beam, {len(self.failed)} failed")
        log_reasons(self.failed, "without alignment")

    def check(self, when: str) -> None:
        """Raise UserError unless some utterance was aligned."""
        if self.num_aligned == 0:
            raise UserError(f"none of {len(self.failed)} utterances could be aligned {when}: {told_reasons(self.failed)}; "
                            "check that features, text, language and model directory belong together")

    def check_missing(self, where: Path, options: LeftOutOptions) -> None:
        """Raise UserError, beginning with `where`, when too large a share of the utterances has no alignment."""
        if len(self.failed) > options.max_missing * (self.num_aligned + len(self.failed)):
            raise UserError(f"{where}: {self.summary()}; check that features, text, language and model directory belong together, "
                            "or raise --max-missing")

    def summary(self) -> str:
        """How many utterances have no alignment, the commonest reasons, and the first utterances of each."""
        total = self.num_aligned + len(self.failed)
        if not self.failed:
            return f"all {total} utterances have an alignment"
        return f"{len(self.failed)} of {total} utterances have no alignment: {told_reasons(self.failed)}"

    def write(self, out: Path) -> None:
        """OUT/failed_utterances: `UTTERANCE why it has no alignment`."""
        write_table(out / FAILED_FILE, self.failed)


def check_failed(out: Path, data: Path, options: LeftOutOptions) -> None:
    """Log in one line how many utterances of `data` OUT/failed_utterances names, and why. Raises UserError when they are too many."""
    failed = read_table(out / FAILED_FILE)
    report = AlignReport(len(DataDir(data).utterances) - len(failed), failed=failed)
    report.check_missing(data, options)
    log.info(report.summary() + (f"; {FAILED_FILE} names all" if failed else ""))


def on_first_rank(comm, check: Callable[[], None]) -> None:
    """Call `check` on rank 0. Raises on all ranks the UserError that it raises there. Every rank must call this."""
    told = None
    if comm.rank == 0:
        try:
            check()
        except UserError as error:
            told = str(error)
    if (told := comm.bcast_object(told)) is not None:
        raise UserError(told)
