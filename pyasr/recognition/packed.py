"""A model in one directory, ready to be used and shipped; `pyasr.recognition.packing` makes it.

MODEL/model.json     what it is, scales and beams, size and SHA-256 of every other file
MODEL/features.json  options of the features
MODEL/global_cmvn    of a model whose features are normalised by speaker or utterance: statistics of the decoded set, for streams
MODEL/{final.nnet,final.mdl,final.mat,input.json}  the acoustic model, and how features become its input; of a network, final.mdl holds the
                     transition model alone, and of a CTC network units/units.txt stands in its place
MODEL/graph/         HCLG.fst or TLG.fst, words.txt, phones.txt, phones/{align_lexicon,silence}.int
MODEL/first/         of a system on fMLLR features: the GMM system that estimates them, with a graph of its own where it has another; then
                     global_cmvn is here
MODEL/streams/N/     of a system on features of several kinds side by side, the N-th of them: features.json and first/ as above, input.json;
                     then features.json and first/ are not above
MODEL/vectors/       of i-vectors beside them: features.json and first/ as above, and the extractor: final.ie, final.dubm, final.mat,
                     input.json
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from pyasr.base.errors import UserError
from pyasr.base.fingerprint import counts
from pyasr.base.foreign_json import read_object
from pyasr.base.options import load, save
from pyasr.decode.determinize import DeterminizeOptions
from pyasr.decode.search import DecodeOptions
from pyasr.lang.ctc_graph import GRAPH as TLG
from pyasr.recognition.adaptation import FIRST_DIR, FirstPasses
from pyasr.recognition.pasting import Pasting

INFO, GRAPH_DIR = "model.json", "graph"
GMM, NETWORK, CTC = KINDS = ("gmm", "network", "ctc")
HCLG = "HCLG.fst"
_FORMAT, _READ_FORMATS = 2, (1, 2)  # the second one brought streams
_MOST_INFO_BYTES = 1 << 20
_BESIDE = (".", "README", "LICENSE")  # begins of names of files that are no part of a model


@dataclass(frozen=True)
class PackedFile:
    """A file of a packed model: its name in the directory, its length in bytes and its SHA-256."""

    name: str
    size: int
    sha256: str

    @classmethod
    def of(cls, model: Path, name: str) -> PackedFile:
        path = model / name
        return cls(name, path.stat().st_size, _sha256(path))

    def check(self, model: Path) -> None:
        """Raise UserError unless the file is there and as it was."""
        parts = PurePosixPath(self.name).parts
        if not parts or parts[0] == "/" or ".." in parts:
            raise UserError(f"{model}/{INFO}: '{self.name}' lies outside the directory of the model; take a model that was packed by us")
        path = model / self.name
        if not path.is_file():
            raise UserError(f"{path}: no such file, but {INFO} names it; copy the whole directory of the model again")
        if path.stat().st_size != self.size or _sha256(path) != self.sha256:
            raise UserError(f"{path}: not the file that was packed (its checksum is another); copy the directory of the model again")


@dataclass(frozen=True)
class ModelInfo:
    """What model.json says.

    kind                    of KINDS
    lmwt, word_ins_penalty  the scales at which words are read from lattices, chosen where the system was scored
    decode, lattices        beams and scales of the search, and what becomes of its lattices
    first                   how fMLLR transforms are estimated; None: features are used as they are
    source                  the decode directory that the model was packed from, for its user to know
    files                   all others of the directory
    pasting                 of features side by side, what they are; None: they are of one kind
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
        """Whether this can be the description of a model."""
        pasting = self.pasting
        if self.kind not in KINDS or self.lmwt < 1 or pasting and (self.first or not pasting.streams):
            return False
        firsts = {"": self.first} | (pasting.firsts() if pasting else {})
        return all(first is None or first.graph in (GRAPH_DIR, own_graph(folder)) for folder, first in firsts.items())


def own_graph(folder: str) -> str:
    """The graph that the GMM system in `folder`, that of a stream or of the model (""), has for itself; from the model's directory."""
    return str(PurePosixPath(folder, FIRST_DIR, GRAPH_DIR))


def graph_file(kind: str) -> str:
    """The file of the graph for a kind of model."""
    return TLG if kind == CTC else HCLG


def write_info(model: Path, info: ModelInfo) -> None:
    """Write MODEL/model.json; `read_info` reads it."""
    save(model / INFO, info)


def read_info(model: Path) -> ModelInfo:
    """What a packed model is, after a look at all of its files. Raises UserError where one is missing, has changed, or was not packed."""
    model = Path(model)
    path = model / INFO
    if not path.is_file():
        raise UserError(f"{path}: no such file; give a directory that utils/pack_model.py has made")
    if path.stat().st_size > _MOST_INFO_BYTES:
        raise UserError(f"{path}: {path.stat().st_size} bytes are too many for a description; pack the model again")
    _check_format(path)
    info = load(path, (ModelInfo,))
    if not info.is_possible():
        raise UserError(f"{path}: not the description of a model; pack the model again with utils/pack_model.py")
    for file in info.files:
        file.check(model)
    if others := sorted({*files_of(model)} - {INFO, *(file.name for file in info.files)}):
        found = f"{model / others[0]}: not one of the files that were packed, as one is that another model has left"
        raise UserError(f"{found}; move it elsewhere, or copy the model into an empty directory")
    return info


def files_of(model: Path) -> list[str]:
    """Names of the files in the directory of a model that may be read as parts of it, sorted."""
    names = (str(path.relative_to(model)) for path in model.rglob("*") if path.is_file() and not path.name.startswith(_BESIDE))
    return sorted(filter(counts, names))


def _check_format(path: Path) -> None:
    try:
        version = read_object(path)["format"]
    except (ValueError, KeyError):
        raise UserError(f"{path}: damaged; copy the directory of the model again") from None
    if version not in _READ_FORMATS:
        raise UserError(f"{path}: a model of format {version}, this pyasr reads up to {_FORMAT}; use the pyasr that packed it")


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as f:
        while block := f.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
