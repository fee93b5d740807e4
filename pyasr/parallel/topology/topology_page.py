"""Overview of mixing topologies: a table of their convergence, and a picture of their messages."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pyasr.base.errors import UserError
from pyasr.parallel.topology.agreement import disagreement_of, models_sent
from pyasr.parallel.topology.topologies import TOPOLOGIES, MixingTopology

SHARE = 0.01  # fraction of the disagreement that may remain in the column "1 %"
MAX_DRAWN = 64  # ranks
# pixels: between ranks, between rounds, around a panel, of a rank's dot
_STEP, _ROUND, _MARGIN, _RADIUS = 28, 64, 40, 5


def choose(names: str, size: int) -> list[MixingTopology]:
    """The topologies of a comma-separated list, or "all" that support this number of ranks. Raises UserError
    for others."""
    if names == "all":
        return [topology for topology in TOPOLOGIES.values() if _takes(topology, size)]
    chosen = [name.strip() for name in names.split(",")]
    unknown = [name for name in chosen if name not in TOPOLOGIES]
    if unknown:
        raise UserError(
            f"--topology '{unknown[0]}': unknown topology; choose all or some of {', '.join(TOPOLOGIES)}"
        )
    for name in chosen:
        TOPOLOGIES[name].round(size, 0)
    return [TOPOLOGIES[name] for name in chosen]


def _takes(topology: MixingTopology, size: int) -> bool:
    try:
        topology.round(size, 0)
    except UserError:
        return False
    return True


def table(topologies: list[MixingTopology], size: int) -> str:
    """One row for each topology, in Markdown, and an explanation of the columns."""
    head = ["topology", "sent", "contraction", "gap", "1 %", "exact"]
    rows = [head, *(_row(topology, size) for topology in topologies)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    lines = [
        "| " + " | ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) + " |"
        for row in rows
    ]
    rule = (
        "|"
        + "|".join(
            "-" * (width + 2 if i == 0 else width + 1) + ":" * (i > 0) for i, width in enumerate(widths)
        )
        + "|"
    )
    return "\n".join([lines[0], rule, *lines[1:], "", *_notes(topologies, size)])


def _row(topology: MixingTopology, size: int) -> list[str]:
    falls = disagreement_of(topology, size)
    exact = "never" if falls.exact_after is None else str(falls.exact_after)
    name = topology.name + " *" * topology.random
    return [
        name,
        f"{models_sent(topology, size):.3g}",
        _digits(falls.contraction),
        _digits(1 - falls.contraction),
        str(falls.mixings_until(SHARE)),
        exact,
    ]


def _digits(value: float) -> str:
    """Four digits after the point; more if these would round to 0 or 1."""
    return f"{value:.4f}" if value in (0, 1) or 0.001 <= value <= 0.999 else f"{value:.8f}"


def _notes(topologies: list[MixingTopology], size: int) -> list[str]:
    notes = [
        (
            f"{size} rank{'s' * (size > 1)}. sent: models that the busiest rank sends in a mixing; "
            "contraction: asymptotic factor per mixing"
        ),
        (
            "on the ranks' distance from their mean; gap: 1 - contraction; 1 %: mixings until less than 1 % "
            "of any disagreement is left;"
        ),
        "exact: mixings until all ranks have the exact mean.",
    ]
    if any(topology.random for topology in topologies):
        notes.append("* redrawn in every round: contraction and 1 % are of the root mean square over draws.")
    if any(topology.name == "complete" for topology in topologies):
        notes.append("complete: sent is that of a ring all-reduce, 2 (P - 1) / P models.")
    if len(topologies) > 1 and size & (size - 1):
        notes.append("butterfly supports 2, 4, 8, ... ranks; base2 is exact for any number.")
    return notes


def picture(topologies: list[MixingTopology], size: int) -> str:
    """An SVG: a panel for each topology, ranks from left to right, time downwards; each line is a message.
    Raises UserError."""
    if not 2 <= size <= MAX_DRAWN:
        raise UserError(f"--draw: cannot draw {size} ranks; use 2 to {MAX_DRAWN}")
    num_rounds = (size - 1).bit_length()
    width, height = (size - 1) * _STEP + 2 * _MARGIN, num_rounds * _ROUND + 2 * _MARGIN
    panels = [
        part
        for i, topology in enumerate(topologies)
        for part in _panel(topology, size, num_rounds, i * width + _MARGIN)
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {len(topologies) * width} {height}" '
            f'width="{len(topologies) * width}" font-family="sans-serif" font-size="12" '
            'text-anchor="middle">',
            f'<rect width="{len(topologies) * width}" height="{height}" fill="white"/>',
            *panels,
            "</svg>",
            "",
        ]
    )


def _panel(topology: MixingTopology, size: int, num_rounds: int, left: int) -> Iterator[str]:
    """The elements of one topology: messages in blue, a rank's own parameters as a thin grey line."""
    yield (
        f'<text x="{left + (size - 1) * _STEP // 2}" y="{_MARGIN // 2 - 6}" '
        f'font-weight="bold">{topology.name}</text>'
    )
    for rank in range(size):
        yield f'<text x="{left + rank * _STEP}" y="{_MARGIN - 10}" fill="#555">{rank}</text>'
    for k in range(num_rounds):
        yield from _messages(topology, size, k, left)
    for k, rank in np.ndindex(num_rounds + 1, size):
        yield f'<circle cx="{left + rank * _STEP}" cy="{_MARGIN + k * _ROUND}" r="{_RADIUS}" fill="#333"/>'


def _messages(topology: MixingTopology, size: int, k: int, left: int) -> Iterator[str]:
    top = _MARGIN + k * _ROUND
    mixing = topology.round(size, k)
    for colour, sources in [
        ("#bbb", np.arange(size)),
        *(("#2468b4", sources) for sources, _ in mixing.parts),
    ]:
        for rank, source in enumerate(sources.tolist()):
            if colour == "#bbb" or rank != source:
                yield (
                    f'<line x1="{left + source * _STEP}" y1="{top}" x2="{left + rank * _STEP}" '
                    f'y2="{top + _ROUND}" stroke="{colour}" stroke-width="1.5"/>'
                )
