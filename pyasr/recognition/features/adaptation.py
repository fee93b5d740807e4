"""fMLLR adaptation to a speaker's utterances in memory, like `pyasr.decode.decoding.decode_fmllr` for a
speaker of a data directory.

    1. decode without a transform, with the alignment model; estimate a first transform from the posteriors
    2. decode with the first transform; estimate a second transform, on top of the first, from the new
       lattices

Utterances may arrive one after the other: those already decoded contribute their earlier posteriors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pyasr.base.memory_errors import computed
from pyasr.decode.decoding.decode_dir import read_decoder
from pyasr.decode.decoding.decode_fmllr import AdaptOptions, LatticePosteriors, with_acoustics
from pyasr.decode.lattices.compact_lattice import to_lattice
from pyasr.decode.lattices.determinize import DeterminizeOptions, Determinizer
from pyasr.decode.lattices.lattice import Lattice, prune
from pyasr.decode.search.beam_search import Decoder
from pyasr.decode.search.decode_options import DecodeOptions
from pyasr.feats.transforms import apply_transform, compose
from pyasr.hmm.align.pdf_posteriors import PdfPosteriors
from pyasr.hmm.model.gmm import AmDiagGmm
from pyasr.hmm.model.model_file import MODEL, first_pass_model, read_model
from pyasr.hmm.shards.speaker_transforms import estimate_each, speaker_stats
from pyasr.hmm.transforms.fmllr import FmllrOptions, identity
from pyasr.lang.lang_dirs.lang_dir import LangDir
from pyasr.recognition.features.front_end import (
    FEATURES,
    ModelInputs,
    PlainFeatures,
    load_features,
    with_frames,
)

FIRST_DIR = "first"
_SPEAKER = "speaker"


@dataclass(frozen=True)
class FirstPasses:
    """Options for estimating transforms: the graph (a directory within the packed model), scales, beams and
    statistics."""

    graph: str
    decode: DecodeOptions
    lattices: DeterminizeOptions
    adapt: AdaptOptions
    fmllr: FmllrOptions


@dataclass(frozen=True)
class Adapted:
    """Results of the passes.

    features    features of the decoded utterances after the second transform
    lattices    function that returns their lattices: those of the first transform, with the acoustic costs of
                the second
    transform   both transforms combined, float32 (D, D + 1)
    posteriors  of all utterances, from the first and the second pass
    """

    features: list[np.ndarray]
    lattices: Callable[[], list[Lattice]]
    transform: np.ndarray
    posteriors: list[tuple[PdfPosteriors, PdfPosteriors]]


def scores_of_segments(
    names: list[str], features: list[np.ndarray], scores: Callable[[np.ndarray], np.ndarray]
) -> Iterator[tuple]:
    """(name, function that computes the scores) of each segment; the function raises UserError with the name
    if memory runs out."""
    for name, matrix in zip(names, features):
        yield (
            name,
            lambda name=name, matrix=matrix: computed(
                name, scores, matrix, "cut it into shorter segments (--max-segment-s)"
            ),
        )


class Adaptation:
    """A GMM system that estimates the transform of a speaker's features."""

    def __init__(self, gmm_dir: Path, graph: Path, options: FirstPasses):
        self.options = options
        trans, self.aligner = read_model(first_pass_model(gmm_dir))
        self.trans, self.gmm = read_model(gmm_dir / MODEL)
        self.decoder = read_decoder(graph, trans.tid2pdf, options.decode)
        self._determinizer = Determinizer(
            options.lattices, options.decode.lattice_beam, options.decode.acoustic_scale
        )
        silence = LangDir(graph).silence_phones, options.adapt.silence_weight, options.decode.acoustic_scale
        self._before = LatticePosteriors(trans, *silence)
        self._after = LatticePosteriors(self.trans, *silence)

    def __call__(
        self,
        features: list[np.ndarray],
        names: list[str],
        num_threads: int = 1,
        known: Sequence[tuple[PdfPosteriors, PdfPosteriors]] = (),
    ) -> Adapted:
        """Decode the utterances of a speaker and adapt to all of them. The first ones, whose posteriors are
        `known`, are not decoded; `names`: the names of the others, for messages."""
        decoder = self.decoder.with_options(self.options.adapt.first(self.options.decode))
        num_known = len(known)
        lattices = self._decode(
            decoder, self.aligner, features[num_known:], names, num_threads, self._compact
        )
        firsts = [*(posteriors for posteriors, _ in known), *map(self._before, lattices)]
        first = self._estimate(features, firsts, self.aligner)
        once = [apply_transform(matrix, first) for matrix in features]
        lattices = self._decode(self.decoder, self.gmm, once[num_known:], names, num_threads)
        seconds = [*(posteriors for _, posteriors in known), *map(self._after, lattices)]
        second = compose(self._estimate(once, seconds), first, first.shape[1] - 1).astype(np.float32)
        twice = [apply_transform(matrix, second) for matrix in features[num_known:]]
        return Adapted(
            twice, lambda: list(map(self._rescored, lattices, twice)), second, list(zip(firsts, seconds))
        )

    def _decode(
        self,
        decoder: Decoder,
        gmm: AmDiagGmm,
        features: list[np.ndarray],
        names: list[str],
        num_threads: int,
        finish: Callable = lambda lattice: lattice,
    ) -> list[Lattice]:
        scored = scores_of_segments(names, features, gmm.log_likelihoods)
        return [lattice for _, lattice in decoder.decode_many(scored, num_threads, finish)]

    def _compact(self, lattice: Lattice) -> Lattice:
        """The lattice as read back from the archive of a decode directory after determinisation."""
        found = self._determinizer(lattice)
        return found if isinstance(found, Lattice) else to_lattice(found)

    def _estimate(
        self, features: list[np.ndarray], posteriors: list[PdfPosteriors], aligner: AmDiagGmm | None = None
    ) -> np.ndarray:
        """The transform to apply after those already applied to `features`; the identity if there is too
        little data."""
        utterances = ((_SPEAKER, matrix, pdfs) for matrix, pdfs in zip(features, posteriors))
        transforms, _ = estimate_each(speaker_stats(utterances, self.gmm, aligner), self.options.fmllr)
        return transforms.get(_SPEAKER, identity(self.gmm.dim))

    def _rescored(self, lattice: Lattice, features: np.ndarray) -> Lattice:
        rescored = with_acoustics(lattice, self.gmm, features, self.trans.tid2pdf)
        return prune(rescored, self.options.decode.lattice_beam, self.options.decode.acoustic_scale)


class AdaptedFeatures:
    """Features of one kind as input of a GMM system, with the speaker's fMLLR transform; a `SpeakerFeatures`.

    plain       the features of the segments
    inputs      conversion to the GMM system's input
    adaptation  estimator of the transform
    """

    def __init__(self, plain: PlainFeatures, inputs: ModelInputs, adaptation: Adaptation):
        self.plain, self.inputs, self.adaptation, self.adaptations = plain, inputs, adaptation, [adaptation]
        self.rate_hz, self.frame_shift_s = plain.rate_hz, plain.frame_shift_s

    def __call__(self, waves: list[np.ndarray], names: list[str], num_threads: int = 1) -> list[np.ndarray]:
        spoken, adapted = self.adapted(waves, names, num_threads)
        found = [np.zeros((0, self.adaptation.gmm.dim), np.float32)] * len(waves)
        for i, matrix in zip(spoken, adapted.features):
            found[i] = matrix
        return found

    def adapted(
        self, waves: list[np.ndarray], names: list[str], num_threads: int = 1
    ) -> tuple[list[int], Adapted]:
        """(indices of the segments with at least one frame, results of the passes for these)."""
        features = self.inputs(self.plain(waves, names))
        spoken = with_frames(features)
        return spoken, self.adaptation([features[i] for i in spoken], [names[i] for i in spoken], num_threads)


def read_features(folder: Path, model: Path, first: FirstPasses | None) -> PlainFeatures | AdaptedFeatures:
    """The feature extraction in a folder of the packed model `model`: features.json and, if `first` is given,
    the adaptation in first/."""
    plain = PlainFeatures(load_features(folder / FEATURES))
    if first is None:
        return plain
    return AdaptedFeatures(
        plain,
        ModelInputs.read(folder / FIRST_DIR),
        Adaptation(folder / FIRST_DIR, model / first.graph, first),
    )
