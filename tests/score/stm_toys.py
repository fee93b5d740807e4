"""Random stm and ctm files, and counts by NIST's programs.

python tests/score/stm_toys.py 200        compares as many random pairs of files, each with hundreds of
                                          segments
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

BIN = Path("/usr/lib/sctk/bin")
MISSING = (
    ""
    if (BIN / "sclite").exists() and (BIN / "csrfilt.sh").exists()
    else "sctk with csrfilt.sh is not installed"
)
# {speaker in lower case, 'sum' for all: segments, words, correct, sub, del, ins, segments with errors}
Rows = dict[str, tuple[int, ...]]

GLM = r""";; rules for tests
* name "toys.glm"
* format = 'NIST1'
* max_nrules = '2500'
* copy_no_hit = 'T'
* case_sensitive = 'F'
UH       => %HESITATION / [ ] __ [ ]
%UH      => %HESITATION / [ ] __ [ ]
UH-HUH   => %BCACK      / [ ] __ [ ] ;; affirmative
'CAUSE   => BECAUSE ;; anywhere
OKAY     => O. K.       / [ ] __ [ ]
b        => BEE         / [A ] __ [ ]
[C C]    => [SEA] / [ ] __ [ ]
D        => [{D / D D / @}] / [ ] __ [ ]
"E'S"    => [{E'S / E IS / E HAS}] / [ ] __ [ ]
MOON     => MOO
MOONS    => NEVER ;; the rule before fires first
TAIL     => WHALE / __ [ A]
;; INPUT_DEPENDENT_APPLICATION = "ctm"
[CAN'T]  => [{CAN NOT / CANNOT}] / [ ] __ [ ]
DON'T    => DO NOT / [ ] __ [ ]
;; INPUT_DEPENDENT_APPLICATION = "ref"
XX       => A B / [ ] __ [ ]
;; INPUT_DEPENDENT_APPLICATION = "hyp|ref"
ZZ       => C / [ ] __ [ ]
;; INPUT_DEPENDENT_APPLICATION = "ctm"
THREE    => A B C / [ ] __ [ ]
"""
WORDS = """A B C C D E E'S IS NOT UH UH-HUH 'CAUSE BECAUSE OKAY O. K. CAN'T CAN CANNOT DON'T DO MOONS TAIL
THE THINK TH- -ING A-B-C XX ZZ a b %HESITATION 1984""".split()
SPOKEN = WORDS + [
    "(UH)",
    "(%HESITATION)",
    "(TH-)",
    "(A-)",
    "(-N'T)",
    "(A B)",
    "(UH-HUH)",
    "{ A / B }",
    "{ A B / C / @ }",
    "@",
    "B*",
    "{ E'S / E IS }",
    "{ @ / THE }",
    "{ A { B / C } / D }",
    "{ (UH) / A }",
    "{ TH- / C }",
]

RICH = ["A", "B", "C", "@", "{ A / @ }", "{ @ / B }", "{ A B / @ }", "{ C / A A / @ }"]


def random_files(rng: np.random.Generator, num_files: int) -> tuple[str, str]:
    """(stm, ctm): two channels per file, segments with gaps and overlaps, some empty or ignored, words that
    cross segment ends."""
    stm, ctm = [], []
    for f in range(num_files):
        for channel in "AB":
            texts = [random_text(rng) for _ in range(rng.integers(1, 7))]
            at = 0.0
            for text in texts:
                begin = max(0.0, at + rng.choice([-0.3, 0.0, 0.0, 0.5]))
                at = begin + rng.choice([0.5, 1.0, 2.0]) + 0.25 * rng.integers(0, 3)
                speaker = f"Spk_{f}_{channel}{rng.integers(1, 3) if rng.random() < 0.2 else ''}"
                label = "<O,en,F> " if f % 2 else ""
                stm.append(f"file_{f:03d} {channel} {speaker} {begin:.2f} {at:.2f} {label} {text}")
            ctm += random_words(rng, f"file_{f:03d} {channel}", " ".join(texts), at)
    return "\n".join([';; LABEL "en" "en" "en"', *stm]) + "\n", "\n".join(ctm) + "\n"


def random_text(rng: np.random.Generator) -> str:
    kind = rng.random()
    if kind < 0.1:
        return "IGNORE_TIME_SEGMENT_IN_SCORING" if kind < 0.05 else ""
    return " ".join(rng.choice(SPOKEN, rng.integers(1, 9)))


def random_words(rng: np.random.Generator, side: str, text: str, end_s: float) -> list[str]:
    """Words of a transcript with errors; at least one word."""
    tokens = [token.strip("()*") for token in text.split() if token not in "{}/@" and "IGNORE" not in token]
    words = [rng.choice(WORDS) if rng.random() < 0.2 else token for token in tokens if rng.random() < 0.85]
    words += list(rng.choice(WORDS, rng.integers(0, 4))) or ["A"]
    begins = np.sort(np.round(rng.uniform(0, end_s + 0.3, len(words)), 2))
    durations = np.round(rng.choice([0.1, 0.25, 0.5, 1.0], len(words)), 2)
    confidence = rng.random() < 0.8
    return [
        f"{side} {begin:.2f} {duration:.2f} {word}{' 0.9' * confidence}"
        for begin, duration, word in zip(begins, durations, words)
    ]


def files_with_alternatives(rng: np.random.Generator, num_segments: int) -> tuple[str, str]:
    """(stm, ctm) with many `@` in both: paths whose costs differ only by float32 rounding. The ctm has NIST's
    own alternatives."""
    stm, ctm = [], []
    for k in range(num_segments):
        stm.append(
            f"file A spk_{k % 50} {k}.00 {k + 1}.00 "
            f"{' '.join(rng.choice([*RICH, '(A)'], rng.integers(1, 7)))}"
        )
        for i, token in enumerate(rng.choice(RICH, rng.integers(1, 7))):
            place = f"file A {k + 0.1 * i + 0.1:.2f} 0.10"
            ctm += alternatives_of_ctm(place, token) if "{" in token else [f"{place} {token}"]
    return "\n".join(stm) + "\n", "\n".join(ctm) + "\n"


def alternatives_of_ctm(place: str, token: str) -> list[str]:
    """Lines of `{ A / B }` with the same time for all words."""
    parts = [[f"{place} {word}" for word in part.split()] for part in token.strip("{} ").split("/")]
    marks = ["<ALT_BEGIN>", *["<ALT>"] * (len(parts) - 1), "<ALT_END>"]
    head = " ".join(place.split()[:2])
    return [line for mark, part in zip(marks, [*parts, []]) for line in (f"{head} * * {mark}", *part)]


def files_with_words_at_ends(rng: np.random.Generator, num_segments: int) -> tuple[str, str]:
    """(stm, ctm): one word at the end of each segment. Its middle is at the end, or differs from it only by
    rounding."""
    ends = np.cumsum(rng.integers(60, 100, num_segments)) / 100
    stm, ctm = [], []
    for k, (begin, end) in enumerate(zip([0.0, *ends], ends)):
        word, before_end, duration, shift = (
            ("DON'T", 0.1, 0.4, 0.0),
            ("B", 0.1, 0.2, 0.0),
            ("THREE", 0.017, 0.1, 0.0004),
        )[k % 3]
        stm.append(f"file A spk_{k % 50} {begin:.4f} {end - shift:.4f} A B C D E F")
        ctm.append(f"file A {end - before_end:.3f} {duration:.2f} {word} 0.9")
    return "\n".join(stm) + "\n", "\n".join(ctm) + "\n"


def rows_of_sctk(stm: Path, ctm: Path, glm: Path | None, directory: Path) -> Rows:
    """Counts by csrfilt.sh (with a glm) and sclite -F -D. Lines of stm and ctm must be sorted by file,
    channel and time."""
    environment = os.environ | {"PATH": f"{BIN}:{os.environ['PATH']}", "LC_ALL": "C"}
    files = {"stm": stm, "ctm": ctm}
    if glm:
        for kind, purpose in (("stm", "ref"), ("ctm", "hyp")):
            command = [BIN / "csrfilt.sh", "-i", kind, "-t", purpose, "-dh", glm]
            output = subprocess.run(
                command, input=files[kind].read_bytes(), capture_output=True, check=True, env=environment
            )
            files[kind] = directory / f"filtered.{kind}"
            files[kind].write_bytes(output.stdout)
    words = [
        BIN / "sclite",
        "-r",
        files["stm"],
        "stm",
        "-h",
        files["ctm"],
        "ctm",
        "-F",
        "-D",
        "-o",
        "rsum",
        "stdout",
    ]
    run = subprocess.run(words, capture_output=True, text=True, errors="replace", env=environment)
    rows: Rows = {}
    for line in run.stdout.splitlines():
        cells = line.replace("|", " ").split()
        if line.strip().startswith("|") and len(cells) >= 9 and all(cell.isdigit() for cell in cells[1:9]):
            snt, wrd, correct, sub, dele, ins, _, wrong = map(int, cells[1:9])
            rows[cells[0].lower()] = (snt, wrd, correct, sub, dele, ins, wrong)
    assert "sum" in rows, run.stdout + run.stderr
    return rows


def our_rows(stm: Path, ctm: Path, glm: Path | None) -> Rows:
    from pyasr.data.transcripts.glm import read_glm
    from pyasr.data.transcripts.stm import read_stm
    from pyasr.score.hub5.ctm_elements import read_entries
    from pyasr.score.hub5.scorer import StmScorer

    scorer = StmScorer(read_stm(stm), glm and read_glm(glm))
    score = scorer.score(read_entries(ctm))
    rows = [*score.of_speaker(scorer.utt2spk).items(), ("sum", score.row)]
    return {
        name.lower(): (num, c.num_words, c.correct, c.sub, c.dele, c.ins, wrong)
        for name, (c, num, wrong) in rows
    }


def compare(files: tuple[str, str], directory: Path, with_glm: bool) -> tuple[Rows, Rows]:
    """(rows of sctk, our rows) for the contents of an stm and a ctm."""
    stm, ctm, glm = directory / "ref.stm", directory / "hyp.ctm", directory / "rules.glm"
    for path, content in zip((stm, ctm, glm), (*files, GLM)):
        path.write_text(content)
    used = glm if with_glm else None
    return rows_of_sctk(stm, ctm, used, directory), our_rows(stm, ctm, used)


def main(num: int) -> None:
    different = 0
    with tempfile.TemporaryDirectory() as name:
        for seed in range(num):
            theirs, ours = compare(random_files(np.random.default_rng(seed), 40), Path(name), seed % 4 > 0)
            keys = theirs.keys() | ours.keys()
            wrong = {
                key: (theirs.get(key), ours.get(key)) for key in keys if theirs.get(key) != ours.get(key)
            }
            different += bool(wrong)
            for key, rows in list(wrong.items())[:3]:
                print(f"seed {seed}: {key}: sctk {rows[0]}, ours {rows[1]}")
    print(f"{num} pairs of files, {different} with different numbers")


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))
    main(int(sys.argv[1]))
