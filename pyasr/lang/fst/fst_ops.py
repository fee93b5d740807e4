"""Operations on transducers: kaldifst's algorithms as functions of `Fst`, and further ones.

Only this module uses kaldifst. Transducers are passed to and from it as files, because a Python loop over the
arcs would be far slower. Every function returns a new `Fst` and does not change its arguments. Costs are
negated natural logarithms; "log" operations add probabilities (log semiring), the others take the best
(tropical semiring).
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from pyasr.base.errors import UserError
from pyasr.io.openfst import Fst, read_fst, write_fst
from pyasr.lang.fst import fst_kernels

DELTA = 1.0 / 1024  # tolerance of the comparison of costs


def infinite_arcs(fst: Fst) -> str:
    """Error message for arcs of infinite cost, which the algorithms here cannot process; '' if none."""
    infinite = np.flatnonzero(~np.isfinite(fst.weights))
    if not len(infinite):
        return ""
    first = (
        f"the first from state {fst.sources[infinite[0]]} with the labels "
        f"{fst.ilabels[infinite[0]]}:{fst.olabels[infinite[0]]}"
    )
    return (
        f"{len(infinite)} arc(s) of infinite cost, {first}; remove them, or give them a finite cost such "
        "as 228, that of 1e-99"
    )


def to_kaldifst(fst: Fst):
    """The same transducer as a `kaldifst.StdVectorFst`."""
    import kaldifst

    with tempfile.TemporaryDirectory(prefix="pyasr-fst-") as scratch:
        write_fst(Path(scratch) / "in.fst", fst)
        return kaldifst.StdVectorFst.read(str(Path(scratch) / "in.fst"))


def from_kaldifst(native) -> Fst:
    """The same transducer as arrays."""
    with tempfile.TemporaryDirectory(prefix="pyasr-fst-") as scratch:
        path = Path(scratch) / "out.fst"
        if not native.write(str(path)):
            raise UserError(
                f"{scratch}: cannot be written; free some space there or set TMPDIR to another directory"
            )
        return read_fst(path)


def _native(fst):
    """`fst` itself if it is a kaldifst object: intermediate results of a chain need no conversion."""
    return to_kaldifst(fst) if isinstance(fst, Fst) else fst


def compose_natively(left, right):
    """The composition as a kaldifst object, for a further operation; see `compose`."""
    import kaldifst

    left, right = _native(left), _native(right)
    return kaldifst.StdVectorFst(
        kaldifst.compose(left, right, match_side="left", compose_filter="sequence", connect=True)
    )


def compose(left: Fst, right: Fst) -> Fst:
    """Table composition (`fsttablecompose`): right's arcs sorted by input label or left's by output label."""
    return from_kaldifst(compose_natively(left, right))


def determinize_star(fst, use_log: bool = True, max_states: int = -1) -> Fst:
    """Remove epsilons and determinise on input labels in one step (`fstdeterminizestar --use-log=true`).

    fst         an Fst, or a kaldifst object, which is consumed
    max_states  maximum number of states; -1: no limit

    Raises UserError if the transducer cannot be determinised, or not within `max_states`.
    """
    import kaldifst

    native = _native(fst)
    try:
        stopped = kaldifst.determinize_star(native, DELTA, max_states, use_log)
    except RuntimeError as error:
        stopped, reason = True, str(error).splitlines()[-1].removeprefix("[E] ")
    else:
        reason = f"stopped at {max_states} states"
    if stopped:
        raise UserError(
            f"the transducer cannot be determinised ({reason}); check the disambiguation symbols of "
            "L_disambig.fst"
        )
    return from_kaldifst(native)


def minimize_encoded(fst: Fst) -> Fst:
    """Merge equivalent states, labels and costs as one symbol: no cost moves (`fstminimizeencoded`)."""
    import kaldifst

    native = to_kaldifst(fst)
    kaldifst.minimize_encoded(native, DELTA)
    return from_kaldifst(native)


def compose_context(
    fst: Fst, disambig: list[int], context_width: int, central_position: int
) -> tuple[Fst, list[list[int]]]:
    """C o LG and the meaning of its input labels (`fstcomposecontext`).

    Returns (clg, ilabel_info): `ilabel_info[label]` is a window of `context_width` phones (0 outside the
    utterance), `[-symbol]` for a disambiguation symbol, `[0]` for the symbol that delays the first window,
    and `[]` for label 0.
    """
    import kaldifst

    native, info = kaldifst.compose_context(list(disambig), context_width, central_position, to_kaldifst(fst))
    return from_kaldifst(native), [list(window) for window in info]


def connect(fst: Fst) -> Fst:
    """The states on paths from the start to a final state, in their old order."""
    if fst.start < 0:
        return _empty()
    keep = fst_kernels.reachable(fst.start, fst.arc_offsets, fst.nextstates)
    keep &= fst_kernels.coreachable(fst.sources, fst.nextstates, fst.finals)
    if not keep[fst.start]:
        return _empty()
    number = np.cumsum(keep) - 1
    arcs = keep[fst.sources] & keep[fst.nextstates]
    return Fst.from_arcs(
        int(keep.sum()),
        int(number[fst.start]),
        number[fst.sources[arcs]],
        fst.ilabels[arcs],
        fst.olabels[arcs],
        fst.weights[arcs],
        number[fst.nextstates[arcs]],
        fst.finals[keep],
    )


def connect_words(fst: Fst, words: np.ndarray) -> Fst:
    """`connect` of the arcs whose output labels are in `words`; takes time for the arcs of the states reached
    by them only."""
    if fst.start < 0:
        return _empty()
    wanted = np.zeros(int(np.max(words, initial=-1)) + 1, bool)
    wanted[words] = True
    states = np.sort(
        fst_kernels.reachable_with(fst.start, fst.arc_offsets, fst.nextstates, fst.olabels, wanted)
    )
    num_out = fst.arc_offsets[states + 1] - fst.arc_offsets[states]
    sources = np.repeat(np.arange(len(states)), num_out)
    arcs = np.arange(len(sources)) + np.repeat(
        fst.arc_offsets[states] - np.cumsum(num_out) + num_out, num_out
    )
    kept = np.isin(fst.olabels[arcs], words)
    arcs = arcs[kept]
    return connect(
        Fst.from_arcs(
            len(states),
            int(np.searchsorted(states, fst.start)),
            sources[kept],
            fst.ilabels[arcs],
            fst.olabels[arcs],
            fst.weights[arcs],
            np.searchsorted(states, fst.nextstates[arcs]),
            fst.finals[states],
        )
    )


def _empty() -> Fst:
    return Fst.from_arcs(0, -1, [], [], [], [], [])


def remove_symbols(fst: Fst, symbols) -> Fst:
    """Replace these input labels by epsilon (`fstrmsymbols`)."""
    return fst.replaced(
        ilabels=np.where(np.isin(fst.ilabels, np.asarray(symbols)), 0, fst.ilabels).astype(np.int32)
    )


def remove_epsilons_local(fst: Fst) -> Fst:
    """Merge arcs across states with one incoming or one outgoing arc if that adds no arc (`fstrmepslocal`).

    Path costs are preserved in the tropical semiring. If only some arcs of a state are merged, the cost of
    the others is moved so that sums of probabilities are preserved.
    """
    arrays = [array.copy() for array in (fst.ilabels, fst.olabels, fst.weights, fst.nextstates, fst.finals)]
    sources = fst_kernels.remove_epsilons_local(fst.start, fst.arc_offsets, fst.sources.copy(), *arrays)
    kept = sources >= 0
    ilabels, olabels, weights, nextstates = (array[kept] for array in arrays[:4])
    return connect(
        Fst.from_arcs(
            fst.num_states, fst.start, sources[kept], ilabels, olabels, weights, nextstates, arrays[4]
        )
    )


def push_special(fst: Fst, max_iterations: int = 200) -> Fst:
    """Move costs along the paths so that every state has the same log-sum over its arcs and final cost
    (`fstpushspecial`).

    With P the matrix of arc probabilities, in which a final state leads back to the start with its final
    probability, and P v = lambda v, an arc s -> t of probability p gets p v(t) / v(s), a final probability f
    gets f v(start) / v(s): all states then sum to lambda, and no path changes its cost.
    """
    if fst.start < 0:
        return fst
    log_v = fst_kernels.principal_log_eigenvector(
        fst.start, fst.arc_offsets, fst.nextstates, fst.weights, fst.finals, max_iterations, 1e-4
    )
    log_v -= log_v[fst.start]
    weights = fst.weights - log_v[fst.nextstates] + log_v[fst.sources]
    return fst.replaced(weights=weights.astype(np.float32), finals=(fst.finals + log_v).astype(np.float32))


def stochasticity(fst: Fst) -> tuple[float, float]:
    """Minimum and maximum -log of the sum of a state's probabilities (`fstisstochastic`); (0, 0) for a
    stochastic transducer."""
    sums = fst_kernels.log_sums(fst.arc_offsets, fst.weights, fst.finals)
    sums = sums[np.isfinite(sums)]
    return (float(-sums.max()), float(-sums.min())) if len(sums) else (0.0, 0.0)
