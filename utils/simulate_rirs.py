#!/usr/bin/env python3
"""Simulate impulse responses of randomly drawn rooms, for utils/reverberate_data_dir.py.

Reads   nothing
Writes  OUT/{KINDnnn-nn.wav,rir_list}

    utils/simulate_rirs.py --sample-frequency 16000 rirs
"""

from dataclasses import dataclass
from pathlib import Path

from pyasr.base import log
from pyasr.base.cli.options import argument, group
from pyasr.base.cli.step import output_of, run_step
from pyasr.base.files.table_paths import as_named
from pyasr.data.augmentation.random_rooms import RIR_LIST, RoomOptions, write_responses


@dataclass(frozen=True)
class SimulateRirs:
    out: Path = argument("directory to write")
    room: RoomOptions = group(RoomOptions)


def main(options: SimulateRirs) -> None:
    with output_of(options, options.out, []) as out:
        num = write_responses(options.room, out, as_named(options.out))
    log.info(f"{options.out / RIR_LIST}: {num} impulse responses")


if __name__ == "__main__":
    run_step(SimulateRirs, main, __doc__)
