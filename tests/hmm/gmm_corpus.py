"""Data and language directory of a toy language whose phones have simple spectra."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from toy_language import write_toy_lang

from pyasr.data.tables.datadir import write_data_dir
from pyasr.feats.cmvn import cmvn_stats
from pyasr.io.ark import ArkWriter
from pyasr.lang.lang_dirs.lang_dir import LangDir

DIM = 4


def distortion(speaker: str, strength: float) -> tuple[np.ndarray, np.ndarray]:
    """A and b of a speaker's affine distortion x -> A x + b; the identity at strength 0."""
    rng = np.random.default_rng(list(speaker.encode()))
    return np.eye(DIM) + strength * rng.uniform(-1, 1, (DIM, DIM)), strength * rng.standard_normal(DIM)


def write_corpus(
    path: Path, num_utterances: int = 30, seed: int = 0, coarticulation: float = 0.0, strength: float = 0.0
) -> tuple[Path, Path]:
    """(data dir, lang dir): utterances of one to four words by four speakers. Every HMM state has its own
    mean, shifted by `coarticulation` times that of the previous phone and distorted by the speaker."""
    rng = np.random.default_rng(seed)
    lang = LangDir(write_toy_lang(path / "lang", seed, num_words=12, num_phones=4))
    words = [word for word in lang.words.ids if word.startswith("w")]
    means = 4 * np.random.default_rng(99).standard_normal((len(lang.phones.ids), 3, DIM))
    data = path / "data"
    data.mkdir()
    text, utt2spk, stats = {}, {}, {}
    with ArkWriter(data / "feats.ark", data / "feats.scp") as writer:
        for i in range(num_utterances):
            utt, speaker = f"s{i % 4}-{i:03d}", f"s{i % 4}"
            said = list(rng.choice(words, rng.integers(1, 5)))
            matrix, offset = distortion(speaker, strength)
            feats = (_speech(said, lang, means, coarticulation, rng) @ matrix.T + offset + i % 4).astype(
                np.float32
            )
            writer.write(utt, feats)
            text[utt], utt2spk[utt] = " ".join(said), speaker
            stats[speaker] = stats.get(speaker, 0) + cmvn_stats(feats)
    write_data_dir(data, {"text": text, "utt2spk": utt2spk})
    with ArkWriter(data / "cmvn.ark", data / "cmvn.scp") as writer:
        for speaker, both in sorted(stats.items()):
            writer.write(speaker, both)
    return data, lang.path


def _speech(words, lang: LangDir, means, coarticulation: float, rng) -> np.ndarray:
    prons: dict[str, list] = {}
    for word, _, phones in lang.lexicon.rows():
        prons.setdefault(word, []).append(phones)
    phones = ["SIL"]
    for word in words:
        phones += [*prons[word][rng.integers(len(prons[word]))], *(["SIL"] if rng.random() < 0.5 else [])]
    kinds = sorted({lang.base_phone(phone) for phone in lang.real_phones})
    numbers = [kinds.index(lang.base_phone(lang.phones[phone])) for phone in phones]
    frames = [
        means[kind, state] + coarticulation * means[left, 0]
        for left, kind in zip([0, *numbers], numbers)
        for state in range(3)
        for _ in range(rng.integers(1, 5) + (kinds[kind] == "SIL"))
    ]
    return (np.array(frames) + rng.standard_normal((len(frames), DIM))).astype(np.float32)
