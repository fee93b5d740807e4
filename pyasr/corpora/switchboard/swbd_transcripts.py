"""Read Mississippi State's transcripts of Switchboard from a folder, from the published archive, or from
LDC's discs.

swb_ms98_transcriptions/20/2001/sw2001A-ms98-a-trans.text       a side's segments
swb_ms98_transcriptions/sw-ms98-dict.text                       the dictionary

sw2001A-ms98-a-0003 4.120375 9.833250 [laughter] um [laughter-yeah] i wen[t]- {zwieback} to it
"""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pyasr.base.errors import UserError
from pyasr.corpora.conversations import SkippedItems
from pyasr.corpora.discs import PACKED, Disc, files_by_name, paths_below
from pyasr.corpora.texts import lines_of
from pyasr.io.content import check_unpacked, naming_damage, open_file, read_content, readable, unpack

DISC = Disc(
    "Mississippi State's transcripts of Switchboard (OpenSLR 5)",
    "swNNNNA-ms98-a-trans.text with sw-ms98-dict.text, nor switchboard_word_alignments.tar.gz",
    "--transcripts",
)
_TRANSCRIPT, _DICTIONARY = rf"(sw\d{{4}}[ab])-ms98-a-trans\.text{PACKED}", rf"(sw-ms98-dict)\.text{PACKED}"
_ARCHIVE = r"([^/]*(?:switchboard_word_alignments|ms98_trans)[^/]*)\.(?:tgz|tar(?:\.gz|\.bz2|\.xz)?)"
_LINE = re.compile(r"\s*(sw\d{4}[AB]-ms98-a-\d+)\s+([0-9.]+)\s+([0-9.]+)\s(.*)", re.IGNORECASE)


@dataclass(frozen=True)
class Transcripts:
    """Contents of the files of transcripts, with their names.

    sides       {sw02001-A: (name, content)}
    dictionary  (name, content)
    """

    sides: dict[str, tuple[str, bytes]]
    dictionary: tuple[str, bytes]


@dataclass(frozen=True)
class Turn:
    """A transcribed segment of a side; times in seconds."""

    side: str
    begin_s: float
    end_s: float
    text: str


def find_transcripts(places: list[Path]) -> list[Path]:
    """The files with transcripts and dictionary: an archive, or the files of a folder below `places`, which
    are folders or archives.

    Raises UserError if there are no transcripts, or no dictionary with them.
    """
    if archives := [place for place in places if place.is_file()]:
        return archives[:1]
    paths = list(paths_below(places))
    sides = files_by_name(paths, _TRANSCRIPT)
    if not sides:
        archives = list(files_by_name(paths, _ARCHIVE).values())
        if not archives:
            raise DISC.missing(places, paths)
        return archives[:1]
    dictionary = files_by_name(paths, _DICTIONARY)
    if not dictionary:
        raise Disc("the dictionary of the transcripts", "sw-ms98-dict.text", DISC.option).missing(places)
    return [*sides.values(), *dictionary.values()]


def read_transcripts(sources: list[Path]) -> Transcripts:
    """The transcripts in files of `find_transcripts`. Raises UserError for an archive that is damaged or
    contains something else."""
    contents = (
        _members(sources[0]) if len(sources) == 1 else ((str(path), read_content(path)) for path in sources)
    )
    named = {str(Path(name)): content for name, content in contents}
    paths = list(map(Path, named))
    sides = {
        _side(name): (str(path), named[str(path)]) for name, path in files_by_name(paths, _TRANSCRIPT).items()
    }
    dictionary = [(str(path), named[str(path)]) for path in files_by_name(paths, _DICTIONARY).values()]
    if not sides or not dictionary:
        lacks = "no swNNNNA-ms98-a-trans.text" if not sides else "no sw-ms98-dict.text"
        raise UserError(
            f"{sources[0]}: it contains {lacks}; give {DISC.option} switchboard_word_alignments.tar.gz, or "
            "its content"
        )
    return Transcripts(sides, dictionary[0])


def _members(archive: Path) -> Iterator[tuple[str, bytes]]:
    """(ARCHIVE/NAME, content) of the transcripts and the dictionary in a tar archive, plain or compressed."""
    wanted, num_unpacked = re.compile(rf"(?:.*/)?(?:{_TRANSCRIPT}|{_DICTIONARY})", re.IGNORECASE), 0
    try:
        with (
            readable(archive),
            naming_damage("tar", lambda what: _damaged(archive, what)),
            open_file(archive) as file,
            tarfile.open(fileobj=file, mode="r:*") as members,
        ):
            for member in members:
                if member.isfile() and wanted.fullmatch(member.name):
                    num_unpacked += member.size
                    check_unpacked(num_unpacked, archive.stat().st_size, archive)
                    name = Path(f"{archive}/{member.name}")
                    content = members.extractfile(member)
                    assert content is not None
                    yield str(name), unpack(content.read(), name)
    except tarfile.TarError as error:
        raise _damaged(archive, f"not a complete tar archive ({str(error).partition(':')[0]})") from None


def _damaged(archive: Path, what: str) -> UserError:
    return UserError(f"{archive}: {what}; download switchboard_word_alignments.tar.gz again")


def _side(name: str) -> str:
    """`sw02001-A` of `sw2001a`."""
    return f"sw0{name[2:6]}-{name[6].upper()}"


def turns_of(side: str, name: str, content: bytes, left: SkippedItems) -> list[Turn]:
    """The segments of a side's file. Lines in another format, and segments that end before they begin, are
    left out."""
    turns = []
    for number, line in enumerate(lines_of(content, name), 1):
        if not line.strip():
            continue
        try:
            match = _LINE.fullmatch(line + " ")
            if not match:
                raise ValueError
            _, begin, end, text = match.groups()
            turns.append(Turn(side, float(begin), float(end), text))
        except ValueError:
            left.add("a line that is not 'SEGMENT BEGIN END WORDS'", f"{name}:{number}")
            continue
        if turns[-1].end_s <= turns[-1].begin_s:
            left.add("its end is not after its beginning", f"{name}:{number}")
            turns.pop()
    return turns
