"""Files of an interrupted run: resumed by the same command, discarded or kept by others."""

import pytest

from pyasr.base.errors import UserError
from pyasr.base.outputs.comparison import PathText
from pyasr.base.outputs.output import stage_output


@pytest.fixture
def place(tmp_path):
    (tmp_path / "in").write_text("input")
    return tmp_path


def test_only_matching_run_is_resumed(place, capsys):
    def interrupted(options):
        with pytest.raises(KeyboardInterrupt):
            with stage_output(place / "out", options, [place / "in"], resume=True) as out:
                (out / "checkpoint").write_text("")
                raise KeyboardInterrupt

    def finds_checkpoint(options, **keywords):
        with pytest.raises(KeyboardInterrupt):
            with stage_output(place / "out", options, [place / "in"], **keywords) as out:
                found.append((out / "checkpoint").exists())
                raise KeyboardInterrupt
        return found.pop()

    found = []
    interrupted({"a": 1, "t": (1, 2)})
    assert finds_checkpoint({"a": 1, "t": (1, 2)}, resume=True)
    assert not finds_checkpoint({"a": 2}, resume=True)
    interrupted({"a": 1})
    assert not finds_checkpoint({"a": 1}, resume=False)
    interrupted({"a": 1})
    (place / "in").write_text("changed")
    assert not finds_checkpoint({"a": 1}, resume=True)
    assert (
        f"out.tmp: {place / 'in'} changed since an interrupted run; its files are discarded"
        in capsys.readouterr().out
    )


@pytest.mark.parametrize("precious", ["", "checkpoint"])
def test_run_started_by_earlier_version_is_resumed(precious, place):
    """New options must have their defaults; with other values the run is not resumed."""

    def run(options):
        with stage_output(
            place / "out",
            options,
            [],
            resume=True,
            precious=precious,
            complete=lambda saved: {"a": 5, "b": {"c": 0}, **saved},
        ) as out:
            found.append((out / "checkpoint").exists())
            (out / "checkpoint").touch()
            raise KeyboardInterrupt

    found = []
    for options in ({"a": 1}, {"a": 1, "b": {"c": 0}}):
        with pytest.raises(KeyboardInterrupt):
            run(options)
    with pytest.raises(
        UserError if precious else KeyboardInterrupt,
        match=r"other options \(b.c: 0 -> 2\)" if precious else None,
    ):
        run({"a": 1, "b": {"c": 2}})
    assert found == [False, True] + [False] * (not precious)


def test_interrupted_run_with_precious_files_is_kept(place):
    def run(options, **keywords):
        with stage_output(
            place / "out", options, [place / "in"], resume=True, precious="*/index", **keywords
        ) as out:
            (out / "checkpoint").mkdir()
            (out / "checkpoint" / "index").write_text("")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run({"a": 1, "t": (1, 2)})
    with pytest.raises(
        UserError,
        match=r"out.tmp: an interrupted run with other options \(a: 1 -> 2\); give those options .*--force",
    ):
        run({"a": 2, "t": (1, 2)})
    with pytest.raises(UserError, match="checkpoint: a directory of this name exists"):  # it is resumed
        run({"a": 1, "t": (1, 2)})
    with pytest.raises(KeyboardInterrupt):  # it starts from scratch
        run({"a": 2, "t": (1, 2)}, force=True)
    # this option may change on resumption
    with pytest.raises(UserError, match="checkpoint: a directory of this name exists"):
        run({"a": 3, "t": (1, 2)}, may_change=("a",))
    (place / "out.tmp" / "checkpoint" / "index").unlink()
    with pytest.raises(KeyboardInterrupt):  # there are no precious files
        run({"a": 3, "t": (1, 2)})


def test_forced_run_is_resumed_by_same_command(place):
    """It has already started from scratch; a run that was started without --force is discarded."""

    def run(option, force=True, ends=False):
        with stage_output(
            place / "out", {"a": option}, [place / "in"], resume=True, precious="checkpoint", force=force
        ) as out:
            found = (out / "checkpoint").exists()
            (out / "checkpoint").touch()
            if ends:
                return found
            raise KeyboardInterrupt(found)

    def interrupted(option, **keywords):
        with pytest.raises(KeyboardInterrupt) as interrupt:
            run(option, **keywords)
        return interrupt.value.args[0]

    run(1, ends=True)
    assert [interrupted(2), interrupted(2), interrupted(3), interrupted(3)] == [False, True, False, True]
    (place / "in").write_text("changed")
    assert not interrupted(3)
    assert run(3, ends=True)
    (place / "in").write_text("changed again")
    assert [interrupted(3, force=False), interrupted(3), interrupted(3)] == [False, False, True]


def test_partial_files_of_killed_process_are_removed(tmp_path):
    with pytest.raises(KeyboardInterrupt), stage_output(tmp_path / "out", {}, [], resume=True) as out:
        (out / "part").mkdir()
        (out / "part" / ".lat.1.gz.14861.tmp").write_text("half")
        (out / "part" / "state.tmp").write_text("a file of the step's own")
        raise KeyboardInterrupt
    with stage_output(tmp_path / "out", {}, [], resume=True):
        pass
    assert [path.name for path in (tmp_path / "out" / "part").iterdir()] == ["state.tmp"]


def test_options_of_other_step_are_not_listed(place, capsys):
    for options in ({"fbank": {"num_mel_bins": 40, "pitch": {"delay": 0}}}, {"mfcc": {"num_ceps": 13}}):
        with pytest.raises(KeyboardInterrupt), stage_output(place / "out", options, []):
            raise KeyboardInterrupt
    message = (
        "an interrupted run had other options (fbank: its options -> None; mfcc: None -> its options); "
        "its files are discarded"
    )
    assert capsys.readouterr().out == f"{place}/out.tmp: {message}\n"


@pytest.mark.parametrize("resume", [False, True])
def test_changed_options_and_changed_inputs_are_distinguished(resume, place, capsys):
    """Other options may imply other inputs, none of which has changed."""

    def interrupted(option, *inputs):
        with (
            pytest.raises(KeyboardInterrupt),
            stage_output(place / "out", {"a": option}, list(inputs), resume=resume),
        ):
            raise KeyboardInterrupt
        return capsys.readouterr().out

    (place / "other").write_text("input")
    interrupted("in", place / "in")
    scratch = f"{place}/out.tmp"
    assert (
        interrupted("other", place / "other")
        == f"{scratch}: an interrupted run had other options (a: in -> other); its files are discarded\n"
    )
    (place / "other").write_text("changed")
    assert (
        interrupted("other", place / "other")
        == f"{scratch}: {place}/other changed since an interrupted run; its files are discarded\n"
    )


def test_run_is_resumed_with_other_names_of_same_paths(place, capsys, monkeypatch):
    monkeypatch.chdir(place)
    (place / "link").symlink_to(place)
    for name in ("in", place / "in", "link/in"):
        with pytest.raises(KeyboardInterrupt):
            with stage_output(
                place / "out", {"a": PathText(name), "b": [PathText(name)]}, [name], resume=True
            ):
                raise KeyboardInterrupt
    assert capsys.readouterr().out == f"{place}/out.tmp: resuming an interrupted run\n" * 2
