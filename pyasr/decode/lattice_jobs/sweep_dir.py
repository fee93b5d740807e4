"""The best words of all lattices of a decode directory, for every LM weight and word insertion penalty."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pyasr.base.errors import UserError
from pyasr.base.outputs.output import atomic_write
from pyasr.decode.lattice_jobs.lattice_dir import job_archives, read_deterministic
from pyasr.decode.lattices.lattice import sweep
from pyasr.decode.lattices.lattice_io import read_either
from pyasr.decode.lattices.mbr import MbrOptions, mbr_sweep
from pyasr.lang.symbols import SymbolTable

Point = tuple[int, float]  # (LM weight, word insertion penalty)


@dataclass(frozen=True)
class SweepSpec:
    """The work of all jobs; job J takes every num_jobs-th archive of `decode_dir`.

    acoustic_scale  at which raw lattices are determinised for MBR where their decoding does not tell its own
    """

    decode_dir: Path
    words: Path
    out: Path
    num_jobs: int
    lm_weights: tuple[int, ...]
    penalties: tuple[float, ...]
    mbr: MbrOptions
    acoustic_scale: float


def sweep_shard(spec: SweepSpec, job: int) -> None:
    """Write sweep.JOB.txt: a line `LMWT WIP UTTERANCE WORD ...` for every point and utterance of this job's archives."""
    words = SymbolTable.read(spec.words)
    with atomic_write(spec.out / f"sweep.{job}.txt") as f:
        for path in job_archives(spec.decode_dir, spec.num_jobs, job):
            for utt, found in _swept(path, spec):
                for (lm_weight, penalty), ids in found.items():
                    f.write(" ".join([str(lm_weight), str(penalty), utt, *spelled(ids, words, spec.words, path)]) + "\n")


def _swept(archive: Path, spec: SweepSpec) -> Iterator[tuple[str, dict[Point, list[int]]]]:
    """(utterance, {point: word ids}) of an archive."""
    if not spec.mbr.decode_mbr:
        yield from ((utt, sweep(lattice, spec.lm_weights, spec.penalties)) for utt, lattice in read_either(archive))
        return
    for utt, lattice in read_deterministic(archive, spec.acoustic_scale):
        yield utt, mbr_sweep(lattice, spec.lm_weights, spec.penalties, spec.mbr.posterior_scale)


def spelled(ids: list[int], words: SymbolTable, table: Path, archive: Path) -> list[str]:
    """Words of ids. Raises UserError for an id of a lattice of `archive` that `table` does not have."""
    try:
        return [words.symbol(i) for i in ids]
    except KeyError as error:
        raise UserError(f"{table}: no word of number {error.args[0]}, which {archive} holds; "
                        "give the lang directory of the decoding graph") from None


def read_sweep(out: Path, num_jobs: int) -> dict[Point, dict[str, str]]:
    """{point: {utterance: words}} of all jobs."""
    found: dict[Point, dict[str, str]] = {}
    for job in range(1, num_jobs + 1):
        for line in (Path(out) / f"sweep.{job}.txt").read_text(encoding="utf-8").splitlines():
            lm_weight, penalty, utt, *words = line.split(" ")
            found.setdefault((int(lm_weight), float(penalty)), {})[utt] = " ".join(words)
    return found
