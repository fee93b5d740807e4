"""Check directories made by Kaldi or pyasr, each by itself and together, and list all problems in one pass.

    directories = [Path("data/train"), Path("data/lang"), Path("exp/tri4_ali")]
    problems, kinds = check_directories(directories, CheckOptions())

The files in a directory determine its kinds: data, lang, graph, model (final.mdl, possibly with alignments
and transforms), lattices.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pyasr.base.cli.options import option
from pyasr.base.errors import UserError
from pyasr.data.checks.validation import validate
from pyasr.decode.lattices.lattice_io import read_either
from pyasr.feats.fit import check_splicing
from pyasr.feats.inputs import open_features
from pyasr.hmm.model.gmm_dir import check_phones
from pyasr.hmm.model.model_file import MODEL, read_transitions
from pyasr.hmm.model.transitions import TransitionModel
from pyasr.intake.check_report import Report
from pyasr.intake.model_dir import COPY, ModelDir
from pyasr.io.openfst import read_fst
from pyasr.io.text_tables import read_numbers
from pyasr.lang.lang_dirs.check_lang import find_problems
from pyasr.lang.lang_dirs.lang_dir import LangDir
from pyasr.lang.symbols import SymbolTable

_SIGNS = {  # regular expression for the names of files that identify the kind
    "data": r"utt2spk|spk2utt|wav\.scp|feats\.scp",
    "graph": r"HCLG\.fst",
    "lang": r"L\.fst|L_disambig\.fst|topo",
    "model": r"final\.(ali)?mdl|tree|ali\.\d+(\.gz)?",
    "lattices": r"lat\.\d+(\.gz)?",
}
_REMAKE_GRAPH = "run utils/make_graph.py again"


@dataclass(frozen=True)
class CheckOptions:
    """The requirements that directories are checked for."""

    need_text: bool = option(True, "require transcripts in data directories")
    need_feats: bool = option(False, "require features in data directories")
    same_features: bool = option(
        False, "require that the features of data directories fit the models, as for decoding"
    )
    audio: str = option(
        "exists",
        "check of the audio of data directories; no: none; exists: existence and header; read: "
        "reading to the end",
        choices=("no", "exists", "read"),
    )


def kinds_of(path: Path) -> list[str]:
    """The kinds of a directory. Raises UserError if it has none."""
    if not path.is_dir():
        raise UserError(f"{path}: no such directory; give directories made by Kaldi or pyasr")
    names = [entry.name for entry in path.iterdir()]
    kinds = [kind for kind, sign in _SIGNS.items() if any(re.fullmatch(sign, name) for name in names)]
    if not kinds:
        raise UserError(
            f"{path}: not a directory in Kaldi's format: it has none of utt2spk, L.fst, HCLG.fst, {MODEL}, "
            "tree, ali.1.gz, lat.1.gz; give data, lang, model, alignment, graph or decoding directories"
        )
    return kinds


def check_directories(paths: list[Path], options: CheckOptions) -> tuple[list[str], dict[Path, list[str]]]:
    """(all problems, the kinds of each directory). Raises UserError for a path that is not a directory in
    Kaldi's format."""
    kinds = {path: kinds_of(path) for path in paths}
    of_kind = {kind: [path for path in paths if kind in kinds[path]] for kind in _SIGNS}
    report = Report()
    models = [ModelDir(path, report) for path in of_kind["model"]]
    for path in of_kind["lang"]:
        report.problems += find_problems(path)
    for path in of_kind["data"]:
        report.problems += (
            report.attempt("correct the file", _data_problems, path, options, of_kind["lang"]) or []
        )
    for model in models:
        model.check()
    for path in of_kind["graph"]:
        _check_graph(path, report)
    for path in of_kind["lattices"]:
        _check_lattices(path, report)
    _check_together(of_kind, models, options.same_features, report)
    return report.problems, kinds


def _data_problems(path: Path, options: CheckOptions, langs: list[Path]) -> list[str]:
    lang = langs[0] if langs and (langs[0] / "words.txt").exists() else None
    found = validate(
        path, need_text=options.need_text, need_feats=options.need_feats, audio=options.audio, lang=lang
    )
    return [str(problem) for problem in found]


def _check_graph(path: Path, report: Report) -> None:
    """Check that HCLG.fst fits words.txt and the model, in Kaldi's experiments in the parent directory."""
    graph = report.attempt(_REMAKE_GRAPH, read_fst, path / "HCLG.fst")
    words = report.attempt(_REMAKE_GRAPH, SymbolTable.read, path / "words.txt")
    model = path.parent / MODEL
    transitions = report.attempt(COPY, read_transitions, model) if model.exists() else None
    if graph is None:
        return
    if not np.isfinite(graph.finals).any():
        report.add(path / "HCLG.fst", "no final state", _REMAKE_GRAPH)
    if words is not None and graph.olabels.max(initial=0) > max(words.ids.values(), default=0):
        report.add(
            path / "words.txt",
            f"lacks word {graph.olabels.max()} of HCLG.fst",
            "copy words.txt and HCLG.fst together",
        )
    if transitions is not None and graph.ilabels.max(initial=0) > transitions.num_tids:
        message = f"transition-id {graph.ilabels.max()}, but {model} has {transitions.num_tids}"
        report.add(path / "HCLG.fst", message, _REMAKE_GRAPH)


def _check_lattices(path: Path, report: Report) -> None:
    for archive in sorted(entry for entry in path.iterdir() if re.fullmatch(_SIGNS["lattices"], entry.name)):
        report.attempt("decode again", _read_all, archive)


def _read_all(archive: Path) -> None:
    for _ in read_either(archive):
        pass


def _check_together(
    of_kind: dict[str, list[Path]], models: list[ModelDir], same_features: bool, report: Report
) -> None:
    """Check models against language directories and data: phones, utterances, frames, dimensions."""
    for model in models:
        for lang in of_kind["lang"]:
            _check_lang_of(model, lang, report)
        for data in of_kind["data"]:
            if same_features and (data / "feats.scp").exists() and model.sees_features:
                _check_dimension(model, data, report)
            if model.num_frames:
                _check_frames(model, data, len(of_kind["data"]) == 1, report)


def _check_lang_of(model: ModelDir, lang: Path, report: Report) -> None:
    fix = "give the lang directory of the training"
    found = report.attempt(fix, LangDir, lang)
    if found is None:
        return
    report.attempt(fix, check_phones, model.path, found)
    if model.transitions:
        report.attempt(fix, _check_topology, model.transitions, found)


def _check_topology(transitions: TransitionModel, lang: LangDir) -> None:
    transitions.topology.check_phones(lang.real_phones, lang.path / "phones.txt")


def _check_dimension(model: ModelDir, data: Path, report: Report) -> None:
    """Check that the model's input options turn features into vectors of the dimension of the Gaussians."""
    assert model.gmm is not None
    fix = "give the features that the model was trained on"
    report.attempt(fix, check_splicing, data, model.path)
    reader = report.attempt(fix, open_features, data, model.path)
    dim = report.attempt(fix, lambda: reader.dim) if reader else None
    if dim is not None and dim != model.gmm.dim:
        message = (
            f"features have {dim} dimensions after the transforms of {model.path}, but its Gaussians "
            f"have {model.gmm.dim}"
        )
        report.add(data / "feats.scp", message, fix)


def _check_frames(model: ModelDir, data: Path, is_only: bool, report: Report) -> None:
    """Check that alignments have the frame counts of utt2num_frames. If there is only one data directory,
    they must share utterances."""
    path = data / "utt2num_frames"
    frames: Mapping[str, float] = {}
    if path.exists():
        frames = report.attempt(f"remove {path}; it will be written again", read_numbers, path, int) or {}
    common = frames.keys() & model.num_frames.keys()
    unequal = sorted(utt for utt in common if frames[utt] != model.num_frames[utt])
    fix = f"align {data} again (steps/align_si.py or steps/align_fmllr.py)"
    if unequal:
        message = (
            f"{len(unequal)} alignments have other numbers of frames than {path}, such as {unequal[0]}: "
            f"{model.num_frames[unequal[0]]}"
        )
        report.add(model.path, f"{message} and {frames[unequal[0]]}", fix)
    if frames and not common and is_only:
        report.add(model.path, f"no alignment of any utterance of {data}", fix)
