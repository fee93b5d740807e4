"""Trees in the unpacked layout of LibriSpeech and mini_librispeech, with speech-like signals, and the
published lexicon and models."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType

import numpy as np

from pyasr.base.cli.seeds import generator
from pyasr.data.audio.audio_reading import INT16_SCALE, write_audio
from pyasr.lang.ngrams.arpa import write_arpa
from pyasr.lang.ngrams.train_lm import NgramOptions, train

RATE, NOISE = 16_000, 0.2
TOY = Path(__file__).parents[2] / "egs/toy/s5/local/make_corpus.py"
LEXICON = {
    "ALL": "AO1 L", "CALL": "K AO1 L", "COO": "K UW1", "FALL": "F AO1 L", "FEE": "F IY1", "FEN": "F EH1 N",
    "FOOL": "F UW1 L", "KEEL": "K IY1 L", "LASH": "L AA1 SH", "LEASE": "L IY1 S", "LESS": "L EH1 S",
    "MA": "M AA1", "MEAL": "M IY1 L", "MEN": "M EH1 N", "MESH": "M EH1 SH", "MOON": "M UW1 N",
    "MOONY": "M UW1 N IY0", "NOON": "N UW1 N", "SEAMEN": "S IY1 M EH0 N", "SHAWL": "SH AO1 L",
    "SHE": "SH IY1", "SHEELA": "SH IY1 L AA0", "SHOE": "SH UW1", "SOON": "S UW1 N", "SAW": "S AO1",
}  # fmt: skip
UNKNOWN = {"FEEL": "F IY1 L"}  # spoken, but neither in the lexicon nor in the language models
READERS = {  # part: {reader: (sex, name)}
    "train-clean-5": {
        1088: ("F", "Christabel"),
        60: ("M", "|CBW|Simon"),
        32: ("F", "Ann | Bob"),
        118: ("M", "Alex Buie"),
    },
    "dev-clean-2": {412: ("F", "Mary"), 2277: ("M", "J. M. |")},
    "train-clean-100": {19: ("F", "Kara"), 26: ("M", "Denny"), 27: ("M", "Peter")},
    "train-clean-360": {14: ("F", "Kristin"), 16: ("F", "Alys")},
    "train-other-500": {20: ("F", "Gesine"), 25: ("M", "John")},
    "dev-clean": {84: ("F", "Christie"), 174: ("M", "Peter")},
    "dev-other": {116: ("M", "Rayne"), 700: ("F", "Vicki")},
    "test-clean": {61: ("M", "Paul"), 121: ("F", "Nikolle")},
    "test-other": {367: ("M", "Ram"), 533: ("F", "Deborah")},
}
# order, minimum counts
MODELS = {
    "3-gram.pruned.3e-7": (2, "1"),
    "3-gram.pruned.1e-7": (3, "1,2"),
    "3-gram": (3, "1"),
    "4-gram": (4, "1"),
}
CHAPTERS = (134315, 134318)
Say = Callable[[list[str], int, str], np.ndarray]  # words, reader, utterance -> samples in [-1, 1]


@cache
def synthesiser() -> ModuleType:
    """Sounds of the toy recipe at another sampling rate. Stress has no effect."""
    spec = importlib.util.spec_from_file_location("librispeech_synthesiser", TOY)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.RATE = RATE
    module.WORDS = {
        word: "".join(filter(lambda c: not c.isdigit(), phones))
        for word, phones in (LEXICON | UNKNOWN).items()
    }
    return module


def speech(words: list[str], reader: int, utterance: str) -> np.ndarray:
    voice = generator(1, str(reader))
    return synthesiser().utterance_sound(
        words, voice.uniform(90, 220), voice.uniform(0.92, 1.1), NOISE, generator(1, utterance)
    )


def noise(words: list[str], reader: int, utterance: str) -> np.ndarray:
    """A tenth of a second of noise per word, for tests without recognition."""
    return 0.1 * generator(1, utterance).standard_normal(len(words) * RATE // 10)


def write_tree(place: Path, parts: dict[str, int], say: Say = speech) -> dict[str, dict[str, str]]:
    """Write place/LibriSpeech with the given numbers of utterances; returns {part: {utterance: words}}."""
    corpus = place / "LibriSpeech"
    texts = {part: write_part(corpus / part, READERS[part], num, say) for part, num in parts.items()}
    lines = [
        f"{reader:<4} | {sex} | {part:<16} | 25.00 | {name}"
        for part in READERS
        for reader, (sex, name) in READERS[part].items()
    ]
    (corpus / "SPEAKERS.TXT").write_text(
        "; some pieces of information\n;ID  |SEX| SUBSET |MINUTES| NAME\n" + "\n".join(lines) + "\n"
    )
    for name in ("BOOKS.TXT", "CHAPTERS.TXT", "LICENSE.TXT", "README.TXT"):
        (corpus / name).write_text("; nothing that a recipe needs\n")
    return texts


def write_part(folder: Path, readers, num: int, say: Say) -> dict[str, str]:
    """Utterances by the readers in turn. Each reads two chapters."""
    texts: dict[str, str] = {}
    turns = [(reader, chapter) for chapter in CHAPTERS for reader in readers]
    for i in range(num):
        reader, chapter = turns[i % len(turns)]
        name, rng = f"{reader}-{chapter}-{i // len(turns):04d}", generator(1, f"{folder.name} {i}")
        words = [str(word) for word in rng.choice(sorted(LEXICON), size=rng.integers(2, 6))]
        if folder.name.startswith("train") and i % 20 == 5:
            words[0] = "FEEL"
        path = folder / str(reader) / str(chapter)
        path.mkdir(parents=True, exist_ok=True)
        write_audio(path / f"{name}.flac", say(words, reader, name) * INT16_SCALE, RATE)
        with (path / f"{reader}-{chapter}.trans.txt").open("a") as f:
            f.write(f"{name} {' '.join(words)}\n")
        texts[name] = " ".join(words)
    return texts


def write_models(place: Path, num_sentences: int = 400) -> None:
    """Write the published lexicon and language models into the directory `place`."""
    place.mkdir(parents=True, exist_ok=True)
    entries = [f"{word}\t{phones}" for word, phones in sorted(LEXICON.items())]
    # a duplicate entry
    (place / "librispeech-lexicon.txt").write_text("\n".join([*entries, entries[0]]) + "\n")
    (place / "librispeech-vocab.txt").write_text("\n".join(sorted(LEXICON)) + "\n")
    rng, text = generator(1, "text"), place / "text"
    text.write_text(
        "".join(
            " ".join(rng.choice(sorted(LEXICON), size=rng.integers(2, 6))) + "\n"
            for _ in range(num_sentences)
        )
    )
    for name, (order, min_counts) in MODELS.items():
        options = NgramOptions(oov_word="<UNK>", text_ids=False, order=order, min_counts=min_counts)
        write_arpa(place / f"{name}.arpa.gz", train([text], [*sorted(LEXICON), "<UNK>"], options))
    text.unlink()
