"""Transcribe recordings with a packed model.

from pyasr import Recognizer

recognizer = Recognizer("model")
print(recognizer.transcribe("a.wav").text)
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from pyasr.base.errors import UserError
from pyasr.base.memory_errors import enough_for
from pyasr.decode.lattices.mbr import MbrOptions
from pyasr.decode.search.endpoint import EndpointOptions
from pyasr.feats.compute.resample import Resampler
from pyasr.recognition.audio.pauses import CutOptions, cut_at_pauses
from pyasr.recognition.audio.recording_input import Recording, at_int16_scale, read_recordings, within_memory
from pyasr.recognition.stream import Stream
from pyasr.recognition.system import System
from pyasr.recognition.transcript import DecodedSegment, Transcript


class Recognizer:
    """A packed model, loaded once, for any number of recordings. Not for use by several threads at once: it
    starts its own.

    num_threads  number of segments of a recording that are decoded in parallel
    cut          options for cutting long recordings
    mbr          options for choosing words in the lattices of the search
    beam         beam of the search instead of the model's: a smaller beam is faster, a larger one more
                 accurate

    Raises UserError if the directory is not a packed model, or is damaged.
    """

    def __init__(
        self,
        model_dir: str | Path,
        *,
        num_threads: int = 1,
        cut: CutOptions = CutOptions(),
        mbr: MbrOptions = MbrOptions(),
        beam: float | None = None,
    ):
        cut.check()
        self.system, self.num_threads, self.cut = System(Path(model_dir), mbr), num_threads, cut
        if beam is not None:
            self.system.set_beam(beam)

    @property
    def rate(self) -> int:
        """Samples per second that the model was trained on; audio of any other rate is converted."""
        return round(self.system.features.rate_hz)

    def transcribe(self, audio: str | Path | np.ndarray | bytes, rate: float | None = None) -> Transcript:
        """The transcript of a file, whose channels are averaged, or of samples of `rate` Hz (default: the
        model's rate).

        Samples are int16 (or their bytes), or floats between -1 and 1. Raises UserError for input that is not
        audio, and for a rate that is not a whole number.
        """
        if isinstance(audio, (str, Path)):
            (recording,) = read_recordings(Path(audio))
        else:
            recording = Recording("samples", "1", at_int16_scale(audio), self.rate if rate is None else rate)
        return self.transcribe_recording(recording)

    def transcribe_recording(self, recording: Recording) -> Transcript:
        """The transcript of one channel."""
        return self.transcribe_speaker([recording])[0]

    def transcribe_speaker(self, recordings: list[Recording]) -> list[Transcript]:
        """The transcripts of recordings of the same speaker: normalisation and fMLLR use all of them.

        Raises UserError if memory is not sufficient.
        """
        all_of_them = enough_for(
            f"{len(recordings)} recordings of one speaker", "all of them", "give fewer, or omit --one-speaker"
        )
        with within_memory(recordings[0].file) if len(recordings) == 1 else all_of_them:
            return self._transcribed(recordings)

    def _transcribed(self, recordings: list[Recording]) -> list[Transcript]:
        waves = [self._at_own_rate(recording) for recording in recordings]
        spans = [cut_at_pauses(wave, self.rate, self.cut) for wave in waves]
        segments = [wave[begin:end] for wave, parts in zip(waves, spans) for begin, end in parts]
        names = [self._name(recording, span) for recording, parts in zip(recordings, spans) for span in parts]
        words = iter(self.system.decode(segments, names, self.num_threads))
        return [
            Transcript(
                recording.file, recording.channel, tuple(self.segment(*span, next(words)) for span in parts)
            )
            for recording, parts in zip(recordings, spans)
        ]

    def _name(self, recording: Recording, span: tuple[int, int]) -> str:
        begin_s, end_s = (sample / self.rate for sample in span)
        return f"{recording.file} from {begin_s:.2f} to {end_s:.2f} s"

    def _at_own_rate(self, recording: Recording) -> np.ndarray:
        try:
            return Resampler(recording.rate, self.rate)(recording.samples, last=True)
        except UserError as error:
            raise UserError(f"{recording.file}: {error}") from None

    def stream(
        self, rate: float | None = None, endpoint: EndpointOptions | None = EndpointOptions()
    ) -> Stream:
        """A stream of audio of `rate` Hz (default: the model's). `endpoint`: rules for the end of utterances;
        None: the end of the stream.

        Raises UserError for a model that needs whole recordings, and for a rate that is not a whole number.
        """
        return Stream(self.system, self.rate if rate is None else rate, endpoint)

    def segment(self, begin: int, end: int, words: Iterable) -> DecodedSegment:
        """The segment from sample `begin` to `end`, with words whose times are relative to its begin."""
        begin_s, end_s = begin / self.rate, end / self.rate
        return DecodedSegment(begin_s, end_s, tuple(word.later(begin_s) for word in words))
