"""The entry point of all programs: a reader of the output that closes it, such as `head`, and --force."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from pyasr.base.cli import step
from pyasr.base.cli.options import argument, option
from pyasr.base.cli.step import check_replaceable, output_of
from pyasr.base.errors import UpToDate, UserError

STEP = """
from dataclasses import dataclass
from pathlib import Path
from pyasr.base import log
from pyasr.base.errors import UpToDate, UserError
from pyasr.base.cli.options import argument
from pyasr.base.cli.step import run_step

@dataclass(frozen=True)
class Step:
    what: str = argument("what to do")

def main(options):
    if options.what == "current":
        raise UpToDate("it is")
    if options.what == "wrong":
        print("one line")
        raise UserError("something is wrong")
    if options.what == "print":
        print("one line", flush=True)
    if options.what == "log":
        log.info("one line")
    if options.what == "buffered":
        print("one line")
        return
    Path("made").touch()

run_step(Step, main, "long\\n" * 5000)
"""


def run(what, cwd, stdout):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.run(
        [sys.executable, "-c", STEP, what],
        cwd=cwd,
        env=environment,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize(
    "what, says",
    [("--help", 141), ("current", 141), ("print", 141), ("log", 141), ("buffered", 141), ("quiet", 0)],
)
def test_closed_reader_gives_status_of_closed_pipe(what, says, tmp_path):
    reader, writer = os.pipe()
    os.close(reader)
    done = run(what, tmp_path, writer)
    os.close(writer)
    assert (done.returncode, done.stderr) == (says, "")
    assert (tmp_path / "made").exists() == (what == "quiet")


def test_error_is_printed_despite_closed_reader(tmp_path):
    reader, writer = os.pipe()
    os.close(reader)
    done = run("wrong", tmp_path, writer)
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, "-c: error: something is wrong\n")


@pytest.mark.parametrize("what", ["--help", "current", "print", "log", "buffered", "quiet"])
def test_open_reader_gets_all_output(what, tmp_path):
    done = run(what, tmp_path, subprocess.PIPE)
    assert (done.returncode, done.stderr, bool(done.stdout)) == (0, "", what != "quiet")


@dataclass(frozen=True)
class Copy:
    data: Path = argument("directory to be copied")
    out: Path = argument("copy")
    lists: tuple[Path, ...] = ()
    name: str = option("", "no path, though it may look like one")


def make_copy(data, out, *lists, name=""):
    options = Copy(Path(data), Path(out), tuple(map(Path, lists)), name)
    with output_of(options, options.out, [options.data / "text"]):
        pass


def test_other_path_to_same_directory_is_same_option(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("data", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "text").write_text("words")
    (tmp_path / "link").symlink_to("data")
    make_copy("data", "out", "other", name="data")
    for again in (
        ("data", "out"),
        (tmp_path / "data", tmp_path / "out"),
        ("link", "out"),
        ("./other/../data", "data/../out"),
    ):
        for lists in ("other", tmp_path / "other"):
            with pytest.raises(UpToDate):
                make_copy(*again, lists, name="data")
    for words, name, message in (
        (("other", "out", "other"), "data", "data: data -> other"),
        (("data", "out", "link"), "data", "lists: "),
        (("data", "out", "other"), "./data", "name: data -> ./data"),
    ):
        with pytest.raises(UserError, match=rf"out exists with other options \({message}"):
            make_copy(*words, name=name)


def test_file_not_written_by_program_is_replaced_only_with_force(tmp_path, monkeypatch):
    page = tmp_path / "page"
    cases = (
        (False, None, False),
        (False, b"# Own\xff", False),
        (False, b"Mine # Own", True),
        (False, b"", True),
        (True, b"Mine", False),
    )
    for force, content, refused in cases:
        monkeypatch.setitem(step._state, "force", force)
        if content is not None:
            page.write_bytes(content)
        if refused:
            with pytest.raises(
                UserError,
                match=(
                    f"^{page} exists and is not a page of results; give another name, or --force to "
                    "replace it$"
                ),
            ):
                check_replaceable(page, "# Own", "page of results")
        else:
            check_replaceable(page, "# Own", "page of results")
