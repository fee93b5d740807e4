"""The fast check of tables never changes the result of validation."""

import subprocess
import sys
from pathlib import Path

import pytest
from data_dirs import make_data_dir
from hypothesis import given, settings
from hypothesis import strategies as st

from pyasr.data.checks import validation
from pyasr.data.checks.soundness import Soundness

UTILS = Path(__file__).parents[3] / "utils"
TABLES = ("utt2spk", "spk2utt", "text", "segments", "wav.scp")
MAX_BYTES = 500  # of memory that an utterance may take
CHANGES = st.sampled_from(
    ["", " ", "  x", "\t", "\r", "\u00a0", "<eps>", "-1", "9 9", "ann", "bob-001", "\x1c", "\n", "é"]
)


class Doubtful:
    """A fast check that is never certain."""

    of_tables = of_archives = False

    def __init__(self, *_):
        pass


@settings(max_examples=60, deadline=None)
@given(
    table=st.sampled_from(TABLES),
    line=st.integers(0, 11),
    place=st.floats(0, 1),
    new=CHANGES,
    old=st.integers(0, 4),
)
def test_fast_check_finds_same_problems(table, line, place, new, old, tmp_path_factory):
    data = make_data_dir(tmp_path_factory.mktemp("sound") / "data", with_segments=True)
    lines = (data / table).read_text().split("\n")
    changed = lines[line % len(lines)]
    at = round(place * len(changed))
    lines[line % len(lines)] = changed[:at] + new + changed[at + old :]
    (data / table).write_text("\n".join(lines), encoding="utf-8", newline="")
    found = validation.validate(data, audio="no")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(validation, "Soundness", Doubtful)
        assert found == validation.validate(data, audio="no")


def test_valid_directory_passes_fast_check(tmp_path):
    """Otherwise the fast check would be useless."""
    data = make_data_dir(tmp_path / "data", with_segments=True)
    names = [name for name in validation.RULES if (data / name).exists()]
    assert Soundness(data, names).of_tables
    (data / "text").write_text((data / "text").read_text().replace("bob-001", "bob-01x"))
    assert not Soundness(data, names).of_tables


def test_memory_of_many_utterances(tmp_path):
    """Memory of the whole program in addition to that for a small directory."""
    small, large = ((tmp_path / name, num) for name, num in (("small", 100), ("large", 100_000)))
    for path, num in (small, large):
        write_many(path, num)
    needed = peak_bytes(small[0])
    assert peak_bytes(large[0]) - needed < MAX_BYTES * large[1]


def peak_bytes(data: Path) -> int:
    """The peak resident memory of a validation."""
    code = (
        "import resource, runpy, sys\ntry:\n    runpy.run_path(sys.argv.pop(1), run_name='__main__')\nexcept "
        "SystemExit as end:\n    assert not end.code\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    command = [sys.executable, "-c", code, UTILS / "validate_data_dir.py", "--audio", "no", data]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr + done.stdout
    return int(done.stdout.split()[-1]) * (1 if sys.platform == "darwin" else 1024)


def write_many(path: Path, num: int) -> None:
    path.mkdir()
    speakers = [f"speaker{i // 100:05d}" for i in range(num)]
    utts = [f"{speaker}-utterance{i:07d}" for i, speaker in enumerate(speakers)]
    lines = {
        "utt2spk": [f"{utt} {speaker}" for utt, speaker in zip(utts, speakers)],
        "text": [f"{utt} the words that were said {i}" for i, utt in enumerate(utts)],
        "segments": [
            f"{utt} {speaker} {i % 100}.25 {i % 100 + 0.75}"
            for i, (utt, speaker) in enumerate(zip(utts, speakers))
        ],
        "wav.scp": [f"{speaker} /corpus/{speaker}.wav" for speaker in dict.fromkeys(speakers)],
        "utt2dur": [f"{utt} 0.5" for utt in utts],
        "spk2utt": [" ".join([f"speaker{i // 100:05d}", *utts[i : i + 100]]) for i in range(0, num, 100)],
    }
    for name, content in lines.items():
        (path / name).write_text("\n".join(content) + "\n")
