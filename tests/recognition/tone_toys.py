"""A language of tones: every word is a tone of its own pitch, pauses are noise. Systems that recognise it,
created without training."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import soundfile
import torch
from steps_here import run_here

from pyasr.base.cli.options import save
from pyasr.decode.lattices.determinize import DeterminizeOptions
from pyasr.decode.search.decode_options import DecodeOptions
from pyasr.feats.compute.feature_extractor import Extractor
from pyasr.feats.inputs import InputOptions
from pyasr.feats.options import FbankOptions, FrameOptions, MelOptions
from pyasr.hmm.model.gmm import AmDiagGmm
from pyasr.hmm.model.model_file import write_model
from pyasr.hmm.model.topology import Topology, left_to_right
from pyasr.hmm.model.transitions import TransitionModel
from pyasr.io.openfst import Fst, write_fst
from pyasr.io.text_tables import write_table
from pyasr.lang.grammars.ctc_graph import ctc_graph
from pyasr.lang.lang_dirs.subwords import BLANK, BOUNDARY, UNKNOWN
from pyasr.lang.symbols import SymbolTable
from pyasr.nn.networks.acoustic import AcousticModel
from pyasr.nn.networks.layered import LayeredNetwork
from pyasr.nn.scales import ACOUSTIC_FACTOR
from pyasr.recognition.packed import ModelInfo, PackedFile, files_of, write_info

RATE, WORD_S, PAUSE_S = 8000, 0.25, 0.15
PITCHES = {"do": 400, "re": 700, "mi": 1100, "fa": 1700}
WORDS = list(PITCHES)
NUM_PDFS = 1 + len(WORDS)  # the first is that of silence
FBANK = FbankOptions(frame=FrameOptions(sample_frequency=RATE), mel=MelOptions(num_mel_bins=12))
FBANK_FLAGS = ("--sample-frequency", RATE, "--num-mel-bins", 12)


def silence(seconds: float, rng, rate: int = RATE) -> np.ndarray:
    """Noise of standard deviation 30, at int16 scale."""
    return 30 * rng.standard_normal(round(seconds * rate))


def tone(word: str, seconds: float, rng, rate: int = RATE) -> np.ndarray:
    times = np.arange(round(seconds * rate)) / rate
    return 3000 * np.sin(2 * np.pi * PITCHES[word] * times) + silence(seconds, rng, rate)


def speech(words: list[str], seed: int = 0, rate: int = RATE, pause_s: float = PAUSE_S) -> np.ndarray:
    """float32 at int16 scale: the words with pauses around and between them."""
    rng = np.random.default_rng(seed)
    parts = [silence(pause_s, rng, rate)]
    for word in words:
        parts += [tone(word, WORD_S, rng, rate), silence(pause_s, rng, rate)]
    return np.round(np.concatenate(parts)).astype(np.float32)


def begin_s(number: int, pause_s: float = PAUSE_S) -> float:
    """Begin of the word with this index in `speech`."""
    return pause_s + number * (WORD_S + pause_s)


def write_wav(path: Path, samples: np.ndarray, rate: int = RATE) -> Path:
    soundfile.write(path, samples.astype(np.int16), rate, subtype="PCM_16")
    return path


def moments() -> tuple[np.ndarray, np.ndarray]:
    """(means, variances) of the features of each pdf, (NUM_PDFS, bins)."""
    rng = np.random.default_rng(5)
    waves = [silence(2.0, rng), *(tone(word, 2.0, rng) for word in WORDS)]
    features = Extractor(FBANK)([np.round(wave).astype(np.float32) for wave in waves])
    return np.stack([one.mean(0) for one in features]), np.stack([one.var(0) + 0.5 for one in features])


def transitions() -> TransitionModel:
    """One-state phones for silence, 1, and for each word, 2, 3, ..."""
    return TransitionModel(
        Topology([left_to_right(1)], dict.fromkeys(range(1, NUM_PDFS + 1), 0)),
        [(k + 1, 0, k) for k in range(NUM_PDFS)],
    )


def write_graph(graph: Path) -> None:
    """Words and silences in any order."""
    (graph / "phones").mkdir(parents=True)
    arcs = []
    for k in range(NUM_PDFS):
        arcs += [(0, 2 * k + 2, k, 3.0, k + 1), (k + 1, 2 * k + 1, 0, 0.1, k + 1), (k + 1, 0, 0, 0.5, 0)]
    sources, ilabels, olabels, weights, targets = zip(*arcs)
    write_fst(
        graph / "HCLG.fst",
        Fst.from_arcs(NUM_PDFS + 1, 0, sources, ilabels, olabels, weights, targets, {0: 0.0}),
    )
    (graph / "words.txt").write_text(
        "<eps> 0\n" + "".join(f"{word} {k}\n" for k, word in enumerate(WORDS, 1))
    )
    (graph / "phones.txt").write_text("<eps> 0\n" + "".join(f"P{k} {k}\n" for k in range(1, NUM_PDFS + 1)))
    (graph / "phones/silence.int").write_text("1\n")
    rows = ["0 0 1", *(f"{k} {k} {k + 1}" for k in range(1, NUM_PDFS))]
    (graph / "phones/align_lexicon.int").write_text("".join(f"{row}\n" for row in rows))


def write_system(folder: Path, inputs: InputOptions = InputOptions(cmvn="none")) -> Path:
    """exp/model with Gaussians and its graph."""
    model = folder / "model"
    write_graph(model / "graph")
    means, variances = moments()
    write_model(
        model / "final.mdl",
        transitions(),
        AmDiagGmm.from_moments(range(NUM_PDFS + 1), np.ones(NUM_PDFS), means, variances),
    )
    inputs.save(model)
    return model


def write_data(folder: Path, said: dict[str, list[str]]) -> Path:
    """A data directory with features: one wav file and one speaker per utterance."""
    data = folder / "data"
    data.mkdir()
    for number, (utt, words) in enumerate(said.items()):
        write_wav(folder / f"{utt}.wav", speech(words, number))
    write_table(data / "wav.scp", {utt: str(folder / f"{utt}.wav") for utt in said})
    write_table(data / "utt2spk", {utt: utt for utt in said})
    write_table(data / "text", {utt: " ".join(words) for utt, words in said.items()})
    run_here("make_fbank.py", "--nj", 1, *FBANK_FLAGS, data)
    run_here("compute_cmvn.py", data)
    return data


def decode_and_score(model: Path, data: Path, *flags) -> Path:
    """model/decode, scored."""
    decode = model / "decode"
    run_here("decode.py", "--nj", 1, *flags, model / "graph", data, decode)
    run_here("score.py", "--nj", 1, data, model / "graph", decode)
    return decode


def write_packed(folder: Path, inputs: InputOptions, features=FBANK) -> Path:
    """A packed model without model file and description; graph and features exist."""
    packed = folder / "packed"
    write_graph(packed / "graph")
    save(packed / "features.json", features)
    inputs.save(packed)
    return packed


def described(packed: Path, kind: str) -> Path:
    """The packed model with its description."""
    files = tuple(PackedFile.of(packed, name) for name in files_of(packed))
    write_info(
        packed,
        ModelInfo(
            kind,
            1,
            0.0,
            DecodeOptions(acoustic_scale=1.0),
            DeterminizeOptions(),
            None,
            source="toy",
            files=files,
        ),
    )
    return packed


def linear_network(
    means: np.ndarray, variances: np.ndarray, bins: int, unspoken: int = 0, stride: int = 1
) -> LayeredNetwork:
    """A network over time whose outputs are the log posteriors of Gaussians with pooled variances, and
    `unspoken` others after the first.

    It answers one frame of `stride`.
    """
    spread = torch.from_numpy(variances.mean(0)).float()
    centres = torch.from_numpy(means).float()
    weight, bias = centres / spread, -0.5 * (centres**2 / spread).sum(1)
    made = LayeredNetwork([f"tdnn dim={bins} activation=none stride={stride}"], bins, len(means) + unspoken)
    with torch.no_grad():
        made.layers[0].others[0].weight.copy_(torch.eye(bins))
        made.layers[0].others[0].bias.zero_()
        made.output.weight.copy_(torch.cat([weight[:1], torch.zeros(unspoken, bins), weight[1:]]))
        made.output.bias.copy_(torch.cat([bias[:1], torch.full((unspoken,), -1e4), bias[1:]]))
    return made


def save_network(folder: Path, made: LayeredNetwork, factor: float = 1.0) -> None:
    bins = made.input_dim
    AcousticModel(made, torch.zeros(bins), torch.ones(bins), torch.zeros(made.num_pdfs), factor).save(
        folder / "final.nnet"
    )
    InputOptions(cmvn="none").save(folder)


def write_ctc(folder: Path) -> Path:
    """exp/ctc, with words as units, and its graph."""
    ctc, graph = folder / "ctc", folder / "ctc/graph"
    (ctc / "units").mkdir(parents=True)
    (graph / "phones").mkdir(parents=True)
    units = [BLANK, UNKNOWN, *(BOUNDARY + word for word in WORDS)]
    SymbolTable.of(units).write(ctc / "units/units.txt")
    save_network(ctc, linear_network(*moments(), FBANK.mel.num_mel_bins, unspoken=1), ACOUSTIC_FACTOR)
    numbers = range(1, len(WORDS) + 1)
    lg = Fst.from_arcs(
        1,
        0,
        [0 for _ in WORDS],
        [k + 2 for k in numbers],
        list(numbers),
        [1.0 for _ in WORDS],
        [0 for _ in WORDS],
        {0: 0.0},
    )
    write_fst(graph / "TLG.fst", ctc_graph(lg))
    SymbolTable.of(["<eps>", *WORDS]).write(graph / "words.txt")
    SymbolTable.of(["<eps>", *units]).write(graph / "phones.txt")
    (graph / "phones/align_lexicon.int").write_text(
        "0 0 1\n" + "".join(f"{k} {k} {k + 2}\n" for k in numbers)
    )
    return ctc
