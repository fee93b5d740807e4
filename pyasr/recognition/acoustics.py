"""Scores of frames by the acoustic models that can be packed, of whole utterances and of parts of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from pyasr.base.errors import UserError
from pyasr.decode.ctc_alignment import UnitRuns
from pyasr.decode.ctc_dir import load_network
from pyasr.hmm.model import MODEL, read_model, read_transitions
from pyasr.lang.ctc_graph import BLANK_TID, unit_tid2pdf
from pyasr.lang.lang_dir import LangDir
from pyasr.lang.subwords import UNITS_DIR, read_units
from pyasr.recognition.packed import CTC, GMM, NETWORK


class Gaussians:
    """Scores by GMMs.

    trans, tid2pdf  what transition-ids are
    silence         labels of phones that are no word
    subsampling     frames of which one has scores
    """

    subsampling = 1

    def __init__(self, model: Path, graph: Path):
        self.trans, self.gmm = read_model(model / MODEL)
        self.tid2pdf, self.silence = self.trans.tid2pdf, LangDir(graph).silence_phones

    def scores(self, features: np.ndarray) -> np.ndarray:
        """float32 (T', number of pdfs) of the model's input (T, dim)."""
        return self.gmm.log_likelihoods(features)

    def check_online(self) -> None:
        """Raise UserError where scores of a frame depend on the whole utterance."""

    def online_scores(self) -> Callable[[np.ndarray, bool], np.ndarray]:
        """A function of parts of the input, the last or not, that gives the scores that are known then."""
        return lambda features, last: self.scores(features) if len(features) else np.zeros((0, self.gmm.num_pdfs), np.float32)


class Network:
    """Scores by a network of tied states; attributes as of `Gaussians`."""

    def __init__(self, model: Path, graph: Path):
        from pyasr.nn import acoustic  # torch is loaded only where a network is used

        self.model, self.trans = acoustic.load_scorer(model), read_transitions(model / MODEL)
        self.subsampling, self.tid2pdf, self.silence = self.model.subsampling, self.trans.tid2pdf, LangDir(graph).silence_phones
        _check_outputs(model, self.model.num_pdfs, self.trans.num_pdfs)

    def scores(self, features: np.ndarray) -> np.ndarray:
        """As of `Gaussians`."""
        return self.model.log_likelihoods(features)

    def check_online(self) -> None:
        """As of `Gaussians`."""
        from pyasr.nn.online import check_scores_online

        check_scores_online(self.model)

    def online_scores(self) -> Callable[[np.ndarray, bool], np.ndarray]:
        """As of `Gaussians`."""
        from pyasr.nn.online import OnlineLogPosteriors

        log_posteriors = OnlineLogPosteriors(self.model)
        return lambda features, last: self.model.to_log_likelihoods(log_posteriors(features, last))


class Ctc(Network):
    """Scores by a CTC network."""

    def __init__(self, model: Path, graph: Path):
        self.model, num_units = load_network(model, in_graph=True), len(read_units(model / UNITS_DIR))
        self.trans, self.tid2pdf, self.silence = UnitRuns.of(num_units), unit_tid2pdf(num_units), [BLANK_TID]
        self.subsampling = self.model.subsampling
        _check_outputs(model, self.model.num_pdfs, num_units)


ACOUSTICS = {GMM: Gaussians, NETWORK: Network, CTC: Ctc}


def _check_outputs(model: Path, found: int, needed: int) -> None:
    if found != needed:
        raise UserError(f"{model}: its network has {found} outputs, its graph needs {needed}; pack a model and a graph that go together")
