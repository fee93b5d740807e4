"""Find the calls of Fisher English on its discs: the audio, transcripts and tables of both parts.

Part 1 (LDC2004S13, LDC2004T19) contains the calls 00001 to 05850, part 2 (LDC2005S13, LDC2005T19) the calls
05851 to 11699.

    fe_03_p1_sph1/audio/000/fe_03_00001.sph              DVDs; downloads have fisher_eng_tr_sp_d1
    [fe_03_p1_tran/]data/trans/000/fe_03_00001.txt       also in other folders, but not in data/bbn_orig,
                                                         which has other files
    [fe_03_p1_tran/]doc/fe_03_p1_calldata.tbl            callers (`pyasr.corpora.fisher.fisher_speakers`)
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from pyasr.base import log
from pyasr.base.errors import UserError
from pyasr.corpora.discs import PACKED, Disc, files_by_name, paths_below, without_version
from pyasr.io.content import open_file

CALL_PREFIX, FIRST_OF_PART_2 = "fe_03_", 5851
NUM_CALLS = {1: 5850, 2: 5849}
RELEASES = {1: ("LDC2004S13", "LDC2004T19"), 2: ("LDC2005S13", "LDC2005T19")}  # speech, transcripts
SPEECH = Disc("Fisher English speech (LDC2004S13, LDC2005S13)", "audio/NNN/fe_03_NNNNN.sph", "--fisher")
TRANSCRIPTS = Disc(
    "Fisher English transcripts (LDC2004T19, LDC2005T19)", "data/trans/NNN/fe_03_NNNNN.txt", "--fisher"
)
_AUDIO = r"(fe_03_[0-9]{5})\.(?:sph|wav)"
_TRANSCRIPT = rf"(fe_03_[0-9]{{5}})\.txt{PACKED}"
_IN_TRANS = rf"trans/(?:[^/]+/)?{_TRANSCRIPT}"
_ORIGINALS = "bbn_orig"  # a folder of other files with the same names
_TABLE = re.compile(r"fe_03_p[12]_(calldata|filelist)\.tbl|(filetable)2?\.txt", re.IGNORECASE)
_SPHERE = b"NIST_1A"


@dataclass
class Calls:
    """The files on the discs.

    audio, transcripts  {call: file}, a call is `fe_03_00001`
    tables              {calldata, filelist or filetable: files}
    """

    audio: dict[str, Path] = field(default_factory=dict)
    transcripts: dict[str, Path] = field(default_factory=dict)
    tables: dict[str, list[Path]] = field(default_factory=dict)


def find_transcripts(places: list[Path]) -> Calls:
    """The transcripts of one part or both, without audio. Raises UserError if there are none."""
    paths = list(paths_below(places))
    if not (transcripts := _transcripts(paths)):
        raise TRANSCRIPTS.missing(places, paths)
    return Calls(transcripts=transcripts)


def find_calls(places: list[Path]) -> Calls:
    """All files of one part or both. Raises UserError without audio, transcripts, or calls with both."""
    paths = list(paths_below(places))
    audio = files_by_name([path for path in paths if not _is_wav(path) or _is_sphere(path)], _AUDIO)
    calls = Calls(audio, _transcripts(paths), _tables(paths))
    if not calls.audio:
        raise _missing_speech(places, paths)
    if not calls.transcripts:
        raise TRANSCRIPTS.missing(places, paths)
    if not calls.audio.keys() & calls.transcripts.keys():
        raise _of_different_parts(calls)
    _log_parts(calls)
    return calls


def part_of(call: str) -> int:
    """1 or 2."""
    return 1 if int(call[-5:]) < FIRST_OF_PART_2 else 2


def _transcripts(paths: list[Path]) -> dict[str, Path]:
    """{call: file} of folders `trans` or, if there are none, of all folders except BBN's originals."""
    others = (path for path in paths if _ORIGINALS not in map(str.lower, path.parts))
    return files_by_name(paths, _IN_TRANS) or files_by_name(list(others), _TRANSCRIPT)


def _is_wav(path: Path) -> bool:
    """Whether a file is named `fe_03_NNNNN.wav`."""
    name = without_version(path.name).lower()
    return name.endswith(".wav") and bool(re.fullmatch(_AUDIO, name))


def _is_sphere(path: Path) -> bool:
    """Whether a file has the format of the discs, independent of its name."""
    with open_file(path) as file:
        return file.read(len(_SPHERE)) == _SPHERE


def _tables(paths: list[Path]) -> dict[str, list[Path]]:
    found: dict[str, list[Path]] = {}
    for path in sorted(paths):
        if match := _TABLE.fullmatch(without_version(path.name)):
            found.setdefault((match[1] or match[2]).lower(), []).append(path)
    return found


def _missing_speech(places: list[Path], paths: list[Path]) -> UserError:
    """The error for missing speech, with a hint if it was converted."""
    if converted := next(filter(_is_wav, paths), None):
        return UserError(
            f"{SPEECH.missing(places)}; {converted} is not a SPHERE file: give the audio as the LDC has "
            "published it"
        )
    return SPEECH.missing(places, paths)


def _of_different_parts(calls: Calls) -> UserError:
    speech, text = (
        ", ".join(sorted({RELEASES[part_of(call)][kind] for call in found}))
        for kind, found in enumerate((calls.audio, calls.transcripts))
    )
    return UserError(
        f"no call has both speech and a transcript: {len(calls.audio)} calls of {speech} and "
        f"{len(calls.transcripts)} transcripts of {text} were found; give the transcripts of the same part"
    )


def _log_parts(calls: Calls) -> None:
    """Log the number of calls of each part, as a warning if some are missing."""
    for part, published in NUM_CALLS.items():
        speech, text = (
            sum(part_of(call) == part for call in found) for found in (calls.audio, calls.transcripts)
        )
        say = log.info if speech == text == published else log.warning
        of_speech, of_text = RELEASES[part]
        say(
            f"Fisher part {part}: {speech} calls with speech ({of_speech}), {text} with transcripts "
            f"({of_text}), published {published} of each"
        )
