"""A loaded packed model: features, scores, search, and words with times from lattices."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from pyasr.base.errors import UserError
from pyasr.decode.align.align_lexicon import align_lexicon
from pyasr.decode.align.align_words import align_words
from pyasr.decode.ctc.ctc_alignment import with_blanks
from pyasr.decode.decoding.decode_dir import read_decoder
from pyasr.decode.lattices.compact_lattice import CompactLattice, to_compact
from pyasr.decode.lattices.determinize import Determinizer
from pyasr.decode.lattices.lattice import Lattice, prune
from pyasr.decode.lattices.mbr import MbrOptions, mbr_decode
from pyasr.decode.lattices.word_graph import WordGraph
from pyasr.decode.search.beam_search import Decoder
from pyasr.lang.grammars.ctc_graph import BLANK_TID
from pyasr.lang.lang_dirs.lang_dir import LangDir
from pyasr.recognition.acoustics import ACOUSTICS, Acoustics
from pyasr.recognition.features.adaptation import (
    FIRST_DIR,
    Adapted,
    AdaptedFeatures,
    read_features,
    scores_of_segments,
)
from pyasr.recognition.features.front_end import ModelInputs, with_frames
from pyasr.recognition.features.pasting import PastedFeatures
from pyasr.recognition.packed import CTC, GMM, GRAPH_DIR, ModelInfo, graph_file, read_info
from pyasr.recognition.transcript import Word

_MIN_BEAM = 0.1  # minimum beam of lattices that are aligned with words


class System:
    """A loaded packed model. Raises UserError if a file is missing, has changed, or does not fit the others.

    features  computes the features of a speaker's segments
    inputs    conversion to the input of the acoustic model; None if the acoustic model is the GMM system
              that estimates the fMLLR transforms
    """

    def __init__(self, model: Path, mbr: MbrOptions = MbrOptions()):
        model = Path(model)
        self.path, self.info, self.mbr = model, read_info(model), mbr
        graph = model / GRAPH_DIR
        pasting = self.info.pasting
        self.features = (
            PastedFeatures(model, pasting) if pasting else read_features(model, model, self.info.first)
        )
        adapts_itself = self.info.first is not None and self.info.kind == GMM
        self.inputs = None if adapts_itself else ModelInputs.read(model)
        self.acoustics = ACOUSTICS[self.info.kind](model / FIRST_DIR if adapts_itself else model, graph)
        self.decoder = self._read_decoder(graph)
        self.frame_s = self.features.frame_shift_s * self.acoustics.subsampling
        self.words = _WordFinder(self.info, graph, self.acoustics, mbr, self.frame_s)

    def _read_decoder(self, graph: Path) -> Decoder:
        shared = [
            adaptation for adaptation in self.features.adaptations if adaptation.options.graph == GRAPH_DIR
        ]
        if shared and self.info.kind != CTC:
            return shared[0].decoder.with_options(self.info.decode)
        return read_decoder(graph, self.acoustics.tid2pdf, self.info.decode, graph_file(self.info.kind))

    def set_beam(self, beam: float) -> None:
        """Set the beam of the search, except for the first pass of fMLLR."""
        self.decoder = self.decoder.with_options(replace(self.decoder.options, beam=beam))
        for adaptation in self.features.adaptations:
            adaptation.decoder = adaptation.decoder.with_options(
                replace(adaptation.decoder.options, beam=beam)
            )

    def decode(self, waves: list[np.ndarray], names: list[str], num_threads: int = 1) -> list[list[Word]]:
        """The words of each segment of a recording, in seconds from the segment's begin; none for a segment
        too short for a frame.

        Raises UserError with the segment's name, from `names`, if memory is not sufficient for its scores, or
        they are not usable.
        """
        found: list[list[Word]] = [[] for _ in waves]
        for i, words in zip(*self._decode(waves, names, num_threads)):
            found[i] = words
        return found

    def _decode(
        self, waves: list[np.ndarray], names: list[str], num_threads: int
    ) -> tuple[list[int], list[list[Word]]]:
        """(indices of the segments with at least one frame, their words)."""
        if self.inputs is None:
            made = self.features
            assert isinstance(made, AdaptedFeatures)
            spoken, adapted = made.adapted(waves, names, num_threads)
            return spoken, self.words_of_adapted(adapted, names)
        features = self.inputs.normalised(self.features(waves, names, num_threads))
        spoken = with_frames(features)
        normalised, spoken_names = [features[i] for i in spoken], [names[i] for i in spoken]
        return spoken, self._search(self.inputs, normalised, spoken_names, num_threads)

    def words_of_adapted(self, adapted: Adapted, names: list[str]) -> list[list[Word]]:
        """The words of utterances after adaptation."""
        if self.inputs is None:
            return [self.words(lattice) for lattice in adapted.lattices()]
        return self._search(self.inputs, self.inputs.normalised(adapted.features), names, num_threads=1)

    def _search(
        self, inputs: ModelInputs, normalised: list[np.ndarray], names: list[str], num_threads: int
    ) -> list[list[Word]]:
        """The words of segments. Computes the input of each when it is searched, to save memory for a long
        recording."""
        scored = scores_of_segments(
            names, normalised, lambda matrix: self.acoustics.scores(inputs.finished(matrix))
        )
        return [words for _, words in self.decoder.decode_many(scored, num_threads, self.words)]


class _WordFinder:
    """Function from a lattice of the search to words with times and confidences; thread-safe."""

    def __init__(self, info: ModelInfo, graph: Path, acoustics: Acoustics, mbr: MbrOptions, frame_s: float):
        lang = LangDir(graph)
        self.info = info
        self.mbr = mbr
        self.frame_s = frame_s
        self.trans = acoustics.trans
        self.symbols = lang.words
        lexicon = align_lexicon(lang.align_lexicon)
        self.lexicon = with_blanks(lexicon, BLANK_TID) if info.kind == CTC else lexicon
        self._determinizer = Determinizer(info.lattices, info.decode.lattice_beam, info.decode.acoustic_scale)

    def __call__(self, lattice: Lattice) -> list[Word]:
        found = self._determinizer(lattice)
        compact = to_compact(found) if isinstance(found, Lattice) else found
        if compact.empty:
            return []
        graph = WordGraph.of(self._aligned(compact), 1.0 / self.info.lmwt, self.info.word_ins_penalty)
        best = mbr_decode(graph, decode=self.mbr.decode_mbr, posterior_scale=self.mbr.posterior_scale)
        return [
            Word(self.symbols.symbol(word), self.frame_s * begin, self.frame_s * end, confidence)
            for word, (begin, end), confidence in zip(best.words, best.times, best.confidences)
        ]

    def _aligned(self, compact: CompactLattice) -> CompactLattice:
        """The lattice with words on its arcs, pruned with a smaller beam if not alignable as a whole."""
        beam = self.info.decode.lattice_beam
        while True:
            try:
                return align_words(compact, self.trans, self.lexicon, "the recording")
            except UserError:
                if beam < _MIN_BEAM:
                    raise
                beam /= 4
                compact = prune(compact, beam, 1.0 / self.info.lmwt)
