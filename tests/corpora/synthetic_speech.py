"""Speech-like sounds at 8 kHz: phones of Mississippi State's set as harmonics or noise. Each phone has its
own formants, each voice its own pitch."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile

RATE = 8000
# phone -> (voiced, seconds, three formants in Hz); the vowels after Peterson and Barney (1952)
PHONES = {
    "iy": (True, 0.10, (270, 2290, 3010)), "ih": (True, 0.08, (390, 1990, 2550)),
    "eh": (True, 0.10, (530, 1840, 2480)), "ae": (True, 0.11, (660, 1720, 2410)),
    "aa": (True, 0.12, (730, 1090, 2440)), "ao": (True, 0.12, (570, 840, 2410)),
    "uw": (True, 0.10, (300, 870, 2240)), "ah": (True, 0.10, (640, 1190, 2390)),
    "ax": (True, 0.06, (500, 1500, 2500)), "er": (True, 0.10, (490, 1350, 1690)),
    "ey": (True, 0.11, (400, 2150, 2750)), "ay": (True, 0.12, (700, 1500, 2200)),
    "ow": (True, 0.11, (450, 800, 2830)), "m": (True, 0.08, (250, 1100, 2100)),
    "n": (True, 0.08, (280, 1700, 2600)), "ng": (True, 0.08, (280, 2300, 2750)),
    "l": (True, 0.08, (360, 1300, 2700)), "r": (True, 0.08, (310, 1060, 1380)),
    "w": (True, 0.08, (290, 610, 2150)), "y": (True, 0.08, (260, 2070, 3020)),
    "v": (True, 0.07, (220, 1100, 3500)), "dh": (True, 0.06, (220, 1600, 3400)),
    "z": (True, 0.08, (220, 3500, 3900)), "b": (True, 0.05, (200, 900, 1500)),
    "d": (True, 0.05, (200, 1800, 3300)), "g": (True, 0.05, (200, 2500, 2900)),
    "s": (False, 0.11, (3600, 3800, 3900)), "sh": (False, 0.11, (2000, 2600, 3300)),
    "f": (False, 0.09, (1200, 2500, 3700)), "th": (False, 0.08, (1500, 3000, 3600)),
    "hh": (False, 0.07, (500, 1500, 2500)), "p": (False, 0.05, (600, 1100, 1700)),
    "t": (False, 0.05, (3000, 3400, 3800)), "k": (False, 0.06, (1500, 1800, 2600)),
    "nsn": (False, 0.20, (300, 400, 500)), "lau": (False, 0.20, (900, 1000, 1200)),
    "spn": (True, 0.15, (900, 2800, 3600)),
}  # fmt: skip


@dataclass
class Voice:
    """A speaker: pitch in Hz, factor on formants, and a random number generator."""

    pitch: float
    scale: float
    rng: np.random.Generator

    @classmethod
    def of(cls, name: str) -> Voice:
        """Voice of this name, always the same."""
        rng = np.random.default_rng(list(name.encode()))
        return cls(rng.uniform(90, 220), rng.uniform(0.93, 1.08), rng)

    def say(self, phones: list[str]) -> np.ndarray:
        """float32 samples in [-0.5, 0.5], with a pause of about 0.2 s before and after."""
        pauses = (np.zeros(int(RATE * self.rng.uniform(0.15, 0.25))) for _ in range(2))
        return np.concatenate([next(pauses), *map(self._phone, phones), next(pauses)]).astype(np.float32)

    def _phone(self, phone: str) -> np.ndarray:
        voiced, seconds, formants = PHONES[phone]
        num = int(RATE * seconds * self.rng.uniform(0.85, 1.25))
        if voiced:
            harmonics = np.arange(1, int(3900 / self.pitch)) * self.pitch
            sound = np.sin(2 * np.pi * np.outer(np.arange(num) / RATE, harmonics)) @ self._envelope(
                harmonics, formants
            )
        else:
            spectrum = np.fft.rfft(self.rng.standard_normal(num))
            sound = np.fft.irfft(spectrum * self._envelope(np.fft.rfftfreq(num, 1 / RATE), formants), num)
        ramp = np.minimum(1, np.minimum(np.arange(num), np.arange(num)[::-1]) / 60)
        return 0.4 * ramp * sound / (np.abs(sound).max() + 1e-9)

    def _envelope(self, hertz: np.ndarray, formants: tuple[int, int, int]) -> np.ndarray:
        """Three resonances with a bandwidth of 120 Hz, whose levels fall from first to third."""
        resonances = (
            level / (1 + ((hertz - self.scale * f) / 120) ** 2)
            for level, f in zip((1.0, 0.6, 0.35), formants)
        )
        return sum(resonances) + 0.002


def write_sphere(path: Path, channels: list[np.ndarray], count_all: bool = False) -> None:
    """Write float samples in [-1, 1] as a mu-law SPHERE file, padded with noise to one length. With
    `count_all`, its header counts the samples of all channels together, as in Switchboard's first release."""
    length = max(map(len, channels))
    rng = np.random.default_rng(length)
    samples = 0.004 * rng.standard_normal((length, len(channels)))
    for i, channel in enumerate(channels):
        samples[: len(channel), i] += channel
    content = io.BytesIO()
    soundfile.write(content, np.clip(samples, -0.99, 0.99), RATE, format="RAW", subtype="ULAW")
    fields = {
        "sample_count -i": length * (len(channels) if count_all else 1),
        "sample_n_bytes -i": 1,
        "channel_count -i": len(channels),
        "sample_byte_format -s1": 1,
        "sample_rate -i": RATE,
        "sample_coding -s4": "ulaw",
    }
    head = (
        "NIST_1A\n   1024\n" + "".join(f"{name} {value}\n" for name, value in fields.items()) + "end_head\n"
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(head.encode().ljust(1024) + content.getvalue())
