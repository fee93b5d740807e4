"""Making a packed model of what a decode directory was made with: it is known to go together, because it has been decoded and scored.

The done-file of the decode directory names graph, model, data directory and beams; that of the data directory tells how its features were
made. What has changed since then is refused.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from pyasr.base.errors import UserError
from pyasr.base.fingerprint import DONE, fingerprint, read_done
from pyasr.base.options import save
from pyasr.data.datadir import DataDir
from pyasr.decode.ctc_dir import WFST
from pyasr.decode.decode_dir import NETWORK as NETWORK_FILE
from pyasr.decode.decode_fmllr import AdaptOptions
from pyasr.decode.determinize import DeterminizeOptions
from pyasr.decode.search import DecodeOptions
from pyasr.feats.cmvn import cmvn_stats
from pyasr.feats.inputs import InputOptions
from pyasr.feats.options import OPTIONS_FILE
from pyasr.feats.transforms import MATRIX_FILE, write_matrix
from pyasr.feats.vtln import SPEAKER_WARPS, UTTERANCE_WARPS
from pyasr.hmm.fmllr import FmllrOptions
from pyasr.hmm.model import ALIGNMENT_MODEL, MODEL, first_pass_model, read_transitions
from pyasr.io.ark import iterate, read_scp
from pyasr.io.kaldi import KaldiWriter
from pyasr.lang.subwords import UNITS, UNITS_DIR
from pyasr.recognition.adaptation import FIRST_DIR, FirstPasses
from pyasr.recognition.front_end import EVERYONE, FEATURES, load_features
from pyasr.recognition.packed import CTC, GMM, GRAPH_DIR, HCLG, NETWORK, ModelInfo, PackedFile, graph_file, write_info

_GRAPH_FILES = ("words.txt", "phones.txt", "phones/align_lexicon.int")
_SILENCE = "phones/silence.int"


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
        """Raises UserError where the directory does not tell, and where graph or model have changed since."""
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
        system = cls(path, options, graph, model, Path(options["data"]), done["inputs"])
        for name in system.files():
            _check_unchanged(path, name, done["inputs"][str(name)])
        return system

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


def _check_unchanged(path: Path, name: Path, value: str) -> None:
    if not name.exists():
        raise UserError(f"{name}: no such file, but {path} was decoded with it; run this where the recipe runs")
    if fingerprint(name) != value:
        raise UserError(f"{name}: has changed since {path} was decoded with it; decode again, score, and pack that")


def system_of_features(system: DecodedSystem) -> DecodedSystem | None:
    """The GMM system whose fMLLR features another one decoded; None where features are not transformed.

    Raises UserError where they cannot be made of audio alone.
    """
    if system.adapts:
        return system
    options = (read_done(system.data) or {"options": {}})["options"]
    if "streams" in options:
        raise UserError(f"{system.data}: features of several kinds side by side, which a packed model cannot make yet; train on "
                        "features of one kind, such as those of conf/mfcc_hires.conf")
    if "transform_dir" not in options:
        return None
    first = DecodedSystem.read(Path(options["transform_dir"] or options["model_dir"]))
    if not first.adapts:
        found = "its transforms do not come from steps/decode_fmllr.py"
        raise UserError(f"{system.data}: {found}; pack the decoding of a set whose do, such as dev")
    return first


def feature_options(data: Path):
    """How the features of a data directory were made. Raises UserError where that is not told, or speakers' frequencies are warped."""
    warps = [name for name in (SPEAKER_WARPS, UTTERANCE_WARPS) if DataDir(data).has(name)]
    if warps:
        raise UserError(f"{data}/{warps[0]}: frequencies of its speakers are warped, which of a new recording nobody knows; train without "
                        "VTLN, or on fMLLR features")
    for folder in (data / "feats", *_archive_folders(data)):
        if (folder / OPTIONS_FILE).exists():
            return load_features(folder / OPTIONS_FILE)
    raise UserError(f"{data}: does not tell how its features were made; make them with steps/make_mfcc.py, make_fbank.py or make_plp.py")


def feature_options_of(system: DecodedSystem):
    """How the features of a system were made. Raises UserError where it was trained on others than it decoded."""
    found, trained_on = feature_options(system.data), (read_done(system.model) or {"options": {}})["options"].get("data")
    if trained_on is not None and (Path(trained_on) / "feats" / OPTIONS_FILE).exists() and feature_options(Path(trained_on)) != found:
        raise UserError(f"{system.data}: its features have other options than those of {trained_on}, on which {system.model} was trained; "
                        "make them with the same configuration file")
    return found


def _archive_folders(data: Path) -> list[Path]:
    """Of the first utterance's features, which a copied or chosen part of a data directory has elsewhere."""
    table = read_scp(data / "feats.scp")
    return [Path(next(iter(table.values())).rpartition(":")[0]).parent] if table else []


def pack(system: DecodedSystem, point: tuple[int, float], out: Path) -> None:
    """Fill the directory `out` with all that `system` needs, to read words at `point` (LM weight, word insertion penalty)."""
    first = system_of_features(system)
    _copy_graph(system.graph, out / GRAPH_DIR, graph_file(system.kind))
    if first is not system:
        _copy_model(system, out, of_features=first is None)
    passes = None if first is None else _pack_first(first, system, out)
    save(out / FEATURES, feature_options_of(first or system))
    files = sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.is_file() and not _is_hidden(path, out))
    write_info(out, ModelInfo(system.kind, *point, **system.search, first=passes, source=str(system.path),
                              files=tuple(PackedFile.of(out, name) for name in files)))


def _is_hidden(path: Path, out: Path) -> bool:
    """Whether a file belongs to the step and not to the model, as those that a fingerprint leaves out."""
    name = str(path.relative_to(out))
    return name.startswith((".", "log/"))


def _pack_first(first: DecodedSystem, system: DecodedSystem, out: Path) -> FirstPasses:
    """Fill first/ with the system that adapts; its graph stands there only if it is another one."""
    folder, shared = out / FIRST_DIR, fingerprint(first.graph / HCLG) == fingerprint(system.graph / HCLG)
    folder.mkdir()
    for name in (MODEL, ALIGNMENT_MODEL, MATRIX_FILE):
        if (first.model / name).exists():
            shutil.copyfile(first.model / name, folder / name)
    _save_inputs(first, folder, of_features=True)
    if not shared:
        _copy_graph(first.graph, folder / GRAPH_DIR, HCLG)
    adapt, fmllr = AdaptOptions(**first.options["adapt"]), FmllrOptions(**first.options["fmllr"])
    return FirstPasses(GRAPH_DIR if shared else f"{FIRST_DIR}/{GRAPH_DIR}", **first.search, adapt=adapt, fmllr=fmllr)


def _copy_graph(graph: Path, out: Path, fst: str) -> None:
    (out / "phones").mkdir(parents=True)
    for name in (fst, *_GRAPH_FILES, *([_SILENCE] if fst == HCLG else [])):
        if not (graph / name).exists():
            raise UserError(f"{graph / name}: no such file; make the graph again with utils/make_graph.py or make_ctc_graph.py")
        shutil.copyfile(graph / name, out / name)


def _save_inputs(system: DecodedSystem, out: Path, of_features: bool) -> None:
    """How features become the input of a model; where they are normalised by what a speaker or an utterance says, also the statistics of
    everyone, with which a stream begins.

    of_features  whether it sees them as they are made, not after another system's transforms
    """
    inputs = InputOptions.load(system.model)
    inputs.save(out)
    if of_features and inputs.cmvn in ("speaker", "utterance"):
        write_matrix(out / EVERYONE, sum(cmvn_stats(matrix) for _, matrix in iterate(system.data / "feats.scp")))


def _copy_model(system: DecodedSystem, out: Path, of_features: bool) -> None:
    """The acoustic model and how features become its input; `of_features` as of `_save_inputs`."""
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
    shutil.copyfile(Path(system.options.get("units_dir") or system.model / UNITS_DIR) / UNITS, out / UNITS_DIR / UNITS)
