"""NIST's evaluation sets of telephone speech: their files on the discs, and their utterances.

Utterances are named by side and times of the reference in units of 10 ms: `en_4156-A_035764-035964`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from pyasr.base import log
from pyasr.corpora.conversations import SkippedItems, Utterance, hundredths
from pyasr.corpora.counts import Published
from pyasr.corpora.discs import PACKED, Disc, files_by_name, log_calls_that_have, paths_below
from pyasr.corpora.hub5.references import References, plain_words, span_of
from pyasr.data.transcripts.stm import StmSegment

MAX_STRETCH_S = 0.1
# {(side, begin and end in 10 ms): decoded part of the recording, in seconds}
Times = dict[tuple[str, int, int], tuple[float, float]]


@dataclass(frozen=True)
class EvaluationSet:
    """Patterns of the files of a set (`pyasr.corpora.discs.files_by_name`), the discs that contain them, and
    published counts.

    pem     list of segments; None: the segments of the stm
    folder  files in such folders take precedence over files of the same kind elsewhere
    subsets {name: regular expression for its file names} of subsets that are scored separately
    """

    audio: str
    stm: str
    glm: str
    pem: str | None
    folder: str
    audio_disc: Disc
    text_disc: Disc
    glm_disc: Disc
    subsets: Mapping[str, str]
    published: list[Published]


EVAL2000 = EvaluationSet(
    audio=r"((?:sw|en)_\d{4})\.sph",
    folder="english",
    pem=r"(hub5e_00)\.pem",
    stm=rf"(hub5e00\.english\.\d+)\.stm{PACKED}",
    glm=rf"(en\d+_hub5)\.glm{PACKED}",
    audio_disc=Disc(
        "audio of Hub5'00 (LDC2002S09)", "english/sw_4390.sph and other calls", "--eval2000-audio"
    ),
    text_disc=Disc(
        "references of Hub5'00 (LDC2002T43)", "reference/hub5e00.english.000405.stm", "--eval2000-text"
    ),
    glm_disc=Disc(
        "word mappings of Hub5'00 (LDC2002T43)", "reference/en20000405_hub5.glm", "--eval2000-text"
    ),
    subsets={"swbd": "^sw_", "callhm": "^en_"},
    published=[
        Published("recordings", (80,)),
        Published("utterances", (4459,)),
        Published("words", (42_989,), 0.02),
    ],
)

RT03 = EvaluationSet(
    audio=r"((?:fsh|sw)_\d{5})\.sph", folder="english/cts", pem=None,
    stm=rf"((?:fsh|sw)_\d{{5}})\.stm{PACKED}", glm=rf"(en20030506)\.glm{PACKED}",
    audio_disc=Disc("RT-03 (LDC2007S10)", "data/audio/eval03/english/cts/fsh_60262.sph and other calls",
                    "--rt03"),
    text_disc=Disc("RT-03 (LDC2007S10)", "data/references/eval03/english/cts/fsh_60262.stm and other calls",
                   "--rt03"),
    glm_disc=Disc("word mappings of RT-03 (LDC2007S10, also in NIST's SCTK)",
                  "data/trans_rules/en20030506.glm", "--rt03, or the file with --rt03-glm"),
    subsets={"swbd": "^sw_", "fsh": "^fsh_"},
    published=[Published("recordings", (144,)), Published("utterances", (8420,)),
               Published("words", (76_157,), 0.02)])  # fmt: skip


@dataclass(frozen=True)
class SetFiles:
    """The files of an evaluation set; `audio` is {call: file}."""

    audio: dict[str, Path]
    stm: list[Path]
    glm: Path
    pem: Path | None

    @property
    def tables(self) -> list[Path]:
        """All files except the audio."""
        return [*self.stm, self.glm, *filter(None, [self.pem])]


def find_files(kind: EvaluationSet, audio: list[Path], text: list[Path], glm: Path | None = None) -> SetFiles:
    """The files of a set below these places. `glm` replaces the one on the discs.

    Raises UserError if a kind of file is missing.
    """
    audio_paths, text_paths = list(paths_below(audio)), list(paths_below(text))
    found = _of_kind(audio_paths, kind.audio, kind.folder)
    references = _of_kind(text_paths, kind.stm, kind.folder)
    rules = [glm] if glm else list(files_by_name(text_paths, kind.glm).values())
    for disc, files, places, paths in (
        (kind.audio_disc, found, audio, audio_paths),
        (kind.text_disc, references, text, text_paths),
        (kind.glm_disc, rules, text, text_paths),
    ):
        if not files:
            raise disc.missing(places, paths)
    pem = (
        next(iter(files_by_name([*audio_paths, *text_paths], kind.pem).values()), None) if kind.pem else None
    )
    if kind.pem and not pem:
        log.warning(
            f"{kind.audio_disc.name}: it contains no list of segments (.pem); the segments of the reference "
            "are used"
        )
    return SetFiles(found, list(references.values()), rules[0], pem)


def _of_kind(paths: list[Path], pattern: str, folder: str) -> dict[str, Path]:
    """Files that match a pattern. If some are in `folder`, only these, because discs of several languages
    contain others."""
    return files_by_name(paths, rf"{folder}/{pattern}") or files_by_name(paths, pattern)


def utterances_of(
    stm: References, pem: list[tuple[str, float, float]] | None, audio: Iterable[str], left: SkippedItems
) -> list[Utterance]:
    """The scored utterances of the calls with `audio`, also those without words. If there is a pem, its times
    are used, slightly stretched."""
    spans = None if pem is None else stretched(pem)
    calls, found = set(audio), {}
    for segment in stm.segments:
        utterance = _utterance(segment, spans or {})
        if reason := _reason_against(segment, calls) or "the same side and times as another" * (
            utterance.name in found
        ):
            left.add(reason, utterance.name)
        else:
            found[utterance.name] = utterance
    if spans is not None:
        _compare(stm, spans)
    return list(found.values())


def _utterance(segment: StmSegment, spans: Times) -> Utterance:
    span = side, begin, end = span_of(segment)
    begin_s, end_s = spans.get(span, (begin / 100, end / 100))
    return Utterance(
        f"{side}_{begin:06d}-{end:06d}",
        segment.file,
        segment.channel,
        side,
        begin_s,
        end_s,
        plain_words(segment.text),
    )


def _reason_against(segment: StmSegment, calls: set[str]) -> str:
    """Why a segment is left out; '' if it is used."""
    if segment.is_ignored:
        return "ignored in scoring"
    return "" if segment.file in calls else "no audio of their call"


def stretched(segments: list[tuple[str, float, float]]) -> Times:
    """Segments extended at both ends by up to 0.1 s, but at most half of the gap to the neighbour on the same
    side."""
    sides = defaultdict(list)
    for side, begin, end in segments:
        sides[side].append((hundredths(begin), hundredths(end)))
    found: Times = {}
    for side, spans in sides.items():
        spans = sorted(set(spans))
        gaps = [max(0.0, (later[0] - earlier[1]) / 200) for earlier, later in pairwise(spans)]
        before, after = [spans[0][0] / 100, *gaps], [*gaps, MAX_STRETCH_S]
        for (begin, end), room_before, room_after in zip(spans, before, after):
            begin_s = begin / 100 - min(MAX_STRETCH_S, room_before)
            found[side, begin, end] = (max(0.0, begin_s), end / 100 + min(MAX_STRETCH_S, room_after))
    return found


def _compare(stm: References, spans: Times) -> None:
    """Warn about segments that occur only in the pem or only in the stm, with the first of each."""
    of_stm = {span_of(segment) for segment in stm.segments}
    for has, lacks, only in (
        ("reference", "pem", of_stm - spans.keys()),
        ("pem", "reference", spans.keys() - of_stm),
    ):
        if only:
            side, begin, end = min(only)
            log.warning(
                f"{len(only)} segments of the {has} are not in the {lacks}; the first is {side} "
                f"{begin / 100:.2f} {end / 100:.2f}"
            )


def log_calls(kind: EvaluationSet, stm: References, audio: Iterable[str]) -> None:
    """Log the calls that have only a reference or only audio."""
    files, calls = {segment.file for segment in stm.segments}, set(audio)
    log_calls_that_have(
        {"a reference, but no audio": files - calls, "audio, but no reference": calls - files},
        kind.audio_disc.name,
    )
