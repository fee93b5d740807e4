"""Small discs of Switchboard: LDC97S62 and Mississippi State's transcripts, with the irregularities of the
real ones.

tree = make_discs(tmp_path / "tree")            # 4 DVDs, transcripts, tables of callers
lay_out(tree, "upper", tmp_path / "upper")      # the same files in another layout
tree.texts                                      # {utterance: text} that a preparation has to find
"""

from __future__ import annotations

import shutil
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from synthetic_speech import RATE, Voice, write_sphere

# token of the transcripts -> (word of the prepared text, phones; '' for noise and silence)
TOKENS = {
    "moon": ("moon", "m uw n"), "yeah": ("yeah", "y ae"), "well": ("well", "w eh l"),
    "school": ("school", "s k uw l"), "tall": ("tall", "t ao l"), "call": ("call", "k ao l"),
    "me": ("me", "m iy"), "the": ("the", "dh ax"), "know": ("know", "n ow"), "think": ("think", "th ih ng k"),
    "seven": ("seven", "s eh v ax n"), "he": ("he", "hh iy"), "like": ("like", "l ay k"),
    "really": ("really", "r iy l iy"), "I": ("i", "ay"), "um": ("um", "ah m"),
    "uh-huh": ("uh-huh", "ah hh ah"), "is": ("is", "ih z"), "Texas": ("texas", "t eh k s ax s"),
    "baby": ("baby", "b ey b iy"), "day": ("day", "d ey"), "dog": ("dog", "d ao g"),
    "[laughter-yeah]": ("yeah", "y ae"), "[laughter-yeah]-": ("yeah-", "y ae"),
    "[it'n/isn't]": ("it'n", "ih t ax n"), "[lem[guini]-/linguini]": ("lem-", "l eh m"),
    "-[an]y": ("-y", "iy"), "-[40]1k": ("-1k", "w ah n k ey"), "ab[solute]-": ("ab-", "ae b"),
    "-[a]b[out]-": ("-b-", "b ax"), "ex[specially]-/especially]": ("ex", "eh k s"),
    "{yuppiedom}": ("yuppiedom", "y ah p iy d ax m"), "ammu[n]it-": ("ammu-it-", "ae m y uw ih t"),
    "them_1": ("them", "ax m"), "them_1's": ("them's", "ax m z"), "IBM": ("i._b._m.", "ay b iy eh m"),
    "TVs": ("t._v.s", "t iy v iy z"), "BBC's": ("b._b._c.'s", "b iy b iy s iy z"),
    "AT&T": ("at&t", "ey t iy ax n t iy"), "C": ("c.", "s iy"), "A": ("a.", "ey"),
    "W": ("w.", "d ah b ax l y uw"), "wolf": ("wolf", "w ah l f"),
    "[noise]": ("[noise]", "nsn"), "[laughter]": ("[laughter]", "lau"),
    "[vocalized-noise]": ("[vocalized-noise]", "spn"), "[silence]": ("", ""), "<b_aside>": ("", ""),
    "<e_aside>": ("", ""),
}  # fmt: skip
NOT_IN_DICTIONARY = {
    "W",
    "wolf",
    "[noise]",
    "[laughter]",
    "[vocalized-noise]",
    "[silence]",
    "<b_aside>",
    "<e_aside>",
}
COMMON = [token for token in TOKENS if token.isalpha() and token.islower() and token != "wolf"] + [
    "I",
    "uh-huh",
]
# further lines: (transcript, prepared text)
LINES = [
    ("[laughter] um [laughter-yeah] I know {yuppiedom} is", "[laughter] um yeah i know yuppiedom is"),
    ("well [laughter-yeah]- [it'n/isn't]  the [lem[guini]-/linguini]", "well yeah- it'n the lem-"),
    ("-[an]y -[40]1k ab[solute]- -[a]b[out]- moon", "-y -1k ab- -b- moon"),
    ("ex[specially]-/especially] ammu[n]it- them_1 them_1's", "ex ammu-it- them them's"),
    ("<b_aside> call me <E_ASIDE> [silence] well", "call me well"),
    ("I know IBM TVs BBC's AT&T Texas", "i know i._b._m. t._v.s b._b._c.'s at&t texas"),
    ("the C I A well I I know", "the c. i. a. well i i know"),
    ("W wolf is tall", "w. wolf is tall"),
    ("[noise]", "[noise]"),
    ("[vocalized-noise] yeah", "[vocalized-noise] yeah"),
]
CALLS = {2001: 1, 2010: 1, 2167: 2, 3170: 2, 3409: 3, 4002: 3, 4519: 4, 4940: 4}  # call -> disc
WITHOUT_AUDIO = 2289
CALLERS = {
    2001: (1000, 1001),
    2010: (1002, 1000),
    2167: (1003, 1004),
    2289: (1005, 1006),
    3170: (1007, 1008),
    3409: (1009, 1010),
    4002: (1011, 1012),
    4940: (1013, 1014),
}


@dataclass
class Discs:
    """A generated tree, and the expected result of its preparation.

    root      holds swb1_d1 ... swb1_d4, swb_ms98_transcriptions, switchboard_word_alignments.tar.gz, docs
    texts     {utterance: text} with sides as speakers
    unheard   utterances of the call without audio
    """

    root: Path
    texts: dict[str, str] = field(default_factory=dict)
    unheard: list[str] = field(default_factory=list)

    @property
    def transcripts(self) -> Path:
        return self.root / "swb_ms98_transcriptions"

    @property
    def archive(self) -> Path:
        return self.root / "switchboard_word_alignments.tar.gz"


@dataclass
class Side:
    """A side of a call under construction: transcript lines (begin, end, words), and its samples."""

    name: str
    voice: Voice
    lines: list[tuple[float, float, str]] = field(default_factory=list)
    pieces: list[np.ndarray] = field(default_factory=list)

    def say(self, transcript: str, sound: np.ndarray) -> None:
        begin = sum(map(len, self.pieces))
        self.pieces.append(sound)
        self.lines.append((round(begin / RATE, 6), round((begin + len(sound)) / RATE, 6), transcript))


def make_discs(root: Path, turns_per_call: int = 14, more_calls: int = 0) -> Discs:
    """Make a tree. `more_calls` is the number of further regular calls, on which the models of a recipe are
    trained."""
    tree = Discs(root)
    ordinary = {4600 + i: 1 + i % 4 for i in range(more_calls)}
    lines = _lines()
    for call, disc in {**CALLS, **ordinary, WITHOUT_AUDIO: 0}.items():
        sides = _talk(call, turns_per_call, lines)
        if disc:
            audio = root / f"swb1_d{disc}" / "data" / f"sw0{call}.sph"
            write_sphere(audio, [np.concatenate(side.pieces) for side in sides], count_all=call == 2010)
        _spoil(call, sides)
        for side in sides:
            _write_transcript(tree, side)
            _expect(tree, side, has_audio=bool(disc))
    _write_dictionary(tree.transcripts / "sw-ms98-dict.text")
    _write_tables(root / "docs")
    with tarfile.open(tree.archive, "w:gz") as archive:
        archive.add(tree.transcripts, tree.transcripts.name)
    return tree


def _lines() -> Iterator[tuple[str, str]]:
    """The special lines one after the other, separated by lines of frequent words."""
    rng = np.random.default_rng(1)
    while True:
        for line in LINES:
            yield line
            for _ in range(6):
                words = rng.choice(COMMON, rng.integers(2, 6))
                yield " ".join(words), " ".join(TOKENS[word][0] for word in words)


def known(token: str) -> tuple[str, str]:
    """(word, phones) of a token. Marks of asides are accepted in any case."""
    return TOKENS[token if token in TOKENS else token.lower()]


def _talk(call: int, num_turns: int, lines: Iterator[tuple[str, str]]) -> tuple[Side, Side]:
    """A and B talk in turn; each is silent during the other's turn. Side B of 2167 has no speech."""
    sides = tuple(Side(f"sw{call}{channel}", Voice.of(f"{call}{channel}")) for channel in "AB")
    for turn in range(num_turns):
        speaker, listener = sides if turn % 2 == 0 or call == 2167 else sides[::-1]
        transcript, _ = next(lines)
        sound = speaker.voice.say(
            [phone for token in transcript.split() for phone in known(token)[1].split()]
        )
        speaker.say(transcript, sound)
        listener.say("[silence]", np.zeros(len(sound), np.float32))
    return sides


def _spoil(call: int, sides: tuple[Side, Side]) -> None:
    """In call 3409, the last segment of A ends after the file, and one of B begins after it."""
    if call != 3409:
        return
    begin, end, words = sides[0].lines[-1]
    sides[0].lines[-1] = (begin, end + 0.3, words)
    sides[1].lines.append((end + 0.35, end + 1.2, "he is tall"))


def _write_transcript(tree: Discs, side: Side) -> None:
    call = side.name[2:6]
    folder = tree.transcripts / call[:2] / call
    folder.mkdir(parents=True, exist_ok=True)
    lines = [
        f"{side.name}-ms98-a-{i:04d} {begin:.6f} {end:.6f} {words}\n"
        for i, (begin, end, words) in enumerate(side.lines, 1)
    ]
    (folder / f"{side.name}-ms98-a-trans.text").write_text("".join(lines))
    words = [
        f"{side.name}-ms98-a-{i:04d} {begin:.6f} {end:.6f} {line.split()[0]}\n"
        for i, (begin, end, line) in enumerate(side.lines, 1)
    ]
    (folder / f"{side.name}-ms98-a-word.text").write_text("".join(words))


def _expect(tree: Discs, side: Side, has_audio: bool) -> None:
    texts = dict(LINES)
    for begin, end, transcript in side.lines:
        text = texts.get(transcript) or " ".join(
            filter(None, (known(token)[0] for token in transcript.split()))
        )
        name = f"sw0{side.name[2:6]}-{side.name[6]}_{int(100 * begin + 0.5):06d}-{int(100 * end + 0.5):06d}"
        if text and transcript != "he is tall" and has_audio:
            tree.texts[name] = text
        elif text and not has_audio:
            tree.unheard.append(name)


def _write_dictionary(path: Path) -> None:
    rows = [
        f"{token.replace('&', '&amp;')} {phones}"
        for token, (_, phones) in TOKENS.items()
        if token not in NOT_IN_DICTIONARY
    ]
    rows += ["yeah y ae", "yeah y eh", "[silence] sil", "[noise] nsn", "<b_aside> sil", "Zz s sil z"]
    path.write_text(
        " file: $SWB/data/dictionary/sw-ms98-dict.text\n# a comment\n\n" + "\n".join(sorted(rows)) + "\n"
    )


def _write_tables(docs: Path) -> None:
    docs.mkdir(parents=True, exist_ok=True)
    rows = [f"{call},Y,{a},{b},303,0,910304,1218,1222, ,\n" for call, (a, b) in CALLERS.items()]
    (docs / "conv_tab.csv").write_text("".join(rows))
    sexes = ("FEMALE", "MALE")
    (docs / "caller_tab.csv").write_text(
        "".join(f'{c}, 2, 2, "{sexes[c % 2]}", 1960, "NORTHERN", 2, "N"\n' for c in range(1000, 1015))
    )


def audio_files(root: Path) -> list[Path]:
    return sorted(
        path
        for path in root.rglob("*")
        if path.name.lower().startswith("sw0") and path.suffix.lower() == ".sph"
    )


def lay_out(tree: Discs, layout: str, target: Path) -> Path:
    """The tree's audio in another layout: 'dvds', 'cds' (a folder for each call), 'together', 'upper' (names
    in capitals), 'image' (names in disc images), 'short' (names of four digits), 'copies' (a call is on two
    discs), 'inside' (with transcripts in it)."""
    for i, path in enumerate(audio_files(tree.root), 1):
        relative = path.relative_to(tree.root)
        place = {
            "cds": Path(f"swb1_cd{i:02d}", "swb1", path.name),
            "together": Path(path.name),
            "upper": Path(str(relative).upper()),
            "image": Path(f"{relative};1".upper()),
            "short": Path(f"disc {i % 4}", path.name.replace("sw0", "sw")),
        }
        _link(path, target / place.get(layout, relative))
    if layout == "copies":
        shutil.copyfile(
            audio_files(tree.root)[0], target / "swb1_d4" / "data" / audio_files(tree.root)[0].name
        )
    if layout == "inside":
        shutil.copytree(tree.transcripts, target / "swb1_d1" / "transcriptions" / tree.transcripts.name)
    return target


def _link(path: Path, link: Path) -> None:
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(path)
