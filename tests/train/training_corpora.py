"""Small data directories with separable frames, and alignments, for training tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pyasr.hmm.model.topology import NO_PDF, HmmState, Topology
from pyasr.hmm.model.transitions import TransitionModel
from pyasr.hmm.model.tree import monophone_tree
from pyasr.io.ark import ArkWriter
from pyasr.io.int_vectors import write_int_vectors
from pyasr.io.kaldi_objects import KaldiWriter
from pyasr.io.text_tables import write_table
from pyasr.train.targets.pdf_targets import Targets

DIM = 6


def frames_of(pdfs: np.ndarray, num_pdfs: int, rng: np.random.Generator) -> np.ndarray:
    """A Gaussian cluster around one point for each pdf."""
    centres = 2.0 * np.random.default_rng(99).standard_normal((num_pdfs, DIM))
    return (centres[pdfs] + rng.standard_normal((len(pdfs), DIM))).astype(np.float32)


def random_pdfs(length: int, num_pdfs: int, rng: np.random.Generator, stay: int = 3) -> np.ndarray:
    """Each pdf lasts for about three frames, like states."""
    return rng.integers(num_pdfs, size=length // stay + 1).repeat(stay)[:length].astype(np.int32)


def make_data(path: Path, lengths: dict[str, int], num_pdfs: int, seed: int = 0, stay: int = 3) -> Targets:
    """A data directory with features. Utterance ids are SPEAKER-NAME. Returns the pdfs from which frames were
    drawn; each lasts for `stay` frames."""
    path.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    pdfs = {utt: random_pdfs(length, num_pdfs, rng, stay) for utt, length in lengths.items()}
    with ArkWriter(path / "f.ark", path / "feats.scp") as writer:
        for utt, states in pdfs.items():
            writer.write(utt, frames_of(states, num_pdfs, rng))
    write_table(path / "utt2spk", {utt: utt.partition("-")[0] for utt in lengths})
    write_table(path / "utt2num_frames", lengths)
    offsets = np.concatenate([[0], np.cumsum(list(lengths.values()))])
    return Targets(
        list(lengths), offsets, np.concatenate(list(pdfs.values())), np.zeros(len(lengths), bool), num_pdfs
    )


def transition_model(num_phones: int) -> tuple[TransitionModel, object]:
    """One-state phones 1..num_phones, each with its own pdf: (transition model, tree)."""
    entry = (HmmState(0, ((0, 0.5), (1, 0.5))), HmmState(NO_PDF, ()))
    phones = list(range(1, num_phones + 1))
    tree = monophone_tree([[phone] for phone in phones], dict.fromkeys(phones, 1))
    return TransitionModel.from_tree(Topology([entry], dict.fromkeys(phones, 0)), tree), tree


def make_alignments(path: Path, targets: Targets, num_jobs: int = 2) -> None:
    """An alignment directory in Kaldi's format for the pdfs of `targets`."""
    path.mkdir(parents=True)
    transitions, tree = transition_model(targets.num_pdfs)
    tid_of = {int(pdf): tid for tid, pdf in enumerate(transitions.tid2pdf) if tid}
    lookup = np.array([tid_of[pdf] for pdf in range(targets.num_pdfs)], np.int32)
    with KaldiWriter(path / "final.mdl") as writer:
        transitions.write(writer)
    tree.write(path / "tree")
    (path / "num_jobs").write_text(f"{num_jobs}\n")
    for job in range(num_jobs):
        write_int_vectors(
            path / f"ali.{job + 1}.gz",
            {key: lookup[targets.pdfs_of(key)] for key in targets.keys[job::num_jobs]},
        )


def make_training_dirs(path: Path, num_pdfs: int) -> list[Path]:
    """PATH/data, lang and ali as inputs of steps/train_dnn.py: 24 utterances of four speakers."""
    lengths = {f"{speaker}-{i}": 40 + i for speaker in "abcd" for i in range(6)}
    make_alignments(path / "ali", make_data(path / "data", lengths, num_pdfs))
    (path / "lang").mkdir()
    (path / "lang" / "phones.txt").write_text("<eps> 0\n")
    return [path / name for name in ("data", "lang", "ali")]
