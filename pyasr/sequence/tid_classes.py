"""How right a hypothesis is at each frame: its state or phone against that of the reference alignment."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pyasr.hmm.transitions import TransitionModel


@dataclass(frozen=True)
class TidClasses:
    """What transition-ids stand for; arrays over transition-ids, index 0 unused.

    pdfs, phones  int32 (num_tids + 1)
    is_silence    bool (num_tids + 1)
    """

    pdfs: np.ndarray
    phones: np.ndarray
    is_silence: np.ndarray

    @staticmethod
    def of(trans: TransitionModel, silence_phones: list[int]) -> TidClasses:
        """Those of a model; `silence_phones` are all that are no speech, such as noise and laughter."""
        return TidClasses(trans.tid2pdf, trans.tid2phone, np.isin(trans.tid2phone, silence_phones))

    def correct(self, tids: np.ndarray, reference: np.ndarray, by_phone: bool, one_silence_class: bool) -> np.ndarray:
        """Whether transition-ids are right where the reference has others, bool: the same pdf, or phone if `by_phone`.

        one_silence_class  True: any silence is right where the reference has any silence; False: no silence is ever right. As
                           Kaldi's LatticeForwardBackwardMpeVariants.
        """
        classes = self.phones if by_phone else self.pdfs
        same, silent = classes[tids] == classes[reference], self.is_silence[tids]
        return same | (silent & self.is_silence[reference]) if one_silence_class else same & ~silent

    def phone_errors(self, tids: np.ndarray, reference: np.ndarray) -> np.ndarray:
        """Whether transition-ids are of a wrong phone, bool; silence never is, as in Kaldi's lattice-boost-ali."""
        return (self.phones[tids] != self.phones[reference]) & ~self.is_silence[tids]
