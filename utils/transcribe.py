#!/usr/bin/env python3
"""Transcribe recordings with a packed model: files, directories of files, or standard input.

Any sampling rate and number of channels is accepted. Long recordings are cut at pauses; word times are times
in the whole recording. Several threads decode segments of a recording in parallel. With --stream, audio is
processed as it arrives, and the text of an utterance is written when the utterance ends. Ctrl-C ends standard
input, and the text up to that point is written.

Reads   MODEL (from utils/pack_model.py); AUDIO: WAV, FLAC, Ogg, MP3, SPHERE, AIFF, AU, W64, RF64, CAF; - is
        standard input
Writes  transcripts to standard output, in the order of the recordings, or with --out-dir one file per
        recording, in the same subdirectory as the recording; OUT_DIR/.transcripts records the files that this
        program has written, and their recordings

A transcript that was edited, or that belongs to another recording, is replaced only with --force. If a
recording cannot be used, the others are still transcribed; the failures are listed at the end, with exit
status 1.

Examples:
    utils/transcribe.py model talk.wav
    utils/transcribe.py --format srt --out-dir subtitles model recordings
    arecord -t raw -f S16_LE -r 16000 | utils/transcribe.py --stream true --raw-rate 16000 model -
"""

import errno
import logging
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pyasr.base.cli.option_uses import any_of, if_is, if_set, unless_set
from pyasr.base.cli.options import argument, group, option
from pyasr.base.cli.step import is_forced, run_step
from pyasr.base.errors import UserError, printable
from pyasr.base.outputs.output import atomic_write, disk_error
from pyasr.base.outputs.written_files import WrittenFiles
from pyasr.decode.lattices.mbr import MbrOptions
from pyasr.decode.search.endpoint import EndpointOptions
from pyasr.recognition.audio.live_input import LiveInput
from pyasr.recognition.audio.pauses import CutOptions
from pyasr.recognition.audio.recording_input import (
    CHANNELS,
    EACH,
    MIX,
    Recording,
    file_blocks,
    find_audio,
    live_blocks,
    of_bytes,
    of_raw,
    read_recordings,
    within_memory,
)
from pyasr.recognition.formats import FORMATS, as_word, name_of
from pyasr.recognition.recognizer import Recognizer
from pyasr.recognition.stream import check_streams
from pyasr.recognition.transcript import Transcript

_RECORD = ".transcripts"
_WHOLE = unless_set("stream", "it takes one recording after the other, its channels averaged")
# recordings without a word: the fraction above which they are reported, and how many are named
_MANY, _NUM_NAMED = 0.5, 5
_OF_A_NAME = (errno.ENAMETOOLONG, errno.EEXIST, errno.EISDIR, errno.ENOTDIR)


@dataclass(frozen=True)
class Transcribe:
    model: Path = argument("directory of a packed model, from utils/pack_model.py")
    audio: tuple[Path, ...] = argument(
        "audio files, directories with audio files, or - for standard input", many=True
    )
    format: str = option("text", "format of the transcripts", choices=tuple(FORMATS), heading="output")
    out_dir: Path | None = option(
        None,
        "directory for one file per recording, created if necessary; none: standard output",
        heading="output",
    )
    channels: str = option(
        MIX,
        "mix: average the channels of a recording; each: transcribe each channel",
        choices=CHANNELS,
        only=_WHOLE,
        heading="audio",
    )
    stream: bool = option(
        False,
        "process audio as it arrives, if the model allows it; --nothing-said-s, --sure-end-s, "
        "--likely-end-s, --any-end-s and --utterance-s decide where utterances end",
        heading="streaming",
        common=True,
    )
    endpoint: EndpointOptions = group(EndpointOptions, only=if_set("stream"))
    one_speaker: bool = option(
        False,
        "normalise and adapt features as if one speaker spoke in all recordings",
        only=_WHOLE,
        heading="audio",
    )
    raw_rate: int | None = option(
        None, "sampling rate of raw 16-bit samples on standard input, Hz", minimum=1, heading="audio"
    )
    num_threads: int = option(
        1,
        "number of segments of a recording that are decoded in parallel",
        minimum=1,
        only=unless_set("stream"),
        heading="resources",
    )
    beam: float | None = option(
        None,
        "beam of the search, smaller is faster; none: the beam of the model",
        minimum=0.1,
        heading="search",
    )
    cut: CutOptions = group(CutOptions, only=unless_set("stream"))
    mbr: MbrOptions = group(
        MbrOptions, only={"posterior_scale": any_of(if_set("decode-mbr"), if_is("format", "ctm", "json"))}
    )


def recordings(options: Transcribe, path: Path) -> Iterator[Recording]:
    if str(path) != "-":
        yield from read_recordings(path, options.channels)
        return
    with within_memory("stdin"):
        content = sys.stdin.buffer.read()
        found = (
            [of_raw(content, "stdin", options.raw_rate)]
            if options.raw_rate
            else of_bytes(content, "stdin", options.channels)
        )
    yield from found


def stream(options: Transcribe, recognizer: Recognizer, path: Path) -> Iterator[Transcript]:
    """Transcripts of one channel: with text on standard output, one for each utterance as it ends, else one
    for the whole channel."""
    if str(path) != "-":
        yield from streamed(options, recognizer, *file_blocks(path))
        return
    with LiveInput(sys.stdin.buffer) as file:
        yield from streamed(options, recognizer, *live_blocks(file, options.raw_rate))


def streamed(
    options: Transcribe, recognizer: Recognizer, name: str, rate: float, blocks: Iterator
) -> Iterator[Transcript]:
    live = recognizer.stream(rate, options.endpoint)
    at_once = options.format == "text" and options.out_dir is None
    for block in blocks:
        for segment in live.accept(block):
            if at_once:
                yield Transcript(name, "1", (segment,))
    num_given = len(live.segments) if at_once else 0
    yield Transcript(name, "1", live.finish().segments[num_given:])


def tried(found: Iterator, path: Path, failed: dict[Path, UserError]) -> Iterator:
    """Items of `found` until a UserError, which is stored in `failed` under this path."""
    try:
        yield from found
    except UserError as error:
        failed[path] = error


def transcripts(
    options: Transcribe, recognizer: Recognizer, audio: list[tuple[Path, Path]], failed: dict[Path, UserError]
):
    """(path of a recording, the folder in which it was found, its transcript); unusable paths are skipped and
    stored in `failed`."""
    if options.one_speaker:
        found = [
            (place, recording)
            for place in audio
            for recording in tried(recordings(options, place[0]), place[0], failed)
        ]
        yield from ((*place, transcript) for place, transcript in of_one_speaker(recognizer, found, failed))
        return
    for path, folder in audio:
        own = (
            stream(options, recognizer, path)
            if options.stream
            else map(recognizer.transcribe_recording, recordings(options, path))
        )
        yield from ((path, folder, transcript) for transcript in tried(own, path, failed))


def of_one_speaker(
    recognizer: Recognizer, found: list[tuple], failed: dict[Path, UserError]
) -> Iterator[tuple]:
    """(place, transcript) for pairs (place, recording), with features adapted to all recordings together.

    If that fails, recordings that also fail by themselves are skipped and stored in `failed`.
    """
    try:
        spoken = recognizer.transcribe_speaker([recording for _, recording in found])
    except UserError:
        usable = [
            one for one in found if [*tried(map(recognizer.transcribe_recording, one[1:]), one[0][0], failed)]
        ]
        if len(usable) == len(found):
            raise
        found, spoken = usable, recognizer.transcribe_speaker([recording for _, recording in usable])
    return zip((place for place, _ in found), spoken)


def write(
    options: Transcribe,
    path: Path,
    folder: Path,
    transcript,
    written: WrittenFiles | None,
    is_one_of_several: bool,
) -> None:
    lines, name = FORMATS[options.format].lines(transcript), name_of(transcript)
    if options.channels == EACH:
        name += f"-{transcript.channel}"
    if written:
        place = written.folder / folder / (name + FORMATS[options.format].suffix)
        place.parent.mkdir(parents=True, exist_ok=True)
        write_file(written, place, path, "".join(f"{line}\n" for line in lines))
        return
    head = f"{name} " if options.format == "text" and is_one_of_several else ""
    for line in lines:
        print(head + line, flush=True)


def write_file(written: WrittenFiles, place: Path, path: Path, text: str) -> None:
    if str(path) != "-":  # standard input may be another recording each time
        written.add(place, path, text.encode())
    with atomic_write(place) as f:
        f.write(text)


def name_error(error: Exception) -> UserError:
    """The error as a UserError if the name of the output file caused it; any other error, such as a full
    disk, is raised again."""
    cause = error if isinstance(error, OSError) else error.__cause__
    if not isinstance(cause, OSError) or cause.errno not in _OF_A_NAME:
        raise error
    found = disk_error(cause, Path(cause.filename))
    assert isinstance(found, UserError)
    return found


def complaint(failed: dict[Path, UserError], num_tried: int) -> UserError:
    """The error that ends the run. For several recordings, the reason of each failure is printed first."""
    if num_tried == 1:
        return next(iter(failed.values()))
    for path, error in failed.items():
        print(printable(f"{path}: {str(error).removeprefix(f'{path}: ')}"), file=sys.stderr)
    return UserError(
        f"{len(failed)} of {num_tried} recordings could not be transcribed; see the reasons above"
    )


def check(options: Transcribe, audio: list[tuple[Path, Path]]) -> None:
    paths = [path for path, _ in audio]
    if options.raw_rate and Path("-") not in paths:
        raise UserError("--raw-rate is for standard input; give - instead of a file")
    if paths.count(Path("-")) > 1:
        raise UserError("- is given twice, but standard input can be read only once")
    if options.out_dir and options.out_dir.exists() and not options.out_dir.is_dir():
        raise UserError(f"--out-dir {options.out_dir}: a file of this name exists; give a directory")
    if options.format == "srt" and not options.out_dir and (len(audio) > 1 or options.channels == EACH):
        raise UserError("--format srt: several recordings need several subtitle files; give --out-dir")
    check_names(options, audio)


def check_names(options: Transcribe, audio: list[tuple[Path, Path]]) -> None:
    """Raise UserError if two recordings have the same name."""
    stems = [(folder, stem_of(path)) for path, folder in audio]
    names = Counter(folder / stem if options.out_dir else stem for folder, stem in stems)
    twice = next((name for name, num in names.items() if num > 1), None)
    if twice and options.out_dir:
        fault = f"two recordings are named {twice}, so one transcript in --out-dir would replace the other"
        raise UserError(f"{fault}; transcribe them in two runs to two directories")
    if twice:
        raise UserError(
            f"two recordings are named {twice}, which standard output cannot distinguish; give --out-dir, "
            "or rename one"
        )


def check_not_replaced(options: Transcribe, audio: list[tuple[Path, Path]], written: WrittenFiles) -> None:
    """Raise UserError if a transcript would replace a file that is not an unchanged transcript of the same
    recording by this program."""
    suffix, each = FORMATS[options.format].suffix, options.channels == EACH
    of_channels = {
        folder: places_of_channels(written.folder / folder, suffix)
        for folder in {folder for _, folder in audio if each}
    }
    for path, folder in audio:
        own = written.folder / folder / (stem_of(path) + suffix)
        for place in of_channels[folder].get(stem_of(path), []) if each else [own] * is_file(own):
            if str(path) == "-" or not written.is_own(place, path):
                found = f"{place} exists, and is not an unchanged transcript of {path} by this program"
                raise UserError(f"{found}; give another --out-dir, or --force to replace it")


def places_of_channels(folder: Path, suffix: str) -> dict[str, list[Path]]:
    """Files in the folder that transcripts of single channels would replace, by the name of the recording."""
    of_channel = re.compile(rf"(.*)-[0-9]+{re.escape(suffix)}", re.DOTALL)
    places: dict[str, list[Path]] = {}
    for place in sorted(folder.glob(f"*{suffix}")):
        if (found := of_channel.fullmatch(place.name)) and is_file(place):
            places.setdefault(found[1], []).append(place)
    return places


def is_file(place: Path) -> bool:
    """Whether the path is a file or a link, including a broken link."""
    return os.path.lexists(place) and not os.path.isdir(place)


def stem_of(path: Path) -> str:
    """Name of the transcripts of a recording, without suffix."""
    return as_word("stdin" if str(path) == "-" else path.stem)


def main(options: Transcribe) -> None:
    logging.getLogger("pyasr").setLevel(logging.WARNING)  # standard output is for transcripts
    audio = find_audio(options.audio)
    check(options, audio)
    written = WrittenFiles(options.out_dir, _RECORD) if options.out_dir else None
    if written and not is_forced():
        check_not_replaced(options, audio, written)
    recognizer = Recognizer(
        options.model, num_threads=options.num_threads, cut=options.cut, mbr=options.mbr, beam=options.beam
    )
    if options.stream:
        check_streams(recognizer.system)
    failed: dict[Path, UserError] = {}
    num_words: Counter[Path] = Counter()
    for path, folder, transcript in transcripts(options, recognizer, audio, failed):
        num_words[path] += len(transcript.words)
        try:
            write(
                options,
                path,
                folder,
                transcript,
                written,
                is_one_of_several=len(audio) > 1 or options.channels == EACH,
            )
        except (OSError, UserError) as error:
            failed[path] = name_error(error)
    warn_of_wordless(num_words)
    if failed:
        raise complaint(failed, len(audio))


def warn_of_wordless(num_words: Counter[Path]) -> None:
    """Warn on standard error if no word was recognised in most of the recordings."""
    without = [path for path, number in num_words.items() if not number]
    if len(without) > _MANY * len(num_words):
        names = " ".join(map(str, without[:_NUM_NAMED])) + " ..." * (len(without) > _NUM_NAMED)
        causes = "no speech, a model for another language or other audio, or too narrow a --beam"
        fault = (
            f"no word was recognised in {len(without)} of {len(num_words)} recordings ({names}); usual "
            f"causes: {causes}"
        )
        print(printable(f"{Path(sys.argv[0]).name}: {fault}"), file=sys.stderr)


if __name__ == "__main__":
    run_step(
        Transcribe,
        main,
        __doc__,
        force="also replace files in --out-dir that were edited or do not come from this program",
    )
