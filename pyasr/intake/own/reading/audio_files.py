"""Audio files of a corpus: find them by their names in a table or transcript, and read their headers."""

from __future__ import annotations

import itertools
import os
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from pyasr.base.errors import UserError
from pyasr.base.files.pipes import is_command
from pyasr.data.audio.audio_checks import inspect_audio
from pyasr.data.audio.audio_lengths import seconds_of
from pyasr.data.audio.audio_reading import audio_head, read_channels
from pyasr.intake.own.reading.own_corpus import Faults, OwnRecording

SUFFIXES = frozenset(
    ".wav .flac .mp3 .ogg .oga .opus .sph .nist .aif .aiff .aifc .au .snd .caf .w64 .rf64 .wave".split()
)
FOREIGN = frozenset(".m4a .mp4 .aac .wma .webm .amr .3gp .mov .mkv .avi .ape .wv .raw .pcm".split())
_STREAMS = (".mp3", ".ogg", ".oga", ".opus")
_REPLACE = "replace the files or remove their utterances"
_OF_COMMANDS = (
    "install the programs, or list the files themselves (SPHERE, FLAC, MP3 and others are read "
    "without a command)"
)
_MAX_FRAMES = 1 << 40  # no valid header of a speech file has more


def is_audio(path: Path) -> bool:
    """Whether the name of a file is that of an audio file in a supported format."""
    return path.suffix.lower() in SUFFIXES


def stem_of(name: str) -> str:
    """The name of a file without an audio suffix; other suffixes are kept."""
    stem, suffix = os.path.splitext(name)
    return stem if suffix.lower() in SUFFIXES | FOREIGN else name


class FileIndex:
    """Finds files by the last parts of their paths, with or without suffix, case-insensitively."""

    def __init__(self, paths: Iterable[Path]):
        self.paths = list(paths)
        self._by_stem: dict[str, list[Path]] = defaultdict(list)
        for path in self.paths:
            self._by_stem[stem_of(path.name).casefold()].append(path)

    @property
    def repeats(self) -> bool:
        """Whether a name occurs in several folders, so that folders are significant."""
        return len(self._by_stem) < len(self.paths)

    def find(self, name: str, folders_matter: bool = False) -> Path | None:
        """The file named `name`, a path or its end; None if there is none. Raises UserError if several files
        match equally.

        If names occur in several folders or `folders_matter`, the folder in `name` must match that of the
        file.
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
            raise UserError(
                f"'{name}' may be {found[0]} or {found[1]}; give its folder and suffix, or remove one of them"
            )
        return found[0] if found else None


def _best(paths: list[Path], rank) -> list[Path]:
    most = max(map(rank, paths))
    return [path for path in paths if rank(path) == most]


def _common_folders(path: Path, wanted: PurePosixPath) -> int:
    """The number of folders above the file that match those of `wanted`, counted from the last."""
    pairs = zip(reversed(path.parts[:-1]), reversed(wanted.parts[:-1]))
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0].casefold() == pair[1].casefold(), pairs))


def check_any(paths: list[Path], folder: Path) -> None:
    """Raise UserError if a folder contains no readable audio file; the message names unsupported formats."""
    if any(map(is_audio, paths)):
        return
    foreign = sorted({path.suffix.lower() for path in paths} & FOREIGN)
    sentence = (
        f"audio only in unsupported formats ({' '.join(foreign)}); convert the files to WAV or FLAC"
        if foreign
        else (f"no audio file; give the folder that contains them ({' '.join(sorted(SUFFIXES))})")
    )
    raise UserError(f"{folder}: {sentence}")


def recording_of(
    entry: str, where: object, faults: Faults, seconds: float | None = None
) -> OwnRecording | None:
    """The recording of an entry of wav.scp, from its header, or by reading it if the header has no length;
    None with a fault.

    seconds  its length if known; commands are then not run
    """
    try:
        return _known(entry, seconds) if is_command(entry) and seconds else _looked_at(entry)
    except UserError as error:
        sentence = str(error).removeprefix(f"{entry}: ").rpartition("; ")[0] or str(error)
        faults.add(
            "unreadable audio", _OF_COMMANDS if is_command(entry) else _REPLACE, f"{where} ({sentence})"
        )
        return None


def _known(entry: str, seconds: float) -> OwnRecording:
    return OwnRecording(entry, seconds, 0)


def _looked_at(entry: str) -> OwnRecording:
    """Raises UserError for audio that is missing, damaged or empty."""
    look = inspect_audio(entry, "exists")
    if look.complaint:
        raise UserError(f"{entry}: {look.complaint}; replace it")
    head = audio_head(entry)
    found = (
        OwnRecording(entry, _seconds_by_library(entry) or seconds_of(entry), *head)
        if head
        else _by_reading(entry)
    )
    if found.seconds <= 0:
        raise UserError(f"{entry}: it contains no audio; replace it")
    return found


def _seconds_by_library(entry: str) -> float:
    """Seconds of MP3 and Ogg files, whose frames libsndfile counts without decoding; 0 for other formats."""
    import soundfile

    if os.path.splitext(entry)[1].lower() not in _STREAMS:
        return 0.0
    try:
        with soundfile.SoundFile(entry) as audio:
            return audio.frames / audio.samplerate if audio.frames < _MAX_FRAMES else 0.0
    except (soundfile.LibsndfileError, RuntimeError):
        return 0.0  # harmless: decoding it reports the error


def _by_reading(entry: str) -> OwnRecording:
    samples, rate = read_channels(entry)
    return OwnRecording(entry, len(samples) / rate, rate, samples.shape[1])
