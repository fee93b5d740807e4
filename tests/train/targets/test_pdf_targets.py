"""Matching of alignments and features, held-out sets, shards."""

import logging
from types import SimpleNamespace

import numpy as np
import pytest
from training_corpora import make_alignments, make_data

from pyasr.base.errors import UserError
from pyasr.feats.inputs import FeatureReader, InputOptions
from pyasr.io.int_vectors import read_int_vectors, write_int_vectors
from pyasr.io.keys import Keys
from pyasr.io.text_tables import read_table, write_table
from pyasr.train.schedules import ScheduleOptions
from pyasr.train.targets.alignment_spool import AlignmentSpool
from pyasr.train.targets.pdf_targets import HeldoutOptions, Targets, choose_heldout, join
from pyasr.train.targets.prepare_targets import TargetOptions, prepare_targets

LENGTHS = {f"{speaker}-{i}": 20 + i for speaker in "abcdefghij" for i in range(10)}


@pytest.fixture
def corpus(tmp_path):
    targets = make_data(tmp_path / "data", LENGTHS, 4)
    make_alignments(tmp_path / "ali", targets)
    (tmp_path / "out").mkdir()
    return tmp_path, targets


def prepare(path, **options):
    prepare_targets(path / "data", path / "ali", path / "out", TargetOptions(**options))
    return Targets.load(path / "out" / "targets.npz")


def change(path, function):
    """Rewrite ali.1.gz with `function(vectors)`."""
    file = path / "ali" / "ali.1.gz"
    write_int_vectors(file, function(read_int_vectors(file)))


def test_pdfs_of_kaldi_alignments(corpus):
    path, truth = corpus
    found = prepare(path)
    assert found.keys == truth.keys and found.num_pdfs == 4
    for key in truth.keys:
        np.testing.assert_array_equal(found.pdfs_of(key), truth.pdfs_of(key))
    np.testing.assert_array_equal(found.counts(), np.bincount(truth.pdfs))


def test_join_is_reported_in_a_table(corpus, caplog):
    path, _ = corpus
    change(
        path,
        lambda ali: {
            ("x-9" if key == "a-0" else key): (v[:-2] if key == "b-2" else v) for key, v in ali.items()
        },
    )
    logging.getLogger("pyasr").propagate = True
    with caplog.at_level(logging.INFO, "pyasr"):
        found = prepare(path, max_missing=0.05)
    assert len(found.keys) == 98 and "a-0" not in found.keys and "b-2" not in found.keys
    for line in (
        "only features:          1 (a-0)",
        "only alignment:         1",
        "length differs by -2: 1 (b-2)",
    ):
        assert line in caplog.text


def test_utterances_without_frames_are_skipped(tmp_path):
    """Even if their alignment has no frames either."""
    lengths = {"a-0": 0, "a-1": 3}
    reader = SimpleNamespace(
        data=tmp_path,
        keys=Keys.of(lengths),
        utterances=list(lengths),
        num_frames=lengths.get,
        has=lengths.__contains__,
    )
    assert join(reader, lengths, 0.5, tmp_path) == ["a-1"]


def lose_features(path, lost):
    """Remove the features of these utterances."""
    table = read_table(path / "data/feats.scp")
    write_table(path / "data/feats.scp", {utt: rx for utt, rx in table.items() if utt not in lost})


def test_utterances_without_features_are_counted(corpus):
    path, _ = corpus
    lose_features(path, [key for key in LENGTHS if key[0] in "cdefghij"])
    with pytest.raises(
        UserError,
        match=r"^\S*data/feats.scp: 80 of 100 utterances of utt2spk have no features \(c-0, c-1, c-2, ...\);",
    ):
        prepare(path)
    assert not (path / "out" / "targets.npz").exists()
    assert len(prepare(path, max_missing=0.8).keys) == 20


def test_utterances_without_features_or_alignment_are_counted_together(corpus):
    path, _ = corpus
    lose_features(path, ["a-0"])
    change(path, lambda ali: {key: v for key, v in ali.items() if key != "b-2"})
    with pytest.raises(
        UserError,
        match=(
            "1 have no features, 1 of 100 utterances have no alignment and 0 an alignment of another length"
        ),
    ):
        prepare(path, max_missing=0.01)
    assert len(prepare(path, max_missing=0.02).keys) == 98


def test_utterances_only_in_alignment_are_not_missing(corpus):
    path, _ = corpus
    lost = [key for key in LENGTHS if key[0] == "a"]
    lose_features(path, lost)
    write_table(path / "data/utt2spk", {utt: utt[0] for utt in LENGTHS if utt not in lost})
    assert len(prepare(path, max_missing=0.0).keys) == 90


def test_alignment_of_other_features_is_refused(corpus):
    path, _ = corpus
    change(path, lambda ali: {key: v[::2] for key, v in ali.items()})
    with pytest.raises(
        UserError,
        match=(
            r"ali does not match .*data: 0 of 100 utterances have no alignment and 50 an alignment of "
            r"another length"
        ),
    ):
        prepare(path)
    assert not (path / "out" / "targets.npz").exists()


def test_alignment_of_other_model_is_refused(corpus):
    path, _ = corpus
    change(path, lambda ali: {key: v + 100 for key, v in ali.items()})
    with pytest.raises(UserError, match=r"contain transition-id 10[1-9], but final.mdl has 1 to 8"):
        prepare(path)


def test_no_training_data_is_an_error(corpus):
    """No utterance in common; and a feature table without a line, which no --max-missing permits."""
    path, _ = corpus
    (path / "data" / "utt2num_frames").unlink()
    for lines in ("", (path / "data" / "feats.scp").read_text().replace("-", "_")):
        (path / "data" / "feats.scp").write_text(lines)
        with pytest.raises(
            UserError, match="ali and .*data have no utterance in common; compute the features"
        ):
            prepare(path, max_missing=1.0)


def test_newbob_schedule_needs_heldout_set(corpus):
    path, _ = corpus
    options = path / "data", path / "ali", path / "out", TargetOptions(heldout_share=0.001)
    prepare_targets(*options)
    with pytest.raises(UserError, match="no utterance is held out.*raise --heldout-share"):
        prepare_targets(*options, needs_heldout=ScheduleOptions(schedule="newbob").uses_heldout)
    assert not ScheduleOptions(schedule="warm-up", num_epochs=16).uses_heldout


def test_missing_alignment_archive_is_named(corpus):
    path, _ = corpus
    (path / "ali" / "ali.2.gz").unlink()
    with pytest.raises(UserError, match="ali.2.gz"):
        prepare(path)


def test_heldout_speakers_are_complete():
    keys, lengths = list(LENGTHS), np.array(list(LENGTHS.values()))
    heldout = choose_heldout(keys, lengths, lambda key: (key, key[0]), HeldoutOptions(0.25, 1))
    speakers = [{key[0] for key, held in zip(keys, heldout) if held == part} for part in (True, False)]
    assert not speakers[0] & speakers[1] and len(speakers[0]) == 2


def test_utterances_are_held_out_if_speakers_are_too_long():
    keys, lengths = list(LENGTHS), np.array(list(LENGTHS.values()))
    heldout = choose_heldout(keys, lengths, lambda key: (key, key[0]), HeldoutOptions(0.03, 1))
    assert 0.015 < lengths[heldout].sum() / lengths.sum() <= 0.03


def test_utterances_of_all_speakers_are_held_out_on_request():
    keys, lengths = list(LENGTHS), np.array(list(LENGTHS.values()))
    heldout = choose_heldout(keys, lengths, lambda key: (key, key[0]), HeldoutOptions(0.25, 1, "utterance"))
    assert 0.23 < lengths[heldout].sum() / lengths.sum() <= 0.25
    assert len({key[0] for key, held in zip(keys, heldout) if held}) > 5


@pytest.mark.parametrize("part", ["", "-0000000-0000100"])
@pytest.mark.parametrize("by", ["speaker", "utterance"])
def test_copies_are_held_out_with_their_original(corpus, by, part):
    """Also parts of utterances whose whole is not in the data; copies precede their originals in alphabetical
    order."""
    path, _ = corpus
    names = {f"x{key}": num for key, num in LENGTHS.items()}
    copies = {f"sp{speed}-{key}{part}": key for speed in ("0.9", "1.1") for key in names}
    originals = {key + part: key for key in names}
    make_data(path / "perturbed", {copy: names[key] for copy, key in (originals | copies).items()}, 4)
    write_table(
        path / "perturbed" / "utt2spk",
        {copy: copy.removesuffix(part).rpartition("-")[0] for copy in originals | copies},
    )
    write_table(path / "perturbed" / "utt2uniq", originals | copies)
    reader = FeatureReader(path / "perturbed", InputOptions(cmvn="none"))
    lengths = np.array([reader.num_frames(key) for key in reader.keys])
    heldout = dict(
        zip(reader.keys, choose_heldout(reader.keys, lengths, reader.original, HeldoutOptions(0.25, 1, by)))
    )
    assert 0 < sum(heldout.values()) < len(heldout) and all(
        heldout[copy] == heldout[key + part] for copy, key in copies.items()
    )
    if by == "speaker":
        speakers = [
            {copy.removesuffix(part).split("-")[-2] for copy in heldout if heldout[copy] == held}
            for held in (True, False)
        ]
        assert not speakers[0] & speakers[1]


def test_shards_are_even_and_complete(corpus):
    targets = prepare(corpus[0], heldout_share=0.2)
    for heldout in (False, True):
        shards = [targets.shard(rank, 3, heldout) for rank in range(3)]
        together = [key for shard in shards for key in shard]
        assert sorted(together) == sorted(
            key for key, held in zip(targets.keys, targets.heldout) if held == heldout
        )
        frames = [sum(LENGTHS[key] for key in shard) for shard in shards]
        assert max(frames) - min(frames) <= 30


def test_more_ranks_than_utterances():
    targets = Targets(["u"], np.array([0, 5]), np.zeros(5, np.int32), np.array([False]), 1)
    assert [targets.shard(rank, 3, False) for rank in range(3)] == [["u"], [], []]


def test_transition_id_zero_is_refused(tmp_path):
    write_alignments(tmp_path, [{"u": [1, 0], "v": [1]}])
    with AlignmentSpool(tmp_path, np.array([-1, 0, 1]), tmp_path / "spool") as spool:
        spool.check(["v"])
        with pytest.raises(UserError, match="transition-id 0"):
            spool.check(["v", "u"])
    assert not (tmp_path / "spool").exists()


def write_alignments(path, archives):
    """An alignment directory without a model, with one job per archive."""
    (path / "num_jobs").write_text(f"{len(archives)}\n")
    for job, vectors in enumerate(archives, 1):
        write_int_vectors(path / f"ali.{job}.gz", vectors)


def test_order_of_archives_may_differ_from_features(tmp_path):
    """Empty alignments and archives are skipped."""
    write_alignments(tmp_path, [{"d": [4, 4], "b": [2, 2, 2], "e": []}, {}, {"c": [3], "a": [1, 5]}])
    with AlignmentSpool(tmp_path, np.arange(6) * 10, tmp_path / "spool") as spool:
        assert dict(spool.lengths.items()) == {"d": 2, "b": 3, "e": 0, "c": 1, "a": 2}
        assert spool.offsets(["a", "b", "d"]).tolist() == [0, 2, 5, 7]
        assert [piece.tolist() for piece in spool.vectors(["a", "b", "c", "d"])] == [
            [10, 50],
            [20, 20, 20],
            [30],
            [40, 40],
        ]
        assert {key: tids.tolist() for key, tids in spool.alignments(["a", "d"]).items()} == {
            "a": [1, 5],
            "d": [4, 4],
        }
