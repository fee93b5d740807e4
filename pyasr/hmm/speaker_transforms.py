"""fMLLR transforms of the speakers of a shard, estimated by all ranks together: a speaker's utterances may lie with several of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass
from pathlib import Path

import numpy as np

from pyasr.base import log
from pyasr.base.errors import UserError
from pyasr.feats.transforms import MATRIX_FILE, compose, read_matrix, write_matrix, write_transforms
from pyasr.hmm.adaptable_shard import AdaptableShard
from pyasr.hmm.fmllr import FmllrOptions, FmllrStats, estimate_fmllr, identity
from pyasr.hmm.gmm import AmDiagGmm
from pyasr.hmm.pdf_posteriors import PdfPosteriors, SilenceWeighting
from pyasr.hmm.transitions import TransitionModel

Utterance = tuple[str, np.ndarray, PdfPosteriors]  # speaker, features, which pdfs they belong to


def speaker_stats(utterances: Iterable[Utterance], model: AmDiagGmm, aligner: AmDiagGmm | None = None) -> dict[str, FmllrStats]:
    """Statistics of each speaker; `aligner` as in `FmllrStats.accumulate`."""
    stats: dict[str, FmllrStats] = {}
    for speaker, features, posteriors in utterances:
        if speaker not in stats:
            stats[speaker] = FmllrStats.zeros(model.dim)
        stats[speaker].accumulate(model, features, posteriors, aligner)
    return stats


def aligned_utterances(shard: AdaptableShard, weighting: SilenceWeighting) -> Iterator[Utterance]:
    """The shard's utterances with their alignments; those without one count nothing."""
    for i, utt in enumerate(shard.keys):
        tids = shard.alignment[shard.offsets[i]:shard.offsets[i + 1]]
        aligned = tids if len(tids) and tids[0] > 0 else tids[:0]
        yield shard.speakers[utt], shard.features(i), weighting.of_alignment(aligned)


def estimate_transforms(stats: dict[str, FmllrStats], options: FmllrOptions, comm) -> dict[str, np.ndarray]:
    """The transform, float64 (D, D + 1), of each speaker of this rank's `stats`, from the statistics of all ranks.

    Speakers without enough data get the identity; how many is logged.
    """
    ranks_of = _ranks_of(stats, comm)
    shared = sorted(speaker for speaker, ranks in ranks_of.items() if len(ranks) > 1)
    dim = max(comm.allgather(max((one.dim for one in stats.values()), default=0)))
    for speaker in shared:
        total = stats.get(speaker, FmllrStats.zeros(dim)).allreduce(comm)
        if speaker in stats:
            stats[speaker] = total
    own, gain = estimate_each({speaker: one for speaker, one in stats.items() if ranks_of[speaker][0] == comm.rank}, options)
    total = Gain(*comm.allreduce(np.array(astuple(gain), np.float64)))
    if comm.rank == 0:
        total.log()
    for others in comm.allgather({speaker: own[speaker] for speaker in shared if speaker in own}):
        own |= {speaker: transform for speaker, transform in others.items() if speaker in stats}
    return own


@dataclass
class Gain:
    """What an estimation of transforms brought: log-likelihood, summed over frames."""

    num_speakers: float = 0.0
    num_left: float = 0.0
    log_like: float = 0.0
    num_frames: float = 0.0

    def log(self) -> None:
        left = f"; {self.num_left:.0f} keep theirs for want of data" if self.num_left else ""
        log.info(f"fMLLR of {self.num_speakers:.0f} speakers: log-likelihood per frame {self.log_like / max(self.num_frames, 1.0):+.4f} "
                 f"over {self.num_frames:.0f} frames{left}")


def estimate_each(stats: dict[str, FmllrStats], options: FmllrOptions) -> tuple[dict[str, np.ndarray], Gain]:
    """({speaker: transform, float64 (D, D + 1)}, gain): the identity for speakers without enough data."""
    transforms, total = {}, Gain()
    for speaker, one in stats.items():
        transform, gain = estimate_fmllr(one, options)
        transforms[speaker] = identity(one.dim) if transform is None else transform
        total = Gain(total.num_speakers + 1, total.num_left + (transform is None), total.log_like + gain, total.num_frames + one.beta)
    return transforms, total


def _ranks_of(stats: dict[str, FmllrStats], comm) -> dict[str, list[int]]:
    """The ranks that each speaker's utterances lie with."""
    ranks: dict[str, list[int]] = {}
    for rank, speakers in enumerate(comm.allgather(sorted(stats))):
        for speaker in speakers:
            ranks.setdefault(speaker, []).append(rank)
    return ranks


def compose_all(outer: dict[str, np.ndarray], inner: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """First the speaker's transform of `inner`, then that of `outer`; float32 (D, D + 1), as files keep them."""
    return {speaker: compose(matrix, inner[speaker], matrix.shape[1] - 1).astype(np.float32) for speaker, matrix in outer.items()}


class SpeakerTransforms:
    """The transforms of the speakers of a shard, which its features go through after the matrix of the system.

    model_dir  directory with the system's final.mat, or without one
    silence    (phones, their weight in the statistics)
    matrices   {speaker: float32 (D, D + 1)}, those of this rank
    """

    def __init__(self, shard: AdaptableShard, comm, model_dir: Path, options: FmllrOptions, silence: tuple[list[int], float]):
        self.shard, self.comm, self.options, self.silence = shard, comm, options, silence
        path = Path(model_dir) / MATRIX_FILE
        self.has_matrix = path.exists()
        self.base = read_matrix(path) if self.has_matrix else np.eye(shard.extended_dim, dtype=np.float32)
        self.matrices: dict[str, np.ndarray] = {}

    def start(self) -> None:
        """No transforms: the features are speaker-independent."""
        self.restore(dict.fromkeys(self.shard.speakers.values(), identity(len(self.base))))

    def estimate(self, trans: TransitionModel, model: AmDiagGmm, aligner: AmDiagGmm | None = None) -> None:
        """New transforms of all speakers, after those they have, from the shard's alignment; `aligner` as in `FmllrStats.accumulate`."""
        stats = speaker_stats(aligned_utterances(self.shard, SilenceWeighting(trans, *self.silence)), model, aligner)
        self.restore(compose_all(estimate_transforms(stats, self.options, self.comm), self.matrices))

    def restore(self, matrices: dict[str, np.ndarray]) -> None:
        """Transform the features by the matrices of their speakers from now on. Raises UserError where a speaker has none."""
        speakers = sorted(set(self.shard.speakers.values()))
        missing = [speaker for speaker in speakers if speaker not in matrices]
        if missing:
            found = f"{len(missing)} speakers have no transform (first {missing[0]})"
            raise UserError(f"{found}; align this data directory with align_fmllr.py")
        self.matrices = {speaker: matrices[speaker].astype(np.float32) for speaker in speakers}
        whole = {speaker: compose(matrix, self.base, self.shard.extended_dim) for speaker, matrix in self.matrices.items()}
        self.shard.transform(lambda utt: whole[self.shard.speakers[utt]], len(self.base))

    def without(self) -> np.ndarray:
        """The shard's features before these transforms, float32 (T, D)."""
        return self.shard.transformed(lambda utt: self.base, len(self.base))

    def write(self, out: Path) -> None:
        """trans.N of this rank, final.mat; rank 0 writes the identity for speakers of whom no utterance can be used."""
        matrices, estimated = dict(self.matrices), set().union(*self.comm.allgather(sorted(self.matrices)))
        without = sorted(self.shard.all_speakers - estimated) if self.comm.rank == 0 else []
        if without:
            names = ", ".join(without[:5])
            log.warning(f"{len(without)} speakers have no utterance that can be used, and the identity as their transform: {names}")
            matrices |= dict.fromkeys(without, identity(len(self.base)))
        write_transforms(out / f"trans.{self.comm.rank + 1}", matrices)
        if self.comm.rank == 0 and self.has_matrix:
            write_matrix(out / MATRIX_FILE, self.base)
