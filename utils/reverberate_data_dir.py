#!/usr/bin/env python3
"""Create a training data directory of reverberant and noisy copies of the utterances.

Reads   DATA, lists of impulse responses and noises, and their audio
Writes  OUT, and with --fg-noise DATA/.recordings (used to detect that a recording was replaced)

    utils/reverberate_data_dir.py --rir-list rirs/rir_list --num-replications 2 data/train data/train_rvb
    utils/reverberate_data_dir.py --prefix noise --fg-noise noises/noise_list --fg-snrs 15:10:5:0 \\
        data/train data/train_noise
    utils/reverberate_data_dir.py --prefix babble --num-babble 3:4:5:6:7 data/train data/train_babble
"""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from pyasr.base import log
from pyasr.base.cli.options import argument, group
from pyasr.base.cli.step import output_of, run_step
from pyasr.data.augmentation.augment import AugmentOptions, augmented
from pyasr.data.augmentation.sound_lists import list_file
from pyasr.data.checks.recording_prints import recording_prints
from pyasr.data.parts import subsets
from pyasr.data.parts.side_files import carry
from pyasr.data.tables.datadir import DataDir


@dataclass(frozen=True)
class ReverberateDataDir:
    data: Path = argument("data directory")
    out: Path = argument("data directory to write")
    augment: AugmentOptions = group(AugmentOptions)


def main(options: ReverberateDataDir) -> None:
    data, augment = DataDir(options.data), options.augment
    lists = [list_file(path) for path in (augment.rir_list, augment.fg_noise, augment.bg_noise) if path]
    inputs = [*subsets.table_files(data, with_features=False), *lists]
    fills = bool(augment.fg_noise)  # the number of these noises depends on the length of the recording
    prints: AbstractContextManager[list[Path]] = recording_prints(data.path) if fills else nullcontext([])
    with prints as audio, output_of(options, options.out, inputs + audio) as out:
        subsets.write_all(out, augmented(data, augment))
        carry(data, out, with_features=False)
    log.info(f"{options.out}: {subsets.num_utterances(options.out)} utterances of {len(data.utt2spk)}")


if __name__ == "__main__":
    run_step(ReverberateDataDir, main, __doc__)
