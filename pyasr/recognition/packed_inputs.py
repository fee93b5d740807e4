"""Find all inputs of a packed model by following done-files back from a decode directory.

The done-file of a decode directory names graph, model, data directory and beams. The done-file of the data
directory contains the options of its features; for pasted features, their data directories and
i-vectors. The done-file of i-vectors names the extractor and the data directory from which they were
extracted. Files that have changed since then are refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from pyasr.base.cli.options import from_json
from pyasr.base.errors import UserError
from pyasr.base.outputs.fingerprint import DONE, fingerprint, read_done
from pyasr.data.tables.datadir import DataDir
from pyasr.decode.decoding.ctc_dir import WFST
from pyasr.decode.decoding.decode_dir import NETWORK as NETWORK_FILE
from pyasr.decode.lattices.determinize import DeterminizeOptions
from pyasr.decode.search.decode_options import DecodeOptions
from pyasr.feats.extraction.pasted import PasteOptions, StreamOptions
from pyasr.feats.extraction.vtln import SPEAKER_WARPS, UTTERANCE_WARPS
from pyasr.feats.inputs import InputOptions
from pyasr.feats.options import OPTIONS_FILE
from pyasr.feats.origin import check_origin, same_features
from pyasr.io.ark import archive_of, read_scp
from pyasr.ivector.extract_ivectors import KINDS, ExtractDirOptions
from pyasr.ivector.online_ivectors import ExtractOptions
from pyasr.recognition.features.front_end import load_features
from pyasr.recognition.packed import CTC, GMM, NETWORK

_WHOLE, _ONLINE = (f"{kind}.scp" for kind in KINDS)


class SearchOptions(TypedDict):
    """Beams and scales of a search, and options for its lattices."""

    decode: DecodeOptions
    lattices: DeterminizeOptions


@dataclass(frozen=True)
class DecodedSystem:
    """The inputs of a decode directory, from its done-file.

    options  options of the step that made it
    graph    directory of the graph; `model`: of the acoustic model; `data`: the decoded data directory
    inputs   fingerprints of the files that the step read
    """

    path: Path
    options: dict
    graph: Path
    model: Path
    data: Path
    inputs: dict[str, str]

    @classmethod
    def read(cls, path: Path) -> DecodedSystem:
        """Read a decode directory. Raises UserError if its done-file does not name its inputs, or graph,
        model or features have changed."""
        done = read_done(path)
        if done is None or not {"data", "decode"} <= done["options"].keys():
            raise UserError(
                f"{path}/{DONE} does not name what was decoded; give a directory made by steps/decode.py, "
                "decode_fmllr.py or decode_ctc.py"
            )
        options = done["options"]
        if options.get("graph_dir") is None or options.get("posteriors") is not None:
            raise UserError(
                f"{path}: not decoded with a network and a graph, so it cannot be packed; decode with "
                f"--search {WFST} and without --posteriors"
            )
        if options.get("transform_dir") is not None:
            raise UserError(
                f"{path}: decoded with given transforms, which do not exist for new recordings; pack a "
                "decoding by steps/decode_fmllr.py"
            )
        graph = Path(options["graph_dir"])
        model = Path(options.get("ctc_dir") or options.get("model_dir") or graph.parent)
        _check_unchanged(path, done["inputs"], "decode again, score, and pack the result")
        return cls(path, options, graph, model, Path(options["data"]), done["inputs"])

    def files(self) -> list[Path]:
        """The files of graph and model that were read."""
        return [Path(name) for name in self.inputs if Path(name).parent in (self.graph, self.model)]

    @property
    def kind(self) -> str:
        """The kind of model."""
        if "ctc_dir" in self.options:
            return CTC
        return NETWORK if (self.model / NETWORK_FILE).exists() else GMM

    @property
    def adapts(self) -> bool:
        """Whether it was made by steps/decode_fmllr.py."""
        return "fmllr" in self.options

    @property
    def search(self) -> SearchOptions:
        """Beams, scales, and options for lattices."""
        return {
            "decode": DecodeOptions(**self.options["decode"]),
            "lattices": DeterminizeOptions(**self.options["lattices"]),
        }


def _check_unchanged(path: Path, inputs: dict[str, str], advice: str) -> None:
    """Raise UserError unless the files from which `path` was made still have these fingerprints."""
    for name, value in inputs.items():
        if not Path(name).exists():
            raise UserError(
                f"{name}: no such file, but {path} was made from it; run this in the directory of the recipe"
            )
        if fingerprint(Path(name)) != value:
            raise UserError(f"{name}: has changed since {path} was made from it; {advice}")


def _done_of(directory: Path) -> dict[str, dict]:
    """The `options` and `inputs` of the step that made a directory; both are empty if unknown."""
    return read_done(directory) or {"options": {}, "inputs": {}}


def _options_of(directory: Path) -> dict:
    return _done_of(directory)["options"]


def trained_on(model: Path) -> Path | None:
    """The data directory on which a model was trained, if known."""
    data = _options_of(model).get("data")
    return None if data is None else Path(data)


@dataclass(frozen=True)
class FeatureSource:
    """The origin of the features of a data directory: their `options`, and the system `first` if its fMLLR
    adapted them."""

    options: object
    first: DecodedSystem | None

    @classmethod
    def of(cls, data: Path, model: Path, trained: Path | None) -> FeatureSource:
        """The origin of the features of `data` as input of `model`, which was trained on those of `trained`,
        if known.

        Raises UserError if they cannot be computed from audio alone, or if the model was trained on other
        features.
        """
        first = _system_of_features(data)
        return (
            cls(_options_as_trained(data, model, trained), None) if first is None else cls.adapted_by(first)
        )

    @classmethod
    def adapted_by(cls, first: DecodedSystem) -> FeatureSource:
        """The origin of features after the fMLLR of a system decoded by steps/decode_fmllr.py."""
        return cls(_options_as_trained(first.data, first.model, trained_on(first.model)), first)


def _system_of_features(data: Path) -> DecodedSystem | None:
    """The GMM system whose fMLLR features a data directory contains; None if features are not transformed."""
    done = _done_of(data)
    options = done["options"]
    if "transform_dir" not in options:
        return None
    _check_unchanged(data, done["inputs"], "compute these features again, decode, score, and pack the result")
    first = DecodedSystem.read(Path(options["transform_dir"] or options["model_dir"]))
    if not first.adapts:
        found = "its transforms do not come from steps/decode_fmllr.py"
        raise UserError(f"{data}: {found}; pack the decoding of a set with such transforms, such as dev")
    return first


def feature_options(data: Path):
    """The feature options of a data directory. Raises UserError if they are unknown, or if frequencies are
    warped by speaker."""
    if "streams" in _options_of(data):
        raise UserError(
            f"{data}: pasted features, which a packed model neither pastes with others nor adapts; use "
            "those that it was pasted from"
        )
    warps = [name for name in (SPEAKER_WARPS, UTTERANCE_WARPS) if DataDir(data).has(name)]
    if warps:
        raise UserError(
            f"{data}/{warps[0]}: the frequencies of its speakers are warped, but warp factors of new "
            "recordings are unknown; train without VTLN, or on fMLLR features"
        )
    if file := _options_file(data):
        return load_features(file)
    raise UserError(
        f"{data}: the options of its features are unknown; compute them with steps/make_mfcc.py or another "
        "of make_*.py"
    )


def _options_file(data: Path) -> Path | None:
    """The file with the feature options of a data directory, if there is one."""
    files = [folder / OPTIONS_FILE for folder in (data / "feats", *_archive_folders(data))]
    return next((file for file in files if file.exists()), None)


def _options_as_trained(data: Path, model: Path, trained: Path | None):
    """The feature options of `data`. Raises UserError if those of `trained`, on which `model` was trained,
    differ."""
    found = feature_options(data)
    check_origin(data, model)
    if trained is not None and _options_file(trained) and not same_features(feature_options(trained), found):
        raise UserError(
            f"{data}: its features have other options than those of {trained}, on which {model} was trained; "
            "compute them with the same configuration file"
        )
    return found


def _archive_folders(data: Path) -> list[Path]:
    """The folder of the archive with the first utterance's features, which is elsewhere for a copy or subset
    of a data directory."""
    table = read_scp(data / "feats.scp") if (data / "feats.scp").exists() else {}
    return [Path(archive_of(rx)).parent for rx in [*table.values()][:1]]


@dataclass(frozen=True)
class PastedData:
    """A data directory of pasted features, from the done-file of steps/paste_feats.py.

    streams  the data directories; `inputs`: normalisation and context of each
    paste    options of steps/paste_feats.py, with the vectors next to the streams
    """

    path: Path
    streams: tuple[Path, ...]
    inputs: tuple[InputOptions, ...]
    paste: PasteOptions

    @classmethod
    def of(cls, data: Path) -> PastedData | None:
        """Read a data directory; None if its features are not pasted."""
        options = _options_of(data)
        if "streams" not in options:
            return None
        streams = tuple(Path(stream) for stream in options["streams"])
        return cls(
            data,
            streams,
            from_json(StreamOptions, options["each"]).inputs(len(streams)),
            from_json(PasteOptions, options["paste"]),
        )

    def sources(self, model: Path) -> list[FeatureSource]:
        """The origin of each stream; `model`: the model with this input. Raises UserError as
        `FeatureSource.of`, and if one has changed."""
        _check_unchanged(
            self.path, _done_of(self.path)["inputs"], "paste again, decode, score, and pack the result"
        )
        data = trained_on(model)
        found = data and PastedData.of(data)
        trained = (
            found.streams if found and len(found.streams) == len(self.streams) else [None] * len(self.streams)
        )
        return [FeatureSource.of(stream, model, other) for stream, other in zip(self.streams, trained)]

    def vectors(self) -> ExtractedVectors | None:
        """The vectors next to the streams. Raises UserError for vectors that new recordings lack."""
        return ExtractedVectors.read(self.paste.vectors) if self.paste.vectors else None


@dataclass(frozen=True)
class ExtractedVectors:
    """I-vectors of a data directory, from the done-file of steps/extract_ivectors.py.

    online             whether they are estimated in the course of utterances
    extractor          its directory; `source`: the origin of its features
    extract, directory  options of the step
    """

    online: bool
    extractor: Path
    source: FeatureSource
    extract: ExtractOptions
    directory: ExtractDirOptions

    @classmethod
    def read(cls, table: Path) -> ExtractedVectors:
        """Read a table of vectors. Raises UserError if another program made it or its inputs have changed."""
        done = read_done(table.parent)
        if done is None or "extractor_dir" not in done["options"] or table.name not in (_WHOLE, _ONLINE):
            raise UserError(
                f"{table}: vectors not made by steps/extract_ivectors.py, which do not exist for new "
                "recordings; train with its i-vectors, or without vectors"
            )
        options = done["options"]
        extractor = Path(options["extractor_dir"])
        _check_unchanged(
            table.parent, done["inputs"], "extract again, paste, decode, score, and pack the result"
        )
        source = FeatureSource.of(Path(options["data"]), extractor, trained_on(extractor))
        return cls(
            table.name == _ONLINE,
            extractor,
            source,
            from_json(ExtractOptions, options["extract"]),
            from_json(ExtractDirOptions, options["directory"]),
        )
