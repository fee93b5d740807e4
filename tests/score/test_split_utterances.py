"""Long utterances split by the times of their words: no word is lost, duplicated or moved in time, and the
cuts are optimal."""

import subprocess
import sys
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from data_dirs import write_tone

from pyasr.data.augmentation.perturb import Perturbation, perturbed
from pyasr.data.checks.validation import validate
from pyasr.data.tables.datadir import DataDir, write_data_dir
from pyasr.data.transcripts.ctm import CtmLine, Recordings, read_ctm
from pyasr.score.split_utterances import (
    Cut,
    UtteranceSplitOptions,
    _Channel,
    best_cuts,
    possible_cuts,
    split_utterances,
    timed_words,
)

UTILS = Path(__file__).parents[2] / "utils"


def make_talk(path, seed, num_words=60, with_segments=True):
    """A recording of two long utterances and a short one, and the ctm of all words; {utterance: [(word,
    begin, end)]}."""
    rng, spoken, time_s = np.random.default_rng(seed), {}, 1.0
    for utt, num in (("ann-1", num_words), ("ann-2", 3), ("bob-1", num_words)):
        spoken[utt] = []
        for _ in range(num):
            length_s = round(rng.uniform(0.1, 0.5), 2)
            spoken[utt].append((f"w{rng.integers(5)}", round(time_s, 2), round(time_s + length_s, 2)))
            time_s += length_s + rng.choice([0, 0, 0.1, 0.3, 0.8])
        time_s += 1.0
    path.mkdir()
    write_tone(path / "talk.wav", time_s, 1000)
    edges = {utt: (words[0][1] - 0.5, words[-1][2] + 0.5) for utt, words in spoken.items()}
    write_data_dir(
        path,
        {
            "wav.scp": {"talk": path / "talk.wav"},
            "utt2spk": {utt: utt[:3] for utt in spoken},
            "utt2lang": dict.fromkeys(spoken, "en"),
            "text": {utt: " ".join(w for w, _, _ in words) for utt, words in spoken.items()},
            "segments": {utt: f"talk {begin:.2f} {end:.2f}" for utt, (begin, end) in edges.items()},
        },
    )
    lines = [
        CtmLine("talk", "1", begin, end - begin, word, 1.0)
        for words in spoken.values()
        for word, begin, end in words
    ]
    (path.parent / "ctm").write_text("".join(f"{line}\n" for line in lines))
    return spoken


def split(*arguments):
    return subprocess.run(
        [sys.executable, UTILS / "split_long_utterances.py", *map(str, arguments)],
        capture_output=True,
        text=True,
    )


def test_no_word_is_lost_duplicated_or_moved(tmp_path):
    spoken = make_talk(tmp_path / "data", 0)
    done = split("--max-segment-s", 4, tmp_path / "data", tmp_path / "ctm", tmp_path / "out")
    assert done.returncode == 0 and "have a piece" not in done.stderr + done.stdout, done.stderr
    out, data = DataDir(tmp_path / "out"), DataDir(tmp_path / "data")
    assert (
        validate(out.path) == []
        and out.has("utt2lang")
        and out.utt2spk["ann-2"] == "ann"
        and out.text["ann-2"] == data.text["ann-2"]
    )
    for utt, words in spoken.items():
        pieces = [piece for piece in out.utterances if piece == utt or piece.startswith(f"{utt}-0")]
        assert " ".join(out.text[piece] for piece in pieces) == data.text[utt]
        place, last_end_s = 0, data.segments[utt].begin_s
        for piece in pieces:
            part, num = out.segments[piece], len(out.text[piece].split())
            assert (
                last_end_s - 1e-9 <= part.begin_s <= words[place][1]
                and words[place + num - 1][2] <= part.end_s
            )
            assert part.end_s - part.begin_s <= (4 if len(pieces) > 1 else 99) + 1e-6
            assert out.utt2dur[piece] == pytest.approx(part.end_s - part.begin_s, abs=2e-3)
            place, last_end_s = place + num, part.end_s
        assert (
            out.segments[pieces[0]].begin_s == data.segments[utt].begin_s
            and last_end_s == data.segments[utt].end_s
        )


def test_misrecognised_words_stay_within_a_piece(tmp_path):
    """Substitutions, insertions and deletions: cuts only where both words next to the silence equal the
    transcript."""
    text = list("abcdefghij")
    heard = [
        ("a", 0),
        ("b", 2),
        ("X", 4),
        ("d", 6),
        ("e", 8),
        ("NEW", 9),
        ("f", 10),
        ("h", 14),
        ("i", 16),
        ("j", 18),
    ]
    lines = [CtmLine("r", "1", float(begin), 0.5, word, 1.0) for word, begin in heard]
    timed = timed_words(text, lines)
    assert [text[i] for i, found in enumerate(timed) if found is None] == ["c", "g"]
    cuts = possible_cuts(timed, (0.0, 20.0), UtteranceSplitOptions())
    assert [cut.word for cut in cuts] == [0, 1, 4, 8, 9, 10]
    assert cuts[1] == Cut(1, 0.7, 1.8, 1.5)


def test_silences_shorter_than_padding_are_halved():
    lines = [CtmLine("r", "1", begin, 0.5, word, 1.0) for word, begin in (("a", 0.0), ("b", 0.8))]
    (cut,) = possible_cuts(timed_words(["a", "b"], lines), (0.0, 2.0), UtteranceSplitOptions())[1:-1]
    assert cut.end_s == cut.begin_s == pytest.approx(0.65)


@pytest.mark.parametrize("seed", range(20))
def test_cuts_are_optimal(seed):
    rng = np.random.default_rng(seed)
    times = np.sort(rng.uniform(0, 20, 9))
    inner = [Cut(i, time, time + 0.01, float(rng.integers(1, 4))) for i, time in enumerate(times, 1)]
    cuts, max_s = [Cut(0, 0.0, 0.0, 0.0), *inner, Cut(10, 20.0, 20.0, 0.0)], rng.choice([3.0, 6.0, 30.0])

    def cost(chosen):
        lengths = [right.end_s - left.begin_s for left, right in zip(chosen, chosen[1:])]
        return (
            round(sum(max(length - max_s, 0) for length in lengths), 6),
            len(lengths),
            -sum(cut.silence_s for cut in chosen),
        )

    ways = [[cuts[0], *some, cuts[-1]] for num in range(10) for some in combinations(inner, num)]
    assert cost(best_cuts(cuts, max_s)) == min(map(cost, ways))


def test_recording_as_single_utterance_and_unsplittable_utterance(tmp_path):
    make_talk(tmp_path / "data", 1)
    (tmp_path / "data/segments").unlink()
    write_data_dir(
        tmp_path / "data", {"utt2spk": {"talk": "ann"}, "text": {"talk": "w1 w2"}, "utt2lang": {"talk": "en"}}
    )
    (tmp_path / "ctm").write_text("talk 1 0.5 0.5 w1 1.0\n;; comment\ntalk 1 1.0 0.5 w2\n")
    done = split("--max-segment-s", 5, tmp_path / "data", tmp_path / "ctm", tmp_path / "out")
    assert (
        done.returncode == 0
        and "1 utterances have a piece above --max-segment-s" in done.stdout + done.stderr
    )
    out = DataDir(tmp_path / "out")
    assert (
        validate(out.path) == []
        and out.utterances == ["talk"]
        and (out.path / "segments").read_text() == "talk talk 0 -1\n"
    )


def test_changed_recording_of_same_name_is_split_again(tmp_path):
    make_talk(tmp_path / "data", 0)
    arguments = ("--max-segment-s", 100, tmp_path / "data", tmp_path / "ctm", tmp_path / "out")
    assert split(*arguments).returncode == 0 and "is up to date" in split(*arguments).stdout
    write_tone(tmp_path / "data/talk.wav", 60, 1000)
    assert "1 recordings have changed: talk" in split(*arguments).stdout


@pytest.mark.parametrize("times", ["1.23456 2.34567", "1.23456 -1"])
def test_unsplit_utterances_keep_their_times(tmp_path, times):
    make_talk(tmp_path / "data", 0)
    lines = {**DataDir(tmp_path / "data").table("segments"), "ann-2": f"talk {times}"}
    write_data_dir(tmp_path / "data", {"segments": lines, "utt2dur": dict.fromkeys(lines, "1.11111")})
    done = split("--max-segment-s", 100, tmp_path / "data", tmp_path / "ctm", tmp_path / "out")
    out = DataDir(tmp_path / "out")
    assert (
        done.returncode == 0 and out.table("segments") == lines and out.table("utt2dur")["ann-2"] == "1.11111"
    )


def test_copies_at_other_speeds_are_split(tmp_path):
    """Each piece has its words, and maps to the original utterance."""
    spoken = make_talk(tmp_path / "data", 3)
    write_data_dir(tmp_path / "data", {"reco2file_and_channel": {"talk": "call A"}})
    (tmp_path / "sp").mkdir()
    write_data_dir(tmp_path / "sp", perturbed(DataDir(tmp_path / "data"), Perturbation(speeds="0.9 1.1")))
    data = DataDir(tmp_path / "sp")
    recordings, said = Recordings(data), {}
    for utt in data.utterances:
        file, channel, _ = recordings.locate(utt)
        copy, _, of = utt.rpartition("-ann") if "-ann" in utt else utt.rpartition("-bob")
        speed = float(copy.removeprefix("sp") or 1)
        said[utt] = [
            CtmLine(file, channel, begin / speed, (end - begin) / speed, word, 1.0)
            for word, begin, end in spoken[utt.removeprefix(f"{copy}-")]
        ]
    (tmp_path / "ctm").write_text("".join(f"{line}\n" for lines in said.values() for line in lines))
    done = split("--max-segment-s", 4, data.path, tmp_path / "ctm", tmp_path / "out")
    assert done.returncode == 0 and "have a piece" not in done.stderr + done.stdout, done.stderr
    out = DataDir(tmp_path / "out")
    assert validate(out.path) == [] and len(out.utterances) > 30
    for piece, segment in out.segments.items():
        (of,) = [utt for utt in said if piece == utt or piece.startswith(f"{utt}-0")]
        within = [
            line.word
            for line in said[of]
            if segment.begin_s <= line.begin_s + line.duration_s / 2 < segment.end_s
        ]
        assert (
            out.text[piece].split() == within and out.table("utt2uniq")[piece] == data.table("utt2uniq")[of]
        )


@pytest.mark.parametrize(
    "ctm, sentence",
    [
        (
            "talk 1 0.5 x w1 1.0\n",
            "ctm:1: 'talk 1 0.5 x w1 1.0' is not 'FILE CHANNEL BEGIN DURATION WORD [CONFIDENCE]'; correct it",
        ),
        ("talk 1 0.5 -1 w1 1.0\n", "is not 'FILE CHANNEL"),
        ("talk 1 0.5\n", "is not 'FILE CHANNEL"),
        ("talk 1 nan 1 w\n", "is not 'FILE CHANNEL"),
        ("talk 1 0 1 w 1 2\n", "is not 'FILE CHANNEL"),
        ("tape 1 0.5 0.5 w1\n", "the ctm has no word of any of its recordings"),
        (None, "ctm: no such file or directory"),
    ],
)
def test_invalid_requests_are_refused(tmp_path, ctm, sentence):
    make_talk(tmp_path / "data", 1, 5)
    (tmp_path / "ctm").unlink() if ctm is None else (tmp_path / "ctm").write_text(ctm)
    done = split(tmp_path / "data", tmp_path / "ctm", tmp_path / "out")
    assert (
        done.returncode == 1
        and done.stderr.count("\n") == 1
        and sentence in done.stderr
        and not (tmp_path / "out").exists()
    )


def test_ctm_lines_survive_round_trip(tmp_path):
    make_talk(tmp_path / "data", 2, 5)
    assert "".join(f"{line}\n" for line in read_ctm(tmp_path / "ctm")) == (tmp_path / "ctm").read_text()


def test_words_belong_to_utterance_that_has_their_middle():
    """Sorted by begin, also if words overlap."""
    rng = np.random.default_rng(0)
    lines = [
        CtmLine("talk", "1", begin, length, "w", 1.0)
        for begin, length in zip(rng.uniform(0, 50, 300), rng.uniform(0.1, 3, 300))
    ]
    for begin_s, end_s in rng.uniform(0, 55, (50, 2)):
        expected = [line for line in lines if begin_s <= line.begin_s + line.duration_s / 2 < end_s]
        assert _Channel(lines).within(begin_s, end_s) == sorted(expected, key=lambda line: line.begin_s)


def test_recording_with_many_utterances_is_read_once(tmp_path):
    """Its words are not searched for each of them."""
    read = 0

    class Counted(CtmLine):
        def __getattribute__(self, name):
            nonlocal read
            read += name == "begin_s"
            return object.__getattribute__(self, name)

    names = [f"ann-{number:03d}" for number in range(200)]
    (tmp_path / "data").mkdir()
    write_data_dir(
        tmp_path / "data",
        {
            "utt2spk": dict.fromkeys(names, "ann"),
            "text": dict.fromkeys(names, "a b c d"),
            "segments": {utt: f"talk {20 * i} {20 * i + 19}" for i, utt in enumerate(names)},
        },
    )
    lines = [
        Counted("talk", "1", 20 * i + begin, 1.0, word, 1.0)
        for i in range(200)
        for begin, word in zip((2, 6, 10, 14), "abcd")
    ]
    parts = split_utterances(DataDir(tmp_path / "data"), lines, UtteranceSplitOptions(max_segment_s=8.0))
    assert all(len(parts[utt]) == 3 for utt in names) and read < 20 * len(lines)
