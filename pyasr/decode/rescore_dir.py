"""Rescoring the lattices of a decode directory: the old language model's costs are taken out and a new one's put in."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pyasr.base import log
from pyasr.base.errors import UserError
from pyasr.base.options import option
from pyasr.data.datadir import DataDir
from pyasr.decode.compact import CompactLattice
from pyasr.decode.lattice_dir import job_archives, read_of_data
from pyasr.decode.lattice_io import LatticeWriter
from pyasr.decode.lm_rescore import rescore
from pyasr.lang.backoff_lm import OOV_COST, BackoffLm
from pyasr.lang.grammar import BACKOFF, BOS, EOS
from pyasr.lang.symbols import EPSILON, SymbolTable

_NO_WORDS = (EPSILON, BACKOFF, BOS, EOS)
_SHOWN = 10


@dataclass(frozen=True)
class RescoreOptions:
    """How a language model is replaced."""

    oov_cost: float = option(OOV_COST, "-ln probability of a word that the new model lacks, after backing off to the empty history",
                             minimum=0.0)


@dataclass(frozen=True)
class RescoreSpec:
    """The work of all jobs; job J rewrites every num_jobs-th archive of `decode_dir` as lat.J.gz."""

    decode_dir: Path
    data: Path
    words: Path
    old_lm: Path
    new_lm: Path
    out: Path
    num_jobs: int
    rescore: RescoreOptions


def check_models(spec: RescoreSpec) -> list[str]:
    """The words of words.txt that the new model lacks. Raises UserError where it lacks all, and for models that cannot be read."""
    words = SymbolTable.read(spec.words)
    spoken = np.array([number for word, number in words.ids.items() if word not in _NO_WORDS])
    model = BackoffLm.read(spec.new_lm, words)
    missing = model.missing(spoken)
    if len(missing) == len(spoken):
        raise UserError(f"{model.name}: it has none of the words of {spec.words}; give a language model of the same words")
    return [words.symbol(number) for number in missing]


def missing_words_line(missing: list[str], spec: RescoreSpec) -> str:
    """A sentence that names the words."""
    shown = " ".join(missing[:_SHOWN]) + " ..." * (len(missing) > _SHOWN)
    return (f"{spec.new_lm}: {len(missing)} word(s) of {spec.words} are not in it ({shown}); "
            f"each costs --oov-cost {spec.rescore.oov_cost:g} beyond the back-off")


def check_same_words(old: Path, new: Path) -> None:
    """Raises UserError unless two words.txt give the same ids to the same words."""
    one, other = SymbolTable.read(old).ids, SymbolTable.read(new).ids
    if one == other:
        return
    word = next(word for word in [*one, *other] if one.get(word) != other.get(word))
    raise UserError(f"{new}: the word '{word}' has another id there than in {old} ({other.get(word, 'none')} and {one.get(word, 'none')}); "
                    "make both lang directories with utils/make_grammar.py from the same one")


def rescore_shard(spec: RescoreSpec, job: int) -> None:
    """Write lat.JOB.gz."""
    words, data = SymbolTable.read(spec.words), DataDir(spec.data)
    old = BackoffLm.read(spec.old_lm, words, best=True)
    new = BackoffLm.read(spec.new_lm, words, oov_cost=spec.rescore.oov_cost)
    num_lattices = num_arcs = num_new_arcs = 0
    unknown: set[int] = set()
    with LatticeWriter(spec.out / f"lat.{job}.gz") as writer:
        for archive in job_archives(spec.decode_dir, spec.num_jobs, job):
            for utterance, lattice in read_of_data(archive, data):
                _check_old(old, lattice, words, f"{archive}: {utterance}", spec.words)
                rescored = rescore(lattice, [(old, -1.0), (new, 1.0)])
                writer.write(utterance, rescored)
                unknown.update(new.missing(lattice.words).tolist())
                num_lattices, num_arcs, num_new_arcs = num_lattices + 1, num_arcs + lattice.num_arcs, num_new_arcs + rescored.num_arcs
    log.info(f"{num_lattices} lattices rescored, {num_arcs} arcs before and {num_new_arcs} after")
    if unknown:
        log.warning(missing_words_line([words.symbol(number) for number in sorted(unknown)], spec))


def _check_old(old: BackoffLm, lattice: CompactLattice, words: SymbolTable, where: str, table: Path) -> None:
    """All words of a lattice are in the words.txt and the model that it was decoded with."""
    strange = old.missing(lattice.words)
    if not len(strange):
        return
    known = words.ids.values()
    if strange[0] not in known:
        raise UserError(f"{where}: word {strange[0]} is not in {table}; give the lang directory of the decoding graph")
    raise UserError(f"{where}: the word '{words.symbol(strange[0])}' is not in {old.name}, whose costs the lattice should hold; "
                    "give the lang directory of the decoding graph")
