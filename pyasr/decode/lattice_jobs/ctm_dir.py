"""The ctm of a decode directory."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from heapq import merge
from pathlib import Path

from pyasr.base.outputs.output import atomic_write
from pyasr.data.tables.datadir import DataDir
from pyasr.data.transcripts.ctm import Recordings, place_of, sort_ctm, utterance_lines
from pyasr.decode.align.align_words import align_words
from pyasr.decode.lattice_jobs.decoded import Decoded
from pyasr.decode.lattice_jobs.sweep_dir import spelled
from pyasr.decode.lattices.mbr import MbrOptions, mbr_decode
from pyasr.decode.lattices.word_graph import WordGraph
from pyasr.lang.lang_dirs.lang_dir import LangDir


@dataclass(frozen=True)
class CtmSpec:
    """Parameters of all jobs."""

    decoded: Decoded
    out: Path
    lm_weight: float
    penalty: float
    mbr: MbrOptions
    frame_shift_s: float


def ctm_shard(spec: CtmSpec, job: int) -> None:
    """Write ctm.JOB, utterances in the order of the lattices."""
    lang = LangDir(spec.decoded.lang)
    recordings = Recordings(DataDir(spec.decoded.data))
    scale = 1.0 / spec.lm_weight
    trans, lexicon = spec.decoded.read_model()
    with atomic_write(spec.out / f"ctm.{job}") as f:
        for archive, utterance, lattice in spec.decoded.lattices(job, trans, scale):
            aligned = align_words(lattice, trans, lexicon, f"{archive}: {utterance}")
            found = mbr_decode(
                WordGraph.of(aligned, scale, spec.penalty),
                decode=spec.mbr.decode_mbr,
                posterior_scale=spec.mbr.posterior_scale,
            )
            text = spelled(found.words, lang.words, lang.path / "words.txt", archive)
            lines = utterance_lines(
                text, found.times, found.confidences, recordings.locate(utterance), spec.frame_shift_s
            )
            f.writelines(f"{line}\n" for line in lines)


def join_ctm(out: Path, num_jobs: int) -> int:
    """Merge the jobs' words into `out`/ctm, sorted by file, channel and time. Returns their number. Keeps
    words of one job in memory."""
    parts = [out / f"ctm.{job}" for job in range(1, num_jobs + 1)]
    for part in parts:
        sort_ctm(part)
    with ExitStack() as stack, atomic_write(out / "ctm") as f:
        lines = merge(
            *(stack.enter_context(part.open(encoding="utf-8", newline="\n")) for part in parts), key=place_of
        )
        num_words = sum(map(bool, map(f.write, lines)))
    for part in parts:
        part.unlink()
    return num_words
