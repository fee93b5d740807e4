"""Audio files of a corpus: found by what a table or a transcript calls them, and what their headers tell."""

from __future__ import annotations

import itertools
import os
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from pyasr.base.errors import UserError
from pyasr.base.pipes import is_command
from pyasr.data.audio import audio_head, read_channels
from pyasr.data.audio_lengths import seconds_of
from pyasr.data.audio_looks import look_at_audio
from pyasr.intake.own.corpus import Faults, Recording

SUFFIXES = frozenset(".wav .flac .mp3 .ogg .oga .opus .sph .nist .aif .aiff .aifc .au .snd .caf .w64 .rf64 .wave".split())
FOREIGN = frozenset(".m4a .mp4 .aac .wma .webm .amr .3gp .mov .mkv .avi .ape .wv .raw .pcm".split())
_STREAMS = (".mp3", ".ogg", ".oga", ".opus")
_REPLACE = "replace the files or take their utterances out"
_OF_COMMANDS = "install the programs, or name the files themselves (SPHERE, FLAC, MP3 and others are read without a command)"
_MOST_FRAMES = 1 << 40  # more than a header of speech tells in earnest


def is_audio(path: Path) -> bool:
    """Whether a file's name is that of audio which can be read."""
    return path.suffix.lower() in SUFFIXES


def stem_of(name: str) -> str:
    """The name of a file without the suffix of an audio file; other names keep what follows their last dot."""
    stem, suffix = os.path.splitext(name)
    return stem if suffix.lower() in SUFFIXES | FOREIGN else name


class FileIndex:
    """Files found by the last parts of their paths, with or without suffix, in any case of letters."""

    def __init__(self, paths: Iterable[Path]):
        self.paths = list(paths)
        self._by_stem: dict[str, list[Path]] = defaultdict(list)
        for path in self.paths:
            self._by_stem[stem_of(path.name).casefold()].append(path)

    @property
    def repeats(self) -> bool:
        """Whether a name occurs in several folders, so that folders matter."""
        return len(self._by_stem) < len(self.paths)

    def find(self, name: str, folders_matter: bool = False) -> Path | None:
        """The file that is called `name`, a path or its end; None for no file. Raises UserError where several are meant alike.

        Where names occur in several folders, or `folders_matter`, the folder before the name has to be that of the file.
        """
        wanted = PurePosixPath(name.replace("\\", "/"))
        found = self._by_stem.get(stem_of(wanted.name).casefold(), [])
        if (folders_matter or self.repeats) and len(wanted.parts) > 1:
            found = [path for path in found if _common_folders(path, wanted)]
        if len(found) > 1:
            found = _best(found, lambda path: _common_folders(path, wanted))
        if len(found) > 1:
            found = _best(found, lambda path: path.suffix.lower() == wanted.suffix.lower())
        if len(found) > 1:
            raise UserError(f"'{name}' may be {found[0]} or {found[1]}; name it with its folder and suffix, or take one of them away")
        return found[0] if found else None


def _best(paths: list[Path], rank) -> list[Path]:
    most = max(map(rank, paths))
    return [path for path in paths if rank(path) == most]


def _common_folders(path: Path, wanted: PurePosixPath) -> int:
    """How many folders above the file have the names that `wanted` gives, from the last one up."""
    pairs = zip(reversed(path.parts[:-1]), reversed(wanted.parts[:-1]))
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0].casefold() == pair[1].casefold(), pairs))


def check_any(paths: list[Path], folder: Path) -> None:
    """Raise UserError where none of the files of a folder is audio that can be read; formats that cannot are named."""
    if any(map(is_audio, paths)):
        return
    foreign = sorted({path.suffix.lower() for path in paths} & FOREIGN)
    told = f"no audio but {' '.join(foreign)}, which is not read; convert the files to WAV or FLAC" if foreign else (
        f"no audio file; give the folder that holds them ({' '.join(sorted(SUFFIXES))})")
    raise UserError(f"{folder}: {told}")


def recording_of(entry: str, where: object, faults: Faults, seconds: float | None = None) -> Recording | None:
    """The recording that an entry of wav.scp stands for, by its header, or read where that tells no length; None with a fault.

    seconds  its length where it is known: commands are not run then
    """
    try:
        return _known(entry, seconds) if is_command(entry) and seconds else _looked_at(entry)
    except UserError as error:
        told = str(error).removeprefix(f"{entry}: ").rpartition("; ")[0] or str(error)
        faults.add("audio that cannot be read", _OF_COMMANDS if is_command(entry) else _REPLACE, f"{where} ({told})")
        return None


def _known(entry: str, seconds: float) -> Recording:
    return Recording(entry, seconds, 0)


def _looked_at(entry: str) -> Recording:
    """Raises UserError for audio that is missing, damaged or empty."""
    look = look_at_audio(entry, "exists")
    if look.complaint:
        raise UserError(f"{entry}: {look.complaint}; replace it")
    head = audio_head(entry)
    found = Recording(entry, _seconds_by_library(entry) or seconds_of(entry), *head) if head else _by_reading(entry)
    if found.seconds <= 0:
        raise UserError(f"{entry}: there is no audio in it; replace it")
    return found


def _seconds_by_library(entry: str) -> float:
    """Of MP3 and Ogg files, whose frames libsndfile counts without decoding them; 0 for others."""
    import soundfile

    if os.path.splitext(entry)[1].lower() not in _STREAMS:
        return 0.0
    try:
        with soundfile.SoundFile(entry) as audio:
            return audio.frames / audio.samplerate if audio.frames < _MOST_FRAMES else 0.0
    except (soundfile.LibsndfileError, RuntimeError):
        return 0.0  # harmless: decoding it tells what is wrong


def _by_reading(entry: str) -> Recording:
    samples, rate = read_channels(entry)
    return Recording(entry, len(samples) / rate, rate, samples.shape[1])
