#!/usr/bin/env python3
"""Write a network in Kaldi's nnet3 or nnet1 format, as text, to a directory for Kaldi's decoding scripts.

Reads  MODEL_DIR/{final.nnet,final.mdl,tree,phones.txt,input.json}
Writes OUT/{final.mdl,tree,phones.txt,cmvn_opts}; frame_subsampling_factor if the network has a lower output
       frame rate; with --form nnet1 also {final.nnet,final.feature_transform,ali_train_pdf.counts};
       delta_opts for features with derivatives

Supported: feed-forward networks of steps/train_dnn.py and, with nnet3, time-delay networks; no recurrent or
convolutional layers.

Example:
    utils/export_kaldi.py --form nnet3 exp/dnn exp/dnn_kaldi
"""

from dataclasses import dataclass
from pathlib import Path

from pyasr.base.cli.options import argument, option
from pyasr.base.cli.step import output_of, run_step
from pyasr.export.export_formats import FORMS


@dataclass(frozen=True)
class ExportKaldi:
    model_dir: Path = argument("directory of the network")
    out: Path = argument("directory to write")
    form: str = option("nnet3", "Kaldi's network format", choices=FORMS)


def main(options: ExportKaldi) -> None:
    inputs = [
        options.model_dir / name for name in ("final.nnet", "final.mdl", "tree", "phones.txt", "input.json")
    ]
    with output_of(options, options.out, inputs) as out:
        from pyasr.export.kaldi_dir import write_kaldi_dir  # imports torch

        write_kaldi_dir(options.model_dir, out, options.form)


if __name__ == "__main__":
    run_step(ExportKaldi, main, __doc__)
