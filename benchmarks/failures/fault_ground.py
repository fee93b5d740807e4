"""A copy of the toy recipe for the injection of faults: snapshots, processes and outputs.

With root permissions, the copy is on a small filesystem in memory, which can be filled; otherwise in an
ordinary directory.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

from pyasr.base.errors import UserError
from pyasr.base.jobs.parent import die_with_parent
from pyasr.cluster.runner.mpi import ROOT

RECIPE = ROOT / "egs/toy/s5"
NUM_STAGES = 7
_MARK = "PYASR_FAULT_GROUND"
_SIZE, _BLOCK = "4g", 4096
_HOLDS_TIMES = re.compile(
    r"(^|/)(log/|tensorboard/|\.)|\.jsonl$|(^|/)(RESULTS\.md|totals\.json|shard\.\d+\.json)$"
)


class Ground:
    """`RUN_DIR/ground`, with the recipe in `s5`. A context manager, which finally kills its processes and
    unmounts its filesystem."""

    def __init__(self, run_dir: Path, num_train: int):
        self.place, self.num_train = Path(run_dir).absolute() / "ground", num_train
        self.recipe = self.place / "s5"
        self.scratch = self.place / "tmp"
        self.output = self.place.parent / "recipe.log"
        self.is_own_filesystem = os.geteuid() == 0

    def __enter__(self) -> Ground:
        self.place.mkdir(parents=True, exist_ok=True)
        if self.is_own_filesystem and not os.path.ismount(self.place):
            _command("mount", "-t", "tmpfs", "-o", f"size={_SIZE}", "pyasr_faults", str(self.place))
        return self

    def __exit__(self, *error) -> None:
        end(self.processes())
        if os.path.ismount(self.place):
            _command("umount", "-l", str(self.place))

    def lay_out(self, snapshot: Path | None) -> None:
        """Restore the recipe from a snapshot, or create it without outputs."""
        for entry in self.place.iterdir():
            shutil.rmtree(entry)
        self.scratch.mkdir()
        if snapshot:
            _command("cp", "-a", str(snapshot), str(self.recipe))
            return
        shutil.copytree(
            RECIPE, self.recipe, symlinks=True, ignore=shutil.ignore_patterns("data", "exp", "steps", "utils")
        )
        for name in ("steps", "utils"):
            (self.recipe / name).symlink_to(ROOT / name)
        (self.recipe / "path.sh").write_text(f". {ROOT}/path.sh\n", encoding="utf-8")

    def take_snapshot(self, snapshot: Path) -> None:
        shutil.rmtree(snapshot, ignore_errors=True)
        _command("cp", "-a", str(self.recipe), str(snapshot))

    def start(self, *words: str) -> subprocess.Popen:
        """Start `./run.sh WORDS`, with its output in the file `output`."""
        environment = {
            name: value
            for name, value in os.environ.items()
            if name not in ("PYASR_SUPERVISED", "PYASR_STEP")
        }
        environment |= {_MARK: str(self.place), "TMPDIR": str(self.scratch)}
        command = ["./run.sh", "--num-train", str(self.num_train), *words]
        with self.output.open("w", encoding="utf-8") as f:
            return subprocess.Popen(
                command,
                cwd=self.recipe,
                stdin=subprocess.DEVNULL,
                stdout=f,
                stderr=subprocess.STDOUT,
                env=environment,
                preexec_fn=die_with_parent,
            )

    def said(self) -> str:
        """Output of the last run."""
        return self.output.read_text(encoding="utf-8", errors="replace")

    def processes(self) -> dict[int, str]:
        """{process ID: command line} of all processes started by a run, whatever their current parents."""
        mark, found = f"{_MARK}={self.place}\0".encode(), {}
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if mark in (entry / "environ").read_bytes() + b"\0" and (
                    words := (entry / "cmdline").read_bytes()
                ):
                    found[int(entry.name)] = words.replace(b"\0", b" ").decode("utf-8", "replace").strip()
            except OSError:
                pass  # harmless: the process has ended meanwhile
        return found

    def cpu_s(self) -> float:
        """CPU seconds of the run so far, including ended processes, which are counted by their parents."""
        return sum(map(_cpu_s, self.processes()))

    def fill_disk(self, left: int) -> None:
        """Shrink the filesystem to `left` free blocks of 4 KiB. Repeated if the recipe fills them before the
        change."""
        for tries_left in reversed(range(200)):
            found = os.statvfs(self.place)
            used = (found.f_blocks - found.f_bfree) * found.f_frsize // _BLOCK
            try:
                return _command(
                    "mount", "-o", f"remount,size={(used + left) * _BLOCK // 1024}k", str(self.place)
                )
            except UserError:
                if not tries_left:
                    raise

    def free_disk(self) -> None:
        _command("mount", "-o", f"remount,size={_SIZE}", str(self.place))

    def made(self) -> list[Path]:
        """Everything in data and exp, sorted."""
        return made_in(self.recipe)


def made_in(recipe: Path) -> list[Path]:
    """Everything in data and exp of a recipe directory, sorted, except kept copies of changed files and files
    renamed at this moment."""
    walked = (walk for top in ("data", "exp") for walk in os.walk(recipe / top))
    found = (Path(folder) / name for folder, folders, files in walked for name in folders + files)
    return sorted(path for path in found if not any(part.endswith(".changed") for part in path.parts))


def contents(recipe: Path) -> dict[str, str]:
    """{file: digest} of the files that are equal in all runs."""
    names = {str(path.relative_to(recipe)): path for path in made_in(recipe) if path.is_file()}
    return {name: _digest(path) for name, path in names.items() if not _HOLDS_TIMES.search(name)}


def word_error_rates(recipe: Path) -> dict[str, str]:
    """{system and set: line of its best WER}."""
    found = recipe.glob("exp/*/decode_*/best_wer")
    return {
        str(path.parent.relative_to(recipe / "exp")): path.read_text(encoding="utf-8").strip()
        for path in sorted(found)
    }


def half_written(recipe: Path) -> list[str]:
    """Files with names of incomplete outputs."""
    return [str(path.relative_to(recipe)) for path in made_in(recipe) if path.name.endswith((".tmp", ".old"))]


def end(processes: dict[int, str]) -> None:
    """Kill these."""
    for number in processes:
        try:
            os.kill(number, signal.SIGKILL)
        except ProcessLookupError:
            pass  # harmless: it has ended meanwhile


def wait_until(condition, timeout_s: float) -> bool:
    """Whether the condition became true in time."""
    end_s = time.monotonic() + timeout_s
    while not (met := condition()) and time.monotonic() < end_s:
        time.sleep(0.1)
    return bool(met)


def _cpu_s(process: int) -> float:
    """CPU seconds of a process and of the children that it has waited for."""
    try:
        fields = (
            Path(f"/proc/{process}/stat")
            .read_text(encoding="utf-8", errors="replace")
            .rpartition(")")[2]
            .split()
        )
    except OSError:
        return 0.0  # harmless: the process has ended meanwhile
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")  # utime, stime, cutime, cstime of proc(5)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def _command(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        raise UserError(f"'{' '.join(words)}' failed: {done.stderr.strip()}")
