"""The lattices of a decode directory: its archives, and each job's share of them."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

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

_RAW_BEAM = 10.0
_LANGUAGE_MODEL = "language_model"  # whose costs the lattices hold in place of the decoding graph's


def archives(decode_dir: Path) -> list[Path]:
    """lat.1.gz ... lat.N.gz by their number. Raises UserError when there are none or one is missing."""
    paths = [Path(decode_dir) / f"lat.{job}.gz" for job in range(1, num_archives(decode_dir, "decode with steps/decode.py") + 1)]
    for path in paths:
        if not path.exists():
            raise UserError(f"{path}: no such file; decode again with steps/decode.py")
    return paths


def words_file(decode_dir: Path, lang: Path) -> Path:
    """The words.txt whose numbers the lattices bear: DECODE_DIR's own (those that Kaldi made have none), else LANG's."""
    own = Path(decode_dir) / "words.txt"
    return own if own.exists() else lang / "words.txt"


def keep_words(words: Path, out: Path) -> None:
    """Copy the words.txt whose numbers the lattices bear beside them, so that nobody spells them by another."""
    shutil.copyfile(words, out / "words.txt")


def check_words(decode_dir: Path, lang: Path) -> None:
    """Raises UserError where DECODE_DIR has a words.txt of its own and LANG's differs."""
    lists = "lists of greedy and prefix search (steps/decode_ctc.py) have none: decode with --search wfst"
    check_same_words(lang / "words.txt", words_file(decode_dir, lang), f"give the lang directory of the decoding graph; {lists}")


def write_language_model(out: Path, models: Iterable[Path]) -> None:
    """Say whose costs the lattices hold since a rescoring."""
    with atomic_write(out / _LANGUAGE_MODEL) as f:
        f.writelines(f"{model}\n" for model in models)


def keep_language_model(decode_dir: Path, out: Path) -> None:
    """Say of lattices made from those of DECODE_DIR what these say."""
    if (decode_dir / _LANGUAGE_MODEL).exists():
        shutil.copyfile(decode_dir / _LANGUAGE_MODEL, out / _LANGUAGE_MODEL)


def check_as_decoded(decode_dir: Path) -> None:
    """Raises UserError where the costs of the decoding graph's language model are no longer in the lattices."""
    told = Path(decode_dir) / _LANGUAGE_MODEL
    if told.exists():
        models = " and ".join(told.read_text(encoding="utf-8", errors="replace").splitlines())
        raise UserError(f"{decode_dir}: a rescoring has put the costs of {models} into its lattices in place of the decoding graph's; "
                        "rescore the lattices as they were decoded")


def check_same_words(one: Path, other: Path, remedy: str) -> None:
    """Raises UserError, ending with `remedy`, unless two words.txt give the same ids to the same words."""
    ours, theirs = SymbolTable.read(one).ids, SymbolTable.read(other).ids
    if ours == theirs:
        return
    word = next(word for word in [*ours, *theirs] if ours.get(word) != theirs.get(word))
    ids = f"{theirs.get(word, 'none')} and {ours.get(word, 'none')}"
    raise UserError(f"{other}: the word '{word}' has another id there than in {one} ({ids}); {remedy}")


def write_num_jobs(decode_dir: Path, num_jobs: int) -> None:
    """Say how many archives a directory has."""
    with atomic_write(decode_dir / "num_jobs") as f:
        f.write(f"{num_jobs}\n")


def job_archives(decode_dir: Path, num_jobs: int, job: int) -> list[Path]:
    """The archives of job `job` out of `num_jobs`, 1-based: every num_jobs-th."""
    return archives(decode_dir)[job - 1::num_jobs]


def read_deterministic(archive: Path, acoustic_scale: float = 0.1) -> Iterator[tuple[str, CompactLattice]]:
    """(utterance, lattice with one path for each word sequence) of an archive.

    Raw lattices are determinised at the scale and within the beam of their decoding, where that is told, else at `acoustic_scale` within
    10; a warning tells how many of them become narrower.
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
        log.warning(f"{archive}: {len(narrowed)} raw lattices get a narrower beam than {beam:g} (the first is {narrowed[0]}); decode with "
                    "--determinize true and more --determinize-mb")  # fmt: skip


def read_of_data(archive: Path, data: DataDir, acoustic_scale: float = 0.1) -> Iterator[tuple[str, CompactLattice]]:
    """The same. Raises UserError for an utterance that is not in the data directory."""
    return of_data(read_deterministic(archive, acoustic_scale), archive, data)


def of_data(entries: Iterable[tuple[str, object]], archive: Path, data: DataDir) -> Iterator[tuple[str, object]]:
    """The entries of an archive. Raises UserError at the first one whose utterance is not in the data directory."""
    for utterance, entry in entries:
        if utterance not in data.utt2spk:
            raise UserError(f"{archive}: its utterance '{utterance}' is not in {data.path}/utt2spk; "
                            "give the data directory that was decoded")
        yield utterance, entry
