"""Outputs of other steps, their unfinished runs and a user's files in a replaced output: none is lost, even
after a kill at any moment."""

import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from test_output import Died, dying_after

from pyasr.base.errors import UserError
from pyasr.base.outputs import lock, output
from pyasr.base.outputs.fingerprint import DONE, read_done
from pyasr.base.outputs.output import stage_output

WRITTEN = {
    "dnn/final.nnet": "weeks of training",
    "big.tmp/checkpoints/epoch_3/index": "days of training",
    "decode/lat.1.gz": "lattices",
    "decode/scoring/wer": "5.0",
    "graph/HCLG.fst": "graph",
    "notes/today.txt": "mine",
    "todo": "mine",
    ".backup/text": "by hand",
    ".graph.changed/HCLG.fst": "graph that was changed",
    "decode/remarks": "mine",
    "dnn/decode/lat.1.gz": "the network's",
}
FEW = {name: text for name, text in WRITTEN.items() if name.startswith(("dnn", "big", "decode", "todo"))}
GONE = ("decode/lat.1.gz", "decode/scoring/wer", "graph/HCLG.fst")  # removed with their inputs


def kept_of(written: dict[str, str]) -> dict[str, str]:
    return {name: text for name, text in written.items() if name not in GONE}


def make(place: Path, content: str, **keywords) -> None:
    (place / "in").write_text(content)
    with stage_output(place / "mono", {}, [place / "in"], **keywords) as out:
        (out / "final.mdl").write_text(content)
        (out / "part").mkdir()
        (out / "part" / "tree").write_text(content)


def fill(mono: Path, written: dict[str, str] = WRITTEN) -> None:
    """Write these files into `mono`; those in outputs and in an unfinished run by their own steps."""
    inputs = {
        "graph": "final.mdl",
        "dnn": "final.mdl",
        "decode": "final.mdl",
        "decode/scoring": "decode/lat.1.gz",
        "dnn/decode": "final.mdl",
    }
    for name in [name for name in inputs if any(path.startswith(name) for path in written)]:
        with stage_output(
            mono / name, {}, [mono / inputs[name]], precious="*" if name == "dnn" else ""
        ) as out:
            (out / "log" / "x.log").write_text(str(time.time_ns()))
            for path, text in written.items():
                if str(Path(path).parent) == name and text != "mine":
                    (out / Path(path).name).write_text(text)
    with (
        pytest.raises(KeyboardInterrupt),
        stage_output(mono / "big", {}, [], resume=True, precious="checkpoints/*/index"),
    ):
        raise KeyboardInterrupt
    for path, text in written.items():
        (mono / path).parent.mkdir(exist_ok=True, parents=True)
        (mono / path).write_text(text)


def files_in(directory: Path) -> dict[str, str]:
    paths = (path for path in directory.rglob("*") if path.is_file() and "log" not in path.parts)
    return {
        str(path.relative_to(directory)): path.read_text()
        for path in paths
        if path.name not in (DONE, ".started.json", ".runs")
    }


@pytest.mark.parametrize("force", [False, True])
def test_nested_outputs_are_moved_aside_and_named(force, tmp_path, capsys):
    mono, aside = tmp_path / "mono", tmp_path / ".mono.changed"
    make(tmp_path, "one")
    fill(mono)
    inode = (mono / "dnn" / "final.nnet").stat().st_ino
    make(tmp_path, "one" if force else "two", force=force)
    assert files_in(aside) == kept_of(WRITTEN) and files_in(mono).keys() == {"final.mdl", "part/tree"}
    assert (aside / "dnn" / "final.nnet").stat().st_ino == inode  # moved, which needs no disk space
    assert read_done(aside / "dnn") and (aside / "big.tmp" / ".started.json").exists()
    names = ".backup, .graph.changed, big.tmp, decode/remarks, dnn, notes, todo"
    assert (
        f"{mono} is replaced; files that its step did not write ({names}) are moved to {aside}; remove the "
        "ones"
    ) in capsys.readouterr().out


def test_unfinished_training_moved_back_is_resumed(tmp_path):
    make(tmp_path, "one")
    fill(tmp_path / "mono")
    make(tmp_path, "two")
    (tmp_path / ".mono.changed" / "big.tmp").rename(tmp_path / "mono" / "big.tmp")
    with stage_output(tmp_path / "mono" / "big", {}, [], resume=True) as out:
        assert (out / "checkpoints" / "epoch_3" / "index").read_text() == "days of training"


def test_copies_with_equal_content_are_kept_once(tmp_path):
    """Even if it was written at another time, with other logs."""
    for number, changed in enumerate(("one", "one", "two", "one", "two")):
        make(tmp_path, str(number))
        fill(tmp_path / "mono", WRITTEN | {"dnn/final.nnet": changed})
    make(tmp_path, "at last")
    changed = {"dnn/final.nnet": "one", "dnn.2/final.nnet": "two"}
    assert files_in(tmp_path / ".mono.changed") == kept_of(WRITTEN) | changed | {
        "dnn.2/decode/lat.1.gz": "the network's"
    }


@pytest.mark.parametrize("number", range(100))
def test_kill_at_any_moment_loses_nothing(number, tmp_path, monkeypatch):
    make(tmp_path, "one")
    fill(tmp_path / "mono", FEW)
    calls = dying_after(number, monkeypatch)
    try:
        make(tmp_path, "two")
        ended = True
    except Died:
        ended = False
    monkeypatch.undo()
    (tmp_path / "in").write_text("two")
    kept = {
        name: text
        for place in ("mono", ".mono.old", ".mono.changed")
        for name, text in files_in(tmp_path / place).items()
    }
    assert kept_of(FEW).items() <= kept.items()
    for content in ("two", "three"):
        try:
            make(tmp_path, content)
        except output.UpToDate:
            pass
    assert files_in(tmp_path / ".mono.changed") == kept_of(FEW) and sorted(os.listdir(tmp_path)) == [
        ".mono.changed",
        "in",
        "mono",
    ]
    if number == 99:
        assert ended, f"{calls} changes: more than this test looks at"


def test_output_is_not_replaced_while_another_is_written_in_it(tmp_path):
    make(tmp_path, "one")
    code = f"""
import time
from pathlib import Path
from pyasr.base.outputs.output import stage_output
with stage_output(Path({str(tmp_path / "mono" / "big")!r}), {{}}, []) as out:
    (out / "here").touch()
    time.sleep(60)
"""
    training = subprocess.Popen([sys.executable, "-c", code])
    deadline = time.monotonic() + 120
    while not (tmp_path / "mono" / "big.tmp" / "here").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    with pytest.raises(
        UserError,
        match="mono/big.tmp is in use: another process is writing this output; wait until it has ended",
    ):
        make(tmp_path, "two")
    training.kill()
    training.wait()
    assert (tmp_path / "mono" / "final.mdl").read_text() == "one"
    make(tmp_path, "two")
    assert (tmp_path / ".mono.changed" / "big.tmp" / "here").exists()


def test_output_without_file_list_keeps_only_nested_outputs(tmp_path):
    """A damaged done-file lists no files, by which a user's files could be recognised."""
    make(tmp_path, "one")
    fill(tmp_path / "mono")
    (tmp_path / "mono" / DONE).write_text("{")
    make(tmp_path, "two")
    of_steps = {
        name: text for name, text in WRITTEN.items() if name.startswith(("dnn", "big", "decode", "graph"))
    }
    assert files_in(tmp_path / ".mono.changed") == of_steps


def test_reading_program_does_not_stop_a_run(tmp_path, monkeypatch):
    """It holds the lock of the scratch directory for a moment, like `lock.is_held`."""
    (tmp_path / "out.tmp").mkdir()
    looks = os.open(tmp_path / "out.tmp", os.O_RDONLY)
    fcntl.flock(looks, fcntl.LOCK_SH)
    monkeypatch.setattr(lock.time, "sleep", lambda seconds: os.close(looks))
    with stage_output(tmp_path / "out", {}, []):
        pass
    assert (tmp_path / "out").is_dir()
