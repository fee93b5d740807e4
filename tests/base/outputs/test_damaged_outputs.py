"""Outputs whose files were damaged, changed or removed: no step uses them, and the same command computes them
again."""

import os
import shutil
from pathlib import Path

import pytest

from pyasr.base.errors import UpToDate, UserError
from pyasr.base.outputs.fingerprint import DONE, fingerprint, read_done
from pyasr.base.outputs.output import adopt, stage_output


def make(out: Path, inputs=(), content="made", **keywords):
    with stage_output(out, {}, list(inputs), **keywords) as scratch:
        (scratch / "part").mkdir()
        (scratch / "part" / "result").write_text(content)


def cut(path: Path) -> None:
    os.truncate(path, 2)


def overwrite(path: Path) -> None:
    path.write_text("MADE")


DAMAGES = [cut, overwrite, Path.unlink]


@pytest.mark.parametrize("damage", DAMAGES)
def test_same_command_recomputes_damaged_output_and_keeps_changed_files(damage, tmp_path, capsys):
    make(tmp_path / "out")
    result = tmp_path / "out" / "part" / "result"
    damage(result)
    left = result.read_text() if result.exists() else None
    make(tmp_path / "out")
    assert (
        result.read_text() == "made"
        and f"out of date: {result} changed; computing it again" in capsys.readouterr().out
    )
    kept = tmp_path / ".out.changed" / "part" / "result"
    assert (kept.read_text() if kept.exists() else None) == left


def test_each_change_is_kept(tmp_path):
    result, kept = (tmp_path / name / "part" / "result" for name in ("out", ".out.changed"))
    for content in ("one", "two", "one", "three"):
        make(tmp_path / "out")
        result.write_text(content)
    make(tmp_path / "out")
    assert {path.name: path.read_text() for path in kept.parent.iterdir()} == {
        "result": "one",
        "result.2": "two",
        "result.3": "three",
    }


@pytest.mark.parametrize("force", [False, True])
def test_user_files_in_output_are_kept(force, tmp_path, capsys):
    """Not kept are copies of files of a nested output that is itself kept, files in log/, and hidden files.
    Without foreign content, nothing is printed."""

    def make_both(content, features="features"):
        (tmp_path / "in").write_text(content)
        with stage_output(tmp_path / "out", {}, [tmp_path / "in"], force=force) as out:
            (out / "result").write_text(content)
            (out / "part").mkdir()
            (out / "part" / "result").write_text(content)
        if features:
            with stage_output(tmp_path / "out" / "feats", {}, [tmp_path / "in"], force=force) as feats:
                (feats / "feats.scp").write_text(features)
            shutil.copy(tmp_path / "out/feats/feats.scp", tmp_path / "out")

    make_both("one", features="")
    make_both("two")
    assert not (tmp_path / ".out.changed").exists() and "is replaced" not in capsys.readouterr().out
    (tmp_path / "out" / "empty").mkdir()
    for name in ("stm", "own/notes", "feats/mine", "part/mine", "log/mine", ".hidden"):
        (tmp_path / "out" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "out" / name).write_text(f"my {name}")
    make_both("three")
    aside = tmp_path / ".out.changed"
    kept = {str(path.relative_to(aside)): path.read_text() for path in aside.rglob("*") if path.is_file()}
    mine = {name: f"my {name}" for name in ("stm", "own/notes", "feats/mine", "part/mine")}
    assert {name: text for name, text in kept.items() if name != f"feats/{DONE}"} == {
        "feats/feats.scp": "features"
    } | mine
    for name, target in (
        ("stm", tmp_path / "in"),
        ("lost", "nowhere"),
        ("folder", tmp_path),
        ("feats.scp", "gone"),
    ):
        (tmp_path / "out" / name).unlink(missing_ok=True)
        (tmp_path / "out" / name).symlink_to(target)
    make_both("four")
    links = {
        path.name: os.readlink(path) for path in (tmp_path / ".out.changed").iterdir() if path.is_symlink()
    }
    assert links == {
        "stm.2": f"{tmp_path}/in",
        "lost": "nowhere",
        "folder": str(tmp_path),
        "feats.scp": "gone",
    }
    assert (
        f"{tmp_path}/out is replaced; files that its step did not write (feats, own, part/mine, stm) are "
        f"moved to {aside};"
    ) in capsys.readouterr().out


def test_changed_times_alone_are_no_change(tmp_path):
    make(tmp_path / "out")
    before = fingerprint(tmp_path / "out")
    os.utime(tmp_path / "out" / "part" / "result", (1, 1))
    with pytest.raises(UpToDate):
        make(tmp_path / "out")
    assert fingerprint(tmp_path / "out") == before


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_output_is_no_input(damage, tmp_path):
    """Neither from the directory nor by a table that refers to it."""
    make(tmp_path / "out")
    (tmp_path / "feats.scp").write_text(f"utt1 {tmp_path}/out/part:5\nutt2 {tmp_path}/out/x:5\n")
    damage(tmp_path / "out" / "part" / "result")
    for source in ("out", "feats.scp"):
        with pytest.raises(
            UserError,
            match=(
                r"out: part/result was changed, damaged or removed .*; run '.*' again, or remove "
                r".*out/.done.json"
            ),
        ):
            make(tmp_path / "next", [tmp_path / source])
    assert not list(tmp_path.glob("next*"))
    make(tmp_path / "out")
    make(tmp_path / "next", [tmp_path / "out"])


def test_user_change_is_kept_if_done_file_is_removed(tmp_path):
    make(tmp_path / "out")
    overwrite(tmp_path / "out" / "part" / "result")
    (tmp_path / "out" / DONE).unlink()
    make(tmp_path / "next", [tmp_path / "out"])
    with pytest.raises(UserError, match="was not written by a step"):
        make(tmp_path / "out")


@pytest.mark.parametrize("own_error", [None, ZeroDivisionError])
def test_input_changed_while_read_stops_step(own_error, tmp_path):
    """The output is not written, and an earlier checkpoint is not resumed, even if the step fails for another
    reason."""
    make(tmp_path / "source")
    with pytest.raises(
        own_error or UserError,
        match=None if own_error else "source: part/result was changed, damaged or removed",
    ):
        with stage_output(tmp_path / "out", {}, [tmp_path / "source"], resume=True) as scratch:
            (scratch / "checkpoint").write_text("")
            cut(tmp_path / "source" / "part" / "result")
            if own_error:
                raise own_error
    assert not (tmp_path / "out").exists()
    make(tmp_path / "source")
    with stage_output(tmp_path / "out", {}, [tmp_path / "source"], resume=True) as scratch:
        assert not (scratch / "checkpoint").exists()


def test_output_may_lie_inside_its_input(tmp_path, monkeypatch):
    """For example a graph in the directory of a model of another toolkit; by any path."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "final.mdl").write_text("")
    monkeypatch.chdir(tmp_path)
    with stage_output(Path("model/graph"), {}, [tmp_path / "model"]) as scratch:
        (scratch / "HCLG.fst").write_text("")


def test_file_changed_while_read_is_refused(tmp_path):
    (tmp_path / "in").write_text("one")
    with pytest.raises(UserError, match="in changed while it was read; run the same command again"):
        with stage_output(tmp_path / "out", {}, [tmp_path / "in"]):
            (tmp_path / "in").write_text("two")


@pytest.mark.parametrize("damage", DAMAGES)
def test_copy_next_to_output_is_written(damage, tmp_path):
    """For example DATA/feats.scp of DATA/feats."""
    out, copy = tmp_path / "feats", tmp_path / "feats.scp"

    def publish():
        with stage_output(out, {}, [], also=[copy]) as scratch:
            (scratch / "feats.scp").write_text("made")
        copy.write_text("made")

    publish()
    with pytest.raises(UpToDate):
        publish()
    damage(copy)
    publish()
    assert copy.read_text() == "made"


def test_copy_may_lie_in_output_that_had_one_of_its_name(tmp_path):
    """For example cmvn.scp in a copy of a data directory."""
    data, table = tmp_path / "data", tmp_path / "data" / "table"

    def copy_data():
        with stage_output(data, {}, []) as scratch:
            (scratch / "table").write_text("old")
            (scratch / "other").write_text("other")

    copy_data()
    with stage_output(data / "cmvn", {}, [], also=[table]) as scratch:
        (scratch / "table").write_text("new")
    table.write_text("new")
    with pytest.raises(UpToDate):
        copy_data()
    cut(data / "other")
    copy_data()


def test_intended_change_of_output_is_recorded(tmp_path):
    make(tmp_path / "out")
    before = fingerprint(tmp_path / "out")
    overwrite(tmp_path / "out" / "part" / "result")
    (tmp_path / "out" / "added").write_text("later")
    adopt(tmp_path / "out")
    with pytest.raises(UpToDate):
        make(tmp_path / "out")
    assert fingerprint(tmp_path / "out") != before and list(read_done(tmp_path / "out")["files"]) == [
        "part/result"
    ]
    adopt(tmp_path)  # not written by a step: no effect


def test_late_scheduler_files_are_no_damage(tmp_path):
    out = tmp_path / "out"
    with stage_output(out, {}, []) as scratch:
        (scratch / "result").write_text("made")
        (scratch / "q").mkdir()
        (scratch / "q" / "x.1.out").write_text("")
    (out / "q" / "x.1.out").write_text("slurmstepd: the epilog has failed\n")
    assert fingerprint(out) == read_done(out)["content"]
    with pytest.raises(UpToDate):
        with stage_output(out, {}, []):
            pass
