"""Pasted features against columns assembled by hand; appended vectors; omitted utterances, and refused
inputs."""

import numpy as np
import pytest
from steps_here import run_here

from pyasr.base.errors import UserError
from pyasr.data.tables.datadir import write_data_dir
from pyasr.feats.cmvn import cmvn_stats
from pyasr.feats.deltas import add_deltas
from pyasr.io.ark import ArkWriter, load_all, read_scp
from pyasr.io.text_tables import read_table, write_table

LENGTHS = {"a-1": 21, "a-2": 30, "b-1": 1, "b-2": 44}


def write_stream(path, dim: int, seed: int, lengths=LENGTHS):
    """A data directory with normally distributed features and their CMVN statistics."""
    rng = np.random.default_rng(seed)
    path.mkdir()
    stats = {}
    with ArkWriter(path / "feats.ark", path / "feats.scp") as writer:
        for utt, num_frames in lengths.items():
            feats = (rng.standard_normal((num_frames, dim)) + seed).astype(np.float32)
            writer.write(utt, feats)
            stats[utt[0]] = stats.get(utt[0], 0) + cmvn_stats(feats)
    with ArkWriter(path / "cmvn.ark", path / "cmvn.scp") as writer:
        for speaker, both in stats.items():
            writer.write(speaker, both)
    write_data_dir(
        path,
        {"utt2spk": {utt: utt[0] for utt in LENGTHS}, "text": {utt: f"words of {utt}" for utt in LENGTHS}},
    )
    return path


def write_vectors(path, entries: dict[str, np.ndarray]):
    with ArkWriter(path.with_suffix(".ark"), path) as writer:
        for key, entry in entries.items():
            writer.write(key, entry.astype(np.float32))
    return path


@pytest.fixture
def streams(tmp_path):
    return write_stream(tmp_path / "left", 3, 1), write_stream(tmp_path / "right", 2, 2)


def paste(tmp_path, *words):
    run_here("paste_feats.py", "--nj", 2, *words)
    return load_all(tmp_path / "out/feats.scp")


def test_columns_equal_those_of_streams(streams, tmp_path):
    found = paste(tmp_path, tmp_path / "out", *streams)
    left, right = (load_all(stream / "feats.scp") for stream in streams)
    assert found.keys() == LENGTHS.keys()
    for utt in LENGTHS:
        np.testing.assert_array_equal(found[utt], np.hstack([left[utt], right[utt]]))
    assert read_table(tmp_path / "out/utt2num_frames") == {utt: str(num) for utt, num in LENGTHS.items()}
    assert read_table(tmp_path / "out/text") == read_table(streams[0] / "text")
    assert not (tmp_path / "out/cmvn.scp").exists()


def test_corrected_transcript_is_copied(streams, tmp_path):
    paste(tmp_path, tmp_path / "out", *streams)
    write_table(streams[0] / "text", dict.fromkeys(LENGTHS, "other words"))
    paste(tmp_path, tmp_path / "out", *streams)
    assert read_table(tmp_path / "out/text") == dict.fromkeys(LENGTHS, "other words")


def test_each_stream_has_its_own_cmvn_and_deltas(streams, tmp_path):
    found = paste(
        tmp_path,
        "--deltas",
        "0 2",
        "--cmvn",
        "none speaker",
        "--norm-vars",
        "false true",
        tmp_path / "out",
        *streams,
    )
    left, right = (load_all(stream / "feats.scp") for stream in streams)
    for speaker in "ab":
        frames = np.concatenate([right[utt] for utt in LENGTHS if utt[0] == speaker]).astype(np.float64)
        for utt in (utt for utt in LENGTHS if utt[0] == speaker):
            normalised = ((right[utt] - frames.mean(0)) / frames.std(0)).astype(np.float32)
            np.testing.assert_allclose(
                found[utt], np.hstack([left[utt], add_deltas(normalised, 2)]), atol=1e-5
            )


def test_speaker_and_utterance_vectors_are_appended_to_every_frame(streams, tmp_path):
    rng = np.random.default_rng(7)
    vectors = {"a": rng.standard_normal(4), "b-1": rng.standard_normal(4), "b": rng.standard_normal(4)}
    scp = write_vectors(tmp_path / "vectors.scp", vectors)
    found = paste(tmp_path, "--vectors", scp, tmp_path / "out", *streams)
    for utt, matrix in found.items():
        vector = vectors.get(
            utt, vectors[utt[0]]
        )  # the vector of an utterance takes precedence over its speaker's
        np.testing.assert_array_equal(matrix[:, 5:], np.tile(vector.astype(np.float32), (LENGTHS[utt], 1)))


@pytest.mark.parametrize("given_by", ["file", "option"])
def test_periodic_vectors_are_appended(streams, tmp_path, given_by):
    rng = np.random.default_rng(8)
    vectors = {
        utt: rng.standard_normal((-(-num // 10), 4)).astype(np.float32) for utt, num in LENGTHS.items()
    }
    vectors["b-2"] = vectors["b-2"][:-1]  # one row is missing: the last one is repeated
    scp = write_vectors(tmp_path / "ivector_online.scp", vectors)
    if given_by == "file":
        (tmp_path / "ivector_period").write_text("10\n")
    period = () if given_by == "file" else ("--vector-period", 10)
    found = paste(tmp_path, "--vectors", scp, *period, tmp_path / "out", *streams)
    for utt, num_frames in LENGTHS.items():
        expected = [vectors[utt][min(t // 10, len(vectors[utt]) - 1)] for t in range(num_frames)]
        np.testing.assert_array_equal(found[utt][:, 5:], expected)


def test_changed_period_recomputes_output(streams, tmp_path):
    vectors = {utt: np.arange(-(-num // 10), dtype=np.float32)[:, None] for utt, num in LENGTHS.items()}
    scp = write_vectors(tmp_path / "ivector_online.scp", vectors)
    for period in (10, 9):
        (tmp_path / "ivector_period").write_text(f"{period}\n")
        found = paste(tmp_path, "--vectors", scp, tmp_path / "out", *streams)
        assert found["a-1"][:, 5].tolist() == [t // period for t in range(21)]


def test_missing_statistics_are_reported_before_any_work(streams, tmp_path):
    (streams[1] / "cmvn.scp").unlink()
    with pytest.raises(
        UserError, match="right/cmvn.scp: no such file; run steps/compute_cmvn.py .*right first"
    ):
        paste(tmp_path, "--cmvn", "none speaker", tmp_path / "out", *streams)
    assert not list(tmp_path.glob("out*"))


def test_lengths_may_differ_within_tolerance(tmp_path, capsys):
    lengths = {"a-1": 22, "a-2": 30, "b-1": 1, "b-2": 47}
    streams = write_stream(tmp_path / "left", 3, 1), write_stream(tmp_path / "right", 2, 2, lengths)
    found = paste(tmp_path, "--length-tolerance", 1, "--max-missing", 0.25, tmp_path / "out", *streams)
    assert {utt: len(matrix) for utt, matrix in found.items()} == {"a-1": 21, "a-2": 30, "b-1": 1}
    assert (
        "1 utterances left out: streams whose numbers of frames differ by more than --length-tolerance 1: b-2"
        in capsys.readouterr().out
    )


def test_utterances_missing_in_a_stream_are_named_up_to_a_limit(streams, tmp_path, capsys):
    table = read_scp(streams[1] / "feats.scp")
    (streams[1] / "feats.scp").write_text(
        "".join(f"{utt} {rx}\n" for utt, rx in table.items() if utt != "a-2")
    )
    with pytest.raises(
        UserError, match=r"1 of 4 utterances have to be left out: 1: no features in .*right/feats.scp \(a-2\)"
    ):
        paste(tmp_path, tmp_path / "out", *streams)
    assert not (tmp_path / "out").exists()
    assert paste(tmp_path, "--max-missing", 0.3, tmp_path / "out", *streams).keys() == {"a-1", "b-1", "b-2"}
    assert "right/feats.scp: a-2" in capsys.readouterr().out


def test_stream_with_varying_columns_is_refused(streams, tmp_path):
    wide = write_stream(tmp_path / "wide", 4, 3)
    write_table(
        streams[1] / "feats.scp",
        read_scp(streams[1] / "feats.scp") | {"b-2": read_scp(wide / "feats.scp")["b-2"]},
    )
    with pytest.raises(
        UserError,
        match="right: b-2 has 4 columns, other utterances have 2; compute the features of .*right again",
    ):
        paste(tmp_path, "--cmvn", "none", tmp_path / "out", *streams)


@pytest.mark.parametrize(
    "words, sentence",
    [
        (
            ("--deltas", "0 2 1"),
            (
                "--deltas: '0 2 1' is not one word of 0, 1, 2, 3, 4 for each of the 2 data directories, or "
                "one for all"
            ),
        ),
        (("--cmvn", "speakers"), "--cmvn: 'speakers' is not one word of none, speaker, utterance, sliding"),
        (("--norm-vars", ""), "--norm-vars: '' is not one word of false, true"),
    ],
)
def test_invalid_stream_options_are_refused(streams, tmp_path, words, sentence):
    with pytest.raises(UserError, match=sentence):
        paste(tmp_path, *words, tmp_path / "out", *streams)


def test_invalid_vectors_are_refused(streams, tmp_path):
    scp = write_vectors(tmp_path / "vectors.scp", {"a": np.ones(2)})
    with pytest.raises(
        UserError, match=r"2 of 4 .*: 2: no vector of it or its speaker in .*vectors.scp \(b-1 b-2\)"
    ):
        paste(tmp_path, "--vectors", scp, tmp_path / "out", *streams)
    (tmp_path / "ivector_period").write_text("ten\n")
    with pytest.raises(
        UserError, match="ivector_period: not one positive whole number; give --vector-period"
    ):
        paste(tmp_path, "--vectors", scp, tmp_path / "out", *streams)
    scp = write_vectors(
        tmp_path / "few.scp", {utt: np.ones((min(2, num), 4)) for utt, num in LENGTHS.items()}
    )
    with pytest.raises(UserError, match=r"fewer vectors in .* than one every 10 frames \(b-2\)"):
        paste(tmp_path, "--vectors", scp, "--vector-period", 10, tmp_path / "out", *streams)


def test_too_many_vectors_for_frames_are_refused(tmp_path, capsys):
    """Then the vectors belong to another period or to longer utterances, and rows would be misaligned. The
    tolerance is that of the streams."""
    streams = write_stream(tmp_path / "left", 3, 1), write_stream(tmp_path / "right", 2, 2)
    rows = {"a-1": 3, "a-2": 4, "b-1": 1, "b-2": 44}  # for 21, 31, 1 and 440 frames
    scp = write_vectors(
        tmp_path / "ivector_online.scp", {utt: np.ones((num, 4)) for utt, num in rows.items()}
    )
    flags = ("--vectors", scp, "--vector-period", 10)
    with pytest.raises(
        UserError,
        match=r"2 of 4 .*more vectors in .*scp than one every 10 frames, which --length-tolerance 0 does",
    ):
        paste(tmp_path, *flags, tmp_path / "out", *streams)
    found = paste(
        tmp_path, *flags, "--length-tolerance", 1, "--max-missing", 0.25, tmp_path / "out", *streams
    )
    assert {utt: len(matrix) for utt, matrix in found.items()} == {"a-1": 21, "a-2": 30, "b-1": 1}
    assert "more vectors in" in capsys.readouterr().out
