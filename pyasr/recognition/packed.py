"""A packed model: one directory that can be used and shipped, written by `pyasr.recognition.packing`.

MODEL/model.json     kind of model, scales and beams, size and SHA-256 of every other file
MODEL/features.json  options of the features
MODEL/global_cmvn    if features are normalised by speaker or utterance: statistics of the decoded set, for
                     streams
MODEL/{final.nnet,final.mdl,final.mat,input.json}  the acoustic model and the conversion of features to its
                     input; for a network, final.mdl contains only the transition model; a CTC network has
                     units/units.txt instead
MODEL/graph/         HCLG.fst or TLG.fst, words.txt, phones.txt, phones/{align_lexicon,silence}.int
MODEL/first/         for a system on fMLLR features: the GMM system that estimates the transforms, with its
                     own graph if it differs; global_cmvn is then here
MODEL/streams/N/     for a system on pasted features of several kinds, the N-th kind: features.json and
                     first/ as above, input.json; MODEL/features.json and MODEL/first/ then do not exist
MODEL/vectors/       for i-vectors next to these features: features.json and first/ as above, and the
                     extractor: final.ie, final.dubm, final.mat, input.json
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from pyasr.base.cli.options import load, save
from pyasr.base.errors import UserError
from pyasr.base.files.foreign_json import read_object
from pyasr.base.outputs.fingerprint import counts
from pyasr.decode.lattices.determinize import DeterminizeOptions
from pyasr.decode.search.decode_options import DecodeOptions
from pyasr.lang.grammars.ctc_graph import GRAPH as TLG
from pyasr.recognition.features.adaptation import FIRST_DIR, FirstPasses
from pyasr.recognition.features.pasting import Pasting

INFO, GRAPH_DIR = "model.json", "graph"
GMM, NETWORK, CTC = KINDS = ("gmm", "network", "ctc")
HCLG = "HCLG.fst"
_FORMAT, _READ_FORMATS = 2, (1, 2)  # format 2 added streams
_MAX_INFO_BYTES = 1 << 20
_OTHER_FILES = (".", "README", "LICENSE")  # prefixes of names of files that are not part of a model


@dataclass(frozen=True)
class PackedFile:
    """A file of a packed model: its name in the directory, its size in bytes and its SHA-256."""

    name: str
    size: int
    sha256: str

    @classmethod
    def of(cls, model: Path, name: str) -> PackedFile:
        path = model / name
        return cls(name, path.stat().st_size, _sha256(path))

    def check(self, model: Path) -> None:
        """Raise UserError unless the file exists and is unchanged."""
        parts = PurePosixPath(self.name).parts
        if not parts or parts[0] == "/" or ".." in parts:
            raise UserError(
                f"{model}/{INFO}: '{self.name}' is outside the directory of the model; use a model that was "
                "packed by pyasr"
            )
        path = model / self.name
        if not path.is_file():
            raise UserError(
                f"{path}: no such file, but {INFO} names it; copy the whole directory of the model again"
            )
        if path.stat().st_size != self.size or _sha256(path) != self.sha256:
            raise UserError(
                f"{path}: not the packed file (its checksum differs); copy the directory of the model again"
            )


@dataclass(frozen=True)
class ModelInfo:
    """The content of model.json.

    kind                    one of KINDS
    lmwt, word_ins_penalty  LM weight and word insertion penalty for the words of lattices, chosen on the
                            scored set
    decode, lattices        beams and scales of the search, and options for its lattices
    first                   options for estimating fMLLR transforms; None: no fMLLR
    source                  the decode directory from which the model was packed, for information
    files                   all other files of the directory
    pasting                 description of pasted features; None: features of one kind
    """

    kind: str
    lmwt: int
    word_ins_penalty: float
    decode: DecodeOptions
    lattices: DeterminizeOptions
    first: FirstPasses | None
    source: str
    files: tuple[PackedFile, ...] = ()
    format: int = _FORMAT
    pasting: Pasting | None = None

    def is_possible(self) -> bool:
        """Whether this is a valid description of a model."""
        pasting = self.pasting
        if self.kind not in KINDS or self.lmwt < 1 or pasting and (self.first or not pasting.streams):
            return False
        firsts = {"": self.first} | (pasting.firsts() if pasting else {})
        return all(
            first is None or first.graph in (GRAPH_DIR, own_graph(folder)) for folder, first in firsts.items()
        )


def own_graph(folder: str) -> str:
    """The own graph of the GMM system in `folder`, the folder of a stream or of the model (""), relative to
    the model's directory."""
    return str(PurePosixPath(folder, FIRST_DIR, GRAPH_DIR))


def graph_file(kind: str) -> str:
    """The name of the graph file for a kind of model."""
    return TLG if kind == CTC else HCLG


def write_info(model: Path, info: ModelInfo) -> None:
    """Write MODEL/model.json; `read_info` reads it."""
    save(model / INFO, info)


def read_info(model: Path) -> ModelInfo:
    """The description of a packed model, after a check of all its files. Raises UserError if one is missing,
    changed, or was not packed."""
    model = Path(model)
    path = model / INFO
    if not path.is_file():
        raise UserError(f"{path}: no such file; give a directory written by utils/pack_model.py")
    if path.stat().st_size > _MAX_INFO_BYTES:
        raise UserError(
            f"{path}: {path.stat().st_size} bytes are too large for a description of a model; pack the "
            "model again"
        )
    _check_format(path)
    info = load(path, (ModelInfo,))
    if not info.is_possible():
        raise UserError(
            f"{path}: not the description of a model; pack the model again with utils/pack_model.py"
        )
    for file in info.files:
        file.check(model)
    if others := sorted({*files_of(model)} - {INFO, *(file.name for file in info.files)}):
        found = f"{model / others[0]}: not one of the packed files, perhaps left over from another model"
        raise UserError(f"{found}; move it elsewhere, or copy the model into an empty directory")
    return info


def files_of(model: Path) -> list[str]:
    """Names of the files in the directory of a model that count as parts of it, sorted."""
    names = (
        str(path.relative_to(model))
        for path in model.rglob("*")
        if path.is_file() and not path.name.startswith(_OTHER_FILES)
    )
    return sorted(filter(counts, names))


def _check_format(path: Path) -> None:
    try:
        version = read_object(path)["format"]
    except (ValueError, KeyError):
        raise UserError(f"{path}: damaged; copy the directory of the model again") from None
    if version not in _READ_FORMATS:
        raise UserError(
            f"{path}: a model of format {version}, but this pyasr reads formats up to {_FORMAT}; use the "
            "pyasr that packed it"
        )


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as f:
        while block := f.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
