"""The oracle paths of a decode directory's lattices."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pyasr.base.errors import UserError
from pyasr.base.outputs.output import atomic_write
from pyasr.data.tables.datadir import DataDir
from pyasr.decode.lattice_jobs.lattice_dir import job_archives, of_data
from pyasr.decode.lattice_jobs.sweep_dir import spelled
from pyasr.decode.lattices.lattice_io import read_either
from pyasr.decode.lattices.oracle import NO_WORD, oracle
from pyasr.io.int_vectors import read_int_vectors, write_int_vectors
from pyasr.lang.symbols import SymbolTable

_CLASSES, _REFERENCES = "classes.ark", "references.ark"


@dataclass(frozen=True)
class OracleSpec:
    """Parameters of all jobs; job J processes every num_jobs-th archive of `decode_dir`."""

    decode_dir: Path
    data: Path
    words: Path
    out: Path
    num_jobs: int


def write_references(
    out: Path, words: SymbolTable, texts: Mapping[str, str], counted: Callable[[str], list[str]]
) -> None:
    """Write the input of the jobs. counted: function from a text to the words that are compared, in their
    normalised form."""
    forms: dict[str, int] = {}
    classes = np.zeros(max(words.ids.values()) + 1, np.int32)
    for word, number in words.ids.items():
        for form in counted(word)[:1]:
            classes[number] = forms.setdefault(form, len(forms) + 1)
    classes[0] = 0
    write_int_vectors(out / _CLASSES, {"classes": classes})
    write_int_vectors(
        out / _REFERENCES,
        {
            utt: np.array([forms.get(form, NO_WORD) for form in counted(text)], np.int32)
            for utt, text in texts.items()
        },
    )


def oracle_shard(spec: OracleSpec, job: int) -> None:
    """Write oracle.JOB.txt: `UTTERANCE WORD ...`, the best path of each lattice."""
    words, data = SymbolTable.read(spec.words), DataDir(spec.data)
    classes = read_int_vectors(spec.out / _CLASSES)["classes"]
    references = read_int_vectors(spec.out / _REFERENCES)
    with atomic_write(spec.out / f"oracle.{job}.txt") as f:
        for archive in job_archives(spec.decode_dir, spec.num_jobs, job):
            for utterance, lattice in of_data(read_either(archive), archive, data):
                if utterance not in references:
                    raise UserError(
                        f"{archive}: utterance '{utterance}' has no transcript in {spec.data}/text; add it"
                    )
                spelled(lattice.words, words, spec.words, archive)
                found = oracle(lattice, references[utterance], classes, f"{archive}: {utterance}")
                f.write(" ".join([utterance, *spelled(found.words, words, spec.words, archive)]) + "\n")


def read_oracle(out: Path, num_jobs: int) -> dict[str, str]:
    """{utterance: words of the best path} of all jobs; removes the jobs' files."""
    found: dict[str, str] = {}
    for path in [out / f"oracle.{job}.txt" for job in range(1, num_jobs + 1)]:
        found |= {
            line.partition(" ")[0]: line.partition(" ")[2]
            for line in path.read_text(encoding="utf-8").splitlines()
        }
        path.unlink()
    for name in (_CLASSES, _REFERENCES):
        (out / name).unlink()
    return found
