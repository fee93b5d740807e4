"""Pack the model with which a decode directory was made. Its parts are known to fit together, because they
were decoded and scored."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np

from pyasr.base.cli.options import save
from pyasr.base.errors import UserError
from pyasr.base.outputs.fingerprint import fingerprint
from pyasr.decode.decoding.decode_dir import NETWORK as NETWORK_FILE
from pyasr.decode.decoding.decode_fmllr import AdaptOptions
from pyasr.feats.cmvn import cmvn_stats
from pyasr.feats.inputs import InputOptions
from pyasr.feats.transforms import MATRIX_FILE, write_matrix
from pyasr.hmm.model.model_file import ALIGNMENT_MODEL, MODEL, first_pass_model, read_transitions
from pyasr.hmm.transforms.fmllr import FmllrOptions
from pyasr.io.ark import iterate
from pyasr.io.kaldi_objects import KaldiWriter
from pyasr.ivector.ivector_extractor import EXTRACTOR_FILE
from pyasr.ivector.ubm import UBM_FILE
from pyasr.lang.lang_dirs.subwords import UNITS, UNITS_DIR
from pyasr.recognition.features.adaptation import FIRST_DIR, FirstPasses
from pyasr.recognition.features.front_end import EVERYONE, FEATURES
from pyasr.recognition.features.pasting import VECTORS_DIR, PastedStream, PastedVectors, Pasting, stream_dir
from pyasr.recognition.packed import (
    GMM,
    GRAPH_DIR,
    HCLG,
    NETWORK,
    ModelInfo,
    PackedFile,
    files_of,
    graph_file,
    own_graph,
    write_info,
)
from pyasr.recognition.packed_inputs import (
    DecodedSystem,
    ExtractedVectors,
    FeatureSource,
    PastedData,
    trained_on,
)

_GRAPH_FILES = ("words.txt", "phones.txt", "phones/align_lexicon.int")
_SILENCE = "phones/silence.int"


def pack(system: DecodedSystem, point: tuple[int, float], out: Path) -> None:
    """Fill the directory `out` with the files of `system`, for decoding at `point` (LM weight, word insertion
    penalty)."""
    _copy_graph(system.graph, out / GRAPH_DIR, graph_file(system.kind))
    pasted = None if system.adapts else PastedData.of(system.data)
    first = None if pasted else _pack_one_kind(system, out)
    pasting = _pack_pasted(pasted, system, out) if pasted else None
    write_info(
        out,
        ModelInfo(
            system.kind,
            *point,
            **system.search,
            first=first,
            source=str(system.path),
            files=tuple(PackedFile.of(out, name) for name in files_of(out)),
            pasting=pasting,
        ),
    )


def _pack_one_kind(system: DecodedSystem, out: Path) -> FirstPasses | None:
    """Pack a model on features of one kind; returns the options of its fMLLR, if any."""
    if system.adapts:
        return _pack_source(FeatureSource.adapted_by(system), "", system, out)
    source = FeatureSource.of(system.data, system.model, trained_on(system.model))
    _copy_model(system, out, of_features=source.first is None)
    return _pack_source(source, "", system, out)


def _pack_pasted(pasted: PastedData, system: DecodedSystem, out: Path) -> Pasting:
    """Pack a model on pasted features; returns their description."""
    _copy_model(system, out, of_features=False)
    streams = []
    for number, (source, inputs) in enumerate(zip(pasted.sources(system.model), pasted.inputs), 1):
        streams.append(PastedStream(_pack_source(source, stream_dir(number), system, out)))
        inputs.save(out / stream_dir(number))
    found = pasted.vectors()
    vectors = None if found is None else _pack_vectors(found, system, out)
    return Pasting(replace(pasted.paste, vectors=None), tuple(streams), vectors)


def _pack_vectors(vectors: ExtractedVectors, system: DecodedSystem, out: Path) -> PastedVectors:
    """Fill vectors/ with the extractor and the options of its input."""
    first = _pack_source(vectors.source, VECTORS_DIR, system, out)
    InputOptions.load(vectors.extractor).save(out / VECTORS_DIR)
    for name in (EXTRACTOR_FILE, UBM_FILE, MATRIX_FILE):
        if (vectors.extractor / name).exists():
            shutil.copyfile(vectors.extractor / name, out / VECTORS_DIR / name)
    return PastedVectors(vectors.online, vectors.extract, vectors.directory, first)


def _pack_source(source: FeatureSource, folder: str, system: DecodedSystem, out: Path) -> FirstPasses | None:
    """Fill a folder of `out` with the options of features and, if they are adapted, with first/, the
    GMM system that estimates the transforms."""
    (out / folder).mkdir(parents=True, exist_ok=True)
    save(out / folder / FEATURES, source.options)
    return None if source.first is None else _pack_first(source.first, folder, system, out)


def _pack_first(first: DecodedSystem, parent: str, system: DecodedSystem, out: Path) -> FirstPasses:
    """Fill first/ in a folder of `out` with the GMM system that estimates the transforms; its graph is
    included only if it differs from the model's."""
    folder = out / parent / FIRST_DIR
    shared = fingerprint(first.graph / HCLG) == fingerprint(system.graph / HCLG)
    folder.mkdir()
    for name in (MODEL, ALIGNMENT_MODEL, MATRIX_FILE):
        if (first.model / name).exists():
            shutil.copyfile(first.model / name, folder / name)
    _save_inputs(first, folder, of_features=not parent)
    graph = GRAPH_DIR if shared else own_graph(parent)
    if not shared:
        _copy_graph(first.graph, out / graph, HCLG)
    adapt, fmllr = AdaptOptions(**first.options["adapt"]), FmllrOptions(**first.options["fmllr"])
    return FirstPasses(graph, **first.search, adapt=adapt, fmllr=fmllr)


def _copy_graph(graph: Path, out: Path, fst: str) -> None:
    (out / "phones").mkdir(parents=True)
    for name in (fst, *_GRAPH_FILES, *([_SILENCE] if fst == HCLG else [])):
        if not (graph / name).exists():
            raise UserError(
                f"{graph / name}: no such file; build the graph again with utils/make_graph.py or "
                "make_ctc_graph.py"
            )
        shutil.copyfile(graph / name, out / name)


def _save_inputs(system: DecodedSystem, out: Path, of_features: bool) -> None:
    """Save the conversion of features to the input of a model. If they are normalised by speaker or
    utterance, also save the statistics of all speakers, with which a stream begins.

    of_features  whether its input is the model's features themselves, neither transformed by another
                 system nor pasted
    """
    inputs = InputOptions.load(system.model)
    inputs.save(out)
    if of_features and inputs.cmvn in ("speaker", "utterance"):
        all_stats = (cmvn_stats(matrix) for _, matrix in iterate(system.data / "feats.scp"))
        write_matrix(out / EVERYONE, sum(all_stats, np.zeros(())))


def _copy_model(system: DecodedSystem, out: Path, of_features: bool) -> None:
    """Copy the acoustic model and the conversion of features to its input; `of_features` as in
    `_save_inputs`."""
    _save_inputs(system, out, of_features)
    if (system.model / MATRIX_FILE).exists():
        shutil.copyfile(system.model / MATRIX_FILE, out / MATRIX_FILE)
    if system.kind == GMM:
        shutil.copyfile(first_pass_model(system.model), out / MODEL)
        return
    shutil.copyfile(system.model / NETWORK_FILE, out / NETWORK_FILE)
    if system.kind == NETWORK:
        with KaldiWriter(out / MODEL, binary=True) as writer:
            read_transitions(system.model / MODEL).write(writer)
        return
    (out / UNITS_DIR).mkdir()
    shutil.copyfile(
        Path(system.options.get("units_dir") or system.model / UNITS_DIR) / UNITS, out / UNITS_DIR / UNITS
    )
