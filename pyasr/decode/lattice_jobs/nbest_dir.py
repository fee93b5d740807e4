"""N-best lists of a decode directory, in the form of Kaldi's lattice-to-nbest and nbest-to-linear: the n-th
best of `utt` is `utt-n`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pyasr.base import log
from pyasr.base.outputs.output import atomic_write
from pyasr.data.tables.datadir import DataDir
from pyasr.decode.lattice_jobs.lattice_dir import job_archives, read_of_data, write_num_jobs
from pyasr.decode.lattice_jobs.sweep_dir import spelled
from pyasr.decode.lattices.nbest import n_best
from pyasr.io.int_vectors import write_int_vectors
from pyasr.lang.symbols import SymbolTable

TABLES = ("text", "lm_cost", "ac_cost")


@dataclass(frozen=True)
class NbestSpec:
    """Parameters of all jobs; job J processes every num_jobs-th archive of `decode_dir`."""

    decode_dir: Path
    data: Path
    words: Path
    out: Path
    num_jobs: int
    num_best: int
    lm_weight: float
    penalty: float


def nbest_shard(spec: NbestSpec, job: int) -> None:
    """Write {text,lm_cost,ac_cost}.JOB, one line per path, and ali.JOB.gz, their transition-ids."""
    words, data, alignments = SymbolTable.read(spec.words), DataDir(spec.data), {}
    lines: dict[str, list[str]] = {name: [] for name in TABLES}
    scale = 1.0 / spec.lm_weight
    for archive in job_archives(spec.decode_dir, spec.num_jobs, job):
        for utterance, lattice in read_of_data(archive, data, scale):
            for rank, path in enumerate(n_best(lattice, spec.num_best, scale, spec.penalty), 1):
                key = f"{utterance}-{rank}"
                lines["text"].append(" ".join([key, *spelled(path.words, words, spec.words, archive)]))
                lines["lm_cost"].append(f"{key} {path.graph_cost:.10g}")
                lines["ac_cost"].append(f"{key} {path.acoustic_cost:.10g}")
                alignments[key] = path.tids
    for name, rows in lines.items():
        with atomic_write(spec.out / f"{name}.{job}") as f:
            f.writelines(f"{row}\n" for row in rows)
    write_int_vectors(spec.out / f"ali.{job}.gz", alignments)


def join_tables(out: Path, num_jobs: int) -> list[str]:
    """Join the jobs' tables to `out`/{text,lm_cost,ac_cost}, in the order of the lattices. Returns the paths'
    names `UTTERANCE-RANK`."""
    for name in TABLES:
        parts = [out / f"{name}.{job}" for job in range(1, num_jobs + 1)]
        content = "".join(part.read_text(encoding="utf-8") for part in parts)
        with atomic_write(out / name) as f:
            f.write(content)
        for part in parts:
            part.unlink()
    write_num_jobs(out, num_jobs)
    return [line.partition(" ")[0] for line in content.splitlines()]


def warn_of_single_paths(names: list[str], spec: NbestSpec) -> None:
    """Log a warning if several paths were requested but no utterance has a second one."""
    if names and spec.num_best > 1 and all(name.endswith("-1") for name in names):
        problem = "every list has one path, because the lattices have no other"
        log.warning(f"{spec.decode_dir}: {problem}; decode with a larger --lattice-beam")
