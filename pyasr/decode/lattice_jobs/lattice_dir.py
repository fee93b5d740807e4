"""The lattice archives of a decode directory, the archives of each job, and files that describe them."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from pyasr.base import log
from pyasr.base.errors import UserError
from pyasr.base.outputs.fingerprint import read_done
from pyasr.base.outputs.output import atomic_write
from pyasr.data.tables.datadir import DataDir
from pyasr.decode.lattices.compact_lattice import CompactLattice
from pyasr.decode.lattices.determinize import determinize
from pyasr.decode.lattices.lattice import Lattice
from pyasr.decode.lattices.lattice_io import read_either
from pyasr.io.int_vectors import num_archives
from pyasr.lang.symbols import SymbolTable

_Entry = TypeVar("_Entry")

_RAW_BEAM = 10.0
# names the models whose costs replaced those of the decoding graph in the lattices
_LANGUAGE_MODEL = "language_model"


def archives(decode_dir: Path) -> list[Path]:
    """lat.1.gz ... lat.N.gz in numerical order. Raises UserError if there are none or one is missing."""
    paths = [
        Path(decode_dir) / f"lat.{job}.gz"
        for job in range(1, num_archives(decode_dir, "decode with steps/decode.py") + 1)
    ]
    for path in paths:
        if not path.exists():
            raise UserError(f"{path}: no such file; decode again with steps/decode.py")
    return paths


def words_file(decode_dir: Path, lang: Path) -> Path:
    """The words.txt with the word ids of the lattices: DECODE_DIR's own if it exists (Kaldi writes none),
    else LANG's."""
    own = Path(decode_dir) / "words.txt"
    return own if own.exists() else lang / "words.txt"


def keep_words(words: Path, out: Path) -> None:
    """Copy the words.txt with the word ids of the lattices to their directory, so that they are not read with
    another one."""
    shutil.copyfile(words, out / "words.txt")


def check_words(decode_dir: Path, lang: Path) -> None:
    """Raise UserError if DECODE_DIR has a words.txt that differs from LANG's."""
    lists = (
        "lattices of greedy and prefix search (steps/decode_ctc.py) have no graph, decode with --search wfst"
    )
    check_same_words(
        lang / "words.txt",
        words_file(decode_dir, lang),
        f"give the lang directory of the decoding graph; {lists}",
    )


def write_language_model(out: Path, models: Iterable[Path]) -> None:
    """Record the models whose costs are in the lattices after rescoring."""
    with atomic_write(out / _LANGUAGE_MODEL) as f:
        f.writelines(f"{model}\n" for model in models)


def keep_language_model(decode_dir: Path, out: Path) -> None:
    """Copy the record of `write_language_model` to lattices derived from those of DECODE_DIR."""
    if (decode_dir / _LANGUAGE_MODEL).exists():
        shutil.copyfile(decode_dir / _LANGUAGE_MODEL, out / _LANGUAGE_MODEL)


def check_as_decoded(decode_dir: Path) -> None:
    """Raise UserError if the costs of the decoding graph's language model are no longer in the lattices."""
    record = Path(decode_dir) / _LANGUAGE_MODEL
    if record.exists():
        models = " and ".join(record.read_text(encoding="utf-8", errors="replace").splitlines())
        raise UserError(
            f"{decode_dir}: rescoring has replaced the costs of the decoding graph in these lattices by "
            f"those of {models}; rescore the original lattices of the decoding"
        )


def check_same_words(one: Path, other: Path, remedy: str) -> None:
    """Raise UserError, ending with `remedy`, unless two words.txt have the same words with the same ids."""
    ours, theirs = SymbolTable.read(one).ids, SymbolTable.read(other).ids
    if ours == theirs:
        return
    word = next(word for word in [*ours, *theirs] if ours.get(word) != theirs.get(word))
    ids = f"{theirs.get(word, 'none')} and {ours.get(word, 'none')}"
    raise UserError(f"{other}: the word '{word}' does not have the same id as in {one} ({ids}); {remedy}")


def write_num_jobs(decode_dir: Path, num_jobs: int) -> None:
    """Record the number of archives of a directory."""
    with atomic_write(decode_dir / "num_jobs") as f:
        f.write(f"{num_jobs}\n")


def job_archives(decode_dir: Path, num_jobs: int, job: int) -> list[Path]:
    """The archives of job `job` (1-based) of `num_jobs`: every num_jobs-th archive."""
    return archives(decode_dir)[job - 1 :: num_jobs]


def read_deterministic(archive: Path, acoustic_scale: float = 0.1) -> Iterator[tuple[str, CompactLattice]]:
    """(utterance, lattice with one path for each word sequence) of an archive.

    Raw lattices are determinised at the acoustic scale and lattice beam of their decoding if they are
    recorded, else at `acoustic_scale` and beam 10. Logs a warning with the number of lattices whose beam was
    narrowed.
    """
    decode = (read_done(archive.parent) or {}).get("options", {}).get("decode", {})
    beam, scale = decode.get("lattice_beam", _RAW_BEAM), decode.get("acoustic_scale", acoustic_scale)
    narrowed = []
    for utterance, lattice in read_either(archive):
        if isinstance(lattice, Lattice):
            lattice, reached = determinize(lattice, beam, scale)
            narrowed += [utterance] if reached < beam else []
        yield utterance, lattice
    if narrowed:
        log.warning(
            f"{archive}: the determinisation of {len(narrowed)} raw lattices narrowed the beam of {beam:g} "
            f"(first: {narrowed[0]}); decode with --determinize true and a larger --determinize-mb"
        )


def read_of_data(
    archive: Path, data: DataDir, acoustic_scale: float = 0.1
) -> Iterator[tuple[str, CompactLattice]]:
    """Like `read_deterministic`; raises UserError for an utterance that is not in the data directory."""
    return of_data(read_deterministic(archive, acoustic_scale), archive, data)


def of_data(
    entries: Iterable[tuple[str, _Entry]], archive: Path, data: DataDir
) -> Iterator[tuple[str, _Entry]]:
    """The entries of an archive; raises UserError at the first whose utterance the data directory lacks."""
    for utterance, entry in entries:
        if utterance not in data.utt2spk:
            raise UserError(
                f"{archive}: the utterance '{utterance}' is not in {data.path}/utt2spk; "
                "give the data directory that was decoded"
            )
        yield utterance, entry
