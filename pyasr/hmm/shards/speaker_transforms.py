"""fMLLR transforms of the speakers of a shard, estimated by all ranks together, because a speaker's
utterances may be on several ranks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass
from pathlib import Path

import numpy as np

from pyasr.base import log
from pyasr.base.errors import UserError
from pyasr.feats.transforms import MATRIX_FILE, compose, read_matrix, write_matrix, write_transforms
from pyasr.hmm.align.pdf_posteriors import PdfPosteriors, SilenceWeighting
from pyasr.hmm.model.gmm import AmDiagGmm
from pyasr.hmm.model.transitions import TransitionModel
from pyasr.hmm.shards.adaptable_shard import AdaptableShard
from pyasr.hmm.transforms.fmllr import FmllrOptions, FmllrStats, estimate_fmllr, identity

Utterance = tuple[str, np.ndarray, PdfPosteriors]  # speaker, features, posteriors of pdfs


def speaker_stats(
    utterances: Iterable[Utterance], model: AmDiagGmm, aligner: AmDiagGmm | None = None
) -> dict[str, FmllrStats]:
    """Statistics of each speaker; `aligner` as in `FmllrStats.accumulate`."""
    stats: dict[str, FmllrStats] = {}
    for speaker, features, posteriors in utterances:
        if speaker not in stats:
            stats[speaker] = FmllrStats.zeros(model.dim)
        stats[speaker].accumulate(model, features, posteriors, aligner)
    return stats


def aligned_speakers(
    shard: AdaptableShard, weighting: SilenceWeighting
) -> Iterator[tuple[str, Iterator[Utterance]]]:
    """(speaker, its utterances with their alignments), one speaker after the other. Utterances without
    alignment have no posteriors."""
    places: dict[str, list[int]] = {}
    for i, utt in enumerate(shard.keys):
        places.setdefault(shard.speakers[utt], []).append(i)
    for speaker, own in places.items():
        yield speaker, ((speaker, shard.features(i), _posteriors(shard.tids(i), weighting)) for i in own)


def _posteriors(tids: np.ndarray, weighting: SilenceWeighting) -> PdfPosteriors:
    return weighting.of_alignment(tids if tids[0] > 0 else tids[:0])


def estimate_transforms(
    speakers: Iterable[tuple[str, Iterable[Utterance]]],
    model: AmDiagGmm,
    options: FmllrOptions,
    shared: dict[str, list[int]],
    comm,
    aligner: AmDiagGmm | None = None,
) -> dict[str, np.ndarray]:
    """The transform, float64 (D, D + 1), of each speaker of this rank, from the utterances of all ranks.

    speakers  speakers with their utterances on this rank; statistics are kept in memory only for speakers on
              several ranks
    shared    the speakers on several ranks, with these ranks, as in `shared_speakers`
    aligner   as in `FmllrStats.accumulate`

    Speakers without enough data get the identity; their number is logged.
    """
    stats: dict[str, FmllrStats] = {}
    transforms, total = dict[str, np.ndarray](), Gain()
    for speaker, utterances in speakers:
        of_speaker = speaker_stats(utterances, model, aligner)
        if speaker in shared:
            stats |= of_speaker
        else:
            transforms |= _estimated(of_speaker, options, total)
    transforms |= _estimate_shared(stats, model.dim, options, shared, comm, total)
    total = Gain(*comm.allreduce(np.array(astuple(total), np.float64)))
    if comm.rank == 0:
        total.log()
    return transforms


def _estimated(stats: dict[str, FmllrStats], options: FmllrOptions, total: Gain) -> dict[str, np.ndarray]:
    """The transforms of `estimate_each`; adds the gain to `total`."""
    transforms, gain = estimate_each(stats, options)
    total.add(gain)
    return transforms


def _estimate_shared(
    stats: dict[str, FmllrStats],
    dim: int,
    options: FmllrOptions,
    shared: dict[str, list[int]],
    comm,
    total: Gain,
) -> dict[str, np.ndarray]:
    """The transforms of this rank's speakers among the `shared`; the first rank of each speaker estimates its
    transform."""
    own: dict[str, np.ndarray] = {}
    for speaker, ranks in sorted(shared.items()):
        of_all = (stats.pop(speaker, None) or FmllrStats.zeros(dim)).allreduce(comm)
        if ranks[0] == comm.rank:
            own |= _estimated({speaker: of_all}, options, total)
    return {
        speaker: transform
        for made in comm.allgather(own)
        for speaker, transform in made.items()
        if comm.rank in shared[speaker]
    }


def shared_speakers(speakers: Iterable[str], comm) -> dict[str, list[int]]:
    """{speaker: its ranks} of all speakers on several ranks, the same on every rank, from the `speakers` of
    each rank."""
    ranks: dict[str, list[int]] = {}
    for rank, of_rank in enumerate(comm.gather(sorted(speakers)) or []):
        for speaker in of_rank:
            ranks.setdefault(speaker, []).append(rank)
    return comm.bcast_object({speaker: own for speaker, own in ranks.items() if len(own) > 1})


@dataclass
class Gain:
    """Gain of an estimation of transforms in log-likelihood, summed over frames, and its numbers of speakers
    and frames."""

    num_speakers: float = 0.0
    num_left: float = 0.0
    log_like: float = 0.0
    num_frames: float = 0.0

    def add(self, other: Gain) -> None:
        """Add the gain of other speakers' transforms."""
        self.num_speakers += other.num_speakers
        self.num_left += other.num_left
        self.log_like += other.log_like
        self.num_frames += other.num_frames

    def log(self) -> None:
        left = (
            f"; {self.num_left:.0f} keep their transform because of too little data" if self.num_left else ""
        )
        log.info(
            f"fMLLR of {self.num_speakers:.0f} speakers: log-likelihood per frame "
            f"{self.log_like / max(self.num_frames, 1.0):+.4f} over {self.num_frames:.0f} frames{left}"
        )


def estimate_each(stats: dict[str, FmllrStats], options: FmllrOptions) -> tuple[dict[str, np.ndarray], Gain]:
    """({speaker: transform, float64 (D, D + 1)}, gain): the identity for speakers without enough data."""
    transforms, total = {}, Gain()
    for speaker, one in stats.items():
        transform, gain = estimate_fmllr(one, options)
        transforms[speaker] = identity(one.dim) if transform is None else transform
        total.add(Gain(1, transform is None, gain, one.beta))
    return transforms, total


def compose_all(outer: dict[str, np.ndarray], inner: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """{speaker: transform}: that of `inner` followed by that of `outer`, float32 (D, D + 1) as in files."""
    return {
        speaker: compose(matrix, inner[speaker], matrix.shape[1] - 1).astype(np.float32)
        for speaker, matrix in outer.items()
    }


class SpeakerTransforms:
    """The transforms of the speakers of a shard, applied to its features after the matrix of the system.
    Every rank must create one.

    model_dir  directory of the system, with or without final.mat
    silence    (phones, their weight in the statistics)
    matrices   {speaker: float32 (D, D + 1)} of this rank's speakers
    names      this rank's speakers
    """

    def __init__(
        self,
        shard: AdaptableShard,
        comm,
        model_dir: Path,
        options: FmllrOptions,
        silence: tuple[list[int], float],
    ):
        self.shard, self.comm, self.options, self.silence = shard, comm, options, silence
        path = Path(model_dir) / MATRIX_FILE
        self.has_matrix = path.exists()
        self.base = read_matrix(path) if self.has_matrix else np.eye(shard.extended_dim, dtype=np.float32)
        self.matrices: dict[str, np.ndarray] = {}
        self.names = set(shard.speakers.values())
        self._shared = shared_speakers(self.names, comm)

    def start(self) -> None:
        """Set all transforms to the identity: the features are speaker-independent."""
        self.restore(dict.fromkeys(self.names, identity(len(self.base))))

    def estimate(self, trans: TransitionModel, model: AmDiagGmm, aligner: AmDiagGmm | None = None) -> None:
        """Estimate transforms of all speakers from the shard's alignment and append them to the present ones;
        `aligner` as in `FmllrStats.accumulate`."""
        speakers = aligned_speakers(self.shard, SilenceWeighting(trans, *self.silence))
        self.restore(
            compose_all(
                estimate_transforms(speakers, model, self.options, self._shared, self.comm, aligner),
                self.matrices,
            )
        )

    def restore(self, matrices: dict[str, np.ndarray]) -> None:
        """Transform the features by the matrices of their speakers from now on. Raises UserError if a speaker
        has no matrix."""
        speakers = sorted(self.names)
        missing = [speaker for speaker in speakers if speaker not in matrices]
        if missing:
            found = f"{len(missing)} speakers have no transform (the first is {missing[0]})"
            raise UserError(f"{found}; align this data directory with steps/align_fmllr.py")
        self.matrices = {speaker: matrices[speaker].astype(np.float32) for speaker in speakers}
        self._latest = ("", self.base)
        self.shard.transform(self._whole, len(self.base))

    def _whole(self, utt: str) -> np.ndarray:
        """The product of the system's matrix and that of the utterance's speaker. The latest is kept, because
        utterances of a speaker are usually consecutive."""
        speaker = self.shard.speakers[utt]
        if self._latest[0] != speaker:
            self._latest = (speaker, compose(self.matrices[speaker], self.base, self.shard.extended_dim))
        return self._latest[1]

    def without(self, index: int) -> np.ndarray:
        """Features of the shard's utterance `index` before these transforms, float32 (T, D)."""
        return self.shard.transformed(index, self.base)

    def write(self, out: Path) -> None:
        """Write trans.N of this rank; rank 0 also writes final.mat, and the identity for speakers without
        usable utterances."""
        matrices, estimated = dict(self.matrices), set().union(*self.comm.gather(sorted(self.matrices)) or [])
        without = sorted(self.shard.all_speakers - estimated) if self.comm.rank == 0 else []
        if without:
            names = ", ".join(without[:5])
            log.warning(
                f"{len(without)} speakers have no usable utterance and get the identity as transform: {names}"
            )
            matrices |= dict.fromkeys(without, identity(len(self.base)))
        write_transforms(out / f"trans.{self.comm.rank + 1}", matrices)
        if self.comm.rank == 0 and self.has_matrix:
            write_matrix(out / MATRIX_FILE, self.base)
