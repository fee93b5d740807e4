"""What the directory of a GMM system holds: Kaldi's files (final.mdl tree ali.*.gz num_jobs phones.txt cmvn_opts), and input.json."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np

from pyasr.base.errors import UserError
from pyasr.base.output import atomic_write
from pyasr.feats.inputs import InputOptions
from pyasr.hmm.transitions import TransitionModel
from pyasr.lang.lang_dir import LangDir

LANG_FILES = ("phones.txt", "words.txt", "L.fst", "oov.txt", "phones/optional_silence.int")
DATA_FILES = ("utt2spk", "text", "feats.scp")
MODEL_FILES = ("final.mdl", "tree", "input.json")


def input_files(data: Path, lang: Path, model_dir: Path | None = None) -> list[Path]:
    """The files that alignment reads, for the fingerprints of a stage output."""
    files = [data / name for name in DATA_FILES] + [lang / name for name in LANG_FILES]
    files += [data / "cmvn.scp"] if (data / "cmvn.scp").exists() else []
    return files + [model_dir / name for name in MODEL_FILES if model_dir is not None]


def write_static_files(out: Path, lang: LangDir, inputs: InputOptions, num_jobs: int) -> None:
    """num_jobs, phones.txt, input.json and Kaldi's one-line option files."""
    inputs.save(out)
    shutil.copyfile(lang.path / "phones.txt", out / "phones.txt")
    lines = {"num_jobs": num_jobs, "cmvn_opts": f"--norm-vars={str(inputs.norm_vars).lower()}",
             "delta_opts": f"--delta-order={inputs.deltas}",
             "splice_opts": f"--left-context={inputs.splice_left} --right-context={inputs.splice_right}"}
    for name, line in lines.items():
        with atomic_write(out / name) as f:
            f.write(f"{line}\n")


def check_phones(model_dir: Path, lang: LangDir) -> None:
    """Raise UserError unless the language directory has the phones that the model was trained with."""
    path = model_dir / "phones.txt"
    if not path.exists():
        return
    real = {line for line in path.read_text().splitlines() if line and not line.startswith("#")}
    ours = {f"{symbol} {number}" for symbol, number in lang.phones.ids.items() if not symbol.startswith("#")}
    if real != ours:
        differing = min(real ^ ours)
        raise UserError(f"{lang.path}/phones.txt and {path} differ (for example in '{differing}'); "
                        "use the language directory of the training")


def silence_pdfs(lang: LangDir, trans: TransitionModel) -> np.ndarray:
    """Pdfs of the optional silence."""
    return np.unique(trans.tid2pdf[trans.tid2phone == lang.optional_silence])
