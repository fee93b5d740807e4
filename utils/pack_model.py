#!/usr/bin/env python3
"""Pack everything that a scored decoding used into one directory, for utils/transcribe.py and for shipping.

The packed model contains the options of features and normalisation, network or GMMs, fMLLR and i-vectors if
the features use them, graph, lexicon, beams, LM weight and word insertion penalty. A file that has changed
since the decoding is an error. Run the program in the directory of the recipe.

Reads  DECODE_DIR/{.done.json,scoring/summary.json}, its graph, model and data directories, and the
       directories that those came from
Writes OUT; OUT/model.json lists every file with its size and SHA-256

Example:
    utils/pack_model.py exp/dnn/decode_dev model
"""

from dataclasses import dataclass
from pathlib import Path

from pyasr.base import log
from pyasr.base.cli.options import argument, group
from pyasr.base.cli.step import output_of, run_step
from pyasr.recognition.packed_inputs import DecodedSystem
from pyasr.recognition.packing import pack
from pyasr.recognition.system import System
from pyasr.score.score_dir import PointOptions


@dataclass(frozen=True)
class PackModel:
    decode_dir: Path = argument(
        "scored decode directory, the one of the dev set on which the LM weight was chosen"
    )
    out: Path = argument("directory of the packed model to write")
    point: PointOptions = group(PointOptions)


def main(options: PackModel) -> None:
    system, point = DecodedSystem.read(options.decode_dir), options.point.of(options.decode_dir)
    inputs = [options.decode_dir / ".done.json", *options.point.inputs(options.decode_dir), *system.files()]
    with output_of(options, options.out, inputs) as out:
        pack(system, point, out)
        packed = System(out)
        log.info(
            f"{packed.info.kind} at {packed.features.rate_hz:g} Hz, LM weight {point[0]}, word insertion "
            "penalty "
            f"{point[1]}{', adapted to each recording by fMLLR' if packed.features.adaptations else ''}"
        )


if __name__ == "__main__":
    run_step(PackModel, main, __doc__)
