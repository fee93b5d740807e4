#!/usr/bin/env python3
"""Transcribe recordings with a packed model: files, directories of them, or standard input.

Any sampling rate and number of channels. Long recordings are cut at pauses; words, times and order are those of the recording. Several
threads decode segments of a recording side by side. With --stream audio is taken as it arrives, and text is written as soon as an
utterance has ended; Ctrl-C ends standard input, and what was said until then is written.

Reads   MODEL (made by utils/pack_model.py); AUDIO: WAV, FLAC, Ogg, MP3, SPHERE, AIFF, AU, W64, RF64, CAF; - is standard input
Writes  transcripts to standard output, in the order of the recordings, or with --out-dir a file for each, in the subfolder in which its
        recording was found; OUT_DIR/.transcripts tells which of them this program has written, and from what

A transcript that somebody has corrected, or that is of another recording, is not replaced without --force. A recording that cannot be used
does not stop the others; what has failed is told at the end, with exit status 1.

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

from pyasr.base.errors import UserError, printable
from pyasr.base.option_uses import any_of, if_is, if_set, unless_set
from pyasr.base.options import argument, group, option
from pyasr.base.output import atomic_write, disk_error
from pyasr.base.step import is_forced, run_step
from pyasr.base.written_files import WrittenFiles
from pyasr.decode.endpoint import EndpointOptions
from pyasr.decode.mbr import MbrOptions
from pyasr.recognition.formats import FORMATS, as_word, name_of
from pyasr.recognition.live_input import LiveInput
from pyasr.recognition.pauses import CutOptions
from pyasr.recognition.recognizer import Recognizer
from pyasr.recognition.recordings import (
    CHANNELS, EACH, MIX, Recording, as_a_whole, file_blocks, find_audio, live_blocks, of_bytes, of_raw, read_recordings,
)  # fmt: skip
from pyasr.recognition.stream import check_streams
from pyasr.recognition.transcript import Transcript

_RECORD = ".transcripts"
_WHOLE = unless_set("stream", "it takes one recording after the other, its channels averaged")
_MANY, _NUM_NAMED = 0.5, 5  # recordings without a word: the share that is told, and how many of them by name
_OF_A_NAME = (errno.ENAMETOOLONG, errno.EEXIST, errno.EISDIR, errno.ENOTDIR)


@dataclass(frozen=True)
class Transcribe:
    model: Path = argument("directory made by utils/pack_model.py")
    audio: tuple[Path, ...] = argument("audio files, directories with audio files, or - for standard input", many=True)
    format: str = option("text", "what is written", choices=tuple(FORMATS))
    out_dir: Path | None = option(None, "directory for a file of each recording, made if need be; none: standard output")
    channels: str = option(MIX, "channels of a recording: averaged, or each transcribed by itself", choices=CHANNELS,
                          only=_WHOLE)  # fmt: skip
    stream: bool = option(False, "take audio as it arrives, for models that allow it; utterances end by the options below")
    endpoint: EndpointOptions = group(EndpointOptions, only=if_set("stream"))
    one_speaker: bool = option(False, "all recordings are of one speaker, to whom features are normalised and adapted", only=_WHOLE)
    raw_rate: int | None = option(None, "standard input is raw samples of 16 bits, this many a second", minimum=1)
    num_threads: int = option(1, "segments of a recording that are decoded at once", minimum=1, only=unless_set("stream"))
    beam: float | None = option(None, "beam of the search in place of the model's: less is faster", minimum=0.1)
    cut: CutOptions = group(CutOptions, only=unless_set("stream"))
    mbr: MbrOptions = group(MbrOptions, only={"posterior_scale": any_of(if_set("decode-mbr"), if_is("format", "ctm", "json"))})


def recordings(options: Transcribe, path: Path) -> Iterator[Recording]:
    if str(path) != "-":
        yield from read_recordings(path, options.channels)
        return
    with as_a_whole("stdin"):
        content = sys.stdin.buffer.read()
        found = [of_raw(content, "stdin", options.raw_rate)] if options.raw_rate else of_bytes(content, "stdin", options.channels)
    yield from found


def stream(options: Transcribe, recognizer: Recognizer, path: Path) -> Iterator[Transcript]:
    """Of one channel; as text on standard output, a transcript for each utterance as soon as it has ended, else one of all."""
    if str(path) != "-":
        yield from streamed(options, recognizer, *file_blocks(path))
        return
    with LiveInput(sys.stdin.buffer) as file:
        yield from streamed(options, recognizer, *live_blocks(file, options.raw_rate))


def streamed(options: Transcribe, recognizer: Recognizer, name: str, rate: int, blocks: Iterator) -> Iterator[Transcript]:
    live, at_once = recognizer.stream(rate, options.endpoint), options.format == "text" and options.out_dir is None
    for block in blocks:
        for segment in live.accept(block):
            if at_once:
                yield Transcript(name, "1", (segment,))
    num_given = len(live.segments) if at_once else 0
    yield Transcript(name, "1", live.finish().segments[num_given:])


def tried(found: Iterator, path: Path, failed: dict[Path, UserError]) -> Iterator:
    """What `found` of this path gives, until it cannot be used: then the reason is put into `failed`."""
    try:
        yield from found
    except UserError as error:
        failed[path] = error


def transcripts(options: Transcribe, recognizer: Recognizer, audio: list[tuple[Path, Path]], failed: dict[Path, UserError]):
    """(a recording's path, the folder in which it was found, its transcript); paths that cannot be used are left out, and put into
    `failed`."""
    if options.one_speaker:
        found = [(place, recording) for place in audio for recording in tried(recordings(options, place[0]), place[0], failed)]
        yield from ((*place, transcript) for place, transcript in of_one_speaker(recognizer, found, failed))
        return
    for path, folder in audio:
        own = stream(options, recognizer, path) if options.stream else map(recognizer.transcribe_recording, recordings(options, path))
        yield from ((path, folder, transcript) for transcript in tried(own, path, failed))


def of_one_speaker(recognizer: Recognizer, found: list[tuple], failed: dict[Path, UserError]) -> Iterator[tuple]:
    """(place, its transcript) of pairs (place, recording), whose recordings are adapted to together.

    Where that fails, those that fail by themselves, too, are left out and put into `failed`.
    """
    try:
        spoken = recognizer.transcribe_speaker([recording for _, recording in found])
    except UserError:
        usable = [one for one in found if [*tried(map(recognizer.transcribe_recording, one[1:]), one[0][0], failed)]]
        if len(usable) == len(found):
            raise
        found, spoken = usable, recognizer.transcribe_speaker([recording for _, recording in usable])
    return zip((place for place, _ in found), spoken)


def write(options: Transcribe, path: Path, folder: Path, transcript, written: WrittenFiles | None, is_one_of_several: bool) -> None:
    lines, name = FORMATS[options.format].lines(transcript), name_of(transcript)
    if options.channels == EACH:
        name += f"-{transcript.channel}"
    if written:
        place = options.out_dir / folder / (name + FORMATS[options.format].suffix)
        place.parent.mkdir(parents=True, exist_ok=True)
        write_file(written, place, path, "".join(f"{line}\n" for line in lines))
        return
    head = f"{name} " if options.format == "text" and is_one_of_several else ""
    for line in lines:
        print(head + line, flush=True)


def write_file(written: WrittenFiles, place: Path, path: Path, text: str) -> None:
    if str(path) != "-":  # which may be another recording each time
        written.add(place, path, text.encode())
    with atomic_write(place) as f:
        f.write(text)


def of_its_name(error: Exception) -> UserError:
    """What is wrong with the name of a file that could not be written; every other error, such as a full disk, ends the run."""
    cause = error if isinstance(error, OSError) else error.__cause__
    if getattr(cause, "errno", None) not in _OF_A_NAME:
        raise error
    return disk_error(cause, Path(cause.filename))


def complaint(failed: dict[Path, UserError], num_tried: int) -> UserError:
    """What ends the run; of several recordings the reason of each failure is told before."""
    if num_tried == 1:
        return next(iter(failed.values()))
    for path, error in failed.items():
        print(printable(f"{path}: {str(error).removeprefix(f'{path}: ')}"), file=sys.stderr)
    return UserError(f"{len(failed)} of {num_tried} recordings could not be transcribed; the reasons are told above")


def check(options: Transcribe, audio: list[tuple[Path, Path]]) -> None:
    paths = [path for path, _ in audio]
    if options.raw_rate and Path("-") not in paths:
        raise UserError("--raw-rate is for standard input; give - in place of a file")
    if paths.count(Path("-")) > 1:
        raise UserError("- is named twice, but standard input can be read once")
    if options.out_dir and options.out_dir.exists() and not options.out_dir.is_dir():
        raise UserError(f"--out-dir {options.out_dir}: there is a file of this name; give a directory")
    if options.format == "srt" and not options.out_dir and (len(audio) > 1 or options.channels == EACH):
        raise UserError("--format srt: subtitles of several recordings are several files; give --out-dir")
    check_names(options, audio)


def check_names(options: Transcribe, audio: list[tuple[Path, Path]]) -> None:
    """Raise UserError where two recordings could not be told apart."""
    stems = [(folder, stem_of(path)) for path, folder in audio]
    names = Counter(folder / stem if options.out_dir else stem for folder, stem in stems)
    twice = next((name for name, num in names.items() if num > 1), None)
    if twice and options.out_dir:
        told = f"two recordings are called {twice}, so --out-dir would hold one of them only"
        raise UserError(f"{told}; transcribe them in two runs to two directories")
    if twice:
        raise UserError(f"two recordings are called {twice}, and could not be told apart on standard output; give --out-dir, or rename one")


def check_not_replaced(options: Transcribe, audio: list[tuple[Path, Path]], written: WrittenFiles) -> None:
    """Raise UserError where a transcript would take the place of a file that this program has not written so, from the same recording."""
    suffix, each = FORMATS[options.format].suffix, options.channels == EACH
    of_channels = {folder: places_of_channels(options.out_dir / folder, suffix) for folder in {folder for _, folder in audio if each}}
    for path, folder in audio:
        own = options.out_dir / folder / (stem_of(path) + suffix)
        for place in of_channels[folder].get(stem_of(path), []) if each else [own] * is_file(own):
            if str(path) == "-" or not written.is_own(place, path):
                found = f"{place} exists, and is no transcript of {path} as this program has written it"
                raise UserError(f"{found}; give another --out-dir, or --force to replace it")


def places_of_channels(folder: Path, suffix: str) -> dict[str, list[Path]]:
    """Files in the folder that transcripts of channels would replace, by what the recording is called."""
    of_channel, places = re.compile(rf"(.*)-[0-9]+{re.escape(suffix)}", re.DOTALL), {}
    for place in sorted(folder.glob(f"*{suffix}")):
        if (found := of_channel.fullmatch(place.name)) and is_file(place):
            places.setdefault(found[1], []).append(place)
    return places


def is_file(place: Path) -> bool:
    """Or a link, even one that leads nowhere."""
    return os.path.lexists(place) and not os.path.isdir(place)


def stem_of(path: Path) -> str:
    """What transcripts of a recording are called."""
    return as_word("stdin" if str(path) == "-" else path.stem)


def main(options: Transcribe) -> None:
    logging.getLogger("pyasr").setLevel(logging.WARNING)  # standard output is for transcripts
    audio = find_audio(options.audio)
    check(options, audio)
    written = WrittenFiles(options.out_dir, _RECORD) if options.out_dir else None
    if written and not is_forced():
        check_not_replaced(options, audio, written)
    recognizer = Recognizer(options.model, num_threads=options.num_threads, cut=options.cut, mbr=options.mbr, beam=options.beam)
    if options.stream:
        check_streams(recognizer.system)
    failed: dict[Path, UserError] = {}
    num_words: Counter[Path] = Counter()
    for path, folder, transcript in transcripts(options, recognizer, audio, failed):
        num_words[path] += len(transcript.words)
        try:
            write(options, path, folder, transcript, written, is_one_of_several=len(audio) > 1 or options.channels == EACH)
        except (OSError, UserError) as error:
            failed[path] = of_its_name(error)
    warn_of_wordless(num_words)
    if failed:
        raise complaint(failed, len(audio))


def warn_of_wordless(num_words: Counter[Path]) -> None:
    """To standard error, where no word was recognised in most of the recordings."""
    without = [path for path, number in num_words.items() if not number]
    if len(without) > _MANY * len(num_words):
        names = " ".join(map(str, without[:_NUM_NAMED])) + " ..." * (len(without) > _NUM_NAMED)
        causes = "no speech in them, a model of another language or of other audio, or too narrow a --beam"
        told = f"no word was recognised in {len(without)} of {len(num_words)} recordings ({names}); the usual causes are {causes}"
        print(printable(f"{Path(sys.argv[0]).name}: {told}"), file=sys.stderr)


if __name__ == "__main__":
    run_step(Transcribe, main, __doc__, force="replace files in --out-dir that are not as this program has written them")
