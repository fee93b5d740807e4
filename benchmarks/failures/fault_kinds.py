"""Five kinds of faults. Each is applied to a random process or file that exists at that moment, and returns a
description and an undo."""

from __future__ import annotations

import contextlib
import os
import random
import re
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

from fault_ground import Ground

_MAX_LEFT, _MAX_DAMAGED = 32, 4096  # blocks of a disk, bytes
Undo = Callable[[], None]


def kill_a_process(ground: Ground, run: subprocess.Popen, chance: random.Random) -> tuple[str, Undo]:
    """kill -9 of a random process of the recipe."""
    found = ground.processes()
    number = chance.choice(sorted(found) or [run.pid])
    with contextlib.suppress(ProcessLookupError):
        os.kill(number, signal.SIGKILL)
    return f"kill -9 {_short(found.get(number, 'run.sh'))}", _nothing


def fill_the_disk(ground: Ground, run: subprocess.Popen, chance: random.Random) -> tuple[str, Undo]:
    left = chance.choice([0, 1, chance.randrange(2, _MAX_LEFT)])
    ground.fill_disk(left)
    return f"{4 * left} KiB left on the disk", ground.free_disk


def forbid_writing(ground: Ground, run: subprocess.Popen, chance: random.Random) -> tuple[str, Undo]:
    """Make a directory read-only, so that nothing in it can be created, removed or renamed; with probability
    0.5 one that a step writes."""
    directories = [path for path in ground.made() if path.is_dir()]
    scratch = [path for path in directories if path.name.endswith(".tmp")]
    path = chance.choice(
        scratch
        if scratch and chance.random() < 0.5
        else [ground.recipe / "exp", ground.recipe / "data", *directories]
    )
    path.mkdir(exist_ok=True)
    if os.geteuid() == 0:  # root ignores the mode
        subprocess.run(["chattr", "+i", path], check=True)
        return f"read-only {path.relative_to(ground.recipe)}", lambda: subprocess.run(
            ["chattr", "-i", path], check=True
        )
    mode = path.stat().st_mode
    path.chmod(mode & ~0o222)
    return f"read-only {path.relative_to(ground.recipe)}", lambda: path.chmod(mode)


def terminate(ground: Ground, run: subprocess.Popen, chance: random.Random) -> tuple[str, Undo]:
    run.send_signal(signal.SIGTERM)
    return "SIGTERM to run.sh", _nothing


def damage_a_file(ground: Ground, run: subprocess.Popen, chance: random.Random) -> tuple[str, Undo]:
    """Truncate, empty, overwrite in part or remove a file of a complete output or a checkpoint, other than
    logs and done-files."""
    files = [
        path
        for path in ground.made()
        if path.is_file() and not path.is_symlink() and _counts(path.relative_to(ground.recipe))
    ]
    path = chance.choice(files or [ground.recipe / "data/wav.scp"])
    how = chance.choice([_cut, _empty, _overwrite, _remove])
    with contextlib.suppress(FileNotFoundError):  # a file that is renamed at this moment stays intact
        how(path, chance)
    return f"{how.__name__.strip('_')} {path.relative_to(ground.recipe)}", _nothing


def _counts(path: Path) -> bool:
    """Whether a file is read by programs, and complete."""
    is_done = not any(part.endswith(".tmp") for part in path.parts) or any(
        "checkpoint" in part for part in path.parts
    )
    return is_done and "log" not in path.parts and not any(part.startswith(".") for part in path.parts)


KINDS = {
    "kill -9 of a process": kill_a_process,
    "disk full": fill_the_disk,
    "read-only directory": forbid_writing,
    "SIGTERM of run.sh": terminate,
    "damaged file": damage_a_file,
}


def possible_kinds() -> list[str]:
    """Names of the kinds that are possible on this machine: a full disk needs root; a read-only directory, as
    root, needs chattr."""
    impossible = set() if os.geteuid() == 0 else {"disk full"}
    impossible |= {"read-only directory"} if os.geteuid() == 0 and not shutil.which("chattr") else set()
    return [name for name in KINDS if name not in impossible]


def _nothing() -> None:
    pass


def _short(command: str) -> str:
    """The first words of a command line, without directories and interpreter options."""
    words = [Path(word).name for word in command.split() if not word.startswith("-")]
    words = [word for word in words if not re.fullmatch(r"python[\d.]*|mpi4py", word)]
    return " ".join(words[:2])


def _cut(path: Path, chance: random.Random) -> None:
    os.truncate(path, chance.randrange(max(path.stat().st_size, 1)))


def _empty(path: Path, chance: random.Random) -> None:
    os.truncate(path, 0)


def _overwrite(path: Path, chance: random.Random) -> None:
    size = path.stat().st_size
    begin = chance.randrange(max(size, 1))
    with path.open("r+b") as f:
        f.seek(begin)
        f.write(chance.randbytes(min(size - begin, chance.randint(1, _MAX_DAMAGED))))


def _remove(path: Path, chance: random.Random) -> None:
    path.unlink()
