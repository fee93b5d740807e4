r"""I-vectors of a speaker from the speech so far, as in Kaldi's ivector-extract-online2.

Row i of the matrix of an utterance is the i-vector of its frames 0 ... i P and of all earlier utterances of
the speaker. It is used for the frames i P ... (i + 1) P - 1. The statistics are scaled: posteriors by
`posterior_scale`, and those of earlier utterances to at most `max_remembered_frames` frames.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pyasr.base.cli.options import group, option
from pyasr.base.errors import UserError
from pyasr.hmm.model.gmm import AmDiagGmm
from pyasr.ivector.ivector_extractor import EXTRACTOR_FILE, IvectorExtractor, read_extractor
from pyasr.ivector.ubm import UBM_FILE, PosteriorOptions, frame_posteriors, read_ubm

_PERIODS_AT_ONCE = 64


@dataclass(frozen=True)
class ExtractOptions:
    """Weights of the frames and period of the i-vectors; option names are Kaldi's."""

    heading = "i-vectors"

    ivector_period: int = option(10, "period of online i-vectors, frames", minimum=1)
    max_count: float = option(
        100.0, "scaled frames above which the weight of the prior grows with the data; 0: never", minimum=0.0
    )
    max_remembered_frames: int = option(
        1000, "maximum number of frames kept from earlier utterances of the speaker; 0: all", minimum=0
    )
    posteriors: PosteriorOptions = group(PosteriorOptions)


@dataclass(frozen=True)
class SpeakerStats:
    """Statistics of a speaker: scaled number of frames, and b (R) and L (R, R) without the prior's part."""

    count: float
    linear: np.ndarray
    quadratic: np.ndarray

    @classmethod
    def zeros(cls, dim: int) -> SpeakerStats:
        """Statistics without data."""
        return cls(0.0, np.zeros(dim), np.zeros((dim, dim)))

    def __add__(self, other: SpeakerStats) -> SpeakerStats:
        return SpeakerStats(
            self.count + other.count, self.linear + other.linear, self.quadratic + other.quadratic
        )

    def limited(self, max_count: float) -> SpeakerStats:
        """Statistics scaled to a count of at most `max_count`."""
        scale = min(1.0, max_count / self.count) if self.count else 1.0
        return SpeakerStats(scale * self.count, scale * self.linear, scale * self.quadratic)


class OnlineIvectorExtractor:
    """I-vectors of utterances given earlier ones, by the extractor and background model of a directory."""

    def __init__(self, extractor: IvectorExtractor, ubm: AmDiagGmm, options: ExtractOptions):
        self.extractor, self.ubm, self.options = extractor, ubm, options

    @staticmethod
    def read(directory: Path, options: ExtractOptions) -> OnlineIvectorExtractor:
        """The extractor of a directory. Raises UserError if its two models do not match."""
        extractor, ubm = read_extractor(directory / EXTRACTOR_FILE), read_ubm(directory / UBM_FILE)
        if (ubm.num_gauss, ubm.dim) != (extractor.num_gauss, extractor.feat_dim):
            sizes = (
                f"{ubm.num_gauss} Gaussians of {ubm.dim} columns, {EXTRACTOR_FILE} "
                f"{extractor.num_gauss} of {extractor.feat_dim}"
            )
            raise UserError(f"{directory}: {UBM_FILE} has {sizes}; take both from the same directory")
        return OnlineIvectorExtractor(extractor, ubm, options)

    def remembered(self, stats: SpeakerStats) -> SpeakerStats:
        """Statistics that the next utterance takes over."""
        most = self.options.max_remembered_frames * self.options.posteriors.posterior_scale
        return stats.limited(most) if most else stats

    def ivector(self, stats: SpeakerStats) -> np.ndarray:
        """I-vector of the statistics, float32 (R)."""
        return self._estimate(np.array([stats.count]), stats.linear[None], stats.quadratic[None])[0]

    def __call__(
        self, plain: np.ndarray, normalised: np.ndarray, before: SpeakerStats
    ) -> tuple[np.ndarray, SpeakerStats]:
        """I-vectors of an utterance, float32 (ceil(T / period), R), and its own statistics, to be added to
        `before`, those of earlier ones.

        plain, normalised  the two versions of its frames (T, D), see `pyasr.ivector.features`
        """
        num_rows = -(-len(plain) // self.options.ivector_period)
        own, rows = SpeakerStats.zeros(self.extractor.dim), []
        for counts, sums in self._periods(plain, normalised):
            linear, quadratic = self.extractor.terms(counts, sums)
            counts = np.cumsum(counts.sum(1)) + own.count
            linear, quadratic = np.cumsum(linear, 0) + own.linear, np.cumsum(quadratic, 0) + own.quadratic
            rows.append(
                self._estimate(counts + before.count, linear + before.linear, quadratic + before.quadratic)
            )
            own = SpeakerStats(float(counts[-1]), linear[-1], quadratic[-1])
        return np.concatenate([*rows, np.zeros((0, self.extractor.dim), np.float32)])[:num_rows], own

    def in_order(
        self, utterances: Iterable[tuple[np.ndarray, np.ndarray] | None], utts_per_spk_max: int = 0
    ) -> Iterator[tuple[np.ndarray, SpeakerStats] | None]:
        """Results of calls for each utterance (plain, normalised) of a speaker, given the earlier ones; None
        for None.

        utts_per_spk_max  number of utterances after which the speaker counts as a new one; 0: never
        """
        before = SpeakerStats.zeros(self.extractor.dim)
        for number, views in enumerate(utterances):
            if utts_per_spk_max and number % utts_per_spk_max == 0:
                before = SpeakerStats.zeros(self.extractor.dim)
            if views is None:
                yield None
                continue
            rows, own = self(*views, before)
            before = self.remembered(before + own)
            yield rows, own

    def _periods(self, plain: np.ndarray, normalised: np.ndarray):
        """(N, F) of frame 0 alone, then of the next `ivector_period` frames, and so on, in batches; zeros
        after the last frame."""
        period, num_frames = self.options.ivector_period, len(plain)
        num_periods = -(-(num_frames - 1) // period) + 1 if num_frames else 0
        for first in range(0, num_periods, _PERIODS_AT_ONCE):
            num = min(_PERIODS_AT_ONCE, num_periods - first)
            begin, end = first * period - period + 1, (first + num - 1) * period + 1
            frames = slice(max(begin, 0), min(end, num_frames))
            posteriors = frame_posteriors(self.ubm, normalised[frames], self.options.posteriors)
            padding = [(frames.start - begin, end - frames.stop), (0, 0)]
            posteriors = np.pad(posteriors, padding).reshape(num, period, -1).transpose(0, 2, 1)
            yield (
                posteriors.sum(2),
                posteriors @ np.pad(plain[frames].astype(np.float64), padding).reshape(num, period, -1),
            )

    def _estimate(self, counts: np.ndarray, linear: np.ndarray, quadratic: np.ndarray) -> np.ndarray:
        return self.extractor.estimate(linear, quadratic, counts, self.options.max_count).astype(np.float32)
