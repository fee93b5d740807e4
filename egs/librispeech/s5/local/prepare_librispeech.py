#!/usr/bin/env python3
"""Create data directories of the parts of LibriSpeech or mini_librispeech. Audio stays where it was unpacked.

Reads   CORPUS/**/PART/READER/CHAPTER/{*.flac,*.trans.txt}, SPEAKERS.TXT next to PART
Writes  DATA/PART with '_' for '-' (wav.scp text utt2spk spk2utt utt2dur spk2gender); DATA/local/files/PART, a
        list of the files

    local/prepare_librispeech.py --subset mini corpora/LibriSpeech data
    local/prepare_librispeech.py --subset 960 corpora/a/LibriSpeech:corpora/b/LibriSpeech data
"""

from dataclasses import dataclass
from pathlib import Path

from pyasr.base.cli.options import argument, group, option
from pyasr.base.cli.step import make_part, run_step
from pyasr.base.errors import UserError
from pyasr.base.outputs.output import atomic_write
from pyasr.corpora.conversations import SkippedItems
from pyasr.corpora.counts import log_table
from pyasr.corpora.discs import places_of
from pyasr.corpora.librispeech.parts import TEST_KINDS, TRAINING, part_folders, parts_of, published
from pyasr.corpora.librispeech.speech import Sources, read_sexes, read_utterances, speaker_tables, tables_of
from pyasr.data.tables.datadir import DataDir, write_data_dir


@dataclass(frozen=True)
class LookingJobs:
    """Parallel processes; they do not change the output."""

    nj: int = option(1, "number of processes that check audio files in parallel", minimum=1)


@dataclass(frozen=True)
class PrepareLibrispeech:
    corpus: str = argument("folders of parts, or directories that contain them, separated by ':'")
    data: Path = argument("directory of data directories")
    subset: str = option("mini", "training data: mini, or hours", choices=tuple(TRAINING))
    test_kinds: str = option(
        " ".join(TEST_KINDS), "kinds of dev and test sets, separated by blanks; mini has its own dev set"
    )
    jobs: LookingJobs = group(LookingJobs)


@dataclass(frozen=True)
class Part:
    """The inputs of one data directory."""

    name: str = argument("part")


def main(options: PrepareLibrispeech) -> None:
    places = places_of(options.corpus, "LibriSpeech", "--corpus")
    kinds = options.test_kinds.split()
    if unknown := set(kinds) - set(TEST_KINDS):
        raise UserError(
            f"--test-kinds: '{min(unknown)}' is none of {' '.join(TEST_KINDS)}; give one or both of these"
        )
    folders = part_folders(places, options.subset, parts_of(options.subset, kinds))
    for part, found in folders.items():
        prepare(part, found, options)


def prepare(part: str, folders: list[Path], options: PrepareLibrispeech) -> None:
    """Create one data directory, and log a table of its content."""
    sources = Sources.of(folders)
    listed = options.data / "local" / "files" / part
    write_list(listed, sources)
    out = options.data / part.replace("-", "_")
    make_part(
        Part(part),
        out,
        [listed, *speaker_tables(folders)],
        lambda scratch: write(scratch, part, sources, folders, options.jobs.nj),
    )
    readers = {name.partition("-")[0] for name in DataDir(out).utterances}
    log_table(out, published(part), {"readers": len(readers)})


def write_list(path: Path, sources: Sources) -> None:
    content = "".join(f"{line}\n" for line in sources.lines())
    if not path.exists() or path.read_text(encoding="utf-8") != content:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as f:
            f.write(content)


def write(out: Path, part: str, sources: Sources, folders: list[Path], num_processes: int) -> None:
    skipped = SkippedItems()
    utterances = read_utterances(sources, num_processes, skipped)
    skipped.log(f"utterances of {part}")
    if not utterances:
        raise UserError(f"{', '.join(map(str, folders))}: no usable utterance; unpack its archive again")
    write_data_dir(out, tables_of(utterances, read_sexes(folders)))


if __name__ == "__main__":
    run_step(PrepareLibrispeech, main, __doc__)
