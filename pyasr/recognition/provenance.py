"""What done-files tell of how something was made, back to all that a packed model needs.

That of a decode directory names graph, model, data directory and beams; that of the data directory tells how its features were made: of
features side by side, from which data directories and which i-vectors, and that of i-vectors names the extractor and the data directory
that they were found on. What has changed since then is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pyasr.base.errors import UserError
from pyasr.base.fingerprint import DONE, fingerprint, read_done
from pyasr.base.options import from_json
from pyasr.data.datadir import DataDir
from pyasr.decode.ctc_dir import WFST
from pyasr.decode.decode_dir import NETWORK as NETWORK_FILE
from pyasr.decode.determinize import DeterminizeOptions
from pyasr.decode.search import DecodeOptions
from pyasr.feats.inputs import InputOptions
from pyasr.feats.options import OPTIONS_FILE
from pyasr.feats.origin import check_origin, same_features
from pyasr.feats.pasted import PasteOptions, StreamOptions
from pyasr.feats.vtln import SPEAKER_WARPS, UTTERANCE_WARPS
from pyasr.io.ark import archive_of, read_scp
from pyasr.ivector.extract import KINDS, ExtractDirOptions
from pyasr.ivector.online import ExtractOptions
from pyasr.recognition.front_end import load_features
from pyasr.recognition.packed import CTC, GMM, NETWORK

_WHOLE, _ONLINE = (f"{kind}.scp" for kind in KINDS)


@dataclass(frozen=True)
class DecodedSystem:
    """What a decode directory was made with, as its done-file says.

    options  of the step that made it
    graph    directory of the graph; `model` of the acoustic model; `data` that was decoded
    inputs   fingerprints of the files that it read
    """

    path: Path
    options: dict
    graph: Path
    model: Path
    data: Path
    inputs: dict[str, str]

    @classmethod
    def read(cls, path: Path) -> DecodedSystem:
        """Raises UserError where the directory does not tell, and where graph, model or features have changed since."""
        done = read_done(path)
        if done is None or not {"data", "decode"} <= done["options"].keys():
            raise UserError(f"{path}/{DONE}: does not tell what was decoded; give a directory made by steps/decode.py, decode_fmllr.py or "
                            "decode_ctc.py")
        options = done["options"]
        if options.get("graph_dir") is None or options.get("posteriors") is not None:
            raise UserError(f"{path}: not decoded by a network and a graph, which is what can be packed; decode with --search {WFST} and "
                            "without --posteriors")
        if options.get("transform_dir") is not None:
            raise UserError(f"{path}: decoded with given transforms, which of a new recording nobody has; pack a decoding by "
                            "steps/decode_fmllr.py")
        graph = Path(options["graph_dir"])
        model = Path(options.get("ctc_dir") or options.get("model_dir") or graph.parent)
        _check_unchanged(path, done["inputs"], "decode again, score, and pack that")
        return cls(path, options, graph, model, Path(options["data"]), done["inputs"])

    def files(self) -> list[Path]:
        """Those of graph and model that were read."""
        return [Path(name) for name in self.inputs if Path(name).parent in (self.graph, self.model)]

    @property
    def kind(self) -> str:
        """Which kind of model."""
        if "ctc_dir" in self.options:
            return CTC
        return NETWORK if (self.model / NETWORK_FILE).exists() else GMM

    @property
    def adapts(self) -> bool:
        """Whether it was made by steps/decode_fmllr.py."""
        return "fmllr" in self.options

    @property
    def search(self) -> dict:
        """Beams and scales, and what becomes of lattices."""
        return {"decode": DecodeOptions(**self.options["decode"]), "lattices": DeterminizeOptions(**self.options["lattices"])}


def _check_unchanged(path: Path, inputs: dict[str, str], advice: str) -> None:
    """Raise UserError unless the files that `path` was made from have still these fingerprints."""
    for name, value in inputs.items():
        if not Path(name).exists():
            raise UserError(f"{name}: no such file, but {path} was made with it; run this where the recipe runs")
        if fingerprint(Path(name)) != value:
            raise UserError(f"{name}: has changed since {path} was made with it; {advice}")


def _options_of(directory: Path) -> dict:
    """Those of the step that made a directory; none where that is not told."""
    return (read_done(directory) or {"options": {}})["options"]


def trained_on(model: Path) -> Path | None:
    """The data directory that a model was trained on, where that is told."""
    data = _options_of(model).get("data")
    return None if data is None else Path(data)


@dataclass(frozen=True)
class FeatureSource:
    """How the features of a data directory were made: by `options`, and where `first` is a system, adapted by its fMLLR."""

    options: object
    first: DecodedSystem | None

    @classmethod
    def of(cls, data: Path, model: Path, trained: Path | None) -> FeatureSource:
        """Of the features of `data` that `model` sees, which was trained on those of `trained`, where that is told.

        Raises UserError where they cannot be made of audio alone, or were trained on others.
        """
        first = _system_of_features(data)
        return cls(_options_as_trained(data, model, trained), None) if first is None else cls.adapted_by(first)

    @classmethod
    def adapted_by(cls, first: DecodedSystem) -> FeatureSource:
        """Of features after the fMLLR of a system that was decoded by steps/decode_fmllr.py."""
        return cls(_options_as_trained(first.data, first.model, trained_on(first.model)), first)


def _system_of_features(data: Path) -> DecodedSystem | None:
    """The GMM system whose fMLLR features a data directory has; None where features are not transformed."""
    options = _options_of(data)
    if "transform_dir" not in options:
        return None
    _check_unchanged(data, read_done(data)["inputs"], "make these features again, decode, score, and pack that")
    first = DecodedSystem.read(Path(options["transform_dir"] or options["model_dir"]))
    if not first.adapts:
        found = "its transforms do not come from steps/decode_fmllr.py"
        raise UserError(f"{data}: {found}; pack the decoding of a set whose do, such as dev")
    return first


def feature_options(data: Path):
    """How the features of a data directory were made. Raises UserError where that is not told, or speakers' frequencies are warped."""
    if "streams" in _options_of(data):
        raise UserError(f"{data}: features side by side, which a packed model neither pastes with others nor adapts; use those that it was "
                        "pasted from")
    warps = [name for name in (SPEAKER_WARPS, UTTERANCE_WARPS) if DataDir(data).has(name)]
    if warps:
        raise UserError(f"{data}/{warps[0]}: frequencies of its speakers are warped, which of a new recording nobody knows; train without "
                        "VTLN, or on fMLLR features")
    if file := _options_file(data):
        return load_features(file)
    raise UserError(f"{data}: does not tell how its features were made; make them with steps/make_mfcc.py or another of make_*.py")


def _options_file(data: Path) -> Path | None:
    """What tells how the features of a data directory were made, if there is such a file."""
    files = [folder / OPTIONS_FILE for folder in (data / "feats", *_archive_folders(data))]
    return next((file for file in files if file.exists()), None)


def _options_as_trained(data: Path, model: Path, trained: Path | None):
    """How the features of `data` were made. Raises UserError where those of `trained`, on which `model` was trained, are others."""
    found = feature_options(data)
    check_origin(data, model)
    if trained is not None and _options_file(trained) and not same_features(feature_options(trained), found):
        raise UserError(f"{data}: its features have other options than those of {trained}, on which {model} was trained; make them with "
                        "the same configuration file")
    return found


def _archive_folders(data: Path) -> list[Path]:
    """Of the first utterance's features, which a copied or chosen part of a data directory has elsewhere."""
    table = read_scp(data / "feats.scp") if (data / "feats.scp").exists() else {}
    return [Path(archive_of(rx)).parent for rx in [*table.values()][:1]]


@dataclass(frozen=True)
class PastedData:
    """A data directory of features side by side, as the done-file of steps/paste_feats.py says.

    streams  the data directories; `inputs` how each is normalised and extended
    paste    what is beside them, and how
    """

    path: Path
    streams: tuple[Path, ...]
    inputs: tuple[InputOptions, ...]
    paste: PasteOptions

    @classmethod
    def of(cls, data: Path) -> PastedData | None:
        """None where features are not side by side."""
        options = _options_of(data)
        if "streams" not in options:
            return None
        streams = tuple(Path(stream) for stream in options["streams"])
        return cls(data, streams, from_json(StreamOptions, options["each"]).inputs(len(streams)), from_json(PasteOptions, options["paste"]))

    def sources(self, model: Path) -> list[FeatureSource]:
        """Of each stream; `model` is what sees them. Raises UserError as `FeatureSource.of`, and where one has changed since."""
        _check_unchanged(self.path, read_done(self.path)["inputs"], "paste again, decode, score, and pack that")
        data = trained_on(model)
        found = data and PastedData.of(data)
        trained = found.streams if found and len(found.streams) == len(self.streams) else [None] * len(self.streams)
        return [FeatureSource.of(stream, model, other) for stream, other in zip(self.streams, trained)]

    def vectors(self) -> ExtractedVectors | None:
        """What is beside the streams. Raises UserError for vectors that a new recording has not."""
        return self.paste.vectors and ExtractedVectors.read(self.paste.vectors)


@dataclass(frozen=True)
class ExtractedVectors:
    """I-vectors of a data directory, as the done-file of steps/extract_ivectors.py says.

    online             whether they are those that are known in the course of utterances
    extractor          the directory; `source` tells the features that it sees
    extract, directory  as of the step
    """

    online: bool
    extractor: Path
    source: FeatureSource
    extract: ExtractOptions
    directory: ExtractDirOptions

    @classmethod
    def read(cls, table: Path) -> ExtractedVectors:
        """Of a table of vectors. Raises UserError where another program made it, and where what it was made from has changed since."""
        done = read_done(table.parent)
        if done is None or "extractor_dir" not in done["options"] or table.name not in (_WHOLE, _ONLINE):
            raise UserError(f"{table}: vectors that steps/extract_ivectors.py has not made, which of a new recording nobody has; train "
                            "with its i-vectors, or without vectors")
        options = done["options"]
        extractor = Path(options["extractor_dir"])
        _check_unchanged(table.parent, done["inputs"], "extract again, paste, decode, score, and pack that")
        source = FeatureSource.of(Path(options["data"]), extractor, trained_on(extractor))
        return cls(table.name == _ONLINE, extractor, source,
                   from_json(ExtractOptions, options["extract"]), from_json(ExtractDirOptions, options["directory"]))
