import gzip
import struct

import kaldi_binaries
import numpy as np
import pytest

from pyasr.base.errors import UserError
from pyasr.io.openfst import Fst, read_fst, write_fst


def random_fst(seed=0, num_states=200, num_arcs=900):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 9, (2, num_arcs))
    return Fst.from_arcs(
        num_states,
        3,
        rng.integers(0, num_states, num_arcs),
        *labels,
        rng.normal(size=num_arcs),
        rng.integers(0, num_states, num_arcs),
        {5: 1.5, 7: 0.0},
    )


@pytest.mark.parametrize("kind", ["vector", "const"])
def test_written_files_are_read_bit_for_bit(tmp_path, kind):
    fst = random_fst()
    write_fst(tmp_path / "a.fst", fst, kind)
    again = read_fst(tmp_path / "a.fst")
    assert all(np.array_equal(vars(fst)[name], vars(again)[name]) for name in vars(fst))
    assert all(vars(fst)[name].dtype == vars(again)[name].dtype for name in vars(fst) if name != "start")


def test_gzipped_file_is_read(tmp_path):
    fst = random_fst()
    write_fst(tmp_path / "a.fst", fst, "vector")
    (tmp_path / "a.fst").write_bytes(gzip.compress((tmp_path / "a.fst").read_bytes()))
    again = read_fst(tmp_path / "a.fst")
    assert all(np.array_equal(vars(fst)[name], vars(again)[name]) for name in vars(fst))


def test_empty_fst_is_read(tmp_path):
    for kind in ("vector", "const"):
        write_fst(tmp_path / "a.fst", Fst.from_arcs(0, -1, [], [], [], [], []), kind)
        assert read_fst(tmp_path / "a.fst").num_states == 0


def test_files_are_exchanged_with_kaldifst(tmp_path):
    kaldifst = pytest.importorskip("kaldifst")
    fst = random_fst()
    write_fst(tmp_path / "a.fst", fst)
    native = kaldifst.StdVectorFst.read(str(tmp_path / "a.fst"))
    arcs = [
        (s, a.ilabel, a.olabel, a.weight.value, a.nextstate)
        for s in kaldifst.StateIterator(native)
        for a in kaldifst.ArcIterator(native, s)
    ]
    expected = zip(
        *(array.tolist() for array in (fst.sources, fst.ilabels, fst.olabels, fst.weights, fst.nextstates))
    )
    assert arcs == list(expected)
    native.write(str(tmp_path / "b.fst"))
    assert read_fst(tmp_path / "b.fst").text() == fst.text()


def test_embedded_symbol_tables_are_skipped(tmp_path):
    kaldifst = pytest.importorskip("kaldifst")
    native = kaldifst.compile("0 1 2 3 0.5\n1 0.25\n")
    for add in ("input_symbols", "output_symbols"):
        table = kaldifst.SymbolTable()
        for symbol in ("<eps>", "a", "b", "wörd"):
            table.add_symbol(symbol)
        setattr(native, add, table)
    native.write(str(tmp_path / "a.fst"))
    assert b"rd" in (tmp_path / "a.fst").read_bytes()
    assert read_fst(tmp_path / "a.fst").text() == "0\t1\t2\t3\t0.5\n1\t0.25\n"


@kaldi_binaries.needed
def test_openfst_converts_our_const_files(tmp_path):
    fst = random_fst()
    write_fst(tmp_path / "const.fst", fst, "const")
    kaldi_binaries.run("fstconvert", "--fst_type=vector", tmp_path / "const.fst", tmp_path / "vector.fst")
    kaldi_binaries.run("fstconvert", "--fst_type=const", tmp_path / "vector.fst", tmp_path / "again.fst")
    assert read_fst(tmp_path / "vector.fst").text() == fst.text() == read_fst(tmp_path / "again.fst").text()


def test_unordered_arcs_can_be_sorted():
    fst = Fst.from_arcs(2, 0, [1, 0, 0], [5, 4, 3], [7, 8, 9], [0, 1, 2], [0, 1, 1], {1: 0.0})
    assert fst.ilabels.tolist() == [4, 3, 5] and fst.sources.tolist() == [0, 0, 1]
    assert fst.arcsort("ilabel").ilabels.tolist() == [3, 4, 5] and fst.arcsort("olabel").olabels.tolist() == [
        8,
        9,
        7,
    ]


@pytest.mark.parametrize("kind", ["vector", "const"])
def test_every_truncation_gives_one_sentence(tmp_path, kind):
    write_fst(tmp_path / "a.fst", random_fst(num_states=8, num_arcs=20), kind)
    data = (tmp_path / "a.fst").read_bytes()
    for size in range(len(data)):
        (tmp_path / "b.fst").write_bytes(data[:size])
        with pytest.raises(UserError, match=r"b\.fst: .*byte \d+"):
            read_fst(tmp_path / "b.fst")


def header(kind=b"vector", arc_type=b"standard", num_states=1, num_arcs=0, start=0):
    return struct.pack(
        f"<ii{len(kind)}si{len(arc_type)}siiQqqq",
        2125659606,
        len(kind),
        kind,
        len(arc_type),
        arc_type,
        2,
        0,
        3,
        start,
        num_states,
        num_arcs,
    )


@pytest.mark.parametrize(
    "data, complaint",
    [
        (b"not a transducer at all", "not an OpenFst binary file"),
        (header(arc_type=b"log"), "'log' arcs"),
        (header(kind=b"compact"), "type 'compact'"),
        (header(num_states=1 << 40), "1099511627776 states announced"),
        (header() + struct.pack("<fq", 0.0, 1 << 50), "state 0 extend beyond the end"),
        (header() + struct.pack("<fq", 0.0, -1), "state 0 extend beyond the end"),
        (header() + struct.pack("<fqiifi", 0.0, 1, 1, 1, 0.0, 7), "beyond its 1 states"),
        (header(start=4) + struct.pack("<fq", 0.0, 0), "beyond its 1 states"),
        (header() + struct.pack("<fq", float("nan"), 0), "not a number"),
        (
            header(kind=b"const", num_arcs=1) + struct.pack("<fIIIIiifi", 0.0, 9, 1, 0, 0, 1, 1, 0.0, 0),
            "do not add up",
        ),
    ],
)
def test_damaged_files_are_refused(tmp_path, data, complaint):
    (tmp_path / "a.fst").write_bytes(data)
    with pytest.raises(UserError, match=complaint):
        read_fst(tmp_path / "a.fst")


def test_missing_file_is_refused(tmp_path):
    with pytest.raises(UserError, match="none.fst: no such file"):
        read_fst(tmp_path / "none.fst")


def test_negative_labels_are_refused(tmp_path):
    """Loops without bounds checks use labels as indices."""
    for labels in (([-5], [1]), ([1], [-5])):
        write_fst(tmp_path / "a.fst", Fst.from_arcs(2, 0, [0], *labels, [0.5], [1], {1: 0.0}))
        with pytest.raises(UserError, match="a.fst: damaged FST: a label below 0"):
            read_fst(tmp_path / "a.fst")
