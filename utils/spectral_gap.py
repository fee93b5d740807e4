#!/usr/bin/env python3
"""Compute how fast each topology averages the parameters of the ranks, and its communication cost.

Reads   nothing
Writes  a table to standard output; with --draw a figure (SVG; an existing file that is not one is replaced
        only with --force)

    utils/spectral_gap.py --topology all --ranks 16
    utils/spectral_gap.py --topology butterfly,ring,hopping-ring --ranks 8 --draw topologies.svg
"""

from dataclasses import dataclass
from pathlib import Path

from pyasr.base.cli.options import option
from pyasr.base.cli.step import check_replaceable, run_step
from pyasr.base.outputs.output import atomic_write
from pyasr.parallel.topology.topology_page import choose, picture, table

_MARK = (
    r'<svg xmlns="[^"]*" viewBox="[^"]*" width="\d+" font-family="sans-serif" font-size="12" '
    r'text-anchor="middle">\n<rect '
)


@dataclass(frozen=True)
class SpectralGap:
    topology: str = option("all", "comma-separated names of topologies, or all")
    ranks: int = option(16, "number of ranks", minimum=1, maximum=1024)
    draw: Path | None = option(
        None, "SVG file for a figure of as many rounds as a butterfly of this number of ranks needs"
    )


def main(options: SpectralGap) -> None:
    topologies = choose(options.topology, options.ranks)
    if options.draw is not None:
        check_replaceable(options.draw, _MARK, "figure drawn by this program")
        drawing = picture(topologies, options.ranks)
        options.draw.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(options.draw) as f:
            f.write(drawing)
    print(table(topologies, options.ranks))


if __name__ == "__main__":
    run_step(
        SpectralGap, main, __doc__, force="replace an existing file that is not a figure of this program"
    )
