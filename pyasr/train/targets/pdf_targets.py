"""Training targets: the tied state (pdf) of every frame, the held-out set, and the assignment of utterances
to ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pyasr.base import log
from pyasr.base.cli.options import group, option
from pyasr.base.cli.seeds import generator
from pyasr.base.cli.skipped_utterances import SkippedOptions
from pyasr.base.errors import UserError
from pyasr.base.outputs.output import atomic_write
from pyasr.feats.inputs import FeatureReader, InputOptions, input_tables
from pyasr.io.keys import Keys, ranks
from pyasr.io.mapped_files.arrays import load_arrays, map_numbers, save_arrays
from pyasr.io.mapped_files.packed_rows import StoredRows, save_rows
from pyasr.train.targets.dealing import dealt_to

TARGETS_FILE = "targets.npz"
_BLOCK, _NUM_NAMED = 1 << 20, 3


@dataclass(frozen=True)
class HeldoutOptions:
    """Selection of the held-out set."""

    heading = "data"

    heldout_share: float = option(
        0.03, "fraction of the frames to hold out for evaluation after every epoch", minimum=0.0, maximum=0.5
    )
    heldout_seed: int = option(777, "seed of the selection of the held-out set", rare=True)
    heldout_by: str = option(
        "speaker",
        "unit of the held-out set: whole speakers or single utterances",
        choices=("speaker", "utterance"),
    )


@dataclass(frozen=True)
class CtcTargetOptions(HeldoutOptions):
    """Selection of the training utterances of CTC."""

    missing: SkippedOptions = group(SkippedOptions, max_missing=0.05)


@dataclass
class Targets:
    """Pdfs of the frames of many utterances.

    keys      utterances
    offsets   int64 (len(keys) + 1,): utterance i has frames offsets[i] .. offsets[i + 1] - 1
    pdfs      int32 (offsets[-1],)
    heldout   bool (len(keys),): whether the utterance is held out
    num_pdfs  targets are 0 .. num_pdfs - 1

    Targets from `load` leave keys, offsets and pdfs on disk. Only the keys that `shard` returned are in
    memory.
    """

    keys: Sequence[str]
    offsets: np.ndarray
    pdfs: np.ndarray
    heldout: np.ndarray
    num_pdfs: int

    def __post_init__(self):
        self._rows: dict[str, int] = {}
        self._counts: np.ndarray | None = None

    def row(self, key: str) -> int:
        """Index of an utterance in `keys`. Raises KeyError if it is not there."""
        if key not in self._rows:
            self._rows = {key: row for row, key in enumerate(self.keys)}
        return self._rows[key]

    def pdfs_of(self, key: str) -> np.ndarray:
        """Pdfs of the frames of an utterance, int32 (T,): a view."""
        row = self.row(key)
        return self.pdfs[self.offsets[row] : self.offsets[row + 1]]

    def counts(self) -> np.ndarray:
        """Frames of each pdf, held-out ones included, int64 (num_pdfs,)."""
        if self._counts is not None:
            return self._counts.copy()
        blocks = (self.pdfs[begin : begin + _BLOCK] for begin in range(0, len(self.pdfs), _BLOCK))
        return sum(
            (np.bincount(block, minlength=self.num_pdfs) for block in blocks),
            np.zeros(self.num_pdfs, np.int64),
        )

    def shard(self, rank: int, num_ranks: int, heldout: bool) -> list[str]:
        """The utterances of one rank. They are assigned longest first, each to the rank with the fewest
        frames so far."""
        rows = np.flatnonzero(dealt_to(rank, num_ranks, self._lengths(), self.heldout == heldout))
        keys = (
            self.keys.take(rows)
            if isinstance(self.keys, StoredRows)
            else [self.keys[row] for row in rows.tolist()]
        )
        self._rows.update(zip(keys, rows.tolist()))
        return keys

    def parts(self, share: tuple[int, int] | None, rank: int, num_ranks: int) -> tuple[list[str], list[str]]:
        """(training utterances of a rank: part k of n for `share` (k, n), none for None; held-out utterances
        of the rank)."""
        # first, while few keys are in memory: the assignment takes memory
        heldout = self.shard(rank, num_ranks, heldout=True)
        return self.shard(*share, heldout=False) if share else [], heldout

    def _lengths(self) -> np.ndarray:
        """Frames of the utterances, int32."""
        lengths = np.empty(len(self.keys), np.int32)  # an utterance has fewer than 2^31 frames
        for begin in range(0, len(lengths), _BLOCK):
            lengths[begin : begin + _BLOCK] = np.diff(self.offsets[begin : begin + _BLOCK + 1])
        return lengths

    def save(self, path: Path) -> None:
        """Write PATH and, before it, the files PATH.pdfs, PATH.offsets and PATH.keys, for `load`."""
        save_targets(path, self.keys, self.offsets, [self.pdfs], self.heldout, self.num_pdfs)

    @staticmethod
    def load(path: Path) -> Targets:
        """Targets that `save` wrote. Keys, offsets and pdfs are memory-mapped, so the ranks of a host share
        one copy."""
        content = load_arrays(path, ("heldout", "num_pdfs"))
        offsets = map_numbers(_part(path, "offsets"), np.int64)
        pdfs = map_numbers(_part(path, "pdfs"), np.int32)
        targets = Targets(
            StoredRows(_part(path, "keys")), offsets, pdfs, content["heldout"], int(content["num_pdfs"])
        )
        targets._counts = content.get("counts")
        return targets


def save_targets(
    path: Path,
    keys: Sequence[str],
    offsets: np.ndarray,
    pdfs: Iterable[np.ndarray],
    heldout: np.ndarray,
    num_pdfs: int,
    counted: bool = False,
) -> None:
    """Write targets, see `Targets.save`.

    pdfs     int32, in successive pieces
    counted  whether to save `Targets.counts` too, so that ranks need not read all pdfs
    """
    counts = np.zeros(num_pdfs if counted else 0, np.int64)
    with atomic_write(_part(path, "pdfs"), "wb") as f:
        for block in _blocks(pdfs):
            f.write(np.ascontiguousarray(block, np.int32))
            counts += np.bincount(block, minlength=num_pdfs) if counted else 0
    with atomic_write(_part(path, "offsets"), "wb") as f:
        f.write(np.ascontiguousarray(offsets, np.int64))
    save_rows(_part(path, "keys"), keys)
    save_arrays(path, heldout=heldout, num_pdfs=np.array(num_pdfs), **({"counts": counts} if counted else {}))


def _blocks(pieces: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
    """The same numbers in blocks of at least a million, except the last."""
    block, size = [], 0
    for piece in pieces:
        block.append(piece)
        size += len(piece)
        if size >= _BLOCK:
            yield np.concatenate(block)
            block, size = [], 0
    if block:
        yield np.concatenate(block)


def _part(path: Path, name: str) -> Path:
    return path.with_name(f"{path.name}.{name}")


def join(reader: FeatureReader, alignments: Mapping[str, int], max_missing: float, ali_dir: Path) -> Keys:
    """The utterances with features and an alignment of the same length. Logs a table of matches and
    mismatches.

    alignments  {utterance: number of frames of its alignment}

    Raises UserError if more than the share `max_missing` of the utterances of the data directory is lost, or
    none is left.
    """
    data, keys = reader.data, reader.keys
    assert isinstance(keys, Keys)  # of all of the data directory
    lengths = np.fromiter((alignments.get(key, 0) for key in keys), np.int64, len(keys))
    differences = np.fromiter(
        (length and length - reader.num_frames(key) for key, length in zip(keys, lengths.data)), np.int64
    )
    kinds = (lengths > 0) & (differences == 0), lengths == 0, differences != 0
    good, without, unequal = (keys.take(np.flatnonzero(kind)) for kind in kinds)
    featureless = sorted(utt for utt in reader.utterances if not reader.has(utt))
    num_wanted = len(keys) + len(featureless)
    log.info(f"features and alignment: {len(good)} utterances")
    log.info(f"only features:          {len(without)} {_some(without)}")
    log.info(f"only alignment:         {sum(not reader.has(key) for key in alignments)}")
    log.info(f"no features:            {len(featureless)} {_some(featureless)}")
    for difference, count in zip(
        *(found.tolist() for found in np.unique(differences[differences != 0], return_counts=True))
    ):
        log.info(
            f"length differs by {difference:+d}: {count} "
            f"{_some(keys.take(np.flatnonzero(differences == difference)))}"
        )
    if len(featureless) > max_missing * num_wanted:
        what = (
            f"{len(featureless)} of {num_wanted} utterances of utt2spk have no features {_some(featureless)}"
        )
        raise UserError(
            f"{data}/feats.scp: {what}; compute them, remove these utterances, or raise --max-missing"
        )
    if len(featureless) + len(without) + len(unequal) > max_missing * num_wanted:
        others = f"{len(featureless)} have no features, " if featureless else ""
        what = (
            f"{others}{len(without)} of {num_wanted} utterances have no alignment and {len(unequal)} an "
            "alignment of another length"
        )
        examples = _some([*without[: _NUM_NAMED + 1], *unequal[: _NUM_NAMED + 1]])
        raise UserError(
            f"{ali_dir} does not match {data}: {what} {examples}; align {data} again, or raise --max-missing"
        )
    if not good:
        raise UserError(
            f"{ali_dir} and {data} have no utterance in common; compute the features of {data} and align it"
        )
    return good


def _some(keys: Sequence[str]) -> str:
    """The first few of `keys`, in parentheses."""
    return f"({', '.join(keys[:_NUM_NAMED])}{', ...' if len(keys) > _NUM_NAMED else ''})" if keys else ""


def trained_tables(data: Path, inputs: InputOptions) -> list[Path]:
    """The tables of a data directory that a training depends on, for the fingerprints of its output; utt2uniq
    only if it exists."""
    copies = Path(data) / "utt2uniq"
    return [*input_tables(data, inputs), *([copies] if copies.exists() else [])]


def choose_heldout(
    keys: Sequence[str],
    lengths: np.ndarray,
    original: Callable[[str], tuple[str, str]],
    options: HeldoutOptions,
) -> np.ndarray:
    """Whether each utterance is held out, bool (len(keys),): whole speakers with about `heldout_share` of the
    frames, or utterances.

    original   function that returns the original of an utterance (utt2uniq) and its speaker; copies are held
               out together

    Speakers are selected in random order as long as they fit. If that gives less than half the share,
    utterances are selected instead.
    """
    budget = options.heldout_share * lengths.sum()
    for kind in (*(["speakers"] if options.heldout_by == "speaker" else []), "utterances"):
        member = ranks(original(key)[kind == "speakers"] for key in keys)
        sizes = np.bincount(member, weights=lengths)
        taken, total = np.zeros(len(sizes), bool), 0
        for i in generator(options.heldout_seed, "heldout").permutation(len(sizes)):
            if total + sizes[i] <= budget:
                taken[i] = True
                total += sizes[i]
        if total >= 0.5 * budget:
            break
    log.info(f"held out: {taken.sum()} {kind}, {int(total)} of {lengths.sum()} frames")
    return taken[member]
