"""Alignment of the lattices of a decode directory with words or phones."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pyasr.data.datadir import DataDir
from pyasr.decode.align_lexicon import align_lexicon
from pyasr.decode.align_phones import phone_lattice
from pyasr.decode.align_words import align_words
from pyasr.decode.lattice_dir import job_archives, read_of_data
from pyasr.decode.lattice_io import LatticeWriter
from pyasr.hmm.model import read_transitions
from pyasr.lang.lang_dir import LangDir


@dataclass(frozen=True)
class AlignSpec:
    """The work of all jobs; job J rewrites every num_jobs-th archive of `decode_dir` as lat.J.gz. phones: not words, but phones."""

    decode_dir: Path
    data: Path
    lang: Path
    model: Path
    out: Path
    num_jobs: int
    phones: bool


def align_shard(spec: AlignSpec, job: int) -> None:
    """Write lat.JOB.gz."""
    data, trans, lexicon = DataDir(spec.data), read_transitions(spec.model), align_lexicon(LangDir(spec.lang).align_lexicon)
    with LatticeWriter(spec.out / f"lat.{job}.gz") as writer:
        for archive in job_archives(spec.decode_dir, spec.num_jobs, job):
            for utterance, lattice in read_of_data(archive, data):
                name = f"{archive}: {utterance}"
                aligned = phone_lattice(lattice, trans, name) if spec.phones else align_words(lattice, trans, lexicon, name)
                writer.write(utterance, aligned)
