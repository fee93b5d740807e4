"""Rescoring of the lattices of a decode directory: subtracts the costs of the old language model and adds
those of a new one."""

from __future__ import annotations

import filecmp
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pyasr.base import log
from pyasr.base.cli.options import option
from pyasr.base.errors import UserError
from pyasr.base.files.places import remove_tree
from pyasr.data.tables.datadir import DataDir
from pyasr.decode.lattice_jobs.lattice_dir import check_same_words, check_words, job_archives, read_of_data
from pyasr.decode.lattices.compact_lattice import CompactLattice
from pyasr.decode.lattices.lattice_io import LatticeWriter
from pyasr.decode.rescoring.lm_rescore import rescore
from pyasr.lang.grammars.backoff_lm import OOV_COST, BackoffLm, absent_from
from pyasr.lang.lexicons.dict_dir import RESERVED_WORDS
from pyasr.lang.symbols import SymbolTable
from pyasr.nn.device import DeviceOptions

_SHOWN = 10


@dataclass(frozen=True)
class RescoreOptions:
    """Options of language model replacement."""

    heading = "language model"

    oov_cost: float = option(
        OOV_COST,
        "-ln probability of a word outside the new model, in addition to the cost of backing off",
        minimum=0.0,
    )


@dataclass(frozen=True)
class RescoreSpec:
    """Parameters of all jobs; job J rescores every num_jobs-th archive of `decode_dir` to lat.J.gz.

    old_lm, new_lm  n-gram models whose costs are subtracted and added
    """

    decode_dir: Path
    data: Path
    words: Path
    old_lm: Path
    new_lm: Path
    out: Path
    num_jobs: int
    rescore: RescoreOptions

    @property
    def places(self) -> list[Path]:
        """Directories for the tables of large models while the jobs run, if the models' own directories
        cannot be written."""
        return [self.out / ".tables"]

    def end(self) -> None:
        """Remove the tables in `places`."""
        for place in self.places:
            if place.exists():
                remove_tree(place)


@dataclass(frozen=True)
class LstmRescoreOptions(RescoreOptions, DeviceOptions):
    """Options of rescoring with an LSTM language model."""

    heading = "search"

    ngram_order: int = option(
        4,
        "merge histories that agree in their last n - 1 words; 1: merge all histories of a state",
        minimum=1,
    )
    lstm_weight: float | None = option(
        None,
        "weight of the LSTM in the interpolation; none: the weight stored with the LSTM",
        minimum=0.0,
        maximum=1.0,
        heading="language model",
        common=True,
    )
    rescore_beam: float = option(
        8.0, "drop histories whose cost exceeds the best by more than this", minimum=0.0
    )
    acoustic_scale: float = option(0.1, "scale of acoustic costs for --rescore-beam", minimum=0.0)


@dataclass(frozen=True)
class LstmRescoreSpec(RescoreSpec):
    """Parameters of rescoring with an LSTM, which is interpolated with the n-gram model `new_lm`."""

    lstm: Path
    rescore: LstmRescoreOptions


def spoken_words(words: SymbolTable) -> dict[str, int]:
    """The words of words.txt, without reserved symbols, with their ids."""
    return {word: number for word, number in words.ids.items() if word not in RESERVED_WORDS}


def check_models(spec: RescoreSpec) -> None:
    """Log a warning for words that the new n-gram model lacks. Raises UserError if it lacks all, or if a
    model cannot be read."""
    words = SymbolTable.read(spec.words)
    spoken = np.array(list(spoken_words(words).values()))
    model = BackoffLm.read(spec.new_lm, words, more=spec.places)
    missing = model.missing(spoken)
    if len(missing) == len(spoken):
        raise UserError(
            f"{model.name}: contains none of the words of {spec.words}; give a language model with the same "
            "vocabulary"
        )
    _warn_of_missing(missing, words, spec)


def warn_of_same_model(spec: RescoreSpec) -> None:
    """Log a warning if the old and the new model are identical."""
    if filecmp.cmp(spec.old_lm, spec.new_lm, shallow=False):
        log.warning(
            f"{spec.new_lm}: identical to the language model of the lattices ({spec.old_lm}), so their "
            "costs do not change"
        )


def _warn_of_missing(missing: np.ndarray, words: SymbolTable, spec: RescoreSpec) -> None:
    """Log a warning that names the missing words, if any."""
    if not len(missing):
        return
    shown = " ".join(map(words.symbol, missing[:_SHOWN])) + " ..." * (len(missing) > _SHOWN)
    log.warning(
        f"{spec.new_lm}: {len(missing)} word(s) of {spec.words} are not in it ({shown}); "
        f"each costs --oov-cost {spec.rescore.oov_cost:g} in addition to the back-off"
    )


def word_tables(decode_dir: Path, old: Path, new: Path) -> list[Path]:
    """The words.txt of a lang directory, and that of a language model's directory if it exists. Raises
    UserError unless they have the same ids, which are also those of the lattices."""
    check_words(decode_dir, old)
    tables = [old / "words.txt", *([new / "words.txt"] if (new / "words.txt").exists() else [])]
    check_same_words(
        tables[0],
        tables[-1],
        "create both lang directories with utils/make_grammar.py from the same lang directory",
    )
    return tables


def rescore_shard(spec: RescoreSpec, job: int) -> None:
    """Write lat.JOB.gz."""
    old, new = read_models(spec)
    rewrite_shard(
        spec,
        job,
        old,
        new,
        lambda lattices: [rescore(lattice, [(old, -1.0), (new, 1.0)]) for lattice in lattices],
    )


def read_models(spec: RescoreSpec) -> tuple[BackoffLm, BackoffLm]:
    """The old and the new model, as rescoring needs them."""
    words = SymbolTable.read(spec.words)
    old = BackoffLm.read(spec.old_lm, words, best=True, more=spec.places)
    return old, BackoffLm.read(spec.new_lm, words, oov_cost=spec.rescore.oov_cost, more=spec.places)


def rewrite_shard(
    spec: RescoreSpec,
    job: int,
    old: BackoffLm,
    new: BackoffLm,
    change: Callable[[Sequence[CompactLattice]], list[CompactLattice]],
    most_arcs: int = 0,
) -> None:
    """Write lat.JOB.gz: the lattices of this job, changed by `change` in batches of at most `most_arcs` arcs
    or a single lattice."""
    words = SymbolTable.read(spec.words)
    data = DataDir(spec.data)
    counts = np.zeros(3, np.int64)
    unknown = set()
    with LatticeWriter(spec.out / f"lat.{job}.gz") as writer:
        for archive in job_archives(spec.decode_dir, spec.num_jobs, job):
            for entries in _together(_checked(archive, data, old, words, spec.words), most_arcs):
                utterances, lattices = zip(*entries)
                for utterance, lattice, changed in zip(utterances, lattices, change(lattices)):
                    writer.write(utterance, changed)
                    unknown.update(new.missing(lattice.words).tolist())
                    counts += 1, lattice.num_arcs, changed.num_arcs
    log.info("{} lattices rescored, {} arcs before and {} after".format(*counts))
    _warn_of_missing(np.array(sorted(unknown)), words, spec)


def _together(
    entries: Iterable[tuple[str, CompactLattice]], most_arcs: int
) -> Iterator[list[tuple[str, CompactLattice]]]:
    """Batches of entries with a total of at most `most_arcs` arcs, or of a single entry."""
    found: list[tuple[str, CompactLattice]] = []
    num_arcs = 0
    for entry in entries:
        num_arcs += entry[1].num_arcs
        if found and num_arcs > most_arcs:
            yield found
            found, num_arcs = [], entry[1].num_arcs
        found.append(entry)
    if found:
        yield found


def _checked(
    archive: Path, data: DataDir, old: BackoffLm, words: SymbolTable, table: Path
) -> Iterator[tuple[str, CompactLattice]]:
    """The lattices of an archive. Raises UserError unless all of their words are in words.txt and in the
    language model of the decoding."""
    listed, remedy = np.sort(list(words.ids.values())), "give the lang directory of the decoding graph"
    for utterance, lattice in read_of_data(archive, data):
        where = f"{archive}: {utterance}"
        unlisted, missing = absent_from(listed, lattice.words), old.missing(lattice.words)
        if len(unlisted):
            raise UserError(f"{where}: word id {unlisted[0]} is not in {table}; {remedy}")
        if len(missing):
            word = words.symbol(missing[0])
            raise UserError(
                f"{where}: the word '{word}' is not in {old.name}, whose costs the lattice should contain; "
                f"{remedy}"
            )
        yield utterance, lattice
