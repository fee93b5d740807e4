"""Rescoring the lattices of a decode directory: the old language model's costs are taken out and a new one's put in."""

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
    """How a language model is replaced."""

    oov_cost: float = option(OOV_COST, "-ln probability of a word that the new model lacks, after backing off to the empty history",
                             minimum=0.0)


@dataclass(frozen=True)
class RescoreSpec:
    """The work of all jobs; job J rewrites every num_jobs-th archive of `decode_dir` as lat.J.gz.

    old_lm, new_lm  n-gram models: the one whose costs go out, the one whose costs come in
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
        """Where the tables of large models are while the jobs run, if the models' own directories cannot be written."""
        return [self.out / ".tables"]

    def end(self) -> None:
        """Remove these tables."""
        for place in self.places:
            if place.exists():
                remove_tree(place)


@dataclass(frozen=True)
class LstmRescoreOptions(RescoreOptions, DeviceOptions):
    """How an LSTM language model is put into lattices."""

    ngram_order: int = option(4, "histories that agree in the last so many words less one are one; 1: all that meet", minimum=1)
    lstm_weight: float | None = option(None, "share of the LSTM in a word's probability; none: the one that it was trained to have",
                                       minimum=0.0, maximum=1.0)  # fmt: skip
    rescore_beam: float = option(8.0, "costs beyond the best at which histories are dropped", minimum=0.0)
    acoustic_scale: float = option(0.1, "scale of acoustic costs for --rescore-beam", minimum=0.0)


@dataclass(frozen=True)
class LstmRescoreSpec(RescoreSpec):
    """The same work with a further model; `new_lm` is the n-gram model beside it."""

    lstm: Path
    rescore: LstmRescoreOptions


def spoken_words(words: SymbolTable) -> dict[str, int]:
    """The words of words.txt that can be spoken, with their ids."""
    return {word: number for word, number in words.ids.items() if word not in RESERVED_WORDS}


def check_models(spec: RescoreSpec) -> None:
    """Tell the words that the new n-gram model lacks. Raises UserError where it lacks all, and for models that cannot be read."""
    words = SymbolTable.read(spec.words)
    spoken = np.array(list(spoken_words(words).values()))
    model = BackoffLm.read(spec.new_lm, words, more=spec.places)
    missing = model.missing(spoken)
    if len(missing) == len(spoken):
        raise UserError(f"{model.name}: it has none of the words of {spec.words}; give a language model of the same words")
    _tell_missing(missing, words, spec)


def warn_of_same_model(spec: RescoreSpec) -> None:
    """Where the old and the new model have the same content, so that nothing can change."""
    if filecmp.cmp(spec.old_lm, spec.new_lm, shallow=False):
        log.warning(f"{spec.new_lm} is the language model that the lattices have already ({spec.old_lm}), so their costs do not change")


def _tell_missing(missing: np.ndarray, words: SymbolTable, spec: RescoreSpec) -> None:
    """A warning that names the words, if there are any."""
    if not len(missing):
        return
    shown = " ".join(map(words.symbol, missing[:_SHOWN])) + " ..." * (len(missing) > _SHOWN)
    log.warning(f"{spec.new_lm}: {len(missing)} word(s) of {spec.words} are not in it ({shown}); "
                f"each costs --oov-cost {spec.rescore.oov_cost:g} beyond the back-off")


def word_tables(decode_dir: Path, old: Path, new: Path) -> list[Path]:
    """The words.txt of a lang directory, and that of a language model's directory if it has one. Raises UserError unless they are alike,
    and the lattices' words have their numbers."""
    check_words(decode_dir, old)
    tables = [old / "words.txt", *([new / "words.txt"] if (new / "words.txt").exists() else [])]
    check_same_words(tables[0], tables[-1], "make both lang directories with utils/make_grammar.py from the same one")
    return tables


def rescore_shard(spec: RescoreSpec, job: int) -> None:
    """Write lat.JOB.gz."""
    old, new = read_models(spec)
    rewrite_shard(spec, job, old, new, lambda lattices: [rescore(lattice, [(old, -1.0), (new, 1.0)]) for lattice in lattices])


def read_models(spec: RescoreSpec) -> tuple[BackoffLm, BackoffLm]:
    """The old model and the new one as they are needed here."""
    words = SymbolTable.read(spec.words)
    old = BackoffLm.read(spec.old_lm, words, best=True, more=spec.places)
    return old, BackoffLm.read(spec.new_lm, words, oov_cost=spec.rescore.oov_cost, more=spec.places)


def rewrite_shard(spec: RescoreSpec, job: int, old: BackoffLm, new: BackoffLm,
                  change: Callable[[Sequence[CompactLattice]], list[CompactLattice]], most_arcs: int = 0) -> None:  # fmt: skip
    """Write lat.JOB.gz: the lattices of this job, which `change` gets together as long as they have no more than `most_arcs` arcs."""
    words, data, counts, unknown = SymbolTable.read(spec.words), DataDir(spec.data), np.zeros(3, np.int64), set()
    with LatticeWriter(spec.out / f"lat.{job}.gz") as writer:
        for archive in job_archives(spec.decode_dir, spec.num_jobs, job):
            for entries in _together(_checked(archive, data, old, words, spec.words), most_arcs):
                utterances, lattices = zip(*entries)
                for utterance, lattice, changed in zip(utterances, lattices, change(lattices)):
                    writer.write(utterance, changed)
                    unknown.update(new.missing(lattice.words).tolist())
                    counts += 1, lattice.num_arcs, changed.num_arcs
    log.info("{} lattices rescored, {} arcs before and {} after".format(*counts))
    _tell_missing(np.array(sorted(unknown)), words, spec)


def _together(entries: Iterable[tuple[str, CompactLattice]], most_arcs: int) -> Iterator[list[tuple[str, CompactLattice]]]:
    """Entries of an archive, as many at once as have no more than `most_arcs` arcs, at least one."""
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


def _checked(archive: Path, data: DataDir, old: BackoffLm, words: SymbolTable, table: Path) -> Iterator[tuple[str, CompactLattice]]:
    """The lattices of an archive. Raises UserError unless all of their words are in words.txt and in the model they were decoded with."""
    listed, remedy = np.sort(list(words.ids.values())), "give the lang directory of the decoding graph"
    for utterance, lattice in read_of_data(archive, data):
        where = f"{archive}: {utterance}"
        unlisted, strange = absent_from(listed, lattice.words), old.missing(lattice.words)
        if len(unlisted):
            raise UserError(f"{where}: word {unlisted[0]} is not in {table}; {remedy}")
        if len(strange):
            word = words.symbol(strange[0])
            raise UserError(f"{where}: the word '{word}' is not in {old.name}, whose costs the lattice should hold; {remedy}")
        yield utterance, lattice
