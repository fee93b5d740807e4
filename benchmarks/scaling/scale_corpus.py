"""Corpora without speech for benchmarks/scaling/scale.py: data directories, features, alignments and lattices
of any number of utterances.

Utterance i has the content i modulo NUM_CONTENTS. The tables have a line per utterance, but the archives of
features have only one matrix per content, so 2 M utterances take 1 GB of disk. Words come from the CMU
dictionary. Each state of a phone has a mean, to which noise is added, so that GMMs and networks learn, and
alignments and searches have the usual width. Names, lengths and numbers of words are like those of Fisher: 11
words and 3.3 s per utterance, 85 utterances per side of a call. Recordings refer to one silent file.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from itertools import groupby, islice
from pathlib import Path

import numpy as np
from scale_ground import NUM_CONTENTS, NUM_FREE, PER_ARCHIVE, files_in

from pyasr.data.audio.audio_reading import read_audio, write_audio
from pyasr.decode.lattices.lattice_io import read_compact_lattices, write_lattices
from pyasr.io.ark import ArkWriter, read_ark, write_ark
from pyasr.io.int_vectors import read_job_archives, write_int_vectors
from pyasr.lang.lang_dirs.prepare_lang import LangOptions, write_lang
from pyasr.lang.lexicons.dict_dir import DictDir
from pyasr.lang.lexicons.lexicon import Lexicon, Phones, read_cmudict

NUM_WORDS, DIM, NUM_STATES = 1000, 13, 3
NUM_COLUMNS = 40  # of the transforms of speakers
PER_SIDE = 85  # utterances
SILENCE, UNKNOWN, NOISE = "SIL", "<unk>", "SPN"
_FRAME_S, _WINDOW_S, _RATE = 0.01, 0.015, 8000
_SPEAKER_STATISTICS = "all"  # key of the statistics that all speakers share


@dataclass(frozen=True)
class Kind:
    """Utterances of 1 + `words` words on average, and `silence` frames before and after; a state of a phone
    lasts 1 to `longest` frames, a word has up to `phones` phones.

    free      texts are drawn for each utterance, from this number of words by Zipf's law, and do not match
              the features; 0: texts are those of the contents
    segments  utterances are segments of recordings, not recordings
    """

    words: float
    longest: int
    silence: int
    phones: int
    free: int = 0
    segments: bool = True


KINDS = {
    "tables": Kind(10.0, 4, 8, 5, free=NUM_FREE),  # for tools on tables
    "speech": Kind(10.0, 4, 8, 5),  # for programs whose cost depends on frames
    # a word in a tenth of a second: for programs whose cost depends on utterances
    "short": Kind(0.0, 2, 2, 3, segments=False),
}


@dataclass(frozen=True)
class Contents:
    """Contents of utterances: texts, numbers of frames, and offsets of the features in the archive."""

    texts: list[str]
    frames: list[int]
    offsets: list[str]


def vocabulary(num_words: int = NUM_WORDS) -> dict[str, Phones]:
    """Words of the CMU dictionary, each with its first pronunciation."""
    known = read_cmudict()
    words = np.random.default_rng(0).permutation(sorted(word for word in known.entries if word.isalpha()))[
        :num_words
    ]
    return {str(word): known.pronunciations(str(word))[0] for word in words}


def write_language(root: Path, num_words: int = NUM_WORDS) -> None:
    """Write `root`/lang and `root`/lexicon.txt."""
    words, lexicon = vocabulary(num_words), Lexicon()
    for word, phones in {UNKNOWN: (NOISE,), **words}.items():
        lexicon.add(word, phones)
    nonsilence = [(phone,) for phone in sorted(lexicon.phones() - {NOISE})]
    (root / "lang").mkdir(parents=True)
    write_lang(
        DictDir(lexicon, [(SILENCE,), (NOISE,)], nonsilence, SILENCE, []),
        UNKNOWN,
        LangOptions(),
        root / "lang",
    )
    lines = [f"{word} {' '.join(phones)}\n" for word, phones in {UNKNOWN: (NOISE,), **words}.items()]
    (root / "lexicon.txt").write_text("".join(lines), encoding="utf-8")


def write_contents(root: Path, kind_name: str) -> None:
    """Write `root`/{texts,frames}, `root`/feats.ark, whose keys are numbers in the order of the contents, and
    `root`/{cmvn.ark,silence.wav}."""
    kind, rng = KINDS[kind_name], np.random.default_rng(1)
    words = {word: phones for word, phones in vocabulary().items() if len(phones) <= kind.phones}
    root.mkdir(parents=True)
    texts, frames = [], []
    with ArkWriter(root / "feats.ark", root / "feats.scp") as writer:
        for i in range(NUM_CONTENTS):
            text = [str(word) for word in rng.choice(sorted(words), 1 + rng.poisson(kind.words))]
            matrix = features([words[word] for word in text], kind, rng)
            writer.write(f"{i:03d}", matrix)
            texts.append(" ".join(text))
            frames.append(str(len(matrix)))
    write_ark(root / "cmvn.ark", {_SPEAKER_STATISTICS: statistics(root)})
    side_s = (
        PER_SIDE * max(map(int, frames)) * _FRAME_S
        if kind.segments
        else max(map(int, frames)) * _FRAME_S + _WINDOW_S
    )
    write_audio(root / "silence.wav", np.zeros(int(side_s * _RATE), np.float32), _RATE)
    for name, lines in (("texts", texts), ("frames", frames)):
        (root / name).write_text("\n".join(lines) + "\n", encoding="utf-8")


def features(phones: list[Phones], kind: Kind, rng: np.random.Generator) -> np.ndarray:
    """Frames of the words' states between silence, float32 (num_frames, DIM)."""
    states = [mean for word in phones for phone in word for mean in means_of(phone)]
    lasting = rng.integers(1, kind.longest + 1, len(states))
    silent = np.repeat(means_of(SILENCE), kind.silence, axis=0)
    frames = np.concatenate([silent, np.repeat(np.array(states), lasting, axis=0), silent])
    return (frames + rng.standard_normal(frames.shape)).astype(np.float32)


def means_of(phone: str) -> np.ndarray:
    """Means of the states of a phone, shape (NUM_STATES, DIM)."""
    return 0.7 * np.random.default_rng(list(phone.encode())).standard_normal((NUM_STATES, DIM))


def statistics(root: Path) -> np.ndarray:
    """Statistics of all contents in Kaldi's format for a speaker: sums and count, sums of squares; float64
    (2, DIM + 1)."""
    frames = np.concatenate(list(read_ark(root / "feats.ark").values())).astype(np.float64)
    return np.stack([np.r_[frames.sum(axis=0), len(frames)], np.r_[(frames**2).sum(axis=0), 0.0]])


def read_contents(root: Path) -> Contents:
    """Read the contents written by `write_contents`."""
    lines = [
        (root / name).read_text(encoding="utf-8").splitlines() for name in ("texts", "frames", "feats.scp")
    ]
    return Contents(lines[0], list(map(int, lines[1])), [line.rpartition(":")[2] for line in lines[2]])


def utterances(first: int, num: int) -> Iterator[tuple[str, str, int]]:
    """(utterance, speaker, content) in the order of the tables."""
    for number in range(first, first + num):
        side, place = divmod(number, PER_SIDE)
        speaker = f"fe_03_{side // 2:06d}-{'AB'[side % 2]}"
        yield f"{speaker}-{800 * place:06d}-{800 * place + 600:06d}", speaker, number % NUM_CONTENTS


def write_data(out: Path, contents_dir: Path, kind_name: str, first: int, num: int) -> None:
    """Write a data directory of utterances `first` to `first` + `num`, with tables of features and
    statistics."""
    kind = KINDS[kind_name]
    out.mkdir(parents=True)
    names = [
        "text",
        "utt2spk",
        "feats.scp",
        "utt2num_frames",
        "utt2dur",
        "segments" if kind.segments else "wav.scp",
    ]
    with ExitStack() as stack:
        files = [stack.enter_context((out / name).open("w", encoding="utf-8")) for name in names]
        for utterance, *values in lines_of(contents_dir, kind, first, num):
            for file, value in zip(files, values):
                file.write(f"{utterance} {value}\n")
    write_speakers(out, contents_dir, kind)


def lines_of(contents_dir: Path, kind: Kind, first: int, num: int) -> Iterator[tuple]:
    """(utterance, text, speaker, features, frames, seconds, segment or recording)."""
    contents, texts = read_contents(contents_dir), free_texts(kind.free) if kind.free else None
    at, side = 0.0, ""
    for utterance, speaker, content in utterances(first, num):
        text, frames = next(texts) if texts else contents.texts[content], contents.frames[content]
        seconds = frames * _FRAME_S + _WINDOW_S
        at, side = (at, side) if speaker == side else (0.0, speaker)
        span = f"{speaker} {at:.3f} {at + seconds:.3f}" if kind.segments else f"{contents_dir}/silence.wav"
        at += frames * _FRAME_S
        features = f"{contents_dir}/feats.ark:{contents.offsets[content]}"
        yield utterance, text, speaker, features, frames, f"{seconds:.3f}", span


def write_speakers(out: Path, contents_dir: Path, kind: Kind) -> None:
    """Write tables of speakers, and of recordings if utterances are segments, from utt2spk."""
    values = [f"{contents_dir}/cmvn.ark:{len(_SPEAKER_STATISTICS) + 1}", f"{contents_dir}/silence.wav"]
    names = ["spk2utt", "cmvn.scp", *["wav.scp"] * kind.segments]
    with ExitStack() as stack:
        table = stack.enter_context((out / "utt2spk").open(encoding="utf-8"))
        files = [stack.enter_context((out / name).open("w", encoding="utf-8")) for name in names]
        for speaker, lines in groupby(table, lambda line: line.split()[1]):
            for file, value in zip(files, [" ".join(line.split()[0] for line in lines), *values]):
                file.write(f"{speaker} {value}\n")


def write_manifests(out: Path, data: Path) -> None:
    """Write lhotse manifests of a data directory with segments: `out`/{recordings,supervisions}.jsonl."""
    out.mkdir(parents=True)
    with ExitStack() as stack:
        opened = lambda path, mode: stack.enter_context(path.open(mode, encoding="utf-8"))
        tables = [opened(data / name, "r") for name in ("wav.scp", "segments", "text", "utt2spk")]
        recordings, supervisions = (
            opened(out / f"{name}.jsonl", "w") for name in ("recordings", "supervisions")
        )
        for line in tables[0]:
            recordings.write(json.dumps(recording_of(*line.split())) + "\n")
        for segment, text, speaker in zip(*tables[1:]):
            supervisions.write(json.dumps(supervision_of(segment, text, speaker)) + "\n")


def recording_of(name: str, path: str) -> dict[str, object]:
    """A recording in lhotse's format."""
    num_samples = silent_samples(path)
    return {
        "id": name,
        "sampling_rate": _RATE,
        "num_samples": num_samples,
        "duration": num_samples / _RATE,
        "sources": [{"type": "file", "channels": [0], "source": path}],
    }


@cache
def silent_samples(path: str) -> int:
    """Number of samples of the silent file."""
    return len(read_audio(path)[0])


def supervision_of(segment: str, text: str, speaker: str) -> dict[str, object]:
    """An utterance in lhotse's format, from its lines in three tables."""
    name, recording, begin, end = segment.split()
    return {
        "id": name,
        "recording_id": recording,
        "start": float(begin),
        "duration": round(float(end) - float(begin), 3),
        "channel": 0,
        "speaker": speaker.split()[1],
        "text": text.strip().partition(" ")[2],
    }


def free_texts(num_words: int) -> Iterator[str]:
    """An infinite sequence of sentences of 11 words on average, by Zipf's law."""
    rng, words = np.random.default_rng(2), [*vocabulary(num_words)]
    while True:
        lengths = 1 + rng.poisson(10.0, PER_ARCHIVE)
        drawn = iter((np.exp(rng.random(lengths.sum()) * np.log(len(words))).astype(int) - 1).tolist())
        yield from (" ".join(words[i] for i in islice(drawn, int(length))) for length in lengths)


def copy_alignments(out: Path, of_contents: Path, num: int) -> None:
    """Write an alignment directory of `num` utterances, from one of the contents."""
    vectors = list(read_job_archives(of_contents).values())
    copy_other_files(out, of_contents)
    for job, part in parts(num):
        write_int_vectors(out / f"ali.{job}.gz", {key: vectors[content] for key, _, content in part})
    (out / "num_jobs").write_text(f"{job}\n", encoding="utf-8")


def write_transforms(out: Path, num: int) -> None:
    """Write a directory of identity transforms of speakers, for `num` utterances."""
    out.mkdir(parents=True)
    for job, part in parts(num):
        write_ark(
            out / f"trans.{job}",
            {speaker: np.eye(NUM_COLUMNS, NUM_COLUMNS + 1, dtype=np.float32) for _, speaker, _ in part},
        )
    (out / "num_jobs").write_text(f"{job}\n", encoding="utf-8")


def copy_lattices(out: Path, of_contents: Path, num: int) -> None:
    """Write a decoding directory of `num` utterances, from one of the contents."""
    lattices = [lattice for _, lattice in read_compact_lattices(of_contents / "lat.1.gz")]
    copy_other_files(out, of_contents)
    for job, part in parts(num):
        write_lattices(out / f"lat.{job}.gz", ((key, lattices[content]) for key, _, content in part))
    (out / "num_jobs").write_text(f"{job}\n", encoding="utf-8")


def copy_other_files(out: Path, of_contents: Path) -> None:
    """Copy the files of a directory except its archives and its done-file, so that programs treat the copy as
    foreign."""
    out.mkdir(parents=True)
    for path in files_in(of_contents):
        if not path.name.startswith(("ali.", "lat.", "hyp.", "shard.", "trans.", ".")):
            shutil.copy(path, out)


def parts(num: int) -> Iterator[tuple[int, list[tuple[str, str, int]]]]:
    """(job, its utterances), PER_ARCHIVE per job."""
    for job, first in enumerate(range(0, num, PER_ARCHIVE), 1):
        yield job, list(utterances(first, min(PER_ARCHIVE, num - first)))
