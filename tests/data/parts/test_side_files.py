"""Copies of stm, ctm, glm, stm_subsets and frame_shift when data directories are copied, divided, changed and
combined."""

import pytest
from data_dirs import make_data_dir
from steps_here import run_here

from pyasr.data.parts.side_files import carry
from pyasr.data.tables.datadir import DataDir

GLM, SHIFT = b"[ONE] => ONE / [ ] __ [ ] \xe9\n", b"0.01\n"
ALWAYS = {"glm": GLM, "stm_subsets": b"swbd ^sw_\n"}
FILES = {"stm": "{} 1 spk 0.0 0.5 <o,f0> word\n", "ctm": "{} 1 0.10 0.20 word 1.0\n"}


def of(name: str, *files: str) -> bytes:
    return (";; a comment\n" + "".join(FILES[name].format(file) for file in files)).encode()


@pytest.fixture
def data(tmp_path):
    """A data directory of three recordings with four segments each."""
    path = make_data_dir(tmp_path / "data", with_segments=True)
    for name in FILES:
        (path / name).write_bytes(of(name, "ann", "bob", "cy", "unused"))
    for name, content in ALWAYS.items():
        (path / name).write_bytes(content)
    (path / "frame_shift").write_bytes(SHIFT)
    return path


def kept(path) -> dict[str, bytes]:
    return {
        name: (path / name).read_bytes()
        for name in (*FILES, *ALWAYS, "frame_shift")
        if (path / name).exists()
    }


def left(message: str) -> list[str]:
    (line,) = [line for line in message.splitlines() if "not copied: " in line] or ["not copied: ;"]
    return [
        name.rpartition("/")[2] for name in line.partition("not copied: ")[2].partition(";")[0].split(", ")
    ]


def test_copy_has_all_side_files(data, tmp_path, capsys):
    run_here(
        "copy_data_dir.py", "--utt-prefix", "x-", "--spk-prefix", "x-", data, tmp_path / "out", folder="utils"
    )
    assert (
        kept(tmp_path / "out") == kept(data)
        and len(kept(data)) == 5
        and left(capsys.readouterr().out) == [""]
    )


def test_byte_order_marks_are_dropped_without_losing_lines(data, tmp_path, capsys):
    """For complete copies and for parts, whose lines are selected by file."""
    for name in FILES:
        (data / name).write_bytes(b"\xef\xbb\xbf" + of(name, "ann", "bob").partition(b"\n")[2])
    (data / "glm").write_bytes(b"\xef\xbb\xbf" + GLM)
    (tmp_path / "list").write_text("".join(f"ann-00{n}\n" for n in range(4)))
    run_here("copy_data_dir.py", data, tmp_path / "copy", folder="utils")
    run_here("subset_data_dir.py", "--utt-list", tmp_path / "list", data, tmp_path / "part", folder="utils")
    for name, line in FILES.items():
        assert kept(tmp_path / "copy")[name].decode() == line.format("ann") + line.format("bob")
        assert kept(tmp_path / "part")[name].decode() == line.format("ann")
    assert kept(tmp_path / "copy")["glm"] == GLM and left(capsys.readouterr().out) == [""]


def test_copy_without_features_has_no_frame_shift(data, tmp_path):
    run_here("copy_data_dir.py", "--features", "false", data, tmp_path / "out", folder="utils")
    assert kept(tmp_path / "out").keys() == {"stm", "ctm", *ALWAYS}


def test_renamed_recordings_lose_stm_and_ctm(data, tmp_path, capsys):
    run_here("copy_data_dir.py", "--reco-prefix", "x-", data, tmp_path / "out", folder="utils")
    assert kept(tmp_path / "out") == ALWAYS | {"frame_shift": SHIFT} and left(capsys.readouterr().out) == [
        "stm",
        "ctm",
    ]


def test_channel_recordings_keep_file_names_in_stm(data, tmp_path):
    """The files to which stm and ctm refer keep their names."""
    (data / "reco2file_and_channel").write_text("ann tape A\nbob tape B\ncy other 1\n")
    (data / "stm").write_bytes(of("stm", "tape", "other"))
    run_here("copy_data_dir.py", "--reco-prefix", "x-", data, tmp_path / "copy", folder="utils")
    assert kept(tmp_path / "copy")["stm"] == of("stm", "tape", "other")
    (tmp_path / "speakers").write_text("cy\n")
    run_here(
        "subset_data_dir.py", "--spk-list", tmp_path / "speakers", data, tmp_path / "part", folder="utils"
    )
    assert kept(tmp_path / "part") == {"stm": of("stm", "other"), "frame_shift": SHIFT} | ALWAYS


def test_part_has_lines_of_its_recordings(data, tmp_path, capsys):
    run_here("subset_data_dir.py", "--first", "8", data, tmp_path / "whole", folder="utils")
    assert kept(tmp_path / "whole") == {name: of(name, "ann", "bob") for name in FILES} | ALWAYS | {
        "frame_shift": SHIFT
    }
    assert left(capsys.readouterr().out) == [""]
    run_here("subset_data_dir.py", "--first", "7", data, tmp_path / "some", folder="utils")
    assert kept(tmp_path / "some") == ALWAYS | {"frame_shift": SHIFT} and left(capsys.readouterr().out) == [
        "stm",
        "ctm",
    ]


@pytest.mark.parametrize("speeds, stays", [("", ["stm", "ctm", *ALWAYS]), ("0.9", list(ALWAYS))])
def test_speed_perturbation_drops_stm_and_ctm(speeds, stays, data, tmp_path, capsys):
    run_here(
        "perturb_data_dir.py",
        "--speeds",
        speeds,
        "--perturb-volume",
        "true",
        data,
        tmp_path / "out",
        folder="utils",
    )
    assert kept(tmp_path / "out") == {name: kept(data)[name] for name in stays}
    assert left(capsys.readouterr().out) == (["stm", "ctm"] if speeds else [""])


def test_segmentation_keeps_lines_of_recordings(data, tmp_path):
    """As in utils/segment_data_dir.py: times are relative to recordings."""
    out = make_data_dir(tmp_path / "out", with_segments=True)
    (out / "segments").write_text(
        "".join(f"{utt} {utt[:-4]} 0.0 1.0\n" for utt in DataDir(out).utterances[::2])
    )
    (out / "utt2spk").write_text("".join(f"{utt} {utt[:-4]}\n" for utt in DataDir(out).utterances[::2]))
    carry(DataDir(data), out)
    assert kept(out) == kept(data)


def test_combination_has_no_side_files(data, tmp_path, capsys):
    run_here(
        "copy_data_dir.py",
        "--utt-prefix",
        "x-",
        "--reco-prefix",
        "x-",
        data,
        tmp_path / "copy",
        folder="utils",
    )
    capsys.readouterr()
    run_here("combine_data.py", tmp_path / "out", data, tmp_path / "copy", folder="utils")
    assert kept(tmp_path / "out") == {}
    assert left(capsys.readouterr().out) == ["stm", "ctm", *ALWAYS, "frame_shift", *ALWAYS, "frame_shift"]


def test_changed_side_file_is_copied_again(data, tmp_path):
    for content in (of("stm", "ann"), of("stm", "bob")):
        (data / "stm").write_bytes(content)
        run_here("copy_data_dir.py", data, tmp_path / "out", folder="utils")
        assert kept(tmp_path / "out")["stm"] == content
