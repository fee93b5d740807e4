"""Training targets: the tied state (pdf) of every frame, from alignments; which utterances are held out; which rank gets which."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pyasr.base import log
from pyasr.base.errors import UserError
from pyasr.base.options import option
from pyasr.base.seeds import generator
from pyasr.feats.inputs import FeatureReader, InputOptions, input_tables
from pyasr.io.arrays import load_arrays, map_array, save_array, save_arrays

TARGETS_FILE = "targets.npz"
_BLOCK = 1 << 20


@dataclass(frozen=True)
class HeldoutOptions:
    """Which utterances are not trained on."""

    heldout_share: float = option(0.03, "share of the frames held out, to be measured after every epoch", minimum=0.0, maximum=0.5)
    heldout_seed: int = option(777, "seed of the choice of held-out speakers")
    heldout_by: str = option("speaker", "what is held out: whole speakers, or utterances", choices=("speaker", "utterance"))


@dataclass
class Targets:
    """Pdfs of the frames of many utterances.

    keys      utterances
    offsets   int64 (len(keys) + 1,): utterance i has frames offsets[i] .. offsets[i + 1] - 1
    pdfs      int32 (offsets[-1],)
    heldout   bool (len(keys),): not trained on
    num_pdfs  targets are 0 .. num_pdfs - 1
    """

    keys: list[str]
    offsets: np.ndarray
    pdfs: np.ndarray
    heldout: np.ndarray
    num_pdfs: int

    def __post_init__(self):
        self._index = {key: i for i, key in enumerate(self.keys)}

    def pdfs_of(self, key: str) -> np.ndarray:
        """Pdfs of the frames of an utterance, int32 (T,): a view."""
        i = self._index[key]
        return self.pdfs[self.offsets[i] : self.offsets[i + 1]]

    def counts(self) -> np.ndarray:
        """Frames of each pdf, held-out ones included, int64 (num_pdfs,)."""
        blocks = (self.pdfs[begin : begin + _BLOCK] for begin in range(0, len(self.pdfs), _BLOCK))
        return sum((np.bincount(block, minlength=self.num_pdfs) for block in blocks), np.zeros(self.num_pdfs, np.int64))

    def shard(self, rank: int, num_ranks: int, heldout: bool) -> list[str]:
        """The utterances of one rank: longest first, each to the rank that has the fewest frames so far."""
        lengths = np.diff(self.offsets)
        members = [i for i in np.argsort(-lengths, kind="stable") if self.heldout[i] == heldout]
        load, mine = np.zeros(num_ranks, np.int64), []
        for i in members:
            target = int(load.argmin())
            load[target] += lengths[i]
            if target == rank:
                mine.append(i)
        return [self.keys[i] for i in sorted(mine)]

    def save(self, path: Path) -> None:
        """Write PATH and the pdfs beside it, for `load`."""
        save_array(_pdfs_file(path), self.pdfs)
        save_arrays(path, keys=np.array(self.keys), offsets=self.offsets, heldout=self.heldout, num_pdfs=self.num_pdfs)

    @staticmethod
    def load(path: Path) -> Targets:
        """What `save` wrote; the pdfs stay on disk, where all ranks of a host share one copy."""
        content, pdfs = load_arrays(path), map_array(_pdfs_file(path))
        return Targets(content["keys"].tolist(), content["offsets"], pdfs, content["heldout"], int(content["num_pdfs"]))


def _pdfs_file(path: Path) -> Path:
    return path.with_suffix(".pdfs.npy")


def join(reader: FeatureReader, alignments: dict, max_missing: float, ali_dir: Path) -> list[str]:
    """The utterances that have features and an alignment of the same length. Logs one table of what matches and what does not.

    Raises UserError when more than the share `max_missing` of the utterances of the data directory is lost, or none is left.
    """
    data, keys, wanted = reader.data, reader.keys, set(reader.utterances).union(reader.keys)
    differences = {key: len(alignments[key]) - reader.num_frames(key) for key in keys if len(alignments.get(key, ()))}
    good = [key for key, difference in differences.items() if difference == 0]
    without = [key for key in keys if key not in differences]
    featureless = sorted(wanted.difference(keys))
    unequal = {key: difference for key, difference in differences.items() if difference}
    log.info(f"features and alignment: {len(good)} utterances")
    log.info(f"only features:          {len(without)} {_some(without)}")
    log.info(f"only alignment:         {len(alignments.keys() - keys)}")
    log.info(f"no features:            {len(featureless)} {_some(featureless)}")
    for difference, count in sorted(Counter(unequal.values()).items()):
        examples = [key for key in unequal if unequal[key] == difference]
        log.info(f"length differs by {difference:+d}: {count} {_some(examples)}")
    if len(featureless) > max_missing * len(wanted):
        what = f"{len(featureless)} of {len(wanted)} utterances of utt2spk have no features {_some(featureless)}"
        raise UserError(f"{data}/feats.scp: {what}; make them, take these utterances away, or raise --max-missing")
    if len(featureless) + len(without) + len(unequal) > max_missing * len(wanted):
        beside = f"{len(featureless)} have no features, " if featureless else ""
        what = f"{beside}{len(without)} of {len(wanted)} utterances have no alignment and {len(unequal)} one of another length"
        examples = _some(without + list(unequal))
        raise UserError(f"{ali_dir} does not match {data}: {what} {examples}; align {data} again, or raise --max-missing")
    if not good:
        raise UserError(f"{ali_dir} and {data} have no utterance in common to train on; align {data}, once it has features")
    return good


def _some(keys: list[str]) -> str:
    """The first few of `keys`, in brackets."""
    return f"({', '.join(keys[:3])}{', ...' if len(keys) > 3 else ''})" if keys else ""


def trained_tables(data: Path, inputs: InputOptions) -> list[Path]:
    """The tables of a data directory that a training goes by, for the fingerprints of its output; utt2uniq need not be there."""
    copies = Path(data) / "utt2uniq"
    return [*input_tables(data, inputs), *([copies] if copies.exists() else [])]


def choose_heldout(keys: list[str], lengths: np.ndarray, original: Callable[[str], tuple[str, str]],
                   options: HeldoutOptions) -> np.ndarray:  # fmt: skip
    """Which utterances are held out, bool (len(keys),): whole speakers of about `heldout_share` of the frames, or utterances.

    original   function that gives the utterance of which another is a copy, and its speaker; copies are held out together

    Speakers are taken in random order as long as they fit; if that gives less than half the share, utterances are taken instead.
    """
    budget = options.heldout_share * lengths.sum()
    utterances, speakers = zip(*map(original, keys)) if keys else ((), ())
    for unit in (*([speakers] if options.heldout_by == "speaker" else []), utterances):
        names, member = np.unique(np.array(unit), return_inverse=True)
        sizes = np.bincount(member, weights=lengths)
        taken, total = np.zeros(len(names), bool), 0
        for i in generator(options.heldout_seed, "heldout").permutation(len(names)):
            if total + sizes[i] <= budget:
                taken[i] = True
                total += sizes[i]
        if total >= 0.5 * budget:
            break
    kind = "speakers" if unit is speakers else "utterances"
    log.info(f"held out: {taken.sum()} {kind}, {int(total)} of {lengths.sum()} frames")
    return taken[member]


def make_targets(keys: list[str], alignments: dict, tid2pdf: np.ndarray, ali_dir: Path) -> tuple[np.ndarray, np.ndarray]:
    """(offsets, pdfs) of the utterances `keys`; `tid2pdf` is indexed by transition-id, index 0 unused.

    Raises UserError for transition-ids that the model does not have.
    """
    offsets = np.concatenate([[0], np.cumsum([len(alignments[key]) for key in keys])]).astype(np.int64)
    tids = np.concatenate([alignments[key] for key in keys])
    wrong = tids[(tids < 1) | (tids >= len(tid2pdf))]
    if len(wrong):
        found = f"its alignments hold transition-id {wrong[0]}, final.mdl has 1 to {len(tid2pdf) - 1}"
        raise UserError(f"{ali_dir}: {found}; they are of another model, align again")
    return offsets, tid2pdf[tids].astype(np.int32)
