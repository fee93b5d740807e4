"""No step removes a user's files next to an output, whatever their names."""

import pytest

from pyasr.base.errors import UpToDate, UserError
from pyasr.base.outputs.fingerprint import DONE
from pyasr.base.outputs.output import STARTED, stage_output


def make(place, content="made", **keywords):
    with stage_output(place / "out", {}, [], **keywords) as out:
        (out / "result").write_text(content)


def contents(directory) -> dict[str, str]:
    return {
        str(path.relative_to(directory)): path.read_text() for path in directory.rglob("*") if path.is_file()
    }


@pytest.fixture(params=["own", "kept output"])
def kept(request, tmp_path):
    """A user's directory, or an output that was renamed in order to keep it, with a note in it."""
    directory = tmp_path / "kept"
    if request.param == "own":
        directory.mkdir()
    else:
        with stage_output(directory, {}, []):
            pass
    (directory / "log").mkdir(exist_ok=True)
    (directory / "log" / "notes.txt").write_text("work of years")
    return directory


@pytest.mark.parametrize("name", ["out.old", "out.changed", "out.bak"])
def test_directory_next_to_output_is_kept(name, kept, tmp_path):
    neighbour = kept.rename(tmp_path / name)
    before = contents(neighbour)
    make(tmp_path)
    make(tmp_path, "again", force=True)
    assert contents(neighbour) == before and sorted(path.name for path in tmp_path.iterdir()) == ["out", name]


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("is_made", [False, True])
def test_directory_at_place_of_output_is_refused(is_made, force, kept, tmp_path):
    if is_made:
        make(tmp_path)
    scratch = kept.rename(tmp_path / "out.tmp")
    before = contents(scratch)
    refusal = UserError if force or not is_made else UpToDate
    with pytest.raises(
        refusal, match="out.tmp has files that were not written by a step" if refusal is UserError else None
    ):
        make(tmp_path, "again", force=force)
    assert contents(scratch) == before and (tmp_path / "out").exists() == is_made


def test_scratch_directories_of_interrupted_runs_are_reused(tmp_path):
    """Also of a run that was killed before it had written anything, and of one that cannot be resumed."""
    (tmp_path / "out.tmp" / "log").mkdir(parents=True)
    make(tmp_path)
    (tmp_path / "in").write_text("one")
    for content in ("two", "three"):
        with (
            pytest.raises(UserError, match="in changed while it was read"),
            stage_output(tmp_path / "next", {}, [tmp_path / "in"]) as out,
        ):
            (out / "result").write_text("")
            (tmp_path / "in").write_text(content)


def test_directory_created_at_place_of_output_during_run_is_refused(tmp_path):
    with pytest.raises(UserError, match="out exists and was not written by a step; move it away"):
        with stage_output(tmp_path / "out", {}, []) as out:
            (out / "result").write_text("made")
            (tmp_path / "out").mkdir()
            (tmp_path / "out" / "notes.txt").write_text("work of years")
    assert contents(tmp_path / "out") == {"notes.txt": "work of years"}
    (tmp_path / "out").rename(tmp_path / "notes")
    with pytest.raises(UpToDate):  # the complete output only has to be renamed
        make(tmp_path)
    assert (tmp_path / "out" / "result").read_text() == "made" and not (tmp_path / "out" / STARTED).exists()


@pytest.mark.parametrize("kind", ["directory", "file", "link"])
def test_directory_at_hidden_place_of_replaced_output_is_refused(kind, kept, tmp_path):
    make(tmp_path)
    (kept / DONE).unlink(missing_ok=True)
    hidden = tmp_path / ".out.old"
    if kind == "directory":
        kept = kept.rename(hidden)
    elif kind == "file":
        hidden.write_text("work of years")
    else:
        hidden.symlink_to(kept)
    with pytest.raises(UserError, match=r"\.out\.old exists and was not written by a step; move it away"):
        make(tmp_path, "again", force=True)
    with pytest.raises(UpToDate):
        make(tmp_path)
    assert contents(kept)["log/notes.txt"] == "work of years" and (
        hidden.is_dir() or hidden.read_text() == "work of years"
    )
    assert not (tmp_path / "out.tmp").exists()


@pytest.mark.parametrize("length", [250, 251])
def test_longest_names_of_outputs(length, tmp_path):
    for content in ("made", "again"):
        with stage_output(tmp_path / ("n" * length), {}, [], force=True) as out:
            (out / "result").write_text(content)
    assert [path.name for path in tmp_path.iterdir()] == ["n" * length]
