#!/usr/bin/env python3
"""Tell how soon each topology of mixing makes ranks agree, and at what cost.

Reads   nothing
Writes  a table to standard output; with --draw a picture (SVG) of the first rounds; a file that is none is replaced with --force alone

    utils/spectral_gap.py --topology all --ranks 16
    utils/spectral_gap.py --topology butterfly,ring,hopping-ring --ranks 8 --draw topologies.svg
"""

from dataclasses import dataclass
from pathlib import Path

from pyasr.base.options import option
from pyasr.base.output import atomic_write
from pyasr.base.step import check_replaceable, run_step
from pyasr.parallel.topology_page import choose, picture, table

_MARK = r'<svg xmlns="[^"]*" viewBox="[^"]*" width="\d+" font-family="sans-serif" font-size="12" text-anchor="middle">\n<rect '


@dataclass(frozen=True)
class SpectralGap:
    topology: str = option("all", "name of a topology, several with commas between them, or all")
    ranks: int = option(16, "number of ranks", minimum=1, maximum=1024)
    draw: Path | None = option(None, "SVG file for a picture of the rounds until a butterfly of so many ranks would be done")


def main(options: SpectralGap) -> None:
    topologies = choose(options.topology, options.ranks)
    if options.draw is not None:
        check_replaceable(options.draw, _MARK, "picture that this program has drawn")
        drawing = picture(topologies, options.ranks)
        options.draw.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(options.draw) as f:
            f.write(drawing)
    print(table(topologies, options.ranks))


if __name__ == "__main__":
    run_step(SpectralGap, main, __doc__, force="replace a file that is no picture of this program")
