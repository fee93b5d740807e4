#!/usr/bin/env python3
"""Decode the speech of Flight of the Amazon Queen to 8 kHz and create the data directories train, dev and
test.

Reads   CORPUS/queen.1c, amazon_queen_split.tsv next to this program
Writes  DATA/local/audio (one file per utterance), DATA/train, DATA/dev, DATA/test (wav.scp text utt2spk
        spk2utt utt2dur)

    local/prepare_data.py corpus data
"""

import io
import math
import re
from collections import Counter, defaultdict
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import soundfile
from normalise import normalise
from queen import QueenFile, read_texts

from pyasr.base import log
from pyasr.base.cli.options import argument, group, option
from pyasr.base.cli.step import make_part, run_step
from pyasr.base.errors import UserError
from pyasr.base.files.table_paths import as_named
from pyasr.data.audio.audio_reading import INT16_SCALE, resample, write_audio
from pyasr.data.tables.datadir import write_data_dir

SPLIT = Path(__file__).with_name("amazon_queen_split.tsv")
RATE_HZ = 8000
QUICK_MINUTES = {"train": 34.0, "dev": 3.0, "test": 8.0}
SAME_CHARACTER = {  # short names of dialogs and full names of cutaways
    "and": "anderson",
    "ape": "gorilla",
    "bob": "trader_bob",
    "death": "ferryman",
    "dog": "guard_dog",
    "jim": "jimmy",
    "joe": "joe_king",
    "prin": "princess_azura",
    "sec": "secretary",
    "showeram": "showering_amazon",
    "wedge": "wedgewood",
    "witch": "witch_doctor",
    "zombie": "zombie_woman",
}


@dataclass(frozen=True)
class DecodeJobs:
    """Parallel processes; they do not change the output."""

    nj: int = option(2, "number of processes that decode in parallel", minimum=1)


@dataclass(frozen=True)
class AudioOptions:
    """The decoded audio."""

    audio_format: str = option("wav", "format of the decoded audio", choices=("wav", "flac"))


@dataclass(frozen=True)
class PrepareData:
    corpus: Path = argument("output directory of local/get_corpus.py")
    data: Path = argument("directory of data directories")
    dev_actor: str | None = option(
        "reitel", "actor whose utterances are the development set; 'none': use all for training"
    )
    numbers: str = option(
        "spell",
        "numbers in the texts; spell: write them as words; drop: remove them",
        choices=("spell", "drop"),
    )
    audio: AudioOptions = group(AudioOptions)
    quick: bool = option(False, "use only 45 minutes of speech")
    jobs: DecodeJobs = group(DecodeJobs)


class Utterance(NamedTuple):
    """A line of the split file with its transcript."""

    name: str
    speaker: str
    actor: str
    seconds: float
    part: str
    text: str

    @property
    def key(self) -> str:
        """'-' sorts before every other character of a name, so utterances sort as their speakers do."""
        return f"{self.speaker}-{self.name}"


def main(options: PrepareData) -> None:
    queen = QueenFile(options.corpus / "queen.1c")
    utterances = read_utterances(queen, options.numbers)
    audio = options.data / "local" / "audio"
    make_part(options.audio, audio, [queen.path], lambda out: decode_all(options, queen, utterances, out))
    parts = choose(utterances, options)
    for part in filter(parts.get, ("train", "dev", "test")):
        make_data_dir(options, part, parts[part], audio)


def read_utterances(queen: QueenFile, numbers: str) -> list[Utterance]:
    """All utterances of the split file; raises UserError if the corpus lacks one of them."""
    texts, found = read_texts(queen), []
    for number, line in enumerate(SPLIT.read_text(encoding="utf-8").splitlines()[1:], 2):
        name, character, actor, seconds, part = line.split("\t")
        if name not in texts:
            raise UserError(
                f"{SPLIT}:{number}: {queen.path} has no utterance {name}; get the corpus again with "
                "local/get_corpus.py"
            )
        found.append(
            Utterance(
                name, speaker(actor, character), actor, float(seconds), part, normalise(texts[name], numbers)
            )
        )
    return found


def speaker(actor: str, character: str) -> str:
    """One voice: an actor in one role. '?' marks an uncertain credit in the split file and is dropped."""
    role = re.sub(r"\W+", "_", character.lower())
    return f"{actor.rstrip('?').replace('-', '_')}_{SAME_CHARACTER.get(role, role)}"


def choose(utterances: list[Utterance], options: PrepareData) -> dict[str, list[Utterance]]:
    """The utterances of train, dev and test. Like the test set, dev has no text that occurs in train."""
    parts = defaultdict(list)
    for utterance in utterances:
        is_dev = utterance.part == "train" and utterance.actor == options.dev_actor
        parts["dev" if is_dev else utterance.part].append(utterance)
    if options.dev_actor and not parts["dev"]:
        raise UserError(f"--dev-actor {options.dev_actor}: no actor of the training set; see {SPLIT}")
    seen = {utterance.text for utterance in parts["train"]}
    parts["dev"] = [utterance for utterance in parts["dev"] if utterance.text not in seen]
    if options.quick:
        return {part: quick_sample(parts[part], 60 * minutes) for part, minutes in QUICK_MINUTES.items()}
    return parts


def quick_sample(utterances: list[Utterance], seconds: float) -> list[Utterance]:
    """About `seconds` of speech, from each speaker in proportion; the choice is deterministic."""
    num = Counter(utterance.speaker for utterance in utterances)
    place: Counter[str] = Counter()
    rank: dict[Utterance, float] = {}
    for utterance in sorted(utterances, key=lambda u: sha256(u.name.encode()).digest()):
        place[utterance.speaker] += 1
        rank[utterance] = (place[utterance.speaker] - 0.5) / num[utterance.speaker]
    chosen, sum_s = [], 0.0
    for utterance in sorted(utterances, key=lambda u: (rank[u], u.name)):
        if sum_s < seconds:
            chosen.append(utterance)
            sum_s += utterance.seconds
    return chosen


def decode_all(options: PrepareData, queen: QueenFile, utterances: list[Utterance], out: Path) -> None:
    """Write one 8 kHz file per utterance in `out`."""
    size = math.ceil(len(utterances) / (4 * options.jobs.nj))
    shards = [utterances[i : i + size] for i in range(0, len(utterances), size)]
    progress = log.Progress("decoding", len(utterances), "utterances")
    with ProcessPoolExecutor(options.jobs.nj) as pool:
        jobs = [
            pool.submit(decode_shard, queen.path, shard, out, options.audio.audio_format) for shard in shards
        ]
        for i, job in enumerate(jobs, 1):
            job.result()
            progress.update(min(i * size, len(utterances)))


def decode_shard(path: Path, utterances: list[Utterance], out: Path, audio_format: str) -> None:
    """Decode, resample and write; raises UserError if the length of a sound differs from the split file."""
    queen = QueenFile(path)
    for utterance in utterances:
        samples, rate = soundfile.read(io.BytesIO(queen.read(f"{utterance.name}.SB")), dtype="float32")
        if abs(len(samples) / rate - utterance.seconds) > 0.002:
            raise UserError(
                f"{path}: {utterance.name} lasts {len(samples) / rate:.3f} s, expected {utterance.seconds}; "
                "get the corpus again"
            )
        write_audio(
            out / f"{utterance.name}.{audio_format}", resample(samples * INT16_SCALE, rate, RATE_HZ), RATE_HZ
        )


def make_data_dir(options: PrepareData, part: str, utterances: list[Utterance], audio: Path) -> None:
    where = as_named(audio)
    tables: dict[str, dict[str, object]] = {
        "wav.scp": {u.key: where / f"{u.name}.{options.audio.audio_format}" for u in utterances},
        "text": {u.key: u.text for u in utterances},
        "utt2spk": {u.key: u.speaker for u in utterances},
        "utt2dur": {u.key: u.seconds for u in utterances},
    }
    inputs = [options.corpus / "queen.1c", audio, SPLIT]
    make_part(options, options.data / part, inputs, lambda out: write_data_dir(out, tables))
    num_words = sum(len(u.text.split()) for u in utterances)
    hours = sum(u.seconds for u in utterances) / 3600
    num_speakers = len({u.speaker for u in utterances})
    log.info(
        f"{options.data / part}: {len(utterances)} utterances, {hours:.2f} h, {num_words} words, "
        f"{num_speakers} speakers"
    )


if __name__ == "__main__":
    run_step(PrepareData, main, __doc__)
