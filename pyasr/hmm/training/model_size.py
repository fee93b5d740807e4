"""A log line on the size of a trained GMM system, or a warning if it is clearly smaller than requested.

Leaves are counted as split. Some are merged to one pdf afterwards, for reasons other than too little data.
"""

from __future__ import annotations

from pathlib import Path

from pyasr.base import log
from pyasr.hmm.model.model_file import MODEL, read_model, read_tree
from pyasr.hmm.model.tree import leaves
from pyasr.hmm.training.train_gmm import GmmScheduleOptions
from pyasr.hmm.training.train_triphones import TreeOptions

_CLEARLY = 0.8  # of the requested size


def report_leaves(
    out: Path, asked: TreeOptions, advice: str = "lower --num-leaves, or train on more data"
) -> None:
    """Log the size of OUT/tree."""
    tree = read_tree(out / "tree")
    num_leaves = len(leaves(tree.root))
    size = f"tree of {num_leaves} leaves (--num-leaves {asked.num_leaves}), merged to {tree.num_pdfs} pdfs"
    if num_leaves < _CLEARLY * asked.num_leaves:
        log.warning(f"{size}: no further split gains enough likelihood on these data; {advice}")
    else:
        log.info(size)


def report_gaussians(out: Path, asked: GmmScheduleOptions) -> None:
    """Log the size of OUT/final.mdl."""
    _, gmm = read_model(out / MODEL)
    size = f"{gmm.num_gauss} Gaussians (--num-gauss {asked.num_gauss})"
    if gmm.num_gauss >= _CLEARLY * asked.num_gauss:
        log.info(size)
    elif asked.num_iters <= asked.max_iter_inc:
        cause = (
            f"training ends at --num-iters {asked.num_iters}, but Gaussians are added until "
            f"--max-iter-inc {asked.max_iter_inc}"
        )
        log.warning(f"{size}: {cause}; raise the first or lower the second")
    elif gmm.num_gauss >= _CLEARLY * (due := _most_due(gmm.num_pdfs, asked)):
        cause = (
            f"each iteration up to --max-iter-inc {asked.max_iter_inc} adds the same integer, which "
            f"gives at most {due} Gaussians"
        )
        log.warning(f"{size}: {cause}; lower --max-iter-inc or raise --num-gauss")
    else:
        log.warning(
            f"{size}: the pdfs have too few frames for more; lower --num-gauss, or train on more data"
        )


def _most_due(num_pdfs: int, asked: GmmScheduleOptions) -> int:
    """Maximum final number of Gaussians: one per pdf at the start, and the same integer is added in each
    iteration."""
    return num_pdfs + asked.max_iter_inc * ((asked.num_gauss - num_pdfs) // asked.max_iter_inc)
