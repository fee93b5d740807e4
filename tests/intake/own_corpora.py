"""Small corpora of a user, in every form: tones with texts, or the toy recipe's speech."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import soundfile
from steps_here import step_of

from pyasr.base.cli.options import parse
from pyasr.base.cli.seeds import generator
from pyasr.data.audio.audio_reading import INT16_SCALE, write_audio
from pyasr.intake.own.preparing import Prepared, prepare

RATE = 8000
SENTENCES = (
    "Hello, there!",
    "The cat sat on the mat.",
    "It is 5 o'clock.",
    "Where are you?",
    "I don't know.",
    'She said: "yes".',
    "Call me at ten.",
    "We have two dogs & a cat.",
    "It's raining.",
    "Good-bye, my friend.",
    "One more time.",
    "This is the end.",
)


def tone(path: Path, seconds: float = 1.0, rate: int = RATE, channels: int = 1) -> Path:
    """A sound file, in a format by its suffix."""
    path.parent.mkdir(parents=True, exist_ok=True)
    samples = 0.1 * np.sin(0.3 * np.arange(round(seconds * rate)))
    soundfile.write(path, np.repeat(samples[:, None], channels, axis=1), rate)
    return path


def write(path: Path, text: str, encoding: str = "utf-8") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode(encoding))
    return path


def prepared(*sources: Path, **changes) -> Prepared:
    """A corpus as the tools prepare it; `changes` are options and their values on the command line."""
    words = [word for name, value in changes.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    options, _ = parse(step_of("new_recipe.py", "utils")[1], [*words, "DIR", *map(str, sources)])
    return prepare(list(options.paths[1:]), options.corpus)


def speakers_and_sentences(num_speakers: int = 10, num_each: int = 4):
    """(speaker, number, sentence) of a corpus, sentences of speakers in turn."""
    return [
        (f"spk{i:02d}", j, SENTENCES[(i * num_each + j) % len(SENTENCES)])
        for i in range(num_speakers)
        for j in range(num_each)
    ]


def textgrid(tiers: dict[str, list[tuple[float, float, str]]], seconds: float, short: bool = False) -> str:
    """A TextGrid file in Praat's long or short text form."""
    quoted = lambda text: '"' + text.replace('"', '""') + '"'  # noqa: E731
    if short:
        lines = [
            'File type = "ooTextFile"',
            'Object class = "TextGrid"',
            "",
            "0",
            f"{seconds}",
            "<exists>",
            f"{len(tiers)}",
        ]
        for name, intervals in tiers.items():
            lines += ['"IntervalTier"', quoted(name), "0", f"{seconds}", f"{len(intervals)}"]
            lines += [line for begin, end, text in intervals for line in (f"{begin}", f"{end}", quoted(text))]
        return "\n".join(lines) + "\n"
    lines = [
        'File type = "ooTextFile"',
        'Object class = "TextGrid"',
        "",
        "xmin = 0 ",
        f"xmax = {seconds} ",
        "tiers? <exists> ",
        f"size = {len(tiers)} ",
        "item []: ",
    ]
    for number, (name, intervals) in enumerate(tiers.items(), 1):
        lines += [
            f"    item [{number}]:",
            '        class = "IntervalTier" ',
            f"        name = {quoted(name)} ",
            "        xmin = 0 ",
            f"        xmax = {seconds} ",
            f"        intervals: size = {len(intervals)} ",
        ]
        for place, (begin, end, text) in enumerate(intervals, 1):
            lines += [
                f"        intervals [{place}]:",
                f"            xmin = {begin} ",
                f"            xmax = {end} ",
                f"            text = {quoted(text)} ",
            ]
    return "\n".join(lines) + "\n"


def toy_speech(folder: Path, num_speakers: int, num_each: int) -> list[tuple[Path, str, str]]:
    """(file, words, speaker) of the toy recipe's speech, which can be recognised."""
    sys.path.append(str(Path(__file__).parents[2] / "egs/toy/s5/local"))
    from make_corpus import WORDS, utterance_sound

    folder.mkdir(parents=True)
    made = []
    for i in range(num_speakers):
        voice = generator(1, "voice", i)
        f0, scale = voice.uniform(90, 220), voice.uniform(0.92, 1.1)
        for j in range(num_each):
            rng = generator(1, "own", i, j)
            words = [str(word) for word in rng.choice(sorted(WORDS), size=rng.integers(2, 6))]
            path = folder / f"{i:02d}_{j:03d}.wav"
            write_audio(path, utterance_sound(words, f0, scale, 0.15, rng) * INT16_SCALE, RATE)
            made.append((path, " ".join(words), f"speaker {i}"))
    return made
