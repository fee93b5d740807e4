"""The best words, with times, of a directory's lattices for every LM weight and word insertion penalty."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pyasr.base.outputs.output import atomic_write
from pyasr.data.tables.datadir import DataDir
from pyasr.data.transcripts.ctm import CtmLine, Recordings, sorted_lines, utterance_lines
from pyasr.decode.align.align_words import align_words
from pyasr.decode.lattice_jobs.decoded import Decoded
from pyasr.decode.lattice_jobs.sweep_dir import Point, spelled
from pyasr.decode.lattices.compact_lattice import CompactLattice, state_times
from pyasr.decode.lattices.lattice import sweep_arcs
from pyasr.decode.lattices.mbr import MbrOptions, mbr_decode
from pyasr.decode.lattices.word_graph import WordGraph
from pyasr.lang.lang_dirs.lang_dir import LangDir

TimedWord = tuple[int, float, float]  # word id, begin and end in frames


@dataclass(frozen=True)
class CtmSweepSpec:
    """Parameters of all jobs. `acoustic_scale`: as in `pyasr.decode.lattice_jobs.sweep_dir.SweepSpec`."""

    decoded: Decoded
    out: Path
    lm_weights: tuple[int, ...]
    penalties: tuple[float, ...]
    mbr: MbrOptions
    acoustic_scale: float
    frame_shift_s: float


def ctm_sweep_shard(spec: CtmSweepSpec, job: int) -> None:
    """Write sweep.JOB.txt: for each distinct hypothesis of an utterance, a line `LMWT_WIP,LMWT_WIP,...
    UTTERANCE` and its ctm lines."""
    lang, recordings = LangDir(spec.decoded.lang), Recordings(DataDir(spec.decoded.data))
    trans, lexicon = spec.decoded.read_model()
    with atomic_write(spec.out / f"sweep.{job}.txt") as f:
        for archive, utterance, lattice in spec.decoded.lattices(job, trans, spec.acoustic_scale):
            aligned = align_words(lattice, trans, lexicon, f"{archive}: {utterance}")
            for words, points in _hypotheses(aligned, spec).items():
                text = spelled([word for word, _, _ in words], lang.words, lang.path / "words.txt", archive)
                times = [(begin, end) for _, begin, end in words]
                lines = utterance_lines(
                    text, times, [1.0] * len(text), recordings.locate(utterance), spec.frame_shift_s
                )
                f.write(f"{','.join(f'{weight}_{penalty}' for weight, penalty in points)} {utterance}\n")
                f.writelines(f"{line}\n" for line in lines)


def read_ctm_sweep(out: Path, num_jobs: int) -> dict[Point, list[CtmLine]]:
    """{point: words of all jobs, sorted by file, channel and begin time}."""
    found: dict[Point, list[CtmLine]] = {}
    current: list[list[CtmLine]] = []
    for job in range(1, num_jobs + 1):
        for line in (Path(out) / f"sweep.{job}.txt").read_text(encoding="utf-8").splitlines():
            if line.count(" ") == 1:
                points = (name.partition("_") for name in line.split()[0].split(","))
                current = [
                    found.setdefault((int(weight), float(penalty)), []) for weight, _, penalty in points
                ]
            else:
                word = CtmLine.parse(line)
                for lines in current:
                    lines.append(word)
    return {point: sorted_lines(lines) for point, lines in found.items()}


def _hypotheses(aligned: CompactLattice, spec: CtmSweepSpec) -> dict[tuple[TimedWord, ...], list[Point]]:
    """The points at which each hypothesis of a word-aligned lattice is the best."""
    found: dict[tuple[TimedWord, ...], list[Point]] = {}
    for point, words in (_least_risk if spec.mbr.decode_mbr else _best_paths)(aligned, spec):
        found.setdefault(tuple(words), []).append(point)
    return found


def _best_paths(aligned: CompactLattice, spec: CtmSweepSpec) -> Iterator[tuple[Point, list[TimedWord]]]:
    begins, lengths = state_times(aligned)[aligned.sources], aligned.lengths
    for point, arcs in sweep_arcs(aligned, spec.lm_weights, spec.penalties).items():
        arcs = arcs[aligned.words[arcs] != 0]
        yield (
            point,
            list(zip(aligned.words[arcs].tolist(), begins[arcs].tolist(), (begins + lengths)[arcs].tolist())),
        )


def _least_risk(aligned: CompactLattice, spec: CtmSweepSpec) -> Iterator[tuple[Point, list[TimedWord]]]:
    for weight in spec.lm_weights:
        for penalty in spec.penalties:
            graph = WordGraph.of(aligned, 1.0 / weight, penalty)
            found = mbr_decode(graph, posterior_scale=spec.mbr.posterior_scale)
            yield (weight, penalty), [(word, *times) for word, times in zip(found.words, found.times)]
