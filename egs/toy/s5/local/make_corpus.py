#!/usr/bin/env python3
"""Generate a small corpus of speech-like signals: formant sounds of a few invented speakers, from a list of
words.

Reads  nothing
Writes OUT/{train,dev,test} (data dirs with 8 kHz wav files in wav/) and OUT/local/dict (a pronunciation
       dictionary in Kaldi's layout)

Example:
    local/make_corpus.py --num-train 120 data
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pyasr.base.cli.options import argument, option
from pyasr.base.cli.seeds import generator
from pyasr.base.cli.step import make_part, run_step
from pyasr.data.audio.audio_reading import INT16_SCALE, write_audio
from pyasr.data.tables.datadir import write_data_dir

RATE = 8000
# phone -> (voiced, seconds, three formants in Hz); values of Peterson and Barney (1952) for the vowels
PHONES = {
    "AA": (True, 0.13, (730, 1090, 2440)),
    "IY": (True, 0.11, (270, 2290, 3010)),
    "UW": (True, 0.11, (300, 870, 2240)),
    "EH": (True, 0.11, (530, 1840, 2480)),
    "AO": (True, 0.13, (570, 840, 2410)),
    "M": (True, 0.08, (250, 1100, 2100)),
    "N": (True, 0.08, (280, 1700, 2600)),
    "L": (True, 0.08, (360, 1300, 2700)),
    "S": (False, 0.11, (3600, 3800, 3900)),
    "SH": (False, 0.11, (2000, 2600, 3300)),
    "F": (False, 0.09, (1200, 2500, 3700)),
    "K": (False, 0.05, (1500, 1800, 2600)),
}
WORDS = {
    "ALL": "AO L", "CALL": "K AO L", "COO": "K UW", "FALL": "F AO L", "FEE": "F IY", "FEN": "F EH N",
    "FOOL": "F UW L", "KEEL": "K IY L", "KEN": "K EH N", "LASH": "L AA SH", "LEASE": "L IY S",
    "LESS": "L EH S", "LOOSE": "L UW S", "MA": "M AA", "MALL": "M AO L", "MEAL": "M IY L", "MEN": "M EH N",
    "MESH": "M EH SH", "MOON": "M UW N", "NEAL": "N IY L", "NOON": "N UW N", "SEEM": "S IY M",
    "SHAWL": "SH AO L", "SHE": "SH IY", "SHELL": "SH EH L", "SHOE": "SH UW", "SOON": "S UW N", "SAW": "S AO",
    "NOËL": "N AO EH L",
}  # fmt: skip


@dataclass(frozen=True)
class MakeCorpus:
    out: Path = argument("parent directory of the new data directories")
    num_train: int = option(120, "training utterances", minimum=8)
    num_test: int = option(24, "utterances of dev and of test", minimum=2)
    num_speakers: int = option(6, "training speakers; dev and test have two more each", minimum=2)
    noise: float = option(0.15, "noise added to the signal, relative to full scale", minimum=0.0)
    seed: int = option(1, "random seed")


def envelope(freqs: np.ndarray, formants, scale: float) -> np.ndarray:
    """Magnitude of three resonances of 120 Hz bandwidth at `formants` Hz times `scale`, falling by level from
    first to third."""
    levels = (1.0, 0.6, 0.35)
    return sum(level / (1 + ((freqs - scale * f) / 120.0) ** 2) for level, f in zip(levels, formants)) + 0.002


def phone_sound(phone: str, f0: float, scale: float, rng: np.random.Generator) -> np.ndarray:
    """One phone: harmonics of `f0` Hz or noise, shaped by the phone's formants; length varies by a quarter
    around its mean."""
    voiced, seconds, formants = PHONES[phone]
    num = int(RATE * seconds * rng.uniform(0.75, 1.25))
    if voiced:
        harmonics = np.arange(1, int(3900 / f0))
        phases = 2 * np.pi * np.outer(np.arange(num) / RATE, harmonics * f0)
        sound = np.sin(phases) @ envelope(harmonics * f0, formants, scale)
    else:
        spectrum = np.fft.rfft(rng.standard_normal(num))
        sound = np.fft.irfft(spectrum * envelope(np.fft.rfftfreq(num, 1 / RATE), formants, scale), num)
    ramp = np.minimum(1, np.minimum(np.arange(num), np.arange(num)[::-1]) / 60.0)
    return ramp * sound / (np.abs(sound).max() + 1e-9)


def utterance_sound(
    words: list[str], f0: float, scale: float, noise: float, rng: np.random.Generator
) -> np.ndarray:
    """The words in sequence, with silence around and sometimes between them, as float samples in [-1, 1]."""
    pieces = [np.zeros(int(RATE * rng.uniform(0.1, 0.25)))]
    for word in words:
        pieces += [
            phone_sound(phone, f0 * rng.uniform(0.95, 1.05), scale, rng) for phone in WORDS[word].split()
        ]
        if rng.random() < 0.3:
            pieces.append(np.zeros(int(RATE * rng.uniform(0.05, 0.2))))
    pieces.append(np.zeros(int(RATE * rng.uniform(0.1, 0.25))))
    signal = 0.3 * np.concatenate(pieces)
    return signal + noise * rng.standard_normal(len(signal))


def write_set(directory: Path, name: str, num: int, speakers: list[str], options: MakeCorpus) -> None:
    """A data dir of `num` utterances, spoken in turn by `speakers`, in `directory`, which is later renamed to
    OUT/`name`."""
    (directory / "wav").mkdir()
    wav_scp, text, utt2spk = {}, {}, {}
    for i in range(num):
        speaker = speakers[i % len(speakers)]
        utt, rng = f"{speaker}-{name}{i:04d}", generator(options.seed, name, i)
        voice = generator(options.seed, speaker)
        f0, scale = voice.uniform(90, 220), voice.uniform(0.92, 1.1)
        words = [str(word) for word in rng.choice(sorted(WORDS), size=rng.integers(2, 6))]
        write_audio(
            directory / "wav" / f"{utt}.wav",
            utterance_sound(words, f0, scale, options.noise, rng) * INT16_SCALE,
            RATE,
        )
        wav_scp[utt] = options.out / name / "wav" / f"{utt}.wav"
        text[utt] = " ".join(words)
        utt2spk[utt] = speaker
    write_data_dir(directory, {"wav.scp": wav_scp, "text": text, "utt2spk": utt2spk})


def write_dict(directory: Path) -> None:
    """The dictionary directory that utils/prepare_lang.py reads."""
    files = {
        "lexicon.txt": ["<unk> SPN", *(f"{word} {phones}" for word, phones in sorted(WORDS.items()))],
        "nonsilence_phones.txt": sorted(PHONES),
        "silence_phones.txt": ["SIL", "SPN"],
        "optional_silence.txt": ["SIL"],
        "extra_questions.txt": ["SIL SPN", " ".join(p for p, (voiced, _, _) in PHONES.items() if voiced)],
    }
    for name, lines in files.items():
        (directory / name).write_text("\n".join(lines) + "\n", encoding="utf-8")


def main(options: MakeCorpus) -> None:
    speakers = [f"spk{i:02d}" for i in range(options.num_speakers + 4)]
    voices = {"train": speakers[:-4], "dev": speakers[-4:-2], "test": speakers[-2:]}
    for name in voices:
        num = options.num_train if name == "train" else options.num_test
        make_part(
            options, options.out / name, [], lambda out: write_set(out, name, num, voices[name], options)
        )
    make_part(options, options.out / "local" / "dict", [], write_dict)


if __name__ == "__main__":
    run_step(MakeCorpus, main, __doc__)
