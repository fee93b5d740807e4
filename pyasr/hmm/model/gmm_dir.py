"""Files of a GMM system's directory: Kaldi's (final.mdl tree ali.*.gz num_jobs phones.txt cmvn_opts), and
input.json."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np

from pyasr.base.errors import UserError
from pyasr.base.outputs.output import atomic_write
from pyasr.feats.inputs import InputOptions, input_option_files
from pyasr.feats.kaldi_options import kaldi_option_lines
from pyasr.feats.transforms import MATRIX_FILE, transform_files
from pyasr.hmm.model.model_file import ALIGNMENT_MODEL
from pyasr.hmm.model.transitions import TransitionModel
from pyasr.io.int_vectors import job_archive_files
from pyasr.lang.lang_dirs.lang_dir import LangDir
from pyasr.lang.symbols import SymbolTable

LANG_FILES = ("phones.txt", "words.txt", "L.fst", "oov.txt", "phones/optional_silence.int")
DATA_FILES = ("utt2spk", "text", "feats.scp")
TREE_FILES = (
    "topo",
    *(f"phones/{name}.int" for name in ("roots", "sets", "extra_questions", "context_indep", "silence")),
)
MODEL_FILES = ("final.mdl", "tree")


def input_files(data: Path, lang: Path, model_dir: Path | None = None) -> list[Path]:
    """The files that an alignment reads, for the fingerprint of its output."""
    files = [data / name for name in DATA_FILES] + [lang / name for name in LANG_FILES]
    files += [data / "cmvn.scp"] if (data / "cmvn.scp").exists() else []
    if model_dir is None:
        return files
    aligner = [model_dir / ALIGNMENT_MODEL] if (model_dir / ALIGNMENT_MODEL).exists() else []
    return [*files, *(model_dir / name for name in MODEL_FILES), *aligner, *input_option_files(model_dir)]


def training_files(data: Path, lang: Path, ali_dir: Path) -> list[Path]:
    """The files that the training of a triphone system reads, for the fingerprint of its output."""
    files = [
        *input_files(data, lang),
        *(lang / name for name in TREE_FILES),
        ali_dir / "final.mdl",
        *job_archive_files(ali_dir),
        *input_option_files(ali_dir),
    ]
    matrix = ali_dir / MATRIX_FILE
    transforms = transform_files(ali_dir) if (ali_dir / "trans.1").exists() else []
    return [*files, *([matrix] if matrix.exists() else []), *transforms]


def write_static_files(out: Path, lang: LangDir, inputs: InputOptions, num_jobs: int) -> None:
    """Write num_jobs, phones.txt, input.json and Kaldi's one-line option files."""
    inputs.save(out)
    shutil.copyfile(lang.path / "phones.txt", out / "phones.txt")
    lines = kaldi_option_lines(
        inputs.cmvn, inputs.norm_vars, inputs.deltas, inputs.splice_left, inputs.splice_right
    )
    for name, line in {"num_jobs": num_jobs, **lines}.items():
        with atomic_write(out / name) as f:
            f.write(f"{line}\n")


def copy_model(model_dir: Path, out: Path) -> None:
    """Copy the model files of a system to a directory of its alignments."""
    for name in ("final.mdl", "final.alimdl", MATRIX_FILE, "tree", "final.occs"):
        if (model_dir / name).exists():
            shutil.copyfile(model_dir / name, out / name)


def check_phones(model_dir: Path, lang: LangDir) -> None:
    """Raise UserError unless the language directory has the phones that the model was trained with."""
    path = model_dir / "phones.txt"
    if not path.exists():
        return
    theirs, ours = (
        {f"{symbol} {number}" for symbol, number in table.ids.items() if not symbol.startswith("#")}
        for table in (SymbolTable.read(path), lang.phones)
    )
    if theirs != ours:
        differing = min(theirs ^ ours)
        raise UserError(
            f"{lang.path}/phones.txt and {path} differ (for example in '{differing}'); "
            "use the language directory that the model was trained with"
        )


def silence_pdfs(lang: LangDir, trans: TransitionModel) -> np.ndarray:
    """Pdfs of the optional silence."""
    return np.unique(trans.tid2pdf[trans.tid2phone == lang.optional_silence])
