"""Recordings of a data directory, with the channel, speed, distortion and volume that its tables specify."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby

import numpy as np

from pyasr.base.errors import UserError
from pyasr.data.audio.audio_reading import ONLY, read_channels, resample
from pyasr.data.audio.channels import label_of, pick
from pyasr.data.audio.mixing import distorted
from pyasr.data.tables.datadir import FIX, SPEED, VOLUME, DataDir
from pyasr.data.tables.rules import overshoot_complaint, speed_complaint


def read_recording(data: DataDir, name: str, channel: int = ONLY) -> tuple[np.ndarray, int]:
    """(float32 samples at int16 scale, sampling rate in Hz) of the recording `name` of wav.scp.

    channel  the channel of a file with several, the first is 0; ONLY: the one named by
             `reco2file_and_channel`

    Raises UserError as `read_audio` does, and if wav.scp lacks the recording, its speed is not from 0.25 to
    4, or its volume is not a positive number.
    """
    return next(read_recordings(data, [name], channel))


def read_recordings(
    data: DataDir, names: Iterable[str], channel: int = ONLY, unnamed: int = ONLY
) -> Iterator[tuple[np.ndarray, int]]:
    """`read_recording` for each of `names`. A file is decoded once for consecutive recordings that are its
    channels, and then freed.

    unnamed  the channel of a file with several if neither `channel` nor `reco2file_and_channel` names one
    """
    for entry, of_file in groupby(names, key=lambda name: _entry(data, name)):
        *others, last = of_file
        audio, rate = read_channels(entry, others[0] if others else last)
        for name in others:
            yield _modified(data, name, _channel_of(data, name, audio, channel, unnamed), rate), rate
        samples = _channel_of(data, last, audio, channel, unnamed)
        del audio
        yield _modified(data, last, samples, rate), rate


def _entry(data: DataDir, name: str) -> str:
    if name not in data.wav_scp:
        raise UserError(
            f"{data.path}/wav.scp: no line for {name}; run utils/validate_data_dir.py {data.path}"
        )
    return data.wav_scp[name]


def _channel_of(data: DataDir, name: str, audio: np.ndarray, channel: int, unnamed: int) -> np.ndarray:
    """The channel of the recording `name`, (num_samples,), of `audio` (num_samples, num_channels)."""
    label = label_of(data, name) if channel == ONLY and audio.shape[1] > 1 else ""
    return np.ascontiguousarray(
        audio[:, pick(audio.shape[1], label, f"{name}: {data.wav_scp[name]}", channel, unnamed)]
    )


def _modified(data: DataDir, name: str, samples: np.ndarray, rate: int) -> np.ndarray:
    """The samples of a recording after its changes of speed, distortion and volume."""
    samples = change_speed(samples, rate, speed(data, name))
    if name in data.reco2distortion:
        samples = distorted(samples, rate, data.reco2distortion[name])
    return samples * np.float32(volume(data, name)) if name in data.reco2volume else samples


def cut_utterance(samples: np.ndarray, rate: float, data: DataDir, utt: str) -> np.ndarray:
    """The samples of an utterance, cut from the `samples` of its recording by `segments`; all of them without
    a segment.

    Raises UserError for a segment outside of its recording; an overshoot of up to 0.5 s at the end is
    allowed.
    """
    segment = data.segments.get(utt)
    if segment is None:
        return samples
    line = f"{segment.recording} {segment.begin_s} {segment.end_s}"
    if complaint := overshoot_complaint(line, {segment.recording: len(samples) / rate}):
        raise UserError(
            f"{data.path}/segments: {utt} {complaint}; correct it, or run {FIX} --audio read {data.path}"
        )
    return samples[
        round(segment.begin_s * rate) : round(segment.end_s * rate) if segment.end_s > 0 else len(samples)
    ]


def speed(data: DataDir, name: str) -> float:
    """The playback speed of the recording `name`; 1 is the original speed. Raises UserError for a value
    outside of 0.25 to 4."""
    text = data.reco2speed.get(name, "1")
    if complaint := speed_complaint(text):
        raise UserError(f"{data.path}/{SPEED}: '{name} {text}' is {complaint}; correct the line")
    return float(text)


def known_durations(data: DataDir) -> Mapping[str, float]:
    """{recording: seconds} from `reco2dur`, or from `utt2dur` if recordings are utterances."""
    if data.has("reco2dur"):
        return data.reco2dur
    return data.utt2dur if data.has("utt2dur") and not data.segments else {}


def duration_s(data: DataDir, name: str) -> float:
    """Seconds of a recording, from `known_durations`; otherwise its audio is read."""
    known = known_durations(data)
    if name in known:
        return known[name]
    samples, rate = read_recording(data, name, channel=0)  # all channels have the same length
    return len(samples) / rate


def change_speed(samples: np.ndarray, rate: int, factor: float) -> np.ndarray:
    """`samples` played `factor` times as fast at the same sampling rate, about len(samples) / factor samples;
    the pitch changes, too."""
    return resample(samples, max(round(rate * factor), 1), rate)


def volume(data: DataDir, name: str) -> float:
    """The factor on the samples of the recording `name`. Raises UserError if it is not a positive number."""
    text = data.reco2volume.get(name, "1")
    try:
        factor = float(text)
    except ValueError:
        factor = 0.0
    if not 0 < factor < float("inf"):
        raise UserError(f"{data.path}/{VOLUME}: '{name} {text}' is not a positive number; correct the line")
    return factor
