"""Compute features of audio as it arrives: the same frames as for the whole audio, each as soon as its input
is complete.

extractor, inputs = OnlineExtractor(MfccOptions(), "utt1"), OnlineInput(InputOptions(cmvn="none", deltas=2))
x = inputs(extractor(samples))                     # as often as there are samples
x = inputs(extractor(samples, last=True), last=True)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from pyasr.base.cli.seeds import generator
from pyasr.base.errors import UserError
from pyasr.feats.cmvn import SlidingOptions, apply_cmvn, normaliser, sliding_cmvn
from pyasr.feats.compute.feature_extractor import Extractor
from pyasr.feats.compute.spectrum import reflected
from pyasr.feats.deltas import DELTA_WINDOW, add_deltas, splice
from pyasr.feats.inputs import InputOptions

_RUNNING_FRAMES, _EVERYONE_FRAMES = 600, 200


def check_extracts_online(options) -> None:
    """Raise UserError for features whose frames depend on the whole utterance."""
    if options.pitch.add_pitch:
        raise UserError(
            "its features include pitch, which needs the whole utterance; train on features without "
            "--add-pitch"
        )
    if options.utterance.subtract_mean:
        raise UserError(
            "the mean of the whole utterance is subtracted from its features; train on features without "
            "--subtract-mean"
        )


class OnlineExtractor:
    """`Extractor` for an utterance that arrives in parts, float32 at int16 scale; also dither is the same as
    for the whole utterance.

    key, seed  as in `Extractor`

    Raises UserError as `check_extracts_online`.
    """

    def __init__(self, options, key: str, seed: int = 0):
        check_extracts_online(options)
        self._frame = options.frame
        self._extractor = Extractor(
            replace(options, frame=replace(options.frame, snip_edges=True, dither=0.0))
        )
        self._random = generator(seed, "dither", key)
        # buffered samples, and the index of the first of them
        self._kept, self._first = np.zeros(0, np.float32), 0
        self._num_done = 0

    def __call__(self, samples: np.ndarray, last: bool = False) -> np.ndarray:
        """Frames (num, dim) that are now complete; with the `last` samples, all remaining frames."""
        self._kept = np.concatenate([self._kept, self._dithered(samples)])
        num_samples = self._first + len(self._kept)
        end = max(
            self._frame.num_frames(num_samples) if last else self._num_whole(num_samples), self._num_done
        )
        if end == self._num_done:
            return np.zeros((0, self._extractor.dim), np.float32)
        places = np.arange(self._begin(self._num_done), self._begin(end - 1) + self._frame.window_size)
        features = self._extractor([self._kept[reflected(places, num_samples) - self._first]])[0]
        self._num_done = end
        self._forget(self._begin(end) - self._frame.window_size)
        return features

    def _dithered(self, samples: np.ndarray) -> np.ndarray:
        if self._frame.dither == 0:
            return samples
        return samples + self._frame.dither * self._random.standard_normal(len(samples), dtype=np.float32)

    def _begin(self, frame: int) -> int:
        """The index of a frame's first sample, which may be before the utterance."""
        return frame * self._frame.window_shift + self._frame.first_sample

    def _num_whole(self, num_samples: int) -> int:
        """Frames that end within these samples."""
        return max(
            0, 1 + (num_samples - self._begin(0) - self._frame.window_size) // self._frame.window_shift
        )

    def _forget(self, before: int) -> None:
        """Drop samples that no later frame needs, directly or reflected at the end; more may follow."""
        before = min(before, self._first + len(self._kept))
        if before > self._first:
            self._kept, self._first = self._kept[before - self._first :], before


class WithContext:
    """Applies a function of frames (T, D) with a context of `left` and `right` frames to frames that arrive
    in parts.

    least  number of frames that must be available before the first result
    """

    def __init__(self, function: Callable[[np.ndarray], np.ndarray], left: int, right: int, least: int = 0):
        self._function, self._left, self._right, self._least = function, left, right, least
        self._kept: np.ndarray | None = None
        self._num_done = 0  # of the buffered frames

    def __call__(self, frames: np.ndarray, last: bool = False) -> np.ndarray:
        """The results known now, in order; after the `last` frames, all remaining ones. There may be none."""
        if len(frames):
            self._kept = frames if self._kept is None else np.concatenate([self._kept, frames])
        kept = self._kept
        num = 0 if kept is None else len(kept)
        end = num if last else num - self._right if num >= self._least else 0
        if kept is None or end <= self._num_done:
            return np.zeros((0, 0), np.float32)
        found = self._function(kept)[self._num_done : end]
        drop = max(end - self._left, 0)
        if drop:
            self._least = 0
        self._kept, self._num_done = kept[drop:], end - drop
        return found


@dataclass(frozen=True)
class KnownBefore:
    """CMVN statistics (2, D + 1), as in `pyasr.feats.cmvn`, from before an utterance: of its speaker, and of
    all speakers."""

    speaker: np.ndarray
    everyone: np.ndarray

    @classmethod
    def of_everyone(cls, stats: np.ndarray) -> KnownBefore:
        """Statistics for a new speaker."""
        return cls(np.zeros_like(stats, np.float64), stats.astype(np.float64))

    def after(self, stats: np.ndarray) -> KnownBefore:
        """The statistics after an utterance of the speaker."""
        return replace(self, speaker=self.speaker + stats)


class RunningCmvn:
    r"""Normalisation by speaker or utterance with only the frames up to the current one, as in Kaldi's
    OnlineCmvn.

    The statistics cover the last 600 frames. While there are fewer, those of the speaker's earlier utterances
    are added, scaled to the number of missing frames. If these do not suffice, those of all speakers are
    added for up to 200 frames.

    stats  statistics of the frames so far
    """

    def __init__(self, before: KnownBefore, norm_vars: bool):
        self._before, self._norm_vars = before, norm_vars
        self.stats = np.zeros_like(before.everyone)
        # cumulative sums: before each of the last frames, and after all
        self._sums = np.zeros((1, *self.stats.shape))

    def __call__(self, features: np.ndarray, last: bool = False) -> np.ndarray:
        """Normalised frames, float32, one per given frame."""
        if not len(features):
            return features
        frames = np.zeros((len(features), *self.stats.shape))
        frames[:, 0, :-1] = features
        frames[:, 1, :-1] = np.square(features, dtype=np.float64)
        frames[:, 0, -1] = 1.0
        num_before = len(self._sums)
        self._sums = np.concatenate([self._sums, self._sums[-1] + np.cumsum(frames, axis=0)])
        ends = np.arange(num_before, len(self._sums))
        stats = self._with_prior(self._sums[ends] - self._sums[np.maximum(ends - _RUNNING_FRAMES, 0)])
        self.stats = self._sums[-1].copy()
        self._sums = self._sums[-_RUNNING_FRAMES - 1 :]
        return apply_cmvn(features, *normaliser(stats, self._norm_vars))

    def _with_prior(self, stats: np.ndarray) -> np.ndarray:
        """Statistics of each frame's window (T, 2, D + 1), completed by earlier ones."""
        for known, most in (
            (self._before.speaker, _RUNNING_FRAMES),
            (self._before.everyone, _EVERYONE_FRAMES),
        ):
            count = known[0, -1]
            added = np.minimum(_RUNNING_FRAMES - stats[:, 0, -1], min(most, count))
            stats = stats + (added / max(count, 1.0))[:, None, None] * known
        return stats


class OnlineInput:
    """Applies `InputOptions` to the features of an utterance that arrive in parts.

    before   initial statistics for normalisation by speaker or utterance
    running  this normalisation, if any

    Raises UserError if `before` is needed but missing.
    """

    def __init__(self, options: InputOptions, before: KnownBefore | None = None):
        self.running: RunningCmvn | None = None
        if options.cmvn in ("speaker", "utterance"):
            if before is None:
                found = f"its features are normalised over the whole {options.cmvn}"
                raise UserError(f"{found}; train with --cmvn sliding or --cmvn none")
            self.running = RunningCmvn(before, options.norm_vars)
        self._stages: list[Callable[[np.ndarray, bool], np.ndarray]] = [self.running] if self.running else []
        if options.cmvn == "sliding":
            self._stages.append(_sliding(options.sliding, options.norm_vars))
        if options.deltas:
            reach = DELTA_WINDOW * options.deltas
            self._stages.append(WithContext(lambda x: add_deltas(x, options.deltas), reach, reach))
        if options.splice_left or options.splice_right:
            left, right = options.splice_left, options.splice_right
            self._stages.append(WithContext(lambda x: splice(x, left, right), left, right))

    def __call__(self, features: np.ndarray, last: bool = False) -> np.ndarray:
        """Input rows that are known now; possibly none, then without columns."""
        for stage in self._stages:
            features = stage(features, last)
        return features


def _sliding(options: SlidingOptions, norm_vars: bool) -> WithContext:
    right = options.cmn_window - options.cmn_window // 2 - 1 if options.center else 0
    least = options.cmn_window if options.center else options.min_cmn_window
    left = max(options.cmn_window, options.min_cmn_window) + 1
    return WithContext(lambda x: sliding_cmvn(x, options, norm_vars), left, right, least)
