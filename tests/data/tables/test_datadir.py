"""Splitting, subsets, combinations and copies of data directories."""

import os
import subprocess
import sys
from collections import Counter
from itertools import chain
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from data_dirs import make_data_dir
from hypothesis import given, settings
from hypothesis import strategies as st
from steps_here import run_here

from pyasr.base.errors import UserError
from pyasr.data.audio.recordings import cut_utterance, read_recording
from pyasr.data.checks.validation import validate
from pyasr.data.parts import subsets
from pyasr.data.tables.datadir import DataDir, Segment, split, write_data_dir
from pyasr.data.tables.dividing import distributed
from pyasr.io.keys import Keys
from pyasr.io.text_tables import write_table

UTILS = Path(__file__).parents[3] / "utils"


@settings(max_examples=40, deadline=None)
@given(
    lengths=st.lists(st.lists(st.floats(0.1, 10), min_size=1, max_size=30), min_size=1, max_size=8),
    num=st.integers(1, 9),
)
def test_split_is_complete_and_balanced(tmp_path_factory, lengths, num):
    path = tmp_path_factory.mktemp("split")
    durations = {f"s{s}-{u:03d}": d for s, speaker in enumerate(lengths) for u, d in enumerate(speaker)}
    write_data_dir(path, {"utt2spk": {utt: utt.split("-")[0] for utt in durations}, "utt2dur": durations})
    if num > len(durations):
        with pytest.raises(UserError, match="lower --nj"):
            split(path, num)
        return
    parts = split(path, num)
    assert sorted(chain.from_iterable(parts)) == sorted(durations) and all(
        part == sorted(part) and len(part) for part in parts
    )
    assert parts == split(path, num)
    loads = [sum(durations[utt] for utt in part) for part in parts]
    assert max(loads) <= max(1.05 * sum(loads) / num, sum(loads) / num + max(durations.values())) + 1e-6


def test_split_keeps_speakers_whole_if_possible(tmp_path):
    data = make_data_dir(tmp_path / "data")
    assert [{utt[:-4] for utt in part} for part in split(data, 3)] == [{"ann"}, {"bob"}, {"cy"}]
    assert sorted(map(len, split(data, 5))) == [2, 2, 2, 3, 3]


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(
        st.lists(st.sampled_from([0, 0.1, 0.3, 2]), min_size=1, max_size=3), min_size=1, max_size=9
    ),
    num=st.integers(1, 6),
)
def test_pieces_go_to_shortest_then_smallest_then_first_list(lengths, num):
    expected, loads, sizes = [0] * len(lengths), [0.0] * num, [0] * num
    for piece in sorted(range(len(lengths)), key=lambda piece: -sum(lengths[piece])):
        chosen = expected[piece] = min(range(num), key=lambda j: (loads[j], sizes[j], j))
        loads[chosen] += sum(lengths[piece])
        sizes[chosen] += len(lengths[piece])
    firsts = np.cumsum([0, *map(len, lengths[:-1])])
    found, longest = distributed(
        np.array([*map(sum, lengths)], np.float64), np.array([*map(len, lengths)]), firsts, num
    )
    assert found.tolist() == expected and longest == max(loads)


def test_segments_of_a_data_dir(tmp_path):
    data = DataDir(make_data_dir(tmp_path / "data", with_segments=True))
    assert data.segments["bob-001"] == Segment("bob", 0.2, 0.4) and data.recording("bob-001") == "bob"
    for line in (
        "ann-000 ann 0.0",
        "ann-000 ann 2 0",
        "ann-000 ann 2 2",
        "ann-000 ann 3 -0.5",
        "ann-000 ann 3 -2",
        "ann-000 ann -1 2",
    ):
        (data.path / "segments").write_text(f"{line}\n")
        with pytest.raises(
            UserError,
            match=(
                f"segments: '{line}' is not 'UTTERANCE RECORDING BEGIN END' .* or run "
                f"utils/fix_data_dir.py {data.path}"
            ),
        ):
            DataDir(data.path).segments
    (data.path / "segments").write_text("ann-000 ann 2 -1\n")
    assert DataDir(data.path).segments["ann-000"].end_s == -1


@pytest.mark.parametrize("with_segments", [False, True])
def test_subset_is_valid_data(with_segments, tmp_path):
    data = DataDir(make_data_dir(tmp_path / "data", with_segments))
    (tmp_path / "out").mkdir()
    subsets.write_subset(data, tmp_path / "out", ["ann-002", "cy-001"])
    part = DataDir(tmp_path / "out")
    assert validate(part.path) == [] and part.utterances == ["ann-002", "cy-001"]
    assert set(part.wav_scp) == ({"ann", "cy"} if with_segments else {"ann-002", "cy-001"})


@pytest.mark.parametrize(
    "words", [("split_data_dir.py", "DATA", 2), ("subset_data_dir.py", "--shortest", 12, "DATA", "OUT")]
)
def test_missing_segments_line_is_reported(words, tmp_path):
    data = make_data_dir(tmp_path / "data", with_segments=True)
    write_table(
        data / "segments",
        {utt: line for utt, line in DataDir(data).table("segments").items() if utt != "bob-002"},
    )
    words = [{"DATA": data, "OUT": tmp_path / "out"}.get(word, word) for word in words]
    with pytest.raises(
        UserError, match=f"{data}/segments: no line for bob-002; run utils/fix_data_dir.py {data}"
    ):
        run_here(*words, folder="utils")


def test_utterances_without_segments_line_are_dropped(tmp_path):
    data = make_data_dir(tmp_path / "data")
    (data / "segments").write_text("")
    (tmp_path / "out").mkdir()
    subsets.write_subset(DataDir(data), tmp_path / "out", ["bob-002"])
    assert list(DataDir(tmp_path / "out").wav_scp) == ["bob-002"]


def test_selection_options(tmp_path):
    data = DataDir(make_data_dir(tmp_path / "data"))
    write_table(data.path / "utt2dur", dict(data.utt2dur) | {"cy-003": 0.1, "ann-001": 0.05})
    data = DataDir(data.path)
    assert subsets.first(data, 2) == ["ann-000", "ann-001"]
    assert subsets.shortest(data, 2) == ["ann-001", "cy-003"]
    assert subsets.per_speaker(data, 2) == ["ann-000", "ann-002", "bob-000", "bob-002", "cy-000", "cy-002"]
    assert subsets.of_speakers(data, 5) == [*data.spk2utt["ann"], *data.spk2utt["bob"]]
    assert (
        subsets.random_choice(data, 5, seed=1)
        == subsets.random_choice(data, 5, seed=1)
        != subsets.random_choice(data, 5, seed=2)
    )


@pytest.mark.parametrize(
    "way", ["first", "last", "shortest", "random", "speakers", "per-spk", "max-same-text"]
)
@pytest.mark.parametrize("num", [12, 13])
def test_selection_of_more_utterances_than_available(way, num, tmp_path, capsys):
    """Recipes work on smaller corpora; N is an upper limit for the last two options."""
    data = make_data_dir(tmp_path / "data")
    run_here("subset_data_dir.py", f"--{way}", num, data, tmp_path / "part", folder="utils")
    assert DataDir(tmp_path / "part").utterances == DataDir(data).utterances
    output = (
        f"{data}: 12 utterances, fewer than the requested 13; all are selected" in capsys.readouterr().out
    )
    assert output == (num == 13 and way not in ("per-spk", "max-same-text"))


def test_frequent_transcripts_are_limited(tmp_path):
    """The selection does not depend on the order of the table or Python's hashes, but on the seed."""
    data = make_data_dir(tmp_path / "data")
    said = [
        "yeah",
        "uh huh",
        "uh  huh",
        "yeah",
        "yeah",
        "right",
        "yeah",
        "uh huh",
        "no",
        "right",
        "uh huh",
        "yeah",
    ]
    text = dict(zip(DataDir(data).utterances, said))
    chosen = []
    for hash_seed, order in ((1, list(text)), (2, list(text)[::-1])):
        (data / "text").write_text("".join(f"{utt} {text[utt]}\n" for utt in order))
        out, environment = tmp_path / f"out{hash_seed}", os.environ | {"PYTHONHASHSEED": str(hash_seed)}
        subprocess.run(
            [sys.executable, UTILS / "subset_data_dir.py", "--max-same-text", "2", data, out],
            check=True,
            env=environment,
        )
        chosen.append(DataDir(out).utterances)
        assert validate(out) == []
    assert chosen[0] == chosen[1] == subsets.without_repetitions(DataDir(data), 2, seed=0)
    assert Counter(" ".join(text[utt].split()) for utt in chosen[0]) == {
        "yeah": 2,
        "uh huh": 2,
        "right": 2,
        "no": 1,
    }
    assert len({tuple(subsets.without_repetitions(DataDir(data), 2, seed)) for seed in range(10)}) > 5


def transcribed(text: dict[str, str]) -> SimpleNamespace:
    """The part of a data directory that `without_repetitions` reads."""
    return SimpleNamespace(utterances=Keys.of(sorted(text)), table={"text": text}.__getitem__)


def test_repeated_transcripts_are_sampled_from_all_data():
    """All speakers are drawn equally often."""
    utterances = [f"spk{speaker:02}-{n}" for speaker in range(10) for n in range(4)]
    data = transcribed(dict.fromkeys(utterances, "yeah"))
    times = Counter(utt[:5] for seed in range(200) for utt in subsets.without_repetitions(data, 5, seed))
    assert times.total() == 1000 and min(times[speaker] for speaker in times) > 60 and len(times) == 10


def test_sampling_does_not_depend_on_other_transcripts():
    utterances = [f"utt{n:02}" for n in range(20)]
    text = dict.fromkeys(utterances, "yeah")
    drawn = subsets.without_repetitions(transcribed(text), 5)
    assert subsets.without_repetitions(transcribed(text | {"a": "no", "z": "no"}), 5) == ["a", *drawn, "z"]


def test_last_utterances_are_selected(tmp_path):
    """The selection of tail, which Kaldi's script uses."""
    data = make_data_dir(tmp_path / "data")
    assert subsets.last(DataDir(data), 2) == [
        line.split()[0] for line in (data / "utt2spk").read_text().splitlines()[-2:]
    ]


def test_all_but_first_utterances_are_selected(tmp_path):
    data = make_data_dir(tmp_path / "data")
    run_here("subset_data_dir.py", "--all-but-first", 9, data, tmp_path / "rest", folder="utils")
    assert DataDir(tmp_path / "rest").utterances == DataDir(data).utterances[9:]
    with pytest.raises(UserError, match="12 utterances, none after the first 12; give a smaller number"):
        subsets.all_but_first(DataDir(data), 12)


def test_combine_and_copy(tmp_path):
    data = make_data_dir(tmp_path / "data")
    for arguments in (
        ["copy_data_dir.py", "--utt-prefix", "x-", "--spk-prefix", "x-", data, tmp_path / "copy"],
        ["combine_data.py", tmp_path / "both", data, tmp_path / "copy"],
        ["split_data_dir.py", tmp_path / "both", "4"],
        ["subset_data_dir.py", "--per-spk", "1", tmp_path / "both", tmp_path / "few"],
    ):
        subprocess.run(
            [sys.executable, UTILS / arguments[0], *map(str, arguments[1:])], check=True, capture_output=True
        )
    assert len(DataDir(tmp_path / "both").utterances) == 24 and len(DataDir(tmp_path / "few").utterances) == 6
    for name in ("copy", "both", "few", "both/split4/1", "both/split4/4"):
        assert validate(tmp_path / name) == []


def test_copies_of_copies_map_to_first_original(tmp_path):
    """As in Kaldi's copy_data_dir.sh; new names of speakers and recordings do not create new utterances."""
    data = make_data_dir(tmp_path / "data")
    for arguments in (
        ["copy_data_dir.py", "--spk-prefix", "x-", "--reco-prefix", "x-", data, tmp_path / "same"],
        ["copy_data_dir.py", "--utt-prefix", "x-", "--spk-prefix", "x-", data, tmp_path / "once"],
        ["copy_data_dir.py", "--utt-suffix", "-y", tmp_path / "once", tmp_path / "twice"],
        ["combine_data.py", tmp_path / "all", data, tmp_path / "once", tmp_path / "twice"],
    ):
        run_here(*arguments, folder="utils")
    assert not DataDir(tmp_path / "same").has("utt2uniq")
    own = DataDir(data).utterances
    assert DataDir(tmp_path / "all").table("utt2uniq") == {
        name: utt for utt in own for name in (utt, f"x-{utt}", f"x-{utt}-y")
    }


def test_combine_data_with_and_without_segments(tmp_path, capsys):
    """Utterances of both directories keep their audio."""
    sources = [
        DataDir(make_data_dir(tmp_path / "whole")),
        DataDir(make_data_dir(tmp_path / "some", with_segments=True)),
    ]
    run_here(
        "copy_data_dir.py", "--utt-prefix", "ann-x-", sources[1].path, tmp_path / "renamed", folder="utils"
    )
    sources[1] = DataDir(tmp_path / "renamed")
    run_here("combine_data.py", tmp_path / "out", *(data.path for data in sources), folder="utils")
    out, output = DataDir(tmp_path / "out"), capsys.readouterr().out
    assert (
        f"{sources[0].path}: no segments, unlike other directories; its utterances get lines 'UTTERANCE "
        "UTTERANCE 0 -1'"
    ) in output
    assert out.segments["ann-000"] == Segment("ann-000", 0, -1) and out.segments["ann-x-bob-001"] == Segment(
        "bob", 0.2, 0.4
    )
    assert len(out.utterances) == 24 and not [
        p for p in validate(out.path, audio="read") if "begin with their speaker" not in str(p)
    ]
    for data in sources:
        for utt in data.utterances:
            then, now = (cut_utterance(*read_recording(d, d.recording(utt)), d, utt) for d in (data, out))
            assert len(now) and np.array_equal(then, now)


def test_combination_refuses_different_recordings_of_same_name(tmp_path):
    """Recordings with different audio are refused; recordings with the same audio are merged."""
    whole, some = make_data_dir(tmp_path / "whole"), make_data_dir(tmp_path / "some", with_segments=True)
    for name in ("utt2spk", "text", "utt2dur", "segments"):
        table = {f"x-{utt}": value for utt, value in DataDir(some).table(name).items()}
        write_table(
            some / name,
            {
                utt: value.replace("ann", "ann-000") if name == "segments" else value
                for utt, value in table.items()
            },
        )
    wav = DataDir(some).wav_scp
    write_table(
        some / "wav.scp", {"ann-000" if name == "ann" else name: audio for name, audio in wav.items()}
    )
    report = (
        f"{whole}/wav.scp: 'ann-000' is also in another of the directories; rename it with "
        "utils/copy_data_dir.py --utt-prefix"
    )
    with pytest.raises(UserError, match=report):
        run_here("combine_data.py", tmp_path / "out", some, whole, folder="utils")
    write_table(
        some / "wav.scp",
        {name: DataDir(whole).wav_scp.get(name, audio) for name, audio in DataDir(some).wav_scp.items()},
    )
    run_here("combine_data.py", tmp_path / "out", some, whole, folder="utils")
    assert len(DataDir(tmp_path / "out").wav_scp) == 14


def test_combination_refuses_duplicate_utterances(tmp_path):
    data = make_data_dir(tmp_path / "data")
    run = subprocess.run(
        [sys.executable, UTILS / "combine_data.py", tmp_path / "out", data, data],
        capture_output=True,
        text=True,
    )
    assert (
        run.returncode == 1
        and "'ann-000' is also in another of the directories" in run.stderr
        and not (tmp_path / "out").exists()
    )


def test_two_selection_options_are_refused(tmp_path):
    data = make_data_dir(tmp_path / "data")
    run = subprocess.run(
        [
            sys.executable,
            UTILS / "subset_data_dir.py",
            "--first",
            "2",
            "--shortest",
            "3",
            data,
            tmp_path / "out",
        ],
        capture_output=True,
        text=True,
    )
    assert run.returncode == 1 and "2 selection options are given" in run.stderr


@pytest.mark.parametrize(
    "way, chosen", [("--utt-list", ["bob-001", "cy-002"]), ("--spk-list", ["bob", "cy"])]
)
def test_changed_list_recomputes_subset(way, chosen, tmp_path):
    data = make_data_dir(tmp_path / "data")
    for one in chosen:
        (tmp_path / "list").write_text(f"{one}\n")
        run_here("subset_data_dir.py", way, tmp_path / "list", data, tmp_path / "out", folder="utils")
        assert all(utterance.startswith(one) for utterance in DataDir(tmp_path / "out").utterances)


def test_lost_or_stale_features_do_not_change_split(tmp_path):
    """DATA/feats/utt2num_frames has priority over its copy in DATA; feature extraction uses neither."""
    speakers = {f"s{s}-{u}": f"s{s}" for s in range(4) for u in range(6)}
    write_data_dir(tmp_path, {"utt2spk": speakers})
    by_audio = split(tmp_path, 3)
    frames = {utt: 10 + 97 * i % 300 for i, utt in enumerate(speakers)}
    (tmp_path / "feats").mkdir()
    for place in (tmp_path, tmp_path / "feats"):
        write_table(place / "utt2num_frames", {utt: str(num) for utt, num in frames.items()})
    by_features = split(tmp_path, 3)
    assert by_features != by_audio == split(tmp_path, 3, by_features=False)
    (tmp_path / "utt2num_frames").write_text("")
    assert split(tmp_path, 3) == by_features
    (tmp_path / "utt2num_frames").unlink()
    assert split(tmp_path, 3) == by_features
