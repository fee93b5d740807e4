"""Frame scores of the acoustic models that can be packed, for whole utterances and for parts of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import numpy as np

from pyasr.base.errors import UserError
from pyasr.decode.align.align_phones import PhoneModel
from pyasr.decode.ctc.ctc_alignment import UnitRuns
from pyasr.decode.decoding.ctc_dir import load_network
from pyasr.hmm.model.model_file import MODEL, read_model, read_transitions
from pyasr.lang.grammars.ctc_graph import BLANK_TID, unit_tid2pdf
from pyasr.lang.lang_dirs.lang_dir import LangDir
from pyasr.lang.lang_dirs.subwords import UNITS_DIR, read_units
from pyasr.recognition.packed import CTC, GMM, NETWORK


class Acoustics(Protocol):
    """An acoustic model.

    trans, tid2pdf  transition model, and the pdf of each transition-id
    silence         phones that are not part of words
    subsampling     number of input frames per frame of scores
    """

    trans: PhoneModel
    tid2pdf: np.ndarray
    silence: list[int]
    subsampling: int

    def scores(self, features: np.ndarray) -> np.ndarray:
        """Scores, float32 (T', number of pdfs), for the model's input (T, dim)."""

    def check_online(self) -> None:
        """Raise UserError if the scores of a frame depend on the whole utterance."""

    def online_scores(self) -> Callable[[np.ndarray, bool], np.ndarray]:
        """A function of (next part of the input, whether it is the last part). It returns the scores of the
        frames that this part completes, float32 (T', number of pdfs)."""


class Gaussians:
    """Scores of GMMs; an `Acoustics`."""

    subsampling = 1

    def __init__(self, model: Path, graph: Path):
        trans, self.gmm = read_model(model / MODEL)
        self.trans: PhoneModel = trans
        self.tid2pdf, self.silence = trans.tid2pdf, LangDir(graph).silence_phones

    def scores(self, features: np.ndarray) -> np.ndarray:
        """See `Acoustics`."""
        return self.gmm.log_likelihoods(features)

    def check_online(self) -> None:
        """See `Acoustics`; no score depends on the whole utterance."""

    def online_scores(self) -> Callable[[np.ndarray, bool], np.ndarray]:
        """See `Acoustics`."""
        return lambda features, last: (
            self.scores(features) if len(features) else np.zeros((0, self.gmm.num_pdfs), np.float32)
        )


class NetworkScores:
    """Scores of a network of tied states; an `Acoustics`."""

    def __init__(self, model: Path, graph: Path):
        from pyasr.nn.networks import acoustic  # torch is imported only if a network is used

        self.model, trans = acoustic.load_scorer(model), read_transitions(model / MODEL)
        self.trans: PhoneModel = trans
        self.subsampling = self.model.subsampling
        self.tid2pdf = trans.tid2pdf
        self.silence = LangDir(graph).silence_phones
        _check_outputs(model, self.model.num_pdfs, trans.num_pdfs)

    def scores(self, features: np.ndarray) -> np.ndarray:
        """See `Acoustics`."""
        return self.model.log_likelihoods(features)

    def check_online(self) -> None:
        """See `Acoustics`."""
        from pyasr.nn.networks.streaming import check_scores_online

        check_scores_online(self.model)

    def online_scores(self) -> Callable[[np.ndarray, bool], np.ndarray]:
        """See `Acoustics`."""
        from pyasr.nn.networks.streaming import OnlineLogPosteriors

        log_posteriors = OnlineLogPosteriors(self.model)
        return lambda features, last: self.model.to_log_likelihoods(log_posteriors(features, last))


class CtcScores(NetworkScores):
    """Scores of a CTC network."""

    def __init__(self, model: Path, graph: Path):
        self.model, num_units = load_network(model, in_graph=True), len(read_units(model / UNITS_DIR))
        self.trans, self.tid2pdf, self.silence = UnitRuns.of(num_units), unit_tid2pdf(num_units), [BLANK_TID]
        self.subsampling = self.model.subsampling
        _check_outputs(model, self.model.num_pdfs, num_units)


ACOUSTICS: dict[str, Callable[[Path, Path], Acoustics]] = {
    GMM: Gaussians,
    NETWORK: NetworkScores,
    CTC: CtcScores,
}


def _check_outputs(model: Path, found: int, needed: int) -> None:
    if found != needed:
        raise UserError(
            f"{model}: its network has {found} outputs, but its graph needs {needed}; pack a model with its "
            "graph"
        )
