"""Archives of transducers against Kaldi's transcripts-to-fsts, and damaged files."""

import kaldi_binaries
import numpy as np
import pytest
from test_openfst import random_fst

from pyasr.base.errors import UserError
from pyasr.io.fst_archive import read_fsts, write_fsts
from pyasr.io.openfst import Fst, write_fst

FSTS = {f"utt-{'x' * i}{i}": random_fst(i, 20, 60) for i in range(5)} | {
    "none": Fst.from_arcs(0, -1, [], [], [], [], [])
}


@pytest.mark.parametrize("name", ["fsts.ark", "fsts.1.gz"])
@pytest.mark.parametrize("binary", [True, False])
def test_archives_survive_round_trip(tmp_path, name, binary):
    write_fsts(tmp_path / name, FSTS, binary)
    found = read_fsts(tmp_path / name)
    assert list(found) == list(FSTS)
    for key, fst in FSTS.items():
        same = [
            np.array_equal(vars(fst)[field], vars(found[key])[field])
            for field in ("ilabels", "olabels", "weights", "nextstates", "finals")
        ]
        assert found[key].text() == fst.text() and (all(same) or not binary)


@kaldi_binaries.needed
@pytest.mark.parametrize("options", ["ark", "ark,t"])
def test_kaldi_archives_are_read(tmp_path, options):
    (tmp_path / "text").write_text("utt-1 3 4 5\nütt-22 7\n")
    kaldi_binaries.run("transcripts-to-fsts", f"ark:{tmp_path}/text", f"{options}:{tmp_path}/theirs")
    found = read_fsts(tmp_path / "theirs")
    assert {key: fst.ilabels.tolist() for key, fst in found.items()} == {"utt-1": [3, 4, 5], "ütt-22": [7]}
    assert found["utt-1"].text() == "0\t1\t3\t3\t0\n1\t2\t4\t4\t0\n2\t3\t5\t5\t0\n3\t0\n"


def test_every_truncation_error_names_the_byte(tmp_path):
    for binary in (True, False):
        write_fsts(tmp_path / "whole", {"utt-1": random_fst(0, 8, 9)}, binary)
        whole = (tmp_path / "whole").read_bytes()
        for size in range(1, len(whole)):
            (tmp_path / "cut").write_bytes(whole[:size])
            with pytest.raises(UserError, match=r"cut: .*byte \d+"):
                read_fsts(tmp_path / "cut")


@pytest.mark.parametrize("line", ["0 1 2", "0 1 x 2", "0 1 2 3 nan", "0 -1 2 3", "-1", "0 1 2 3 4 5"])
def test_invalid_lines_are_named_by_byte(tmp_path, line):
    (tmp_path / "fsts").write_text(f"a \n0 1 1 1\n{line}\n\n")
    with pytest.raises(UserError, match="fsts: not an archive of transducers: .* at byte 11;"):
        read_fsts(tmp_path / "fsts")


def test_other_transducer_types_are_refused_by_name(tmp_path):
    write_fst(tmp_path / "one", random_fst(0, 8, 9))
    content = b"a " + (tmp_path / "one").read_bytes()
    for kind, place in ((b"vector", "vectar"), (b"standard", "standerd")):
        (tmp_path / "fsts").write_bytes(content.replace(kind, place.encode()))
        with pytest.raises(UserError, match=f"at byte 2 an FST of type .*{place}"):
            read_fsts(tmp_path / "fsts")
