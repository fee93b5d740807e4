"""Transcribe audio as it arrives.

    stream = Recognizer("model").stream()
    for block in microphone:
        for segment in stream.accept(block):
            print(segment.text)                # final segments
        print(stream.partial, end="\\r")        # preliminary words
    print(stream.finish().text)

Features, network and search continue from block to block, with the same results as for a whole utterance.
`pyasr.decode.search.endpoint` decides when an utterance ends. The next utterance begins within the silence
after its last word, and processes the audio after that point again. Audio is processed in steps of 0.1 s of
an utterance, so that the result does not depend on the division into blocks.

At the end of an utterance, a system on fMLLR features decodes it again, adapted to it and to the speaker's
earlier utterances. Until then, its features are transformed with the transform of the earlier utterances.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from pyasr.base.errors import UserError
from pyasr.decode.search.endpoint import EndpointOptions, trailing_silence
from pyasr.feats.compute.resample import Resampler
from pyasr.feats.extraction.streamed_features import (
    KnownBefore,
    OnlineExtractor,
    OnlineInput,
    check_extracts_online,
)
from pyasr.feats.inputs import InputOptions
from pyasr.feats.transforms import apply_transform
from pyasr.recognition.adapted_speaker import AdaptedSpeaker
from pyasr.recognition.audio.recording_input import at_int16_scale
from pyasr.recognition.features.adaptation import AdaptedFeatures
from pyasr.recognition.features.front_end import DITHER_KEY, ModelInputs, PlainFeatures
from pyasr.recognition.features.pasting import PastedFeatures
from pyasr.recognition.system import System
from pyasr.recognition.transcript import DecodedSegment, Transcript, Word

_UNNORMALISED = ModelInputs(InputOptions(cmvn="none"))
_STEP_S, _SILENCE_KEPT_S = 0.1, 0.3


@dataclass(frozen=True)
class _Chain:
    """The processing of audio.

    plain           the features
    inputs          conversion to the input of the model, or of the GMM system that estimates the fMLLR
                    transforms
    adapted_inputs  conversion of features with a speaker's transform to the input of the model
    """

    plain: PlainFeatures
    inputs: ModelInputs
    adapted_inputs: ModelInputs

    @classmethod
    def of(cls, system: System) -> _Chain:
        """The chain of a system. Raises UserError if a feature frame depends on the whole recording."""
        made = system.features
        if isinstance(made, AdaptedFeatures):
            return cls(made.plain, made.inputs, system.inputs or _UNNORMALISED)
        if isinstance(made, PastedFeatures):
            raise UserError(
                "the model uses pasted features of several kinds, which need whole recordings; train on one "
                "kind"
            )
        assert system.inputs is not None
        return cls(made, system.inputs, _UNNORMALISED)


def check_streams(system: System) -> None:
    """Raise UserError for a model that needs whole recordings."""
    try:
        chain = _Chain.of(system)
        check_extracts_online(chain.plain.extractor.options)
        OnlineInput(chain.inputs.options, chain.inputs.before())
        OnlineInput(chain.adapted_inputs.options)
        system.acoustics.check_online()
    except UserError as error:
        raise UserError(f"{system.path}: cannot be used on audio as it arrives: {error}") from None


class Stream:
    """A stream of audio of one channel, created by `Recognizer.stream`. Not for use by several threads at
    once.

    After an error or an interruption within `accept` or `finish`, both raise UserError; `segments` and `text`
    keep the earlier results.

    rate      sampling rate of the accepted samples, in Hz
    endpoint  rules for the end of utterances; None: the end of the stream
    segments  completed segments
    """

    def __init__(self, system: System, rate: float, endpoint: EndpointOptions | None, file: str = "stream"):
        check_streams(system)
        self._system, self._chain, self._endpoint, self._file = system, _Chain.of(system), endpoint, file
        self._rate = round(system.features.rate_hz)
        self._resampler = Resampler(rate, self._rate)
        self._step, self._begin = round(_STEP_S * self._rate), 0
        self._speaker = AdaptedSpeaker(system) if system.features.adaptations else None
        self._utterance = self._begin_utterance(self._chain.inputs.before())
        self._waiting = np.zeros(0, np.float32)
        self.segments: list[DecodedSegment] = []
        self._found: Transcript | None = None
        self._is_broken = False

    def _begin_utterance(self, before: KnownBefore | None) -> _Utterance:
        return _Utterance(self._system, self._chain, before, self._speaker)

    def accept(self, samples: np.ndarray | bytes) -> list[DecodedSegment]:
        """Process any number of samples: int16 (or their bytes), or floats between -1 and 1. Returns the
        segments completed by them."""
        if self._found:
            raise UserError("the stream has ended; start another one")
        samples = at_int16_scale(samples)
        with self._aborting_on_error():
            return self._take(self._resampler(samples))

    @contextmanager
    def _aborting_on_error(self) -> Iterator[None]:
        """Context for changes of the stream's state: after an error or interruption within it, the stream
        accepts no more audio."""
        if self._is_broken:
            raise UserError("the stream was aborted by an error or an interruption; start another one")
        self._is_broken = True
        yield
        self._is_broken = False

    def _take(self, samples: np.ndarray) -> list[DecodedSegment]:
        """Process samples in steps, because all waiting samples are copied at the end of an utterance."""
        num_before = len(self.segments)
        for begin in range(0, len(samples), self._step):
            self._take_step(samples[begin : begin + self._step])
        return self.segments[num_before:]

    def _take_step(self, samples: np.ndarray) -> None:
        self._waiting = np.concatenate([self._waiting, samples])
        while len(self._waiting) >= self._step:
            self._utterance.accept(self._waiting[: self._step])
            self._waiting = self._waiting[self._step :]
            if self._endpoint and self._utterance.has_ended(self._endpoint):
                self._next()

    @property
    def partial(self) -> str:
        """The words so far of the current utterance; they may change."""
        return self._utterance.partial

    @property
    def text(self) -> str:
        """All words so far."""
        return " ".join(filter(None, [*(segment.text for segment in self.segments), self.partial]))

    def finish(self) -> Transcript:
        """The transcript after the last sample. Ends the stream."""
        if self._found:
            return self._found
        with self._aborting_on_error():
            self._take(self._resampler(np.zeros(0, np.float32), last=True))
            self._utterance.accept(self._waiting, last=True)
            self._add(self._utterance.num_samples, self._utterance.words(self._utterance.num_samples))
            self._utterance = self._begin_utterance(self._chain.inputs.before())
            self._waiting = self._waiting[:0]
            self._found = Transcript(self._file, "1", tuple(self.segments))
        return self._found

    def _next(self) -> None:
        """End the utterance in the silence after its words, and start another with the audio after it."""
        ended, length = self._utterance, self._utterance.end()
        self._waiting = np.concatenate([ended.samples()[length:], self._waiting])
        self._add(length, ended.words(length))
        self._utterance = self._begin_utterance(ended.known_after())

    def _add(self, num_samples: int, words: list[Word]) -> None:
        if not num_samples and self.segments:
            return
        begin_s, end_s = self._begin / self._rate, (self._begin + num_samples) / self._rate
        self.segments.append(DecodedSegment(begin_s, end_s, tuple(word.later(begin_s) for word in words)))
        self._begin += num_samples


class _Utterance:
    """Features, scores and search of the current utterance."""

    def __init__(
        self, system: System, chain: _Chain, before: KnownBefore | None, speaker: AdaptedSpeaker | None
    ):
        self._system, self._chain, self._speaker = system, chain, speaker
        self._parts: list[np.ndarray] = []
        self.num_samples = 0
        self._before, self._input = before, OnlineInput(chain.inputs.options, before)
        self._transform = None if speaker is None else speaker.transform
        self._adapted_input = OnlineInput(chain.adapted_inputs.options)
        self._extract = OnlineExtractor(chain.plain.extractor.options, DITHER_KEY)
        self._scores, self._search = system.acoustics.online_scores(), system.decoder.start()

    def accept(self, samples: np.ndarray, last: bool = False) -> None:
        self._parts.append(samples)
        self.num_samples += len(samples)
        rows = self._input(self._extract(samples, last), last)
        rows = self._adapted_input(self._adapted(rows), last)
        scores = self._scores(self._chain.adapted_inputs.transformed(rows) if len(rows) else rows, last)
        if len(scores):
            self._search.advance(scores, "the stream")

    def _adapted(self, rows: np.ndarray) -> np.ndarray:
        """Apply the system's matrix and the speaker's transform, if any."""
        if not len(rows):
            return rows
        rows = self._chain.inputs.transformed(rows)
        return rows if self._transform is None else apply_transform(rows, self._transform)

    def known_after(self) -> KnownBefore | None:
        """The statistics with which the normalisation of the next utterance begins."""
        before, running = self._before, self._input.running
        return None if before is None or running is None else before.after(running.stats)

    def samples(self) -> np.ndarray:
        return np.concatenate(self._parts)

    @property
    def partial(self) -> str:
        words = self._system.words.symbols
        return " ".join(words.symbol(word) for word in self._search.best_path().words)

    def _trailing_silence(self) -> tuple[int, bool]:
        """(number of silence frames at the end of the best path, whether it contains anything else)."""
        acoustics, path = self._system.acoustics, self._search.best_path()
        frames = trailing_silence(acoustics.trans.tid2phone[path.tids], acoustics.silence)
        return frames, frames < len(path.tids)

    def has_ended(self, endpoint: EndpointOptions) -> bool:
        """Whether the utterance has ended; always true if no path of the search has survived."""
        if not self._search.num_frames:
            return False
        (silence, has_words), frame_s = self._trailing_silence(), self._system.frame_s
        return self._search.is_dead or endpoint.ends(
            frame_s * silence, frame_s * self._search.num_frames, has_words, self._search.final_gap()
        )

    def end(self) -> int:
        """The number of samples of the ended utterance, without a part of the silence before the last scored
        frame."""
        kept_s = min(self._system.frame_s * self._trailing_silence()[0] / 2, _SILENCE_KEPT_S)
        until_s = self._system.frame_s * self._search.num_frames - kept_s
        return min(round(until_s * self._system.features.rate_hz), self.num_samples)

    def words(self, num_samples: int) -> list[Word]:
        """The words of the ended utterance of `num_samples` samples; empty if nothing was scored."""
        if not self._search.num_frames:
            return []
        return (
            self._speaker.words(self.samples()[:num_samples])
            if self._speaker
            else self._system.words(self._search.finish())
        )
