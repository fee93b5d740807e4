#!/usr/bin/env python3
"""Make one directory of all that a scored decoding was made with, to be used by utils/transcribe.py and to be shipped.

Features, normalisation, network or GMMs, fMLLR and i-vectors where the features had them, graph, lexicon, beams, LM weight and penalty: a
model that was decoded and scored goes together, and what has changed since is refused. Run it where the recipe runs.

Reads  DECODE_DIR/{.done.json,scoring/summary.json}, graph, model and data directories that the former names, and what these were made from
Writes MODEL, of which MODEL/model.json names every file with its size and SHA-256

Example:
    utils/pack_model.py exp/dnn/decode_dev model
"""

from dataclasses import dataclass
from pathlib import Path

from pyasr.base import log
from pyasr.base.options import argument, group
from pyasr.base.step import output_of, run_step
from pyasr.recognition.packing import pack
from pyasr.recognition.provenance import DecodedSystem
from pyasr.recognition.system import System
from pyasr.score.decode_dir import PointOptions


@dataclass(frozen=True)
class PackModel:
    decode_dir: Path = argument("decode directory, scored: the one whose LM weight was chosen, on dev")
    out: Path = argument("directory of the packed model")
    point: PointOptions = group(PointOptions)


def main(options: PackModel) -> None:
    system, point = DecodedSystem.read(options.decode_dir), options.point.of(options.decode_dir)
    inputs = [options.decode_dir / ".done.json", *options.point.inputs(options.decode_dir), *system.files()]
    with output_of(options, options.out, inputs) as out:
        pack(system, point, out)
        packed = System(out)
        log.info(f"{packed.info.kind} at {packed.features.rate_hz:g} Hz, LM weight {point[0]}, word insertion penalty {point[1]}"
                 f"{', adapted to each recording by fMLLR' if packed.features.adaptations else ''}")


if __name__ == "__main__":
    run_step(PackModel, main, __doc__)
