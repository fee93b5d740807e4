"""The ctm of a decode directory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pyasr.base.output import atomic_write
from pyasr.data.datadir import DataDir
from pyasr.decode.align_lexicon import align_lexicon
from pyasr.decode.align_words import align_words
from pyasr.decode.ctm import CtmLine, Recordings, sorted_lines, utterance_lines
from pyasr.decode.lattice_dir import job_archives, read_of_data
from pyasr.decode.mbr import MbrOptions, mbr_decode
from pyasr.decode.sweep_dir import spelled
from pyasr.decode.word_graph import WordGraph
from pyasr.hmm.model import read_transitions
from pyasr.lang.lang_dir import LangDir


@dataclass(frozen=True)
class CtmSpec:
    """The work of all jobs; job J takes every num_jobs-th archive of `decode_dir`."""

    decode_dir: Path
    data: Path
    lang: Path
    model: Path
    out: Path
    num_jobs: int
    lm_weight: float
    penalty: float
    mbr: MbrOptions
    frame_shift_s: float


def ctm_shard(spec: CtmSpec, job: int) -> None:
    """Write ctm.JOB, in the order of the lattices."""
    data, lang, trans = DataDir(spec.data), LangDir(spec.lang), read_transitions(spec.model)
    recordings, lexicon, scale = Recordings(data), align_lexicon(lang.align_lexicon), 1.0 / spec.lm_weight
    with atomic_write(spec.out / f"ctm.{job}") as f:
        for archive in job_archives(spec.decode_dir, spec.num_jobs, job):
            for utterance, lattice in read_of_data(archive, data, scale):
                aligned = align_words(lattice, trans, lexicon, f"{archive}: {utterance}")
                found = mbr_decode(WordGraph.of(aligned, scale, spec.penalty), decode=spec.mbr.decode_mbr,
                                   posterior_scale=spec.mbr.posterior_scale)
                text = spelled(found.words, lang.words, lang.path / "words.txt", archive)
                lines = utterance_lines(found, text, recordings.locate(utterance), spec.frame_shift_s)
                f.writelines(f"{line}\n" for line in lines)


def join_ctm(out: Path, num_jobs: int) -> int:
    """Join the jobs' words in `out`/ctm, by file, channel and time; their number."""
    parts = [out / f"ctm.{job}" for job in range(1, num_jobs + 1)]
    lines = sorted_lines(CtmLine.parse(line) for part in parts for line in part.read_text(encoding="utf-8").splitlines())
    with atomic_write(out / "ctm") as f:
        f.writelines(f"{line}\n" for line in lines)
    for part in parts:
        part.unlink()
    return len(lines)
