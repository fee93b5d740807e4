"""A warning if the parameters of the ranks drift too far apart for averaging."""

from __future__ import annotations

from pyasr.base import log
from pyasr.parallel.communication.comm import Comm
from pyasr.train.sgd.criterion import Criterion
from pyasr.train.totals import Totals

_EPOCHS = 2  # consecutive epochs before the warning


class AveragingWatch:
    """Warns if the consensus is worse on held-out data than the ranks' own models, in two epochs in a row."""

    def __init__(self, criterion: Criterion):
        self.criterion, self.num_worse = criterion, 0

    def check(self, before_consensus: Totals | None, heldout: Totals, comm: Comm) -> None:
        """Compare the held-out totals of an epoch: `before_consensus` of the ranks' own models, None if they
        are equal, and `heldout` of the consensus."""
        if before_consensus is None or not heldout.objective < before_consensus.objective:
            self.num_worse = 0
            return
        self.num_worse += 1
        if self.num_worse >= _EPOCHS and comm.rank == 0:
            log.warning(
                f"averaging made the held-out objective worse, from {before_consensus.objective:.4f} to "
                f"{heldout.objective:.4f}, in {self.num_worse} epochs in a row: ranks drift too far apart; "
                f"lower --period-frames or {self.criterion.rate_flag}"
            )
