"""Kaldi's own feature code, compiled into the library of the vosk wheel (0.3.45, Linux on x86-64), as
functions of numpy arrays.

    pip download --no-deps vosk==0.3.45 && unzip -d /tmp/vosk vosk-*.whl
    VOSK_LIBRARY=/tmp/vosk/vosk/libvosk.so benchmarks/features.py

The library exports Kaldi's C++ functions. They are called by their mangled names, with the structures of
Kaldi's headers. Used by features.py, and by tests/feats/make_kaldi_feats.py, which stores some of the
results.
"""

from __future__ import annotations

import ctypes
import os
from ctypes import POINTER, Structure, addressof, byref, c_bool, c_char, c_float, c_int32, c_size_t, c_void_p
from functools import cache

import numpy as np

VECTOR, MATRIX = "RKNS_10VectorBaseIfEE", "RKNS_10MatrixBaseIfEE"


class Vector(Structure):
    """VectorBase<float>."""

    _fields_ = [("data", POINTER(c_float)), ("dim", c_int32)]


class Matrix(Structure):
    """MatrixBase<float>."""

    _fields_ = [("data", POINTER(c_float)), ("num_cols", c_int32), ("num_rows", c_int32), ("stride", c_int32)]


class OldString(Structure):
    """The representation of a std::string in GCC's old ABI, which points to `text`."""

    _fields_ = [
        ("length", c_size_t),
        ("capacity", c_size_t),
        ("refcount", c_int32),
        ("padding", c_int32),
        ("text", c_char * 16),
    ]


_POVEY = OldString(5, 5, 1 << 20, 0, b"povey")


def _structure(name: str, fields: list[tuple]) -> type[Structure]:
    """A structure of fields (name, type, default)."""
    return type(
        name,
        (Structure,),
        {"_fields_": [field[:2] for field in fields], "defaults": {field[0]: field[2] for field in fields}},
    )


PITCH = _structure("PitchExtractionOptions", [
    ("samp_freq", c_float, 16000), ("frame_shift_ms", c_float, 10), ("frame_length_ms", c_float, 25),
    ("preemph_coeff", c_float, 0), ("min_f0", c_float, 50), ("max_f0", c_float, 400),
    ("soft_min_f0", c_float, 10), ("penalty_factor", c_float, 0.1), ("lowpass_cutoff", c_float, 1000),
    ("resample_freq", c_float, 4000), ("delta_pitch", c_float, 0.005), ("nccf_ballast", c_float, 7000),
    ("lowpass_filter_width", c_int32, 1), ("upsample_filter_width", c_int32, 5),
    ("max_frames_latency", c_int32, 0), ("frames_per_chunk", c_int32, 0),
    ("simulate_first_pass_online", c_bool, False), ("recompute_frame", c_int32, 500),
    ("nccf_ballast_online", c_bool, False), ("snip_edges", c_bool, True)])  # fmt: skip
PROCESS = _structure(
    "ProcessPitchOptions",
    [
        ("pitch_scale", c_float, 2),
        ("pov_scale", c_float, 2),
        ("pov_offset", c_float, 0),
        ("delta_pitch_scale", c_float, 10),
        ("delta_pitch_noise_stddev", c_float, 0.005),
        ("normalization_left_context", c_int32, 75),
        ("normalization_right_context", c_int32, 75),
        ("delta_window", c_int32, 2),
        ("delay", c_int32, 0),
        ("add_pov_feature", c_bool, True),
        ("add_normalized_log_pitch", c_bool, True),
        ("add_delta_pitch", c_bool, True),
        ("add_raw_log_pitch", c_bool, False),
    ],
)
SLIDING = _structure(
    "SlidingWindowCmnOptions",
    [
        ("cmn_window", c_int32, 600),
        ("min_window", c_int32, 100),
        ("max_warnings", c_int32, 0),
        ("normalize_variance", c_bool, False),
        ("center", c_bool, False),
    ],
)
FRAME = _structure(
    "FrameExtractionOptions",
    [
        ("samp_freq", c_float, 16000),
        ("frame_shift_ms", c_float, 10),
        ("frame_length_ms", c_float, 25),
        ("dither", c_float, 0),
        ("preemph_coeff", c_float, 0.97),
        ("remove_dc_offset", c_bool, True),
        ("window_type", c_void_p, addressof(_POVEY) + OldString.text.offset),
        ("round_to_power_of_two", c_bool, True),
        ("blackman_coeff", c_float, 0.42),
        ("snip_edges", c_bool, True),
        ("allow_downsample", c_bool, False),
        ("allow_upsample", c_bool, False),
        ("max_feature_vectors", c_int32, -1),
    ],
)
MEL = _structure(
    "MelBanksOptions",
    [
        ("num_bins", c_int32, 23),
        ("low_freq", c_float, 20),
        ("high_freq", c_float, 0),
        ("vtln_low", c_float, 100),
        ("vtln_high", c_float, -500),
        ("debug_mel", c_bool, False),
        ("htk_mode", c_bool, False),
    ],
)
PLP = _structure(
    "PlpOptions",
    [
        ("frame", FRAME, None),
        ("mel", MEL, None),
        ("lpc_order", c_int32, 12),
        ("num_ceps", c_int32, 13),
        ("use_energy", c_bool, True),
        ("energy_floor", c_float, 0),
        ("raw_energy", c_bool, True),
        ("compress_factor", c_float, 0.33333),
        ("cepstral_lifter", c_int32, 22),
        ("cepstral_scale", c_float, 1),
        ("htk_compat", c_bool, False),
    ],
)
FBANK = _structure(
    "FbankOptions",
    [
        ("frame", FRAME, None),
        ("mel", MEL, None),
        ("use_energy", c_bool, False),
        ("energy_floor", c_float, 0),
        ("raw_energy", c_bool, True),
        ("htk_compat", c_bool, False),
        ("use_log_fbank", c_bool, True),
        ("use_power", c_bool, True),
    ],
)


def _options(cls: type[Structure], **values) -> Structure:
    """The structure with its defaults, except `values`."""
    return cls(**{**cls.defaults, **values})


@cache
def library() -> ctypes.CDLL:
    """libvosk. Raises OSError if VOSK_LIBRARY does not name a library."""
    return ctypes.CDLL(os.environ.get("VOSK_LIBRARY", "libvosk.so"))


def _vector(x: np.ndarray) -> Vector:
    return Vector(x.ctypes.data_as(POINTER(c_float)), len(x))


def _matrix(x: np.ndarray) -> Matrix:
    return Matrix(x.ctypes.data_as(POINTER(c_float)), x.shape[1], x.shape[0], x.shape[1])


def _taken(matrix: Matrix) -> np.ndarray:
    """A copy of the matrix that Kaldi has allocated, which is then freed."""
    if not matrix.num_rows:
        return np.zeros((0, 0), np.float32)
    copy = np.ctypeslib.as_array(matrix.data, (matrix.num_rows, matrix.stride))[:, : matrix.num_cols].copy()
    ctypes.CDLL(None).free(matrix.data)
    return copy


def pitch(wave: np.ndarray, **options) -> np.ndarray:
    """compute-kaldi-pitch-feats: (T, 2), NCCF and pitch in Hz."""
    wave, out = np.ascontiguousarray(wave, np.float32), Matrix()
    compute = library()[f"_ZN5kaldi17ComputeKaldiPitchERKNS_22PitchExtractionOptionsE{VECTOR}PNS_6MatrixIfEE"]
    compute(byref(_options(PITCH, **options)), byref(_vector(wave)), byref(out))
    return _taken(out)


def process_pitch(raw: np.ndarray, **options) -> np.ndarray:
    """process-kaldi-pitch-feats of the output of `pitch`."""
    raw, out = np.ascontiguousarray(raw, np.float32), Matrix()
    compute = library()[f"_ZN5kaldi12ProcessPitchERKNS_19ProcessPitchOptionsE{MATRIX}PNS_6MatrixIfEE"]
    compute(byref(_options(PROCESS, **options)), byref(_matrix(raw)), byref(out))
    return _taken(out)


def sliding_cmn(features: np.ndarray, **options) -> np.ndarray:
    """apply-cmvn-sliding."""
    features = np.ascontiguousarray(features, np.float32)
    out = np.empty_like(features)
    compute = library()[f"_ZN5kaldi16SlidingWindowCmnERKNS_23SlidingWindowCmnOptionsE{MATRIX}PS4_"]
    compute(byref(_options(SLIDING, **options)), byref(_matrix(features)), byref(_matrix(out)))
    return out


def _computed(
    kind: str, options: Structure, dim: int, frames: np.ndarray, log_energies: np.ndarray, warp: float
) -> np.ndarray:
    """Features of windowed, padded frames by Kaldi's computer of `kind` (Plp, Fbank)."""
    space, name = ctypes.create_string_buffer(1 << 14), f"_ZN5kaldi{len(kind) + 8}{kind}Computer"
    library()[f"{name}C1ERKNS_{len(kind) + 7}{kind}OptionsE"](space, byref(options))
    compute = library()[f"{name}7ComputeEffPNS_10VectorBaseIfEES3_"]
    compute.argtypes = [c_void_p, c_float, c_float, c_void_p, c_void_p]
    out = np.empty((len(frames), dim), np.float32)
    for row, frame, energy in zip(out, frames, log_energies):
        frame = np.array(frame, np.float32)  # Kaldi overwrites it
        compute(space, energy, warp, byref(_vector(frame)), byref(_vector(row)))
    return out


def plp(
    frames: np.ndarray, log_energies: np.ndarray, rate: float, warp: float = 1.0, **options
) -> np.ndarray:
    """compute-plp-feats of windowed, padded frames."""
    options = _options(PLP, frame=_options(FRAME, samp_freq=rate), mel=_options(MEL), **options)
    return _computed("Plp", options, options.num_ceps, frames, log_energies, warp)


def fbank(frames: np.ndarray, log_energies: np.ndarray, rate: float, warp: float = 1.0, **mel) -> np.ndarray:
    """compute-fbank-feats of windowed, padded frames."""
    options = _options(FBANK, frame=_options(FRAME, samp_freq=rate), mel=_options(MEL, **mel))
    return _computed("Fbank", options, options.mel.num_bins, frames, log_energies, warp)
