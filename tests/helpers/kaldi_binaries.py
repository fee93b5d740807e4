"""Kaldi's programs, from the riva-asrlib-decoder wheel, as functions of files: the reference for transducer
tests."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path

import pytest

from pyasr.io.openfst import Fst, read_fst, write_fst


def _directory() -> Path | None:
    try:
        spec = importlib.util.find_spec("riva")
    except ModuleNotFoundError:
        return None
    for place in spec.submodule_search_locations if spec else ():
        found = Path(place) / "asrlib/decoder/scripts/prepare_TLG_fst/bin"
        if (found / "fstdeterminizestar").exists():
            return found
    return None


DIRECTORY = _directory()
needed = pytest.mark.skipif(
    DIRECTORY is None, reason="the Kaldi binaries of riva-asrlib-decoder are not installed"
)


def run(program: str, *arguments: object) -> str:
    """Run a program; its standard output."""
    return subprocess.run(
        [str(DIRECTORY / program), *map(str, arguments)], check=True, capture_output=True, text=True
    ).stdout


def run_any(program: str, *arguments: object) -> str:
    """The same for a program with any exit status."""
    return subprocess.run(
        [str(DIRECTORY / program), *map(str, arguments)], capture_output=True, text=True
    ).stdout


def apply(program: str, fst: Fst, scratch: Path, *options: str) -> Fst:
    """`program OPTIONS in.fst out.fst` on a transducer."""
    write_fst(scratch / "in.fst", fst)
    run(program, *options, scratch / "in.fst", scratch / "out.fst")
    return read_fst(scratch / "out.fst")


def make_lg(lang: Path, scratch: Path) -> Fst:
    """LG of a language directory with a grammar."""
    run("fsttablecompose", lang / "L_disambig.fst", lang / "G.fst", scratch / "composed.fst")
    run("fstdeterminizestar", "--use-log=true", scratch / "composed.fst", scratch / "determinised.fst")
    run("fstminimizeencoded", scratch / "determinised.fst", scratch / "LG.fst")
    return read_fst(scratch / "LG.fst")
