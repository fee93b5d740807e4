"""Files of a data directory that are not tables, and their copies in copies and parts of the directory.

stm          transcripts by time for sclite, `FILE CHANNEL SPEAKER BEGIN END WORD ...`
ctm          words by time, `FILE CHANNEL BEGIN DURATION WORD ...`
glm          words that count as equal when an stm is scored
stm_subsets  subsets of the stm, `NAME PATTERN`
frame_shift  seconds from one frame of the features to the next
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from pyasr.base import log
from pyasr.data.tables.datadir import DataDir
from pyasr.data.transcripts.ctm import Recordings
from pyasr.io.content import read_content

_BY_TIME, _OF_WORDS, _OF_FEATURES = ("stm", "ctm"), ("glm", "stm_subsets"), ("frame_shift",)
_COMMENT = b";;"


def side_files(data: DataDir, with_features: bool = True) -> list[Path]:
    """The side files that `data` has."""
    return [
        path
        for name in (*_BY_TIME, *_OF_WORDS, *_OF_FEATURES * with_features)
        if (path := data.path / name).is_file()
    ]


def carry(data: DataDir, out: Path, with_features: bool = True, of_part: bool = False) -> None:
    """Copy the side files of `data` that match the tables of `out`, which exist already; a log line names the
    files that are not copied.

    stm and ctm are copied if the files that they refer to (those of `reco2file_and_channel`, else recordings)
    keep their names. For a part of the utterances, the lines of its files are copied. If the part has only
    some utterances of a file, stm and ctm are not copied: scoring would count the words of the other
    utterances as deletions. glm and stm_subsets are always copied, frame_shift together with the features.
    """
    left = []
    for source in side_files(data, with_features):
        content = (
            _of_files(source, data, DataDir(out), of_part)
            if source.name in _BY_TIME
            else read_content(source)
        )
        if content is None:
            left.append(source)
        else:
            (Path(out) / source.name).write_bytes(content)
    _log(left, "in the new directory the recordings have other names, or only some of their utterances")


def leave(sources: list[DataDir]) -> None:
    """Log the side files of data directories that are combined; the combined directory has none."""
    _log(
        [path for data in sources for path in side_files(data)], "a combined data directory has no such files"
    )


def _of_files(source: Path, data: DataDir, out: DataDir, of_part: bool) -> bytes | None:
    """The lines of an stm or ctm of `data` for the files of `out`; None if they do not match `out`."""
    ours, theirs = _num_utterances(data), _num_utterances(out)
    if not theirs.keys() <= ours.keys() or (of_part and any(theirs[file] < ours[file] for file in theirs)):
        return None
    content = read_content(source)
    if not of_part:
        return content
    files = {file.encode() for file in theirs}
    lines = [
        line
        for line in content.splitlines(keepends=True)
        if line.startswith(_COMMENT) or not files.isdisjoint(line.split()[:1])
    ]
    return b"".join(lines) if any(not line.startswith(_COMMENT) for line in lines) else None


def _num_utterances(data: DataDir) -> Counter[str]:
    """{file: number of its utterances}"""
    names = Recordings(data).names
    recordings = (data.recording(utt) for utt in data.utterances)
    return Counter(names.get(recording, (recording,))[0] for recording in recordings)


def _log(left: list[Path], why: str) -> None:
    if left:
        log.warning(f"not copied: {', '.join(map(str, left))}; {why}")
