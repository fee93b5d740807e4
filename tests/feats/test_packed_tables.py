"""Feature readers with packed tables give the same features as readers of the whole data directory."""

import numpy as np
import pytest

from pyasr.base.errors import UserError
from pyasr.feats.cmvn import cmvn_stats
from pyasr.feats.inputs import FeatureReader, InputOptions
from pyasr.feats.packed_tables import PackedTables, are_valid
from pyasr.io.ark import ArkWriter
from pyasr.io.text_tables import read_table, write_table

KEYS = [f"{speaker}-{number}" for speaker in "abc" for number in range(4)]


@pytest.fixture
def data(tmp_path):
    """Data of three speakers in two archives. One utterance is a range of a matrix."""
    rng, path = np.random.default_rng(1), tmp_path / "data"
    path.mkdir()
    features = {
        key: rng.standard_normal((20 + number, 3)).astype(np.float32) for number, key in enumerate(KEYS)
    }
    for name, keys in (("one", KEYS[:5]), ("two", KEYS[5:])):
        with ArkWriter(path / f"{name}.ark", path / f"{name}.scp") as writer:
            for key in keys:
                writer.write(key, features[key])
    table = read_table(path / "one.scp") | read_table(path / "two.scp")
    write_table(path / "feats.scp", table | {"b-0": f"{table['b-0']}[2:9]"})
    write_table(path / "utt2spk", {key: key[0] for key in KEYS})
    with ArkWriter(path / "cmvn.ark", path / "cmvn.scp") as writer:
        for speaker in "abc":
            writer.write(speaker, sum(cmvn_stats(features[key]) for key in KEYS if key[0] == speaker))
    return path


def packed(path, data, wanted, options):
    whole = FeatureReader(data, options)
    whole.save_tables(path, KEYS, [whole.num_frames(key) for key in KEYS], options.cmvn)
    rows = np.array([row for row, key in enumerate(KEYS) if key in wanted])
    return whole, FeatureReader(data, options, tables=PackedTables(path, KEYS, rows, KEYS.index))


@pytest.mark.parametrize(
    "options",
    [InputOptions(), InputOptions(cmvn="none"), InputOptions(cmvn="utterance", deltas=1, splice_left=2)],
)
def test_packed_tables_give_features_of_selected_utterances(data, tmp_path, options, monkeypatch):
    """The tables of the data directory are removed."""
    wanted = ["a-1", "b-0", "c-3"]
    whole, some = packed(tmp_path / "tables.npz", data, wanted, options)
    expected = {key: whole[key] for key in wanted}
    for name in ("feats.scp", "utt2spk", *(["cmvn.scp"] if options.cmvn == "speaker" else [])):
        (data / name).unlink()
    assert some.dim == whole.dim
    for key in wanted:
        np.testing.assert_array_equal(some[key], expected[key])
        assert some.num_frames(key) == len(expected[key]) and some.speaker(key) == key[0]
    monkeypatch.setattr("pyasr.feats.inputs._MAX_NORMALISERS", 1)
    for key in wanted:
        np.testing.assert_array_equal(some[key], expected[key])


def test_unselected_utterances_and_speakers_are_refused(data, tmp_path):
    write_table(data / "utt2spk", {key: key[0] for key in KEYS if key != "a-1"})
    write_table(
        data / "cmvn.scp",
        {speaker: place for speaker, place in read_table(data / "cmvn.scp").items() if speaker != "c"},
    )
    write_table(
        data / "feats.scp",
        {key: place for key, place in read_table(data / "feats.scp").items() if key != "b-1"},
    )
    whole = FeatureReader(data, InputOptions())
    whole.save_tables(tmp_path / "tables.npz", KEYS, [20] * len(KEYS), "speaker")
    rows = np.array([row for row, key in enumerate(KEYS) if key != "a-3"])
    some = FeatureReader(
        data, InputOptions(), tables=PackedTables(tmp_path / "tables.npz", KEYS, rows, KEYS.index)
    )
    np.testing.assert_array_equal(some["a-0"], whole["a-0"])
    for key, sentence in (
        ("a-1", "utt2spk: no line for utterance a-1 of feats.scp"),
        ("a-3", "no features of utterance a-3"),
        ("b-1", "no features of utterance b-1"),
        ("c-0", "cmvn.scp: no statistics of speaker c"),
    ):
        with pytest.raises(UserError, match=sentence):
            some[key]
    assert some.has("a-0") and not some.has("b-1")


def test_packed_tables_are_valid_for_one_directory(data, tmp_path, monkeypatch):
    """The directory to which relative archive names refer."""
    packed(tmp_path / "tables.npz", data, KEYS, InputOptions())
    assert are_valid(tmp_path / "tables.npz") and not are_valid(tmp_path / "nothing.npz")
    monkeypatch.chdir(tmp_path)
    assert not are_valid(tmp_path / "tables.npz")
