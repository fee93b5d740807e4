"""Check a directory of a GMM system or of alignments made by Kaldi or pyasr (`exp/tri4`, `exp/tri4_ali`)."""

from __future__ import annotations

import re
from functools import cached_property
from pathlib import Path

import numpy as np

from pyasr.feats.fit import meant_splicing, splice_line
from pyasr.feats.inputs import INPUT_FILE, InputOptions
from pyasr.feats.kaldi_options import SPLICE_FILE
from pyasr.feats.transforms import MATRIX_FILE, read_matrix, read_transform_archive
from pyasr.hmm.model.gmm import AmDiagGmm
from pyasr.hmm.model.model_file import ALIGNMENT_MODEL, MODEL, read_model, read_transitions, read_tree
from pyasr.hmm.model.transitions import TransitionModel
from pyasr.hmm.trees.phone_segments import split_to_phones
from pyasr.intake.check_report import Report
from pyasr.io.int_vectors import MAX_JOBS, is_num_jobs, read_int_vectors
from pyasr.io.kaldi_objects import KaldiReader
from pyasr.lang.symbols import SymbolTable

_NETWORKS = ("<Nnet3>", "<Nnet>")
# with these files, the model may consist of a transition model only
_ALONE = ("frame_subsampling_factor", "final.nnet")
_USUAL_FRAMES = 9  # default of Kaldi's splice-feats
COPY = "copy it again from its source"


class ModelDir:
    """A directory with `final.mdl` and its files; a file that cannot be read is None and becomes a problem of
    the report.

    transitions, gmm  contents of final.mdl; gmm is also None if final.mdl contains a network
    num_frames        {utterance: number of frames of its alignment}
    """

    def __init__(self, path: Path, report: Report):
        self.path, self.report = Path(path), report
        self.transitions: TransitionModel | None = None
        self.gmm: AmDiagGmm | None = None
        self.num_frames: dict[str, int] = {}

    def check(self) -> None:
        """Check all files of the directory."""
        self._model()
        self._tree()
        self._alignment_model()
        self._occupancies()
        self._phones()
        self._input()
        for path in self._archives("trans", ""):
            self._transforms(path)
        for path in self._archives("ali", ".gz"):
            self._alignments(path)

    @cached_property
    def names(self) -> set[str]:
        """Names of the entries of the directory."""
        return {entry.name for entry in self.path.iterdir()}

    @property
    def sees_features(self) -> bool:
        """Whether features are the input of the Gaussians. In the directory of a network, the Gaussians are
        those of another system."""
        return self.gmm is not None and "final.occs" in self.names and "final.nnet" not in self.names

    def _model(self) -> None:
        path = self.path / MODEL
        if MODEL not in self.names:
            self.report.add(path, "missing", "copy it from the source of the alignments or the tree")
            return
        self.transitions = self.report.attempt(COPY, read_transitions, path)
        if self.transitions is not None and not self._is_without_gaussians(path):
            _, self.gmm = self.report.attempt(COPY, read_model, path) or (None, None)

    def _is_without_gaussians(self, path: Path) -> bool:
        """Whether a model is a transition model with a network, or a transition model only, as for LF-MMI
        trees and networks."""
        reader = KaldiReader(path)
        TransitionModel.read(reader)
        return not self.names.isdisjoint(_ALONE) if reader.at_end() else reader.peek_token() in _NETWORKS

    def _tree(self) -> None:
        if "tree" not in self.names:
            self.report.add(self.path / "tree", "missing", f"copy it from the source of {MODEL}")
        else:
            self.report.attempt(
                f"copy tree and {MODEL} together", read_tree, self.path / "tree", self.transitions
            )

    def _alignment_model(self) -> None:
        path = self.path / ALIGNMENT_MODEL
        if ALIGNMENT_MODEL in self.names:
            _, gmm = self.report.attempt(COPY, read_model, path) or (None, None)
            if gmm and self.gmm and gmm.num_pdfs != self.gmm.num_pdfs:
                message = f"{gmm.num_pdfs} pdfs, but {MODEL} has {self.gmm.num_pdfs}"
                self.report.add(path, message, f"copy {ALIGNMENT_MODEL} and {MODEL} together")

    def _occupancies(self) -> None:
        path = self.path / "final.occs"
        counts = (
            self.report.attempt("remove it; training writes it again", _read_vector, path)
            if path.name in self.names
            else None
        )
        if counts is not None and self.transitions and len(counts) != self.transitions.num_pdfs:
            message = f"{len(counts)} counts, but {MODEL} has {self.transitions.num_pdfs} pdfs"
            self.report.add(path, message, "remove it; it belongs to another model")

    def _phones(self) -> None:
        path = self.path / "phones.txt"
        table = self.report.attempt(COPY, SymbolTable.read, path) if path.name in self.names else None
        if table is not None and self.transitions:
            unknown = sorted(set(self.transitions.topology.phones) - set(table.ids.values()))
            if unknown:
                message = f"lacks phone {unknown[0]} of {MODEL}" + (
                    f" and {len(unknown) - 1} more" if unknown[1:] else ""
                )
                self.report.add(path, message, "copy phones.txt from the lang directory of the training")

    def _input(self) -> None:
        """Check the feature options and the matrix that produce the model's input."""
        options = self.report.attempt("correct the file", InputOptions.load, self.path)
        matrix = (
            self.report.attempt(COPY, read_matrix, self.path / MATRIX_FILE)
            if MATRIX_FILE in self.names
            else None
        )
        has_input_options = matrix is None or not self.names.isdisjoint((INPUT_FILE, SPLICE_FILE))
        if (
            options
            and matrix is not None
            and (has_input_options or not self._lacks_splicing(matrix.shape[1]))
        ):
            width = options.dim(1)
            if matrix.shape[1] % width and (matrix.shape[1] - 1) % width:
                message = f"{matrix.shape[1]} columns, but {width} frames are spliced"
                self.report.add(self.path / MATRIX_FILE, message, "copy splice_opts and final.mat together")
        if matrix is not None and self.gmm and len(matrix) != self.gmm.dim:
            message = f"{len(matrix)} rows, but the Gaussians have {self.gmm.dim} dimensions"
            self.report.add(self.path / MATRIX_FILE, message, f"copy {MATRIX_FILE} and {MODEL} together")

    def _lacks_splicing(self, num_columns: int) -> bool:
        """Whether splice_opts is missing and a matrix needs a splicing other than the default of Kaldi's
        scripts. That is a problem."""
        dim, frames = meant_splicing(num_columns) or (0, _USUAL_FRAMES)
        if frames != _USUAL_FRAMES:
            message = f"missing, and {MATRIX_FILE} has {num_columns} columns, which are {dim} x {frames}"
            self.report.add(
                self.path / SPLICE_FILE,
                message,
                f"copy it too, or echo {splice_line(frames)} > {self.path / SPLICE_FILE}",
            )
        return frames != _USUAL_FRAMES

    def _archives(self, stem: str, suffix: str) -> list[Path]:
        """The archives STEM.1 ... of all jobs, gzipped or not. Missing archives become problems, and so do
        archives without the `suffix` that steps expect."""
        names = filter(None, (re.fullmatch(rf"{stem}\.(\d+)(\.gz)?", name) for name in self.names))
        found = {
            int(name[1]): self.path / name[0]
            for name in sorted(names, key=lambda name: (name[2] or "") == suffix)
        }
        expected = range(1, 1 + self._num_jobs) if found else ()
        for job in sorted(set(expected) - set(found)):
            message = f"missing, but num_jobs is {len(expected)}"
            self.report.add(
                self.path / f"{stem}.{job}", message, "copy it, too; without it, its utterances are lost"
            )
        for job in sorted(set(found) - set(expected)):
            message = f"exceeds num_jobs, which is {len(expected)}"
            self.report.add(found[job], message, f"remove it, or echo {max(found)} > {self.path}/num_jobs")
        for job, path in sorted(found.items()):
            if (wanted := f"{stem}.{job}{suffix}") != path.name:
                message = f"steps expect a name {'with' if suffix else 'without'} .gz, whatever the format"
                self.report.add(path, message, f"mv {path} {self.path / wanted}")
        return [path for _, path in sorted(found.items())]

    @cached_property
    def _num_jobs(self) -> int:
        """The content of the file num_jobs, or the largest number of an archive."""
        path = self.path / "num_jobs"
        text = path.read_text(encoding="utf-8", errors="replace").strip() if path.exists() else ""
        if text.isdecimal() and len(text) <= len(str(MAX_JOBS)) and is_num_jobs(int(text)):
            return int(text)
        present = max(
            int(match[1]) for name in self.names if (match := re.match(r"(?:ali|trans)\.(\d+)", name))
        )
        self.report.add(
            path,
            f"'{text[:20]}' is not a number of jobs" if text else "missing or empty",
            f"echo {present} > {path}",
        )
        return present

    def _transforms(self, path: Path) -> None:
        """Check the transforms of speakers, which apply after all other transforms of features."""
        gmm = self.gmm
        if not gmm:
            return
        transforms = self.report.attempt(COPY, read_transform_archive, path)
        for speaker, matrix in (transforms or {}).items():
            if matrix.shape not in ((gmm.dim, gmm.dim), (gmm.dim, gmm.dim + 1)):
                rows, columns = matrix.shape
                message = (
                    f"speaker {speaker}: a matrix of {rows} x {columns}, but the Gaussians have "
                    f"{gmm.dim} dimensions"
                )
                self.report.add(path, message, f"copy trans.* and {MODEL} together")
                return

    def _alignments(self, path: Path) -> None:
        """Check alignments: transition-ids of the model that form paths through its HMMs, and each utterance
        only once."""
        alignments = self.report.attempt(COPY, read_int_vectors, path) or {}
        for utt in sorted(alignments.keys() & self.num_frames.keys())[:1]:
            self.report.add(path, f"{utt} is also in the archive of an earlier job", "align again")
        self.num_frames |= {utt: len(alignment) for utt, alignment in alignments.items()}
        if self.transitions and alignments:
            fix = f"copy ali.* and {MODEL} together; {path} belongs to another model"
            self.report.attempt(fix, split_to_phones, self.transitions, alignments)


def _read_vector(path: Path) -> np.ndarray:
    return KaldiReader(path).vector()
