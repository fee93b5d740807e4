"""A network in a model directory in the form of Kaldi's decoding scripts for nnet1 and nnet3."""

from __future__ import annotations

import shutil
from pathlib import Path

from pyasr.base.errors import UserError
from pyasr.base.outputs.output import atomic_write
from pyasr.export.nnet1 import write_nnet1
from pyasr.export.nnet3 import write_nnet3
from pyasr.export.source import read_source
from pyasr.feats.inputs import InputOptions
from pyasr.feats.kaldi_options import CMVN_FILE, DELTA_FILE, kaldi_option_lines
from pyasr.hmm.model.model_file import MODEL, read_transitions, write_subsampling
from pyasr.nn.networks.acoustic import AcousticModel


def write_kaldi_dir(model_dir: Path, out: Path, form: str) -> None:
    """Write the network, transition model, tree and feature options. Raises UserError for a network that
    `form` cannot represent.

    nnet3 takes features before derivatives, which its network computes; nnet1 takes them with derivatives,
    according to `delta_opts`.
    """
    model, options = read_source(model_dir)
    transitions = read_transitions(model_dir / MODEL)
    if transitions.num_pdfs != model.num_pdfs:
        found = f"the network has {model.num_pdfs} outputs, the transition model {transitions.num_pdfs} pdfs"
        raise UserError(f"{model_dir}: {found}; take final.nnet and {MODEL} from the same directory")
    if form == "nnet3":
        write_nnet3(model, options, transitions, out / MODEL)
    else:
        write_nnet1(model, options, out)
        shutil.copy(model_dir / MODEL, out)
    for name in ("tree", "phones.txt"):
        shutil.copy(model_dir / name, out)
    _write_options(model, options, out, form)


def _write_options(model: AcousticModel, options: InputOptions, out: Path, form: str) -> None:
    lines = kaldi_option_lines(
        options.cmvn, options.norm_vars, options.deltas, options.splice_left, options.splice_right
    )
    names = [CMVN_FILE, DELTA_FILE] if form == "nnet1" and options.deltas else [CMVN_FILE]
    for name in names:
        with atomic_write(out / name) as f:
            f.write(f"{lines[name]}\n")
    if model.subsampling > 1:
        write_subsampling(out, model.subsampling)
