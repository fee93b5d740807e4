#!/usr/bin/env python3
"""Write a network as an ONNX file that maps normalised features to the scores of the decoder.

Reads  MODEL_DIR/{final.nnet,input.json}; with --data also DATA/{feats.scp,feats/options.json} and
       MODEL_DIR/feature_origin.json
Writes OUT; an existing file that is not a network of this program is replaced only with --force

The graph contains derivatives, splicing, normalisation of the input, and the scaled priors. It contains
neither cepstral mean normalisation nor speaker transforms. The metadata of the file describe context,
subsampling and normalisation. The program needs the package onnx, which recipes do not need.

Example:
    utils/export_onnx.py --data data/train_hires exp/dnn dnn.onnx
"""

from dataclasses import dataclass
from pathlib import Path

from pyasr.base import log
from pyasr.base.cli.options import argument, option
from pyasr.base.cli.step import check_replaceable, run_step
from pyasr.base.errors import UserError
from pyasr.base.figures import figure
from pyasr.base.outputs.output import atomic_write
from pyasr.export.export_formats import UNITS, require_onnx
from pyasr.feats.origin import check_origin, kept_origins, made_of_features, origins_of

_MARK = r"\x08[\s\S]\x12\x05pyasr"  # ir_version, and a producer_name of five letters


@dataclass(frozen=True)
class ExportOnnx:
    model_dir: Path = argument("directory of the model")
    out: Path = argument("ONNX file to write; its directory is created")
    unit: str = option(
        "utterance",
        "input of the graph; utterance: whole utterances; chunk: chunks with context",
        choices=UNITS,
    )
    data: Path | None = option(
        None, "data directory with features like those of the training; their options go into the metadata"
    )


def feature_options(data: Path, model_dir: Path) -> str:
    """Feature options of a data directory. Raises UserError if they are known to differ from those of the
    training."""
    path = data / "feats" / "options.json"
    if name := made_of_features(kept_origins(model_dir) or origins_of(data)):
        found = (
            f"{model_dir} takes {name}, which are derived from other features, so no audio options "
            "describe them"
        )
        raise UserError(f"--data {data}: {found}; omit --data")
    if not path.exists():
        raise UserError(
            f"{path}: no such file; give a directory whose features steps/make_mfcc.py or another make_*.py "
            "has extracted"
        )
    check_origin(data, model_dir)
    return path.read_text(encoding="utf-8")


def onnx_content(options: ExportOnnx, description: str) -> bytes:
    from pyasr.export.onnx_model import acoustic_onnx  # imports torch and onnx
    from pyasr.export.source import read_source

    return acoustic_onnx(*read_source(options.model_dir), options.unit, description)


def main(options: ExportOnnx) -> None:
    require_onnx()
    check_replaceable(options.out, _MARK, "network written by this program")
    description = feature_options(options.data, options.model_dir) if options.data else ""
    content = onnx_content(options, description)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(options.out, "wb") as f:
        f.write(content)
    log.info(f"{options.out}: {figure(len(content) / 2**20)} MB")


if __name__ == "__main__":
    run_step(
        ExportOnnx, main, __doc__, force="replace an existing file that is not a network of this program"
    )
