"""Accuracy of a hypothesis in each frame: its state or phone compared with that of the reference."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pyasr.hmm.model.transitions import TransitionModel


@dataclass(frozen=True)
class TidClasses:
    """Properties of transition-ids; arrays over transition-ids, index 0 unused.

    pdfs, phones  int32 (num_tids + 1)
    is_silence    bool (num_tids + 1)
    """

    pdfs: np.ndarray
    phones: np.ndarray
    is_silence: np.ndarray

    @staticmethod
    def of(trans: TransitionModel, silence_phones: list[int]) -> TidClasses:
        """The classes of a model; `silence_phones` are all phones that are not speech, such as noise and
        laughter."""
        return TidClasses(trans.tid2pdf, trans.tid2phone, np.isin(trans.tid2phone, silence_phones))

    def correct(
        self, tids: np.ndarray, reference: np.ndarray, by_phone: bool, one_silence_class: bool
    ) -> np.ndarray:
        """Whether transition-ids are correct given those of the reference, bool: the same pdf, or phone if
        `by_phone`.

        one_silence_class  True: any silence is correct if the reference has any silence; False: silence is
                           never correct. As in Kaldi's LatticeForwardBackwardMpeVariants.
        """
        classes = self.phones if by_phone else self.pdfs
        same, silent = classes[tids] == classes[reference], self.is_silence[tids]
        return same | (silent & self.is_silence[reference]) if one_silence_class else same & ~silent

    def phone_errors(self, tids: np.ndarray, reference: np.ndarray) -> np.ndarray:
        """Whether transition-ids have a wrong phone, bool; silence is never wrong, as in Kaldi's
        lattice-boost-ali."""
        return (self.phones[tids] != self.phones[reference]) & ~self.is_silence[tids]
