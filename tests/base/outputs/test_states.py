"""The table of states in docs/outputs.md: in each state, the step does what its row says."""

import fcntl
import os
import re
from pathlib import Path

import pytest

from pyasr.base.errors import UpToDate, UserError
from pyasr.base.outputs.fingerprint import DONE
from pyasr.base.outputs.output import STARTED, OutputState, ScratchState, stage_output

PAGE = Path(__file__).resolve().parents[3] / "docs" / "outputs.md"
ROWS = [
    tuple(cell.strip() for cell in line.strip("|\n").split("|"))
    for line in PAGE.read_text().splitlines()
    if re.match(r"\| OUT(\.tmp)? \| [a-z ]+ \|.*\|.*\|", line)
]


def run(place: Path, kill: bool = False, option: int = 1, resume: bool = True, force: bool = False) -> bool:
    """A step with a checkpoint; whether it found the checkpoint of an earlier run."""
    with stage_output(
        place / "out",
        {"a": option},
        [place / "in"],
        resume=resume,
        force=force,
        precious="checkpoint",
        also=[place / "copy"],
    ) as out:
        found = (out / "checkpoint").exists()
        for name in ("checkpoint", "copy"):
            (out / name).write_text("made")
        if kill:
            raise KeyboardInterrupt
    (place / "copy").write_text("made")
    return found


def begin(place: Path, **keywords) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(place, kill=True, **keywords)


def write(path: Path, text: str = "mine") -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)


def finished(place):
    run(place)
    write(place / "out" / STARTED, "")
    (place / "out").rename(place / "out.tmp")


def made_then(path: str, text: str):
    def prepare(place):
        run(place)
        write(place / path, text)

    return prepare


def begun_then(path: str, text: str, **keywords):
    def prepare(place):
        begin(place, **keywords)
        write(place / path, text)

    return prepare


def in_use(place):
    (place / "out.tmp").mkdir()
    fcntl.flock(os.open(place / "out.tmp", os.O_RDONLY), fcntl.LOCK_EX)


def outdated_without_checkpoint(place):
    begin(place, option=2)
    (place / "out.tmp" / "checkpoint").unlink()


# (directory, state) -> [(what brings it about, arguments of the run)]
STATES = {
    ("OUT.tmp", "finished"): [(finished, {})],
    ("OUT", "foreign"): [
        (lambda place: write(place / "out"), {"force": True}),
        (lambda place: write(place / "out" / "thesis"), {"force": True}),
    ],
    ("OUT", "absent"): [
        (lambda place: None, {}),
        (lambda place: (place / "out").mkdir(), {}),
        (made_then(f"out/{DONE}", "{"), {}),
        (run, {"force": True}),
        (run, {"force": True, "option": 2}),
    ],
    ("OUT", "differing"): [(run, {"option": 2})],
    ("OUT", "out of date"): [(made_then(name, "changed"), {}) for name in ("in", "out/checkpoint", "copy")],
    ("OUT", "up to date"): [(run, {})],
    ("OUT.tmp", "in use"): [(in_use, {}), (in_use, {"force": True})],
    ("OUT.tmp", "foreign"): [
        (lambda place: write(place / "out.tmp" / "thesis"), {}),
        (lambda place: write(place / "out.tmp" / "thesis"), {"force": True}),
    ],
    ("OUT.tmp", "absent"): [
        (lambda place: (place / "out.tmp/log").mkdir(parents=True), {}),
        (begun_then(f"out.tmp/{STARTED}", ""), {}),
        (begin, {"resume": False}),
        (begin, {"force": True}),
    ],
    ("OUT.tmp", "resumable"): [(begin, {}), (lambda place: begin(place, force=True), {"force": True})],
    ("OUT.tmp", "precious"): [(begin, {"option": 2})],
    ("OUT.tmp", "outdated"): [
        (begun_then("in", "changed"), {}),
        (outdated_without_checkpoint, {}),
        (begin, {"option": 2, "force": True}),
    ],
}


def what_it_does(place: Path, capsys, keywords: dict) -> str:
    """The words of the last column for what a run does."""
    had_output, before = (place / "out").exists(), files_in(place)
    capsys.readouterr()
    try:
        found = run(place, **keywords)
    except UserError:
        assert files_in(place) == before
        return "refuses"
    except UpToDate:
        return "ends" if had_output else "renames it to OUT"
    printed = capsys.readouterr().out
    if "its files are discarded" in printed:
        assert not found
        return "discards the files, begins"
    if "computing it again" in printed:
        return "keeps changed files, computes it again"
    assert found == ("resuming" in printed)
    return "resumes" if found else "computes it" if not before.keys() & {"out.tmp"} else "begins"


def files_in(place: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(place)): path.read_bytes() if path.is_file() else None
        for path in sorted(place.rglob("*"))
    }


def test_the_page_has_all_states():
    assert [row[:2] for row in ROWS] == list(STATES)
    for directory, states in (("OUT", OutputState), ("OUT.tmp", ScratchState)):
        assert {state.value for state in states} == {
            state for place, state in STATES if place == directory
        } - {"finished", "in use"}


@pytest.mark.parametrize(
    "row, number",
    [
        pytest.param(row, number, id=f"{row[0]} {row[1]} {number}")
        for row in ROWS
        for number, _ in enumerate(STATES[row[:2]])
    ],
)
def test_a_step_does_what_the_row_says(row, number, tmp_path, capsys):
    write(tmp_path / "in", "input")
    prepare, keywords = STATES[row[:2]][number]
    prepare(tmp_path)
    assert what_it_does(tmp_path, capsys, keywords) == row[3]
    if row[3] != "refuses":
        assert sorted(path.name for path in (tmp_path / "out").iterdir() if path.name != "log") == [
            DONE,
            "checkpoint",
            "copy",
        ]
        assert not (tmp_path / "out.tmp").exists()
