"""A small language spoken in clusters of frames, one for each phone, with alignments: the input of LF-MMI
training."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
from toy_language import write_arpa_text

from pyasr.feats.inputs import InputOptions
from pyasr.hmm.model.transitions import TransitionModel
from pyasr.hmm.model.tree import monophone_tree
from pyasr.io.ark import ArkWriter
from pyasr.io.int_vectors import write_int_vectors
from pyasr.io.kaldi_objects import KaldiWriter
from pyasr.io.text_tables import write_table
from pyasr.lang.grammars.grammar import make_grammar
from pyasr.lang.lang_dirs.lang_dir import LangDir
from pyasr.lang.lang_dirs.prepare_lang import LangOptions, write_lang
from pyasr.lang.lexicons.dict_dir import DictDir
from pyasr.lang.lexicons.lexicon import Lexicon
from pyasr.sequence.lfmmi.chain import AlignedPhones, chain_alignment, chain_topology

DIM = 6
LEXICON = {"adam": "A D A M", "bad": "B A D", "dab": "D A B", "mad": "M A D", "mama": "M A M A"}


def write_chain_corpus(
    path: Path, num_utterances: int = 40, words: tuple[int, int] = (1, 4), seed: int = 1
) -> Path:
    """PATH/{data,lang,lang_test,ali}. Utterances have words[0] to words[1] - 1 words."""
    write_language(path)
    rng = np.random.default_rng(seed)
    texts = {
        f"{'wxyz'[i % 4]}-{i:02d}": list(rng.choice(list(LEXICON), rng.integers(*words)))
        for i in range(num_utterances)
    }
    phones = LangDir(path / "lang").phones
    aligned = {
        key: spoken(
            [phones[phone] for phone in f"SIL {' SIL '.join(LEXICON[word] for word in text)} SIL".split()],
            rng,
        )
        for key, text in sorted(texts.items())
    }
    write_alignments(path / "ali", LangDir(path / "lang"), aligned)
    write_features(path / "data", aligned, rng)
    write_table(path / "data" / "text", {key: " ".join(text) for key, text in sorted(texts.items())})
    return path


def write_language(path: Path) -> None:
    """All words are equally likely."""
    lexicon = Lexicon()
    for word, phones in (*LEXICON.items(), ("<unk>", "SPN")):
        lexicon.add(word, tuple(phones.split()), 1.0)
    for name in ("lang", "lang_test"):
        (path / name).mkdir(parents=True)
    letters = [
        (phone,) for phone in sorted({phone for phones in LEXICON.values() for phone in phones.split()})
    ]
    dictionary = DictDir(lexicon, [("SIL",), ("SPN",)], letters, "SIL", [])
    options = LangOptions(position_dependent_phones=False)
    write_lang(dictionary, "<unk>", options, path / "lang")
    write_arpa_text(path / "lm.arpa", [{(word,): (-0.8, 0.0) for word in (*LEXICON, "</s>", "<s>")}])
    make_grammar(path / "lang", path / "lm.arpa", path / "lang_test")


def spoken(phones: list[int], rng: np.random.Generator) -> AlignedPhones:
    """Each phone for 4 to 9 frames."""
    return AlignedPhones(
        np.array(phones, np.int32), np.concatenate([[0], np.cumsum(rng.integers(4, 10, len(phones)))])
    )


def write_alignments(path: Path, lang: LangDir, aligned: dict[str, AlignedPhones]) -> None:
    """Alignments by a context-independent system, at the frame rate of the features."""
    path.mkdir(parents=True)
    phones = lang.real_phones
    tree = monophone_tree([[phone] for phone in phones], dict.fromkeys(phones, 2))
    trans = TransitionModel.from_tree(chain_topology(phones), tree)
    with KaldiWriter(path / "final.mdl") as writer:
        trans.write(writer)
    tree.write(path / "tree")
    shutil.copyfile(lang.path / "phones.txt", path / "phones.txt")
    InputOptions(cmvn="none").save(path)
    (path / "num_jobs").write_text("1\n")
    write_int_vectors(
        path / "ali.1.gz", {key: chain_alignment(one, trans, tree) for key, one in aligned.items()}
    )


def write_features(path: Path, aligned: dict[str, AlignedPhones], rng: np.random.Generator) -> None:
    """A cluster of frames around a point for each phone."""
    path.mkdir(parents=True)
    centres = 2.0 * np.random.default_rng(9).standard_normal((20, DIM))
    with ArkWriter(path / "f.ark", path / "feats.scp") as writer:
        for key, one in aligned.items():
            frames = np.repeat(one.phones, np.diff(one.starts))
            writer.write(
                key, (centres[frames] + 0.5 * rng.standard_normal((len(frames), DIM))).astype(np.float32)
            )
    write_table(path / "utt2spk", {key: key[0] for key in aligned})
    write_table(path / "utt2num_frames", {key: one.num_frames for key, one in aligned.items()})
