#!/usr/bin/env python3
"""Create a training data directory with copies of each utterance at other speeds, or with random volumes.

Reads   DATA
Writes  OUT

    utils/perturb_data_dir.py data/train data/train_sp  # 0.9, 1 and 1.1 times the speed
    utils/perturb_data_dir.py --speeds "" --perturb-volume true data/train_sp data/train_sp_vol
"""

from dataclasses import dataclass
from pathlib import Path

from pyasr.base import log
from pyasr.base.cli.options import argument, group
from pyasr.base.cli.step import output_of, run_step
from pyasr.data.augmentation.perturb import Perturbation, perturbed
from pyasr.data.parts import subsets
from pyasr.data.parts.side_files import carry
from pyasr.data.tables.datadir import DataDir


@dataclass(frozen=True)
class PerturbDataDir:
    data: Path = argument("data directory")
    out: Path = argument("data directory to write")
    perturbation: Perturbation = group(Perturbation)


def main(options: PerturbDataDir) -> None:
    data = DataDir(options.data)
    with output_of(options, options.out, subsets.table_files(data, with_features=False)) as out:
        subsets.write_all(out, perturbed(data, options.perturbation))
        carry(data, out, with_features=False)
    log.info(f"{options.out}: {subsets.num_utterances(options.out)} utterances of {len(data.utt2spk)}")


if __name__ == "__main__":
    run_step(PerturbDataDir, main, __doc__)
