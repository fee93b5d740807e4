#!/usr/bin/env python3
"""Install a requirements file into .venv and create .venv if it does not exist; path.sh and tests/run.sh call
this program.

Reads   requirements.txt (also the constraints for other requirements files)
Writes  .venv; a copy of the requirements file in .venv marks a complete installation

    utils/build_environment.py requirements.txt

Another requirements file is installed in addition to requirements.txt. Concurrent calls are safe: the second
waits for the first. An interrupted build is started again from scratch. Runs on plain Python, without pyasr.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VENV = ROOT / ".venv"
CAUSES = [
    (
        r"No space left on device",
        "the disk is full: the environment needs about 2 GB, with GPU libraries 6 GB",
    ),
    (
        (
            r"NewConnectionError|name resolution|Name or service not known|Network is "
            r"unreachable|ConnectTimeout|ProxyError|Connection refused"
        ),
        (
            "the package index was not reached: check the network, or pip's settings for a proxy or mirror "
            "(pip config list)"
        ),
    ),
    (
        r"No matching distribution found for (\S+)",
        (
            "no binary package \\1 for this Python and system: try another Python (3.10 to 3.14) with "
            "PYASR_PYTHON=/path/to/python3"
        ),
    ),
    (r"Permission denied", "no permission to write a directory: check the owner of .venv"),
]


class Failure(Exception):
    """Error message for the user, in one sentence."""


def version() -> str:
    """The version of pyasr; read as text, because its modules may need the environment."""
    text = (ROOT / "pyasr" / "base" / "version.py").read_text(encoding="utf-8")
    return re.findall(r'^VERSION = "(.*)"$', text, re.MULTILINE)[0]


def mark(name: str) -> Path:
    return VENV / f".installed-{name}"


def mark_content(name: str) -> str:
    """Content of the mark of a complete installation. It includes the path of .venv, because a moved
    environment does not work."""
    return f"# {VENV}\n" + (ROOT / name).read_text(encoding="utf-8")


def is_complete(name: str) -> bool:
    return exists() and mark(name).is_file() and mark(name).read_text(encoding="utf-8") == mark_content(name)


def was_built_here() -> bool:
    """Whether the environment was built at its present path: programs in its bin contain the path."""
    return (
        exists()
        and mark("requirements.txt").is_file()
        and mark("requirements.txt").read_text(encoding="utf-8").startswith(f"# {VENV}\n")
    )


def exists() -> bool:
    """Whether the environment exists. Without pyvenv.cfg, its python is the system's, with the system's
    packages."""
    return python().exists() and (VENV / "pyvenv.cfg").exists()


def python() -> Path:
    return VENV / "bin" / "python"


def run(command: list, log: Path) -> None:
    """Run a command and append its output to `log`. Raises Failure with a likely cause."""
    with log.open("a", encoding="utf-8") as f:
        status = subprocess.run(
            [str(word) for word in command], stdin=subprocess.DEVNULL, stdout=f, stderr=subprocess.STDOUT
        ).returncode
    if status:
        raise Failure(cause(log.read_text(encoding="utf-8", errors="replace")) + f" (log: {log})")


def cause(text: str) -> str:
    for pattern, sentence in CAUSES:
        match = re.search(pattern, text)
        if match:
            return match.expand(sentence)
    lines = [line for line in text.splitlines() if line.strip()]
    return f"the environment could not be built: {lines[-1] if lines else 'no message'}"


def make_venv(log: Path) -> None:
    """Create an empty environment, in place of one that an interrupted build has left or that was moved."""
    if importlib.util.find_spec("venv") and importlib.util.find_spec("ensurepip"):
        run([sys.executable, "-m", "venv", "--clear", VENV], log)
    elif importlib.util.find_spec("virtualenv"):
        run([sys.executable, "-m", "virtualenv", "--clear", VENV], log)
    else:
        version = f"{sys.version_info[0]}.{sys.version_info[1]}"
        raise Failure(
            f"{sys.executable} cannot create environments: install its venv module (Debian, Ubuntu: apt-get "
            f"install python{version}-venv; without root: use another Python with "
            "PYASR_PYTHON=/path/to/python3)"
        )


def install(name: str) -> None:
    if VENV.is_symlink():
        raise Failure(
            f"{VENV} is a link to {VENV.resolve()}, which may be the environment of another copy of the "
            "toolkit; delete the link"
        )
    log = ROOT / ".venv.log"
    log.write_text("", encoding="utf-8")
    print(f"installing {name} into {VENV} (once; log: {log})", file=sys.stderr, flush=True)
    if not was_built_here():
        make_venv(log)
    mark(name).unlink(missing_ok=True)
    constraints = ["-c", ROOT / "requirements.txt"] if name != "requirements.txt" else []
    run(
        [
            python(),
            "-m",
            "pip",
            "install",
            "--no-input",
            "--disable-pip-version-check",
            "--only-binary",
            ":all:",
            "-r",
            ROOT / name,
            *constraints,
        ],
        log,
    )
    os.sync()  # after a power loss, the mark must not exist without the files that it stands for
    scratch = mark(name).with_suffix(".tmp")
    scratch.write_text(mark_content(name), encoding="utf-8")
    scratch.replace(mark(name))
    log.unlink()


def main(name: str) -> None:
    with (ROOT / ".venv.lock").open("w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"another program is building {VENV}; waiting for it", file=sys.stderr, flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        for file in dict.fromkeys(["requirements.txt", name]):
            if not is_complete(file):
                install(file)


if __name__ == "__main__":
    if sys.argv[1:] == ["--version"]:
        print(f"pyasr {version()}")
        sys.exit(0)
    if len(sys.argv) != 2 or sys.argv[1] in ("--help", "-h"):
        print(__doc__.strip())
        sys.exit(0 if sys.argv[1:] in (["--help"], ["-h"]) else 1)
    for variable in ("PYTHONPATH", "PYTHONHOME"):
        os.environ.pop(variable, None)
    try:
        main(sys.argv[1])
    except Failure as failure:
        sys.exit(f"path.sh: error: {failure}")
    except OSError as error:
        sys.exit(f"path.sh: error: {error.filename or VENV}: {error.strerror}")
    except KeyboardInterrupt:
        sys.exit("path.sh: interrupted; run the same command again to continue")
