"""Make tests/fixtures/kaldi_feats.npz: features of our signals computed by Kaldi's own code.
benchmarks/peer_vosk.py describes where to find the library.

    PYTHONPATH=benchmarks:tests/feats VOSK_LIBRARY=/tmp/vosk/vosk/libvosk.so \\
        python tests/feats/make_kaldi_feats.py

Each array is named by a case below; the tests read the cases from here.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from signals import noise, speech_like, windowed_frames

OUT = Path(__file__).parents[1] / "fixtures" / "kaldi_feats.npz"
PITCH = {
    "pitch_8k": (8000, {}),
    "pitch_16k": (16000, {}),
    "pitch_unsnipped": (8000, {"snip_edges": False}),
    "pitch_options": (
        16000,
        {
            "min_f0": 80,
            "max_f0": 300,
            "delta_pitch": 0.02,
            "penalty_factor": 0.02,
            "soft_min_f0": 30,
            "nccf_ballast": 700,
            "lowpass_cutoff": 900,
            "resample_freq": 3000,
            "upsample_filter_width": 4,
        },
    ),
}
PROCESS = {
    "process": {"add_raw_log_pitch": True},
    "process_options": {
        "pitch_scale": 1.5,
        "pov_scale": 3,
        "pov_offset": 0.5,
        "delta_pitch_scale": 4,
        "delta_window": 3,
        "normalization_left_context": 20,
        "normalization_right_context": 5,
    },
}
PLP = {
    "plp_8k": (8000, 1.0, {}),
    "plp_16k": (16000, 1.0, {"use_energy": False}),
    "plp_warped": (8000, 0.88, {"use_energy": False}),
    "plp_options": (
        8000,
        1.1,
        {"lpc_order": 9, "num_ceps": 8, "compress_factor": 0.5, "cepstral_lifter": 0, "cepstral_scale": 10.0},
    ),
}
FBANK = {
    "fbank_0.8": (16000, 0.8, {}),
    "fbank_1.2": (8000, 1.2, {}),
    "fbank_knees": (
        8000,
        1.1,
        {"vtln_low": 200, "vtln_high": 3300, "low_freq": 60, "high_freq": -100, "num_bins": 30},
    ),
}
SLIDING = {
    "sliding": {"cmn_window": 20, "min_window": 12},
    "sliding_vars": {"cmn_window": 20, "min_window": 12, "normalize_variance": True},
    "sliding_centre": {"cmn_window": 21, "min_window": 12, "center": True, "normalize_variance": True},
    "sliding_short": {"cmn_window": 600, "min_window": 100, "center": True},
}
EVERY = slice(0, None, 9)  # frames of PLP and filter banks that are kept


def voiced_frames(rate: int) -> tuple[np.ndarray, np.ndarray]:
    """Frames of the signal without digital silence, for which Kaldi's PLP are NaN."""
    frames, log_energies = windowed_frames(speech_like(rate), rate)
    loud = log_energies > 0
    return frames[loud][EVERY], log_energies[loud][EVERY]


def sliding_input() -> np.ndarray:
    return (5 * noise(90).reshape(30, 3) + [0, 10, -3]).astype(np.float32)


def main() -> None:
    import peer_vosk as kaldi

    found = {
        name: kaldi.pitch(speech_like(rate), samp_freq=rate, **options)
        for name, (rate, options) in PITCH.items()
    }
    for name, options in PROCESS.items():
        found[name] = kaldi.process_pitch(found["pitch_8k"], delta_pitch_noise_stddev=0, **options)
    for kind, cases in ((kaldi.plp, PLP), (kaldi.fbank, FBANK)):
        for name, (rate, warp, options) in cases.items():
            found[name] = kind(*voiced_frames(rate), rate, warp, **options)
    found |= {name: kaldi.sliding_cmn(sliding_input(), **options) for name, options in SLIDING.items()}
    np.savez_compressed(OUT, **found)


if __name__ == "__main__":
    main()
