"""Parts of data directories, as read by jobs, and as written by utils/split_data_dir.py."""

import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from data_dirs import make_data_dir
from steps_here import run_here
from training_corpora import make_data

from pyasr.base.cli.options import save
from pyasr.base.errors import UserError
from pyasr.data.parts import subsets
from pyasr.data.parts.job_parts import PARTS, part_of, parts_of_jobs, write_parts
from pyasr.data.tables.datadir import DataDir, Segment, split
from pyasr.feats.extraction.extract_dir import (
    TABLES_OF_AUDIO,
    ArchiveOptions,
    AudioOptions,
    ExtractSpec,
    extract_shard,
)
from pyasr.feats.inputs import INPUT_TABLES, FeatureReader, InputOptions
from pyasr.feats.options import OPTIONS_FILE, MfccOptions
from pyasr.io import tables
from pyasr.io.text_tables import write_table


@pytest.fixture
def opened(monkeypatch) -> Counter:
    """Counts how often each file was read as a table."""
    counts, read = Counter(), tables.read_content

    def counted(path):
        counts[str(path)] += 1
        return read(path)

    monkeypatch.setattr(tables, "read_content", counted)
    return counts


@pytest.mark.parametrize("with_segments", [False, True])
@pytest.mark.parametrize("num", [2, 3, 7])
def test_parts_equal_subsets_of_their_utterances(num, with_segments, tmp_path):
    """Speakers and recordings are in several parts; the files are identical."""
    path = make_data_dir(tmp_path / "data", with_segments)
    write_table(path / "spk2gender", {"ann": "f", "bob": "m", "cy": "f"})
    data, lists = DataDir(path), split(path, num)
    for number, utterances in enumerate(lists):
        (tmp_path / f"expected{number}").mkdir()
        (tmp_path / f"part{number}").mkdir()
        subsets.write_subset(data, tmp_path / f"expected{number}", utterances)
    write_parts(
        subsets.all_tables(DataDir(path)), lists, [tmp_path / f"part{number}" for number in range(num)]
    )
    for number in range(num):
        expected, found = (
            {file.name: file.read_bytes() for file in (tmp_path / f"{name}{number}").iterdir()}
            for name in ("expected", "part")
        )
        assert found == expected and "spk2gender" in found


def test_split_reads_each_table_once(opened, tmp_path):
    """For any number of parts."""
    data = make_data_dir(tmp_path / "data", with_segments=True)
    run_here("split_data_dir.py", data, 6, folder="utils")
    counts = {path: num for path, num in opened.items() if Path(path).parent == data}
    assert counts.keys() == {
        str(data / name) for name in ("utt2spk", "text", "segments", "wav.scp", "utt2dur")
    }
    # once for durations, once to be split
    assert {name for name, num in counts.items() if num > 1} <= {str(data / "utt2dur")}


def test_job_reads_its_own_part(opened, tmp_path):
    path, out = make_data_dir(tmp_path / "data", with_segments=True), tmp_path / "out"
    lists = split(path, 3)
    with parts_of_jobs(path, out, lists, ("wav.scp", "segments", "text")):
        opened.clear()
        part = part_of(path, out, 3, 2)
        data = part.directory()
        assert part.utterances == lists[1] == data.utterances and set(data.text) == set(lists[1])
        assert data.segments[lists[1][0]] == DataDir(path).segments[lists[1][0]] and isinstance(
            data.segments[lists[1][0]], Segment
        )
        with pytest.raises(
            UserError, match=f"{path}/segments: no line for {lists[0][0]}; run utils/fix_data_dir.py {path}"
        ):
            data.recording(lists[0][0])
        assert len(data.wav_scp) == len({data.recording(utt) for utt in lists[1]})
        assert data.utt2dur.keys() == DataDir(path).utt2dur.keys()  # not among the tables of the parts
    assert not (out / PARTS).exists() and part_of(path, out, 3, 2).tables == path


def test_stale_parts_are_recomputed(tmp_path):
    path, out = make_data_dir(tmp_path / "data"), tmp_path / "out"
    (out / PARTS / "1").mkdir(parents=True)
    (out / PARTS / "1" / "utterances").write_text("gone\n")
    with parts_of_jobs(path, out, split(path, 2), ("text",)):
        assert "gone" not in part_of(path, out, 2, 1).utterances
    with pytest.raises(RuntimeError), parts_of_jobs(path, out, split(path, 2), ("text",)):
        raise RuntimeError
    assert not (out / PARTS).exists()


def test_extraction_opens_no_table_of_whole_directory(opened, tmp_path):
    path, out = make_data_dir(tmp_path / "data", with_segments=True), tmp_path / "out"
    spec = ExtractSpec(path, out, out, 2, ArchiveOptions(), AudioOptions(allow_upsample=True))
    out.mkdir()
    save(out / OPTIONS_FILE, MfccOptions())
    with parts_of_jobs(path, out, split(path, 2), TABLES_OF_AUDIO):
        opened.clear()
        extract_shard(spec, 1)
    assert not [name for name in opened if Path(name).parent == path]


def test_features_of_part_equal_whole(opened, tmp_path):
    """Matrices and error messages are the same as for the whole directory."""
    path = tmp_path / "data"
    make_data(path, {f"{speaker}-{i}": 20 for speaker in "abc" for i in range(3)}, 4)
    run_here("compute_cmvn.py", path)
    whole, lists, out = FeatureReader(path, InputOptions(deltas=1)), split(path, 2), tmp_path / "out"
    with parts_of_jobs(path, out, lists, INPUT_TABLES):
        opened.clear()
        reader = FeatureReader(path, InputOptions(deltas=1), part=part_of(path, out, 2, 2))
        assert sorted(reader.keys) == lists[1] and all(
            np.array_equal(reader[utt], whole[utt]) for utt in lists[1]
        )
        assert {Path(name).parent for name in opened} == {out / PARTS / "2"}
        with pytest.raises(UserError, match=f"{path}/feats.scp: no features of utterance {lists[0][0]}"):
            reader[lists[0][0]]
        (out / PARTS / "2" / "feats.scp").write_text("")
        without = FeatureReader(path, InputOptions(deltas=1), part=part_of(path, out, 2, 2))
        assert without.keys == [] and without.dim == whole.dim


def test_statistics_of_jobs_equal_single_process(tmp_path):
    """The archives are identical; with more jobs than speakers, and utterances without frames."""
    path, found = tmp_path / "data", []
    make_data(
        path, {f"{speaker}-{i}": 20 * (i > 0 or speaker != "b") for speaker in "abcde" for i in range(3)}, 4
    )
    (path / "utt2num_frames").unlink()
    for flags in ([], ["--nj", 3], ["--nj", 9]):
        shutil.rmtree(path / "cmvn", ignore_errors=True)
        run_here("compute_cmvn.py", *flags, path)
        found.append([(path / name).read_bytes() for name in ("cmvn/cmvn.ark", "cmvn/cmvn.scp", "cmvn.scp")])
        assert {file.name for file in (path / "cmvn").iterdir()} == {
            "cmvn.ark",
            "cmvn.scp",
            "log",
            ".done.json",
        }
    assert found[0] == found[1] == found[2]
    run_here("copy_data_dir.py", path, tmp_path / "other", folder="utils")
    write_table(tmp_path / "other/utt2spk", dict.fromkeys(DataDir(path).utterances[:-1], "a"))
    with pytest.raises(
        UserError, match="other/utt2spk: no line for utterance e-2 of feats.scp; run utils/fix_data_dir.py"
    ):
        run_here("compute_cmvn.py", "--nj", 2, tmp_path / "other")
