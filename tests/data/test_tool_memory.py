"""Memory per utterance of tools on data directories."""

import json
import random
import shutil
import tracemalloc
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from steps_here import run_here

from pyasr.io import content, keys, tables, text_tables

SIZES = 100, 500, 1300
PER_SPEAKER, MAX_BYTES = 50, 400
# lines of a table are not all in memory twice
LESS_BYTES = {"copy": 80, "perturb": 110, "perturb between others": 110, "split": 140}


def write_corpus(path: Path, num: int) -> None:
    """A valid data directory with segments; an utterance takes about 350 bytes in its files."""
    path.mkdir(parents=True)
    rng, audio = random.Random(num), path.parent / "audio"
    audio.write_bytes(b"")
    speakers = [f"speaker{i // PER_SPEAKER:06d}" for i in range(num)]
    utts = [f"{speaker}-{i:09d}" for i, speaker in enumerate(speakers)]
    texts = [
        " ".join(f"word{rng.randrange(1000)}" for _ in range(10)) if i % 4 else "yeah" for i in range(num)
    ]
    lines = {
        "utt2spk": zip(utts, speakers),
        "text": zip(utts, texts),
        "utt2dur": ((utt, "0.5") for utt in utts),
        "segments": (
            (utt, f"{utt[:13]} {i % PER_SPEAKER}.25 {i % PER_SPEAKER}.75") for i, utt in enumerate(utts)
        ),
        "feats.scp": ((utt, f"{audio}:{1000 + i}") for i, utt in enumerate(utts)),
        "utt2num_frames": ((utt, 50) for utt in utts),
        "wav.scp": ((speaker, audio) for speaker in dict.fromkeys(speakers)),
        "spk2utt": ((utts[i][:13], " ".join(utts[i : i + PER_SPEAKER])) for i in range(0, num, PER_SPEAKER)),
    }
    for name, pairs in lines.items():
        (path / name).write_text("".join(f"{key} {value}\n" for key, value in pairs))


def tool(name: str, *flags: object) -> Callable[[Path, Path], None]:
    """A program that creates OUT from DATA."""
    return lambda data, out: run_here(name, *flags, data, out, folder="utils")


def fix(data: Path, out: Path) -> None:
    run_here("fix_data_dir.py", "--audio", "no", data, folder="utils")


def fix_broken(data: Path, out: Path) -> None:
    """Repair unsorted lines, an utterance without a text, and a table that must be completed."""
    unsort(data)
    tracemalloc.reset_peak()
    fix(data, out)


def unsort(data: Path) -> None:
    lines = (data / "text").read_text().splitlines(keepends=True)
    (data / "text").write_text("".join(lines[:0:-1]))
    (data / "utt2uniq").write_text("".join(f"{line.split()[0]} original\n" for line in lines[1::2]))


def split(data: Path, out: Path) -> None:
    run_here("split_data_dir.py", data, 7, folder="utils")


def import_manifests(data: Path, out: Path) -> None:
    manifests = [data / "recordings.jsonl", data / "supervisions.jsonl"]
    with ExitStack() as stack:
        recordings, supervisions = (stack.enter_context(path.open("w")) for path in manifests)
        for line in (data / "wav.scp").read_text().splitlines():
            source = {"type": "file", "channels": [0], "source": line.split()[1]}
            recordings.write(
                json.dumps({"id": line.split()[0], "sources": [source], "duration": 100.0}) + "\n"
            )
        for segment, text in zip((data / "segments").open(), (data / "text").open()):
            utt, recording, begin, _ = segment.split()
            supervision = {
                "id": utt,
                "recording_id": recording,
                "start": float(begin),
                "duration": 0.5,
                "channel": 0,
                "speaker": recording,
            }
            supervisions.write(json.dumps(supervision | {"text": text.partition(" ")[2]}) + "\n")
    tracemalloc.reset_peak()
    run_here("import_lhotse.py", *manifests, out, folder="utils")


TOOLS = {
    "fix": fix,
    "fix of a broken directory": fix_broken,
    "copy": tool("copy_data_dir.py", "--utt-prefix", "a-", "--spk-prefix", "a-"),
    "copy that sorts": tool("copy_data_dir.py", "--utt-suffix", "-a"),
    "perturb": tool("perturb_data_dir.py"),
    "perturb between others": tool("perturb_data_dir.py", "--speeds", "0.9 1.1"),
    "noise": tool("reverberate_data_dir.py", "--num-babble", "2:3"),
    "subset": tool("subset_data_dir.py", "--random", "1000"),
    "subset by texts": tool("subset_data_dir.py", "--max-same-text", "3"),
    "validate": lambda data, out: run_here("validate_data_dir.py", "--audio", "no", data, folder="utils"),
    "split": split,
    "import": import_manifests,
}


@pytest.mark.parametrize("name", TOOLS)
def test_memory_per_utterance_is_bounded(name, tmp_path, monkeypatch):
    """Growth between the two larger sizes; a dictionary of a single table takes at least 200 bytes per
    line."""
    monkeypatch.setattr(tables, "_BLOCK_LINES", 64)
    monkeypatch.setattr(tables, "_BLOCK_BYTES", 1 << 13)
    monkeypatch.setattr(keys, "_MAX_NEW", 64)
    monkeypatch.setattr(text_tables, "_SPEAKERS_AT_ONCE", 4)
    monkeypatch.setattr(content, "_CHUNK_BYTES", 1 << 13)
    peaks = []
    for num in SIZES:
        write_corpus(tmp_path / str(num) / "data", num)
        tracemalloc.start()
        TOOLS[name](tmp_path / str(num) / "data", tmp_path / str(num) / "out")
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        shutil.rmtree(tmp_path / str(num))
    assert (peaks[-1] - peaks[-2]) / (SIZES[-1] - SIZES[-2]) < LESS_BYTES.get(name, MAX_BYTES)
