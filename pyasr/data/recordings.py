"""The recordings of a data directory at the speed, with the distortion and at the volume that it says."""

from __future__ import annotations

import numpy as np

from pyasr.base.errors import UserError
from pyasr.data.audio import ONLY, read_audio, resample
from pyasr.data.datadir import FIX, SPEED, VOLUME, DataDir
from pyasr.data.mixing import distorted
from pyasr.data.validation import overshoot_complaint, speed_complaint


def read_recording(data: DataDir, name: str, channel: int = ONLY) -> tuple[np.ndarray, int]:
    """(float32 samples at int16 scale, sampling rate in Hz) of the recording `name` of wav.scp, `channel` as for `read_audio`.

    Raises UserError as `read_audio` does, and where there is no such recording, its speed is none from 0.25 to 4, or its volume no positive
    number.
    """
    if name not in data.wav_scp:
        raise UserError(f"{data.path}/wav.scp: no line for {name}; run utils/validate_data_dir.py {data.path}")
    samples, rate = read_audio(data.wav_scp[name], name, channel)
    samples = change_speed(samples, rate, speed(data, name))
    if name in data.reco2distortion:
        samples = distorted(samples, rate, data.reco2distortion[name])
    if name in data.reco2volume:
        samples = samples * np.float32(volume(data, name))
    return samples, rate


def cut_utterance(samples: np.ndarray, rate: float, data: DataDir, utt: str) -> np.ndarray:
    """What `segments` takes of the `samples` of an utterance's recording, all where it is a recording of its own.

    Raises UserError for a segment that does not lie within its recording, but for 0.5 s at the end.
    """
    segment = data.segments.get(utt)
    if segment is None:
        return samples
    line = f"{segment.recording} {segment.begin_s} {segment.end_s}"
    if complaint := overshoot_complaint(line, {segment.recording: len(samples) / rate}):
        raise UserError(f"{data.path}/segments: {utt} {complaint}; correct it, or run {FIX} --audio read {data.path}")
    return samples[round(segment.begin_s * rate):round(segment.end_s * rate) if segment.end_s > 0 else len(samples)]


def speed(data: DataDir, name: str) -> float:
    """How many times as fast the recording `name` is to be played. Raises UserError where that is no speed from 0.25 to 4."""
    text = data.reco2speed.get(name, "1")
    if complaint := speed_complaint(text):
        raise UserError(f"{data.path}/{SPEED}: '{name} {text}' is {complaint}; correct the line")
    return float(text)


def duration_s(data: DataDir, name: str) -> float:
    """Seconds of a recording: what `reco2dur` says, or `utt2dur` where recordings are utterances; otherwise its audio is read."""
    known = data.reco2dur if data.has("reco2dur") else data.utt2dur if data.has("utt2dur") and not data.segments else {}
    if name in known:
        return known[name]
    samples, rate = read_recording(data, name, channel=0)  # all are of one length
    return len(samples) / rate


def change_speed(samples: np.ndarray, rate: int, factor: float) -> np.ndarray:
    """`samples` played `factor` times as fast, which raises the pitch too, at the same rate: about len(samples) / factor of them."""
    return resample(samples, max(round(rate * factor), 1), rate)


def volume(data: DataDir, name: str) -> float:
    """The factor on the samples of the recording `name`. Raises UserError where that is no positive number."""
    text = data.reco2volume.get(name, "1")
    try:
        factor = float(text)
    except ValueError:
        factor = 0.0
    if not 0 < factor < float("inf"):
        raise UserError(f"{data.path}/{VOLUME}: '{name} {text}' is no positive number; correct the line")
    return factor
