"""Report on an alignment pass: the number of aligned utterances, and the reasons of the others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from pyasr.base import log
from pyasr.base.cli.skipped_utterances import SkippedOptions, counted_reasons, log_reasons
from pyasr.base.errors import UserError
from pyasr.data.tables.datadir import DataDir
from pyasr.io.text_tables import read_table, write_table

FAILED_FILE = "failed_utterances"
# transcripts of real speech have errors, and some utterances are too short for their words
MAX_MISSING = 0.1
NO_PATH = (
    "no path within the beams reaches the end of the utterance (too short for its words, or a wrong "
    "transcript)"
)


@dataclass
class AlignReport:
    """Counts of an alignment pass, and {utterance: reason} of those without an alignment."""

    num_aligned: int = 0
    num_retried: int = 0
    failed: dict[str, str] = field(default_factory=dict)

    def add(self, other: AlignReport) -> AlignReport:
        """Add the report on other utterances. Returns the object itself."""
        self.num_aligned += other.num_aligned
        self.num_retried += other.num_retried
        self.failed |= other.failed
        return self

    def gathered(self, comm) -> AlignReport:
        """The report of all ranks' utterances on rank 0, of the rank's own utterances elsewhere."""
        total = AlignReport()
        for part in comm.gather(self) or [self]:
            total.add(part)
        return total

    def log(self, what: str) -> None:
        """Log the counts, and a warning for each reason, which names the first utterances."""
        log.info(
            f"{what}: {self.num_aligned} utterances aligned, {self.num_retried} with the retry beam, "
            f"{len(self.failed)} failed"
        )
        log_reasons(self.failed, "without alignment")

    def check(self, when: str) -> None:
        """Raise UserError if no utterance was aligned."""
        if self.num_aligned == 0:
            raise UserError(
                f"none of {len(self.failed)} utterances could be aligned {when}: "
                f"{counted_reasons(self.failed)}; check that features, text, language and model directory "
                "match"
            )

    def check_missing(self, where: Path, options: SkippedOptions) -> None:
        """Raise UserError, beginning with `where`, if too many utterances have no alignment."""
        if len(self.failed) > options.max_missing * (self.num_aligned + len(self.failed)):
            raise UserError(
                f"{where}: {self.summary()}; check that features, text, language and model directory match, "
                "or raise --max-missing"
            )

    def summary(self) -> str:
        """The number of utterances without alignment, the most frequent reasons, and the first utterances of
        each."""
        total = self.num_aligned + len(self.failed)
        if not self.failed:
            return f"all {total} utterances have an alignment"
        return f"{len(self.failed)} of {total} utterances have no alignment: {counted_reasons(self.failed)}"

    def write(self, out: Path) -> None:
        """Write OUT/failed_utterances, with lines `UTTERANCE REASON`."""
        write_table(out / FAILED_FILE, self.failed)


def check_failed(out: Path, data: Path, options: SkippedOptions) -> None:
    """Log in one line how many utterances of `data` OUT/failed_utterances lists, and why. Raises UserError if
    there are too many."""
    failed = read_table(out / FAILED_FILE)
    report = AlignReport(len(DataDir(data).utterances) - len(failed), failed=failed)
    report.check_missing(data, options)
    log.info(report.summary() + (f"; {FAILED_FILE} lists all" if failed else ""))


def on_first_rank(comm, check: Callable[[], None]) -> None:
    """Call `check` on rank 0, and raise its UserError on all ranks. Every rank must call this."""
    message = None
    if comm.rank == 0:
        try:
            check()
        except UserError as error:
            message = str(error)
    if (message := comm.bcast_object(message)) is not None:
        raise UserError(message)
