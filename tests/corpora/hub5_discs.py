"""Small discs of Hub5'00 (LDC2002S09, LDC2002T43) and RT-03 (LDC2007S10), with the known faults of their
references."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from synthetic_speech import RATE, Voice, write_sphere

# reference -> (words in lower case, spoken words); None: not scored
SEGMENTS = {
    "HE (%HESITATION) LIKE { IT'S / IT IS } SEVEN": (
        "he %hesitation like it's seven",
        "hh iy ah m l ay k ih z s eh v ax n",
    ),
    "WELL ((TH-) THE MOON YEAH": ("well th- the moon yeah", "w eh l th dh ax m uw n y ae"),
    "<B_ASIDE> CALL ME <E_ASIDE> (TH-) THINK": ("call me th- think", "k ao l m iy th th ih ng k"),
    "(%UH-HUH)": ("%uh-huh", "ah hh ah"),
    "THE SCHOOL IS TALL": ("the school is tall", "dh ax s k uw l ih z t ao l"),
    "IGNORE_TIME_SEGMENT_IN_SCORING": (None, "nsn lau spn"),
    "I KNOW 'CAUSE (-N'T) OKAY": ("i know 'cause -n't okay", "ay n ow k ao z ax n t ow k ey"),
    "REALLY (A-) { UM / UH / @ } NO": ("really a- um no", "r iy l iy ae ah m n ow"),
}
GLM = """;; rules of a test
* name "en20000405_hub5.glm"
* desc "rules of a test"
* format = 'NIST1'
* max_nrules = '2500'
* copy_no_hit = 'T'
* case_sensitive = 'F'
;;
UH => %HESITATION / [ ] __ [ ]
UM => %HESITATION / [ ] __ [ ]
%UH-HUH => %BCACK / [ ] __ [ ]
UH-HUH => %BCACK / [ ] __ [ ]
OKAY => O. K. / [ ] __ [ ]
"""
LABELS = [
    ';; CATEGORY "0" "" ""',
    ';; LABEL "O" "O" "O"',
    ';; LABEL "en" "en" "en"',
    ';; LABEL "sw" "sw" "sw"',
]


@dataclass
class EvaluationDiscs:
    """A generated set: its discs `audio` and `text`, {utterance: words} of the scored segments, {name:
    (begin, end)} of all segments."""

    audio: Path
    text: Path
    texts: dict[str, str] = field(default_factory=dict)
    spans: dict[str, tuple[float, float]] = field(default_factory=dict)
    stm: list[str] = field(default_factory=list)


def make_eval2000(root: Path) -> EvaluationDiscs:
    """4 calls of 8 segments. In each, one segment is ignored, and one begins before the end of the previous
    one."""
    tree = EvaluationDiscs(root / "LDC2002S09", root / "LDC2002T43")
    pem, stm, folder = [";; list of segments"], list(LABELS), tree.audio / "hub5e_00" / "english"
    for i, call in enumerate(("sw_4390", "sw_4484", "en_4156", "en_4183")):
        label = "<O,sw,M,sw-M>" if call.startswith("sw") else "<O,en,F,en-F>"
        for channel, begin, end, text in _talk(folder / f"{call}.sph", call, i):
            person = f"{call}_{channel}" + "1" * (call == "en_4183" and begin > 8)
            pem.append(f"{call} {channel} unknown_speaker {begin:.2f} {end:.2f}")
            stm.append(f"{call} {channel} {person} {begin:.2f} {end:.2f} {label}  {text}")
            _expect(tree, call, channel, begin, end, text)
    (folder / "hub5e_00.pem").write_text("\n".join(pem) + "\n")
    reference = tree.text / "2000_hub5_eng_eval_tr" / "reference"
    reference.mkdir(parents=True)
    (reference / "hub5e00.english.000405.stm").write_text("\n".join(stm) + "\n")
    (reference / "en20000405_hub5.glm").write_text(GLM)
    tree.stm = stm
    return tree


def make_rt03(root: Path) -> EvaluationDiscs:
    """2 calls of 9 segments, and speech of another language. In each call one segment is ignored, and one has
    no words."""
    tree = EvaluationDiscs(root / "LDC2007S10", root / "LDC2007S10")
    data, cts = tree.audio / "data", Path("eval03", "english", "cts")
    for i, call in enumerate(("fsh_60262", "sw_45097")):
        stm, label = list(LABELS), "<O,FI,M,STANDARD>" if call.startswith("fsh") else "<O,SW,M,STANDARD>"
        for channel, begin, end, text in _talk(
            data / "audio" / cts / f"{call}.sph", call, i, silence_at_end=True
        ):
            number = "AB".index(channel) + 1
            stm.append(f"{call} {number} inter_segment_gap {begin - 0.01:.2f} {begin:.2f} {label}")
            stm.append(
                f"{call} {number} {call}_{channel} {begin:.2f} {end:.2f} {label}" + f"  {text}" * bool(text)
            )
            _expect(tree, call, channel, begin, end, text)
        reference = data / "references" / cts / f"{call}.stm"
        reference.parent.mkdir(parents=True, exist_ok=True)
        reference.write_text("\n".join(stm) + "\n")
        tree.stm += stm
    write_sphere(
        data / "audio" / "eval03" / "mandarin" / "cts" / "fsh_99999.sph", [np.zeros(RATE), np.zeros(RATE)]
    )
    (data / "trans_rules").mkdir()
    (data / "trans_rules" / "en20030506.glm").write_text(GLM)
    return tree


def _talk(
    audio: Path, call: str, first: int, silence_at_end: bool = False
) -> list[tuple[str, float, float, str]]:
    """(channel, begin, end, reference) of segments of A and B in turn, spoken into the file. The fourth
    begins 0.1 s too early."""
    texts = list(SEGMENTS)[first:] + list(SEGMENTS)[:first]
    voices = {channel: Voice.of(call + channel) for channel in "AB"}
    channels = {channel: [np.zeros(RATE)] for channel in "AB"}
    segments, at = [], 1.0
    for i, text in enumerate(texts + [""] * silence_at_end):
        speaker, listener = "AB" if i % 2 == 0 else "BA"
        sound = voices[speaker].say(SEGMENTS[text][1].split()) if text else np.zeros(RATE, np.float32)
        channels[speaker].append(sound)
        channels[listener].append(np.zeros(len(sound), np.float32))
        begin, at = at, at + len(sound) / RATE
        segments.append((speaker, round(begin - 0.1 * (i == 3), 2), round(at, 2), text))
    write_sphere(audio, [np.concatenate(channels[channel]) for channel in "AB"])
    return segments


def _expect(tree: EvaluationDiscs, call: str, channel: str, begin: float, end: float, text: str) -> None:
    name = f"{call}-{channel}_{round(100 * begin):06d}-{round(100 * end):06d}"
    tree.spans[name] = begin, end
    words = SEGMENTS[text][0] if text else ""
    if words is not None:
        tree.texts[name] = words


def in_capitals(tree: Path, target: Path, version: str = "") -> Path:
    """The tree with names in capitals and version suffixes, HUB5E_00/ENGLISH/SW_4390.SPH;1, as in disc
    images."""
    for path in sorted(tree.rglob("*")):
        if path.is_file():
            link = target / f"{path.relative_to(tree)}{version}".upper()
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(path)
    return target
