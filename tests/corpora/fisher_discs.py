"""Trees in the layout of Fisher's releases, with synthetic speech and the known faults of the corpus.

Part 1 has the audio under the names of the download, part 2 the text without its outer folder. What the
prepared data have to hold is written down while the tree is made (`Discs.texts`), word by word, not by the
rules that are tested.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from shorten_encoder import plain_sphere, shortened_sphere
from synthetic_speech import RATE, Voice

CALLERS = {
    1: ("2637m", "1001f"),
    2: ("1001f", "1002m"),
    3: ("1003f", "1004m"),
    4: ("1003f", "1004m"),
    99: ("1008f", "1009f"),
    5851: ("1005m", "2637f"),
    5852: ("1006f", "1007m"),
    5853: ("", ""),
    11487: ("1010m", "1011f"),
}
SEXES = {5853: "fm"}  # of the call that the table of callers lacks
WITHOUT_TEXT, WITHOUT_AUDIO = 4, 99
WORDS = {  # words with sounds for their phones in the CMU dictionary
    "call": "k ao l", "moon": "m uw n", "see": "s iy", "well": "w eh l", "seven": "s eh v ah n",
    "know": "n ow", "really": "r ih l iy", "think": "th ih ng k", "school": "s k uw l", "soon": "s uw n",
    "she": "sh iy", "he": "hh iy", "like": "l ay k", "red": "r eh d", "time": "t ay m", "good": "g ih d",
    "day": "d ey", "boy": "b ow iy", "sister": "s ih s t er", "happy": "hh ae p iy", "father": "f aa dh er",
    "zoo": "z uw", "yes": "y eh s", "you": "y uw",
}  # fmt: skip
TOKENS = {  # transcript token: (training words, spoken words)
    "[laugh]": ("[laughter]", "lau"),
    "[sigh]": ("[noise]", "nsn"),
    "[[skip]]": ("", ""),
    "[pause]": ("", ""),
    "[mn]": ("[noise]", "nsn"),
    "[sneeze]": ("[noise]", "nsn"),
    "c._n._n.": ("c._n._n.", "s iy eh n eh n"),
    "café": ("café", "spn spn"),
    "f-": ("f-", "spn"),
    "mm": ("mm", "m"),
    "me": ("me", "m iy"),
    "zoo:": ("zoo:", "z uw"),
    **{word: (word, phones) for word, phones in WORDS.items()},
}
MARKS = [token for token in TOKENS if token not in WORDS]
WRONG_TIME_S, RIGHT_TIME_S = 31.09, 231.09


@dataclass
class Discs:
    """A tree, and the expected result of its preparation.

    texts     {utterance without its speaker: words}
    speakers  {side: speaker}
    skipped   {fault: how many lines of calls with audio and text have it}
    """

    root: Path
    texts: dict[str, str] = field(default_factory=dict)
    speakers: dict[str, str] = field(default_factory=dict)
    skipped: Counter = field(default_factory=Counter)

    @property
    def places(self) -> list[str]:
        """The four releases."""
        return [str(self.root / name) for name in ("LDC2004S13", "LDC2004T19", "LDC2005S13", "LDC2005T19")]


class Call:
    """A call under construction: its lines, and the sounds of both sides."""

    def __init__(self, number: int, with_speech: bool):
        self.name, self.with_speech = f"fe_03_{number:05d}", with_speech
        self.voices = [Voice.of(caller or f"{number}{side}") for side, caller in zip("AB", CALLERS[number])]
        self.sounds: list[tuple[int, float, np.ndarray]] = []
        self.lines: list[str] = []
        self.texts: dict[str, str] = {}
        self.end_s = 0.4

    def say(
        self,
        channel: int,
        tokens: list[str],
        begin_s: float | None = None,
        written_begin_s: float | None = None,
    ) -> None:
        """Add a line for training. It begins at `begin_s`, or at the end of the previous line."""
        begin_s = round(self.end_s if begin_s is None else begin_s, 2)
        phones = " ".join(TOKENS[token][1] for token in tokens).split()
        sound = (
            self.voices[channel].say(phones)
            if self.with_speech
            else np.zeros(int(RATE * 0.1 * (3 + len(phones))))
        )
        self.end_s = round(begin_s + len(sound) / RATE + 0.01, 2)
        self.sounds.append((channel, begin_s, sound))
        self.write(
            begin_s if written_begin_s is None else written_begin_s, self.end_s, channel, " ".join(tokens)
        )
        words = " ".join(word for token in tokens if (word := TOKENS[token][0]))
        self.texts[
            f"{self.name}-{'AB'[channel]}-{round(100 * begin_s):06d}-{round(100 * self.end_s):06d}"
        ] = words

    def write(self, begin_s: float, end_s: float, channel: int, text: str) -> None:
        """A line of the transcript."""
        self.lines.append(f"{begin_s:.2f} {end_s:.2f} {'AB'[channel]}: {text} ")

    def audio(self, seconds: float) -> np.ndarray:
        """int16 (num_samples, 2) of both sides, with digital silence between utterances."""
        samples, rng = np.zeros((int(seconds * RATE), 2), np.float32), np.random.default_rng(1)
        for channel, begin_s, sound in self.sounds:
            begin = round(begin_s * RATE)
            sound = (
                sound[: len(samples) - begin]
                + 0.004 * rng.standard_normal(len(sound[: len(samples) - begin])) * self.with_speech
            )
            samples[begin : begin + len(sound), channel] += sound
        return np.rint(samples * 32000).astype(np.int16)

    def transcript(self) -> str:
        """The file's text."""
        return (
            "\n".join(
                [
                    f"# {self.name}.sph",
                    "# Transcribed at the LDC",
                    "",
                    *(line for said in self.lines for line in (said, "")),
                ]
            )
            + "\n"
        )


def make_discs(root: Path, with_speech: bool = False, num_lines: int = 16) -> Discs:
    """Write the four releases below `root`. Without speech, the audio is uncompressed silence, which is
    faster."""
    discs, rng = Discs(root), np.random.default_rng(1)
    for number in CALLERS:
        call = Call(number, with_speech)
        for i in range(num_lines):
            call.say(i % 2, _tokens(i, rng))
        seconds = _add_faults(number, call, discs.skipped)
        if number != WITHOUT_TEXT:
            _write_transcript(root, number, call)
        if number != WITHOUT_AUDIO:
            write_file(
                root / audio_name(number),
                (shortened_sphere if with_speech else plain_sphere)(call.audio(seconds), channels=2),
            )
        if number not in (WITHOUT_TEXT, WITHOUT_AUDIO):
            discs.texts |= call.texts
        discs.speakers |= {
            f"{call.name}-{side}": caller or f"{call.name}-{side}"
            for side, caller in zip("AB", CALLERS[number])
        }
    _write_tables(root)
    return discs


def _tokens(i: int, rng: np.random.Generator) -> list[str]:
    """Tokens of the i-th line of a call."""
    words = [str(word) for word in rng.choice(list(WORDS), size=rng.integers(2, 6))]
    if i == 3:
        return ["me"]  # two letters
    return words if i % 3 else [*words[:1], MARKS[int(rng.integers(len(MARKS)))], *words[1:]]


def _add_faults(number: int, call: Call, skipped: Counter) -> float:
    """Add lines with the faults of the corpus to a call; returns the duration of its audio in seconds."""
    seconds = call.end_s + 1.0
    if number == 1:
        call.write(3.0, 3.5, 0, "(( ))")
        call.write(4.0, 4.5, 1, "(( you know ))")
        call.write(5.0, 5.5, 1, "see (( the )) moon")
        call.write(6.0, 6.5, 0, "[[skip]] [pause]")
        call.lines += ["# a comment", "no line of a transcript", "7.5.1 8.0 A: see"]
        skipped.update({"unsure": 3, "no words": 1, "a line that is not": 2})
    elif number == 2:
        call.say(0, ["see", "moon"])
        seconds = call.end_s - 0.2  # a duration below the limit
        call.write(call.end_s - 2, seconds + 5, 1, "red red")
        call.write(seconds + 1, seconds + 1.3, 1, "red")
        skipped.update({"more than 0.5 s after the end": 1, "begins after the end": 1})
    elif number == 3:
        call.lines.append("3.00 3.50 A: caf\udce9 ")  # Latin-1
        skipped["not UTF-8"] += 1
    elif number == 5852:
        call.write(9.0, 8.5, 0, "call me")
        call.lines.append(call.lines[0])
        skipped.update({"end is not after its begin": 1, "a second time": 1})
    elif number == 5853:
        call.write(0.5, 31.0, 0, "a long line")
        skipped["longer than 30 s"] += 1
    elif number == 11487:
        call.say(0, ["call", "me", "soon"], begin_s=RIGHT_TIME_S, written_begin_s=WRONG_TIME_S)
        seconds = call.end_s + 0.5
    return seconds


def audio_name(number: int) -> str:
    """Path of the audio of a call below the root."""
    disc = "LDC2004S13/fisher_eng_tr_sp_d1" if number < 5851 else "LDC2005S13/fe_03_p2_sph1"
    return f"{disc}/audio/{number // 100:03d}/fe_03_{number:05d}.sph"


def text_name(number: int) -> str:
    """Path of the transcript of a call below the root."""
    disc = "LDC2004T19/fe_03_p1_tran" if number < 5851 else "LDC2005T19"
    return f"{disc}/data/trans/{number // 100:03d}/fe_03_{number:05d}.txt"


def _write_transcript(root: Path, number: int, call: Call) -> None:
    """Also write a file of the same name with other words among BBN's originals."""
    original = Path(text_name(number).replace("/trans/", "/bbn_orig/"))
    for name, text in (
        (text_name(number), call.transcript()),
        (original.parent / "originals" / original.name, "1.00 2.00 A: other words\n"),
    ):
        write_file(root / name, text.encode("utf-8", "surrogateescape"))


def write_file(path: Path, content: bytes) -> None:
    """Write a file and create missing folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def _write_tables(root: Path) -> None:
    """The tables of callers and sexes, in the format of each part."""
    header = (
        "CALL_ID,DATE_TIME,TOPICID,SIG_GRADE,CNV_GRADE,APIN,ASX.DL,APHNUM,APHSET,APHTYP,"
        "BPIN,BSX.DL,BPHNUM,BPHSET,BPHTYP"
    )
    for part, doc, disc in (
        (1, "LDC2004T19/fe_03_p1_tran/doc", "LDC2004S13/fisher_eng_tr_sp_d1/filetable.txt"),
        (2, "LDC2005T19/doc", "LDC2005S13/fe_03_p2_sph1/docs/filetable2.txt"),
    ):
        numbers = [number for number in CALLERS if (number < 5851) == (part == 1)]
        sexes = {
            number: SEXES.get(number) or "".join(caller[-1] for caller in CALLERS[number])
            for number in numbers
        }
        files = {
            f"{doc}/fe_03_p{part}_calldata.tbl": [
                header,
                *(_calldata(number) for number in numbers if CALLERS[number] != ("", "")),
            ],
            f"{doc}/fe_03_p{part}_filelist.tbl": [
                _listed(part, number, both) for number, both in sexes.items()
            ],
            disc: [f"fe_03_p{part}_sph1 fe_03_{number:05d}.sph {both}" for number, both in sexes.items()],
        }
        for name, lines in files.items():
            write_file(root / name, ("\n".join(lines) + "\n").encode())


def _calldata(number: int) -> str:
    (pin_a, sex_a), (pin_b, sex_b) = ((caller[:-1], caller[-1]) for caller in CALLERS[number])
    return f"{number:05d},20021216_22:58:01,ENG01,2,3,{pin_a},{sex_a}.a,1,2,3,{pin_b},{sex_b}.o,1,2,3"


def _listed(part: int, number: int, sexes: str) -> str:
    """In the order of Kaldi's pattern, and in the order of the readme."""
    fields = [f"fe_03_p{part}_sph1", f"{number:05d}", sexes, "LDC"]
    return "\t".join(fields if part == 1 else [fields[1], fields[0], *fields[2:]])
