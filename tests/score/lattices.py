"""Decode directories of tests: linear lattices with a cheap wrong word, an expensive correct one, and a
weight that decides between them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pyasr.data.tables.datadir import write_data_dir
from pyasr.decode.lattices.lattice import from_arcs
from pyasr.decode.lattices.lattice_io import write_lattices

WORDS = {"<eps>": 0, "yes": 1, "no": 2, "well": 3}


def choice(num: int, right_graph: float, right_acoustic: float):
    """`num` positions for 'yes' (given graph and acoustic cost) or 'no' (graph cost 0, acoustic cost 0)."""
    ways = ((WORDS["yes"], right_graph, right_acoustic), (WORDS["no"], 0.0, 0.0))
    arcs = [(i, i + 1, 1, *way) for i in range(num) for way in ways]
    finals = np.full(num + 1, np.inf)
    finals[num] = 0
    return from_arcs(0, *zip(*arcs), finals)


def make_decode_dir(path: Path, lattices: dict, num_jobs: int = 2) -> Path:
    path.mkdir(parents=True)
    (path / "num_jobs").write_text(f"{num_jobs}\n")
    for job in range(num_jobs):
        write_lattices(path / f"lat.{job + 1}.gz", sorted(lattices.items())[job::num_jobs])
    return path


def make_lang(path: Path) -> Path:
    path.mkdir()
    (path / "words.txt").write_text("".join(f"{word} {i}\n" for word, i in WORDS.items()))
    return path


def make_data(path: Path, texts: dict[str, str]) -> Path:
    path.mkdir()
    write_data_dir(path, {"text": texts, "utt2spk": {utt: utt.split("-")[0] for utt in texts}})
    return path
