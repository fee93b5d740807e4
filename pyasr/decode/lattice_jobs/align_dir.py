"""Alignment of the lattices of a decode directory with words or phones."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pyasr.decode.align.align_phones import phone_lattice
from pyasr.decode.align.align_words import align_words
from pyasr.decode.lattice_jobs.decoded import Decoded
from pyasr.decode.lattices.lattice_io import LatticeWriter


@dataclass(frozen=True)
class LatticeAlignSpec:
    """Parameters of all jobs; job J writes the aligned lattices of its archives to lat.J.gz. phones: align
    with phones, not words."""

    decoded: Decoded
    out: Path
    phones: bool


def align_shard(spec: LatticeAlignSpec, job: int) -> None:
    """Write lat.JOB.gz."""
    trans, lexicon = spec.decoded.read_model()
    with LatticeWriter(spec.out / f"lat.{job}.gz") as writer:
        for archive, utterance, lattice in spec.decoded.lattices(job, trans):
            name = f"{archive}: {utterance}"
            aligned = (
                phone_lattice(lattice, trans, name)
                if spec.phones
                else align_words(lattice, trans, lexicon, name)
            )
            writer.write(utterance, aligned)
