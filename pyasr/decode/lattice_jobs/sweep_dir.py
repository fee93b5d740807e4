"""The best words of all lattices of a decode directory, for every LM weight and word insertion penalty."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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
    """Parameters of all jobs; job J processes every num_jobs-th archive of `decode_dir`.

    acoustic_scale  scale for the determinisation of raw lattices for MBR if the decoding did not record its
                    own
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
    """Write sweep.JOB.txt: a line `LMWT WIP UTTERANCE WORD ...` for each point and utterance of a job."""
    words = SymbolTable.read(spec.words)
    with atomic_write(spec.out / f"sweep.{job}.txt") as f:
        for path in job_archives(spec.decode_dir, spec.num_jobs, job):
            for utt, found in _swept(path, spec):
                for (lm_weight, penalty), ids in found.items():
                    f.write(
                        " ".join([str(lm_weight), str(penalty), utt, *spelled(ids, words, spec.words, path)])
                        + "\n"
                    )


def _swept(archive: Path, spec: SweepSpec) -> Iterator[tuple[str, dict[Point, list[int]]]]:
    """(utterance, {point: word ids}) of an archive."""
    if not spec.mbr.decode_mbr:
        yield from (
            (utt, sweep(lattice, spec.lm_weights, spec.penalties)) for utt, lattice in read_either(archive)
        )
        return
    for utt, lattice in read_deterministic(archive, spec.acoustic_scale):
        yield utt, mbr_sweep(lattice, spec.lm_weights, spec.penalties, spec.mbr.posterior_scale)


def spelled(ids: Iterable[int], words: SymbolTable, table: Path, archive: Path) -> list[str]:
    """The words of ids. Raises UserError for an id in a lattice of `archive` that is not in `table`."""
    try:
        return [words.symbol(i) for i in ids]
    except KeyError as error:
        raise UserError(
            f"{table}: no word with id {error.args[0]}, which {archive} contains; "
            "give the lang directory of the decoding graph"
        ) from None


def read_sweep(out: Path, num_jobs: int) -> dict[Point, dict[str, str]]:
    """{point: {utterance: words}} of all jobs."""
    found: dict[Point, dict[str, str]] = {}
    for job in range(1, num_jobs + 1):
        for line in (Path(out) / f"sweep.{job}.txt").read_text(encoding="utf-8").splitlines():
            lm_weight, penalty, utt, *words = line.split(" ")
            found.setdefault((int(lm_weight), float(penalty)), {})[utt] = " ".join(words)
    return found
