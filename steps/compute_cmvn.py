#!/usr/bin/env python3
"""Compute the cepstral mean and variance statistics of each speaker.

Reads  DATA/{feats.scp,utt2spk}
Writes DATA/cmvn (archive), DATA/cmvn.scp; one of the user's own is kept in DATA/.backup

Example:
    steps/compute_cmvn.py data/train
"""

from dataclasses import dataclass
from pathlib import Path

from pyasr.base.options import argument
from pyasr.base.step import output_of, run_step
from pyasr.base.table_paths import as_named
from pyasr.data.backup import set_aside
from pyasr.feats.speaker_cmvn import publish, write_speaker_cmvn


@dataclass(frozen=True)
class ComputeCmvn:
    data: Path = argument("data directory")


def main(options: ComputeCmvn) -> None:
    data, cmvn = options.data, options.data / "cmvn"
    inputs = [data / "feats.scp", data / "utt2spk", *data.glob("feats")]
    with output_of(options, cmvn, inputs, also=[data / "cmvn.scp"]) as out:
        write_speaker_cmvn(data, out, as_named(cmvn))
        set_aside(data / "cmvn.scp", cmvn)
        (data / "cmvn.scp").unlink(missing_ok=True)
    publish(data)


if __name__ == "__main__":
    run_step(ComputeCmvn, main, __doc__)
