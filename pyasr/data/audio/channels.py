"""The channel of each recording in its file: the table `reco2file_and_channel`, lines `RECORDING FILE
CHANNEL`.

Channels are A, B, ... or 1, 2, ... in their order in the file. The table does not apply to audio of a single
channel: the output of `sph2pipe -c 2 FILE |` is channel B only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from pyasr.base.errors import UserError
from pyasr.data.audio.audio_reading import ONLY, audio_head, check_channel
from pyasr.data.tables.datadir import FILE_AND_CHANNEL, DataDir

_THREADS = 8


def file_and_channel(data: DataDir, name: str) -> tuple[str, str] | None:
    """(file, channel) of the recording `name`; None without a line. Raises UserError for a line that is not
    'RECORDING FILE CHANNEL'."""
    value = data.reco2file_and_channel.get(name)
    if value is None:
        return None
    fields = value.split()
    if len(fields) != 2:
        raise UserError(
            f"{data.path}/{FILE_AND_CHANNEL}: '{name} {value}' is not 'RECORDING FILE CHANNEL'; correct the "
            "line"
        )
    return fields[0], fields[1]


def label_of(data: DataDir, name: str) -> str:
    """The channel of the recording `name`; '' without a line."""
    found = file_and_channel(data, name)
    return found[1] if found else ""


def labels_of(table: Mapping[str, str]) -> dict[str, str]:
    """{recording: channel} of the lines that have a file and a channel."""
    return {name: value.split()[1] for name, value in table.items() if len(value.split()) == 2}


def pick(num_channels: int, label: str, where: str, channel: int = ONLY, unnamed: int = ONLY) -> int:
    """The channel of a file to read, counted from 0: `channel` if given, else the only one, else that of
    `label`, else `unnamed`.

    Raises UserError, beginning with `where`, if the file lacks this channel, or has several and none of these
    names one.
    """
    if channel == ONLY and num_channels > 1:
        channel = _place(label, num_channels, where) if label else unnamed
    check_channel(num_channels, channel, where)
    return max(channel, 0)


def named_channels(data: DataDir) -> dict[str, int]:
    """{recording: channel} of the recordings that have a line and whose file has several channels according
    to its header."""
    names = [name for name in data.reco2file_and_channel if name in data.wav_scp]
    with ThreadPoolExecutor(_THREADS) as pool:  # headers of files on a network are read concurrently
        heads = dict(zip(names, pool.map(lambda name: audio_head(data.wav_scp[name]), names)))
    num_channels = {name: head[1] for name, head in heads.items() if head and head[1] > 1}
    return {
        name: pick(num, label_of(data, name), f"{name}: {data.wav_scp[name]}")
        for name, num in num_channels.items()
    }


def _place(label: str, num_channels: int, where: str) -> int:
    if re.fullmatch("[A-Za-z]", label):
        place = ord(label.upper()) - ord("A")
    else:
        place = int(label) - 1 if re.fullmatch("[1-9][0-9]{0,3}", label) else num_channels
    if place >= num_channels:
        found = f"{FILE_AND_CHANNEL} names channel '{label}', but the file has {num_channels} channels"
        raise UserError(
            f"{where}: {found}; correct the line: channels are A, B, ... or 1, 2, ... in the order of the "
            "file"
        )
    return place
