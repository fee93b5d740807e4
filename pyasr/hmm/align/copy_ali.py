"""Alignments of noisy and reverberated copies of utterances, taken from the original utterances (Kaldi's
copy_ali_dir.sh).

A copy is named `rev1-sp0.9-UTT` or `sp0.9-UTT-rev1`, where `sp0.9-UTT` is a copy of UTT at a different speed.
Its alignment is that of `sp0.9-UTT` if this utterance is aligned, otherwise that of UTT, its entry in
`utt2uniq`.
"""

from __future__ import annotations

import shutil
from array import array
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from pyasr.base.cli.skipped_utterances import SkippedOptions, check_skipped
from pyasr.data.tables.datadir import DataDir
from pyasr.io.int_vectors import iterate_int_vectors, job_archive_files, read_int_vectors, write_int_vectors
from pyasr.io.tables import TableBuilder

_OF_UTTERANCES = ("ali.*", "trans.*", "failed_utterances")


def names_of_original(utt: str, original: str) -> Iterator[str]:
    """Possible names of the utterance that `utt` is a copy of: `utt` with more and more of its prefixes
    removed, the same without the suffix after `original` (which may name a part of an utterance), then
    `original`."""
    for name in dict.fromkeys([utt, utt.rpartition(original)[0] + original]):
        while original in name and name != original:
            yield name
            name = name.partition("-")[2]
    yield original


def copy_alignments(data: DataDir, ali_dir: Path, out: Path, missing: SkippedOptions) -> int:
    """Write the alignments of the utterances of `data`, with the model and the options of `ali_dir`, to
    `out`. Returns their number.

    Raises UserError if too many utterances have no alignment of their length.
    """
    paths = job_archive_files(ali_dir)
    aligned, originals, skipped = _Aligned(paths), data.optional_table("utt2uniq"), dict[str, str]()
    num_frames, sources = data.utt2num_frames, np.full(len(data.utterances), -1, np.int64)
    for number, utt in enumerate(data.utterances):
        found = [
            line
            for name in names_of_original(utt, originals.get(utt, utt))
            if (line := aligned.names.line_of(name)) is not None
        ]
        fitting = [line for line in found if aligned.lengths[line] == num_frames.get(utt)]
        if fitting:
            sources[number] = fitting[0]
        else:
            skipped[utt] = (
                "its original has a different number of frames" if found else "its original is not aligned"
            )
    check_skipped(
        skipped,
        len(data.utterances),
        missing,
        str(ali_dir),
        f"align the originals of {data.path}, at all its speeds",
    )
    for job, path in enumerate(paths):  # second pass, with one archive in memory
        alignments = read_int_vectors(path)
        places = np.flatnonzero((sources >= 0) & (aligned.jobs[sources] == job))
        copies = zip(data.utterances.take(places), sources[places].tolist())
        write_int_vectors(
            out / f"ali.{job + 1}.gz", {utt: alignments[aligned.names.key(source)] for utt, source in copies}
        )
    _copy_other_files(ali_dir, out)
    return len(data.utterances) - len(skipped)


class _Aligned:
    """The utterances of alignment archives: `names`, a Table, and for each of its lines `jobs`, the number of
    the archive (from 0), and `lengths`, the number of frames."""

    def __init__(self, paths: list[Path]):
        jobs, lengths, names = array("i"), array("i"), TableBuilder()
        for job, path in enumerate(paths):
            for utt, tids in iterate_int_vectors(path):
                names.add(utt, len(jobs))
                jobs.append(job)
                lengths.append(len(tids))
        self.names = names.table().in_order()
        chosen = np.fromiter(map(int, self.names.values()), np.int64, len(self.names))
        self.jobs, self.lengths = np.array(jobs)[chosen], np.array(lengths)[chosen]


def _copy_other_files(ali_dir: Path, out: Path) -> None:
    """Copy the model and its options, but not the transforms, which belong to other speakers."""
    for path in sorted(ali_dir.iterdir()):
        if (
            path.is_file()
            and not path.name.startswith(".")
            and not any(path.match(pattern) for pattern in _OF_UTTERANCES)
        ):
            shutil.copyfile(path, out / path.name)
