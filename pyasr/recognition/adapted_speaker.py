"""The speaker of a stream to a system on fMLLR features: every utterance is decoded with what was said before."""

from __future__ import annotations

import numpy as np

from pyasr.recognition.system import System
from pyasr.recognition.transcript import Word

_REMEMBERED_S = 60.0
_NAMES = ["the stream"]  # of the utterance that is decoded, for messages


class AdaptedSpeaker:
    """One whose utterances come one after the other; the last minute of them counts.

    transform  of the features, float32 (D, D + 1), as the utterances so far have it; None before the first
    """

    def __init__(self, system: System):
        self._system, self._made, self.transform = system, system.features, None
        self._features, self._posteriors = [], []  # of the utterances that count

    def words(self, wave: np.ndarray) -> list[Word]:
        """Of the next utterance, seconds from its begin; of what is too short for a frame, none."""
        features = self._made.plain.extract(wave)
        if not len(features):
            return []
        all_features = [*self._features, features]
        adapted = self._made.adaptation(self._made.inputs(all_features), _NAMES, known=self._posteriors)
        words = self._system.words_of_adapted(adapted, _NAMES)[0]
        self.transform, self._features, self._posteriors = adapted.transform, all_features, adapted.posteriors
        self._forget()
        return words

    def _forget(self) -> None:
        """Drop utterances that lie a minute back."""
        shift_s = self._made.frame_shift_s
        while len(self._features) > 1 and shift_s * sum(map(len, self._features[1:])) > _REMEMBERED_S:
            del self._features[0], self._posteriors[0]
