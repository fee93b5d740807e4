"""The speaker of a stream, for a system on fMLLR features: each utterance is decoded together with the
earlier ones."""

from __future__ import annotations

import numpy as np

from pyasr.hmm.align.pdf_posteriors import PdfPosteriors
from pyasr.recognition.features.adaptation import AdaptedFeatures
from pyasr.recognition.system import System
from pyasr.recognition.transcript import Word

_REMEMBERED_S = 60.0
_NAMES = ["the stream"]  # name of the utterance, for messages


class AdaptedSpeaker:
    """A speaker whose utterances arrive one after the other; the last minute of them is used for adaptation.

    transform  transform of the features estimated so far, float32 (D, D + 1); None before the first utterance
    """

    def __init__(self, system: System):
        made = system.features
        assert isinstance(made, AdaptedFeatures)
        self._system, self._made = system, made
        self.transform: np.ndarray | None = None
        # of the utterances in use
        self._features: list[np.ndarray] = []
        self._posteriors: list[tuple[PdfPosteriors, PdfPosteriors]] = []

    def words(self, wave: np.ndarray) -> list[Word]:
        """The words of the next utterance, in seconds from its begin; empty if too short for a frame."""
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
        """Drop utterances that are more than a minute old."""
        shift_s = self._made.frame_shift_s
        while len(self._features) > 1 and shift_s * sum(map(len, self._features[1:])) > _REMEMBERED_S:
            del self._features[0], self._posteriors[0]
