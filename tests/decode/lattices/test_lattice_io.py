"""Lattice archives: round trips, OpenFst's own reader through kaldifst, an independent text parse, damaged
files."""

from __future__ import annotations

import gzip
import struct
from dataclasses import replace

import numpy as np
import pytest
from graphs import lattice_paths, plain, random_graph, tid2pdf

from pyasr.base.errors import UserError
from pyasr.decode.lattices.compact_lattice import to_compact
from pyasr.decode.lattices.lattice import from_arcs
from pyasr.decode.lattices.lattice_binary import encode
from pyasr.decode.lattices.lattice_io import (
    LatticeWriter,
    read_compact_lattices,
    read_lattices,
    write_lattices,
)
from pyasr.decode.lattices.lattice_text import text_lattice
from pyasr.decode.search.beam_search import Decoder
from pyasr.decode.search.decode_options import DecodeOptions

ARRAYS = (
    "sources",
    "targets",
    "ilabels",
    "olabels",
    "graph_costs",
    "acoustic_costs",
    "final_graph",
    "final_acoustic",
)
COMPACT_ARRAYS = (
    "sources",
    "targets",
    "words",
    "graph_costs",
    "acoustic_costs",
    "string_offsets",
    "tids",
    "final_graph",
    "final_acoustic",
    "final_offsets",
    "final_tids",
)


@pytest.fixture(scope="module")
def lattices():
    rng = np.random.default_rng(3)
    decoder = Decoder(random_graph(rng, 20, 60, 4), tid2pdf(4), DecodeOptions(acoustic_scale=0.1))
    made = {f"utt-{i}": decoder.decode(-30 * rng.random((i * 5, 4))) for i in range(6)}
    return {**made, "empty": from_arcs(-1, [], [], [], [], [], [], [])}


def plain_parse(text: str) -> list[tuple]:
    """(from, to, tid, word, graph, acoustic) of each arc in OpenFst's text form."""
    rows = [line.split() for line in text.splitlines()]
    return [(*map(int, row[:4]), *map(float, row[4].split(","))) for row in rows if len(row) == 5]


@pytest.mark.parametrize(
    "name,binary", [("lat.gz", True), ("lat.ark", True), ("lat.gz", False), ("lat.txt", False)]
)
def test_lattices_survive_round_trip(tmp_path, lattices, name, binary):
    write_lattices(tmp_path / name, lattices.items(), binary)
    found = dict(read_lattices(tmp_path / name))
    assert list(found) == list(lattices)
    for key, lattice in lattices.items():
        for array in ARRAYS:
            assert np.array_equal(getattr(lattice, array), getattr(found[key], array)), (key, array)


def test_writing_is_deterministic(tmp_path, lattices):
    for name in ("a.gz", "b.gz"):
        write_lattices(tmp_path / name, lattices.items())
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()


def test_openfst_reads_our_lattices_and_we_read_its(tmp_path, lattices):
    kaldifst = pytest.importorskip("kaldifst")
    lattice = lattices["utt-5"]
    (tmp_path / "one.fst").write_bytes(encode(lattice))
    peer = kaldifst.Lattice.read(str(tmp_path / "one.fst"))
    assert (peer.num_states, peer.start) == (lattice.num_states, 0)
    arcs = plain_parse(str(peer))
    assert np.allclose(np.array(arcs).T, [getattr(lattice, name) for name in ARRAYS[:6]], rtol=1e-5)
    peer.write(str(tmp_path / "two.fst"))
    (tmp_path / "ark").write_bytes(b"key " + (tmp_path / "two.fst").read_bytes())
    ((key, again),) = read_lattices(tmp_path / "ark")
    assert key == "key" and all(
        np.array_equal(getattr(again, name), getattr(lattice, name)) for name in ARRAYS
    )


def test_text_form_equals_plain_parse(lattices):
    lattice = lattices["utt-2"]
    text = text_lattice(lattice)
    assert np.allclose(
        np.array(plain_parse(text)).T, [getattr(lattice, name) for name in ARRAYS[:6]], rtol=1e-6
    )
    assert text.startswith("0\t")


COMPACT_TEXT = b"""utt 
0 1 7 1.5,20,3_4_4
0 2 8 2,10,5_6
1 2 0.5,0,
1 0.25,1,9
2 0,0,
2 3 9 1,1,
3

"""
COMPACT_PATHS = {
    ((3, 4, 4, 9), (7, 0, 0, 0)): [(1.75, 21.0)],
    ((5, 6), (8, 0)): [(2.0, 10.0)],
    ((5, 6, 0), (8, 0, 9)): [(3.0, 11.0)],
}


def compact_binary() -> bytes:
    """The lattice of COMPACT_TEXT (without its epsilon arc) as Kaldi writes compact lattices."""

    def weight(graph, acoustic, tids):
        return struct.pack(f"<ffi{len(tids)}i", graph, acoustic, len(tids), *tids)

    def arc(word, graph, acoustic, tids, target):
        return struct.pack("<ii", word, word) + weight(graph, acoustic, tids) + struct.pack("<i", target)

    zero = weight(np.inf, np.inf, [])
    states = [
        (zero, [arc(7, 1.5, 20, [3, 4, 4], 1), arc(8, 2, 10, [5, 6], 2)]),
        (weight(0.25, 1, [9]), []),
        (weight(0, 0, []), [arc(9, 1, 1, [], 3)]),
        (weight(0, 0, []), []),
    ]
    body = b"".join(final + struct.pack("<q", len(arcs)) + b"".join(arcs) for final, arcs in states)
    name = b"compactlattice44"
    return (
        struct.pack(f"<ii6si{len(name)}siiQqqq", 2125659606, 6, b"vector", len(name), name, 2, 0, 3, 0, 4, 3)
        + body
    )


def test_compact_lattices_are_read(tmp_path):
    (tmp_path / "text").write_bytes(COMPACT_TEXT.replace(b"1 2 0.5,0,\n", b""))
    (tmp_path / "binary").write_bytes(b"utt " + compact_binary())
    for name in ("text", "binary"):
        ((key, lattice),) = read_lattices(tmp_path / name)
        assert key == "utt" and lattice_paths(lattice) == COMPACT_PATHS


@pytest.mark.parametrize("name,binary", [("lat.gz", True), ("lat.txt", False)])
def test_compact_lattices_survive_round_trip(tmp_path, lattices, name, binary):
    compact = {key: to_compact(lattice) for key, lattice in lattices.items()}
    (tmp_path / "one").write_bytes(b"final-strings " + compact_binary())
    compact |= dict(read_compact_lattices(tmp_path / "one"))
    write_lattices(tmp_path / name, compact.items(), binary)
    found = dict(read_compact_lattices(tmp_path / name))
    assert list(found) == list(compact) and compact["final-strings"].final_string(1).tolist() == [9]
    for key, lattice in compact.items():
        for array in COMPACT_ARRAYS:
            assert np.array_equal(getattr(lattice, array), getattr(found[key], array)), (key, array)


def test_compact_bytes_equal_documented_format(tmp_path):
    (tmp_path / "one").write_bytes(b"utt " + compact_binary())
    ((_, lattice),) = read_compact_lattices(tmp_path / "one")
    assert encode(lattice) == compact_binary()


def test_mixed_archive_is_read_as_either_kind(tmp_path, lattices):
    raw = lattices["utt-1"]
    write_lattices(tmp_path / "ark", [("raw", raw), ("compact", to_compact(raw))])
    one, other = read_lattices(tmp_path / "ark")
    assert plain(lattice_paths(one[1])) == plain(lattice_paths(other[1]))
    one, other = read_compact_lattices(tmp_path / "ark")
    assert all(np.array_equal(getattr(one[1], array), getattr(other[1], array)) for array in COMPACT_ARRAYS)


def test_every_truncation_error_names_the_file(tmp_path, lattices):
    whole = b"utt " + encode(lattices["utt-1"])
    for size in range(1, len(whole), 7):
        (tmp_path / "cut.ark").write_bytes(whole[:size])
        with pytest.raises(UserError, match=r"cut\.ark: .* at byte \d+"):
            list(read_lattices(tmp_path / "cut.ark"))


def test_random_damage_gives_error_or_lattice(tmp_path):
    rng = np.random.default_rng(0)
    for whole in (b"utt " + compact_binary(), COMPACT_TEXT):
        for _ in range(300):
            damaged = bytearray(whole)
            damaged[rng.integers(len(whole))] = rng.integers(256)
            (tmp_path / "bad").write_bytes(bytes(damaged))
            try:
                list(read_lattices(tmp_path / "bad"))
            except UserError as error:
                assert str(tmp_path) in str(error)


def test_files_of_other_formats_are_refused(tmp_path, lattices):
    write_lattices(tmp_path / "lat.gz", lattices.items())
    (tmp_path / "short.gz").write_bytes((tmp_path / "lat.gz").read_bytes()[:-20])
    (tmp_path / "text").write_text("this is no lattice\n")
    (tmp_path / "line").write_text("utt \n0 1 2 x y\n\n")
    (tmp_path / "zip.gz").write_bytes(
        gzip.compress(b"utt " + struct.pack("<ii5si8s", 2125659606, 5, b"const", 8, b"standard") + bytes(40))
    )
    for name, message in (
        ("short.gz", "damaged or truncated gzip"),
        ("text", "not a lattice archive"),
        ("line", "not a line of a lattice"),
        ("zip.gz", "type 'const' with 'standard' arcs"),
        ("none", "no such file"),
    ):
        with pytest.raises(UserError, match=message):
            list(read_lattices(tmp_path / name))


def test_failed_writing_leaves_no_file(tmp_path, lattices):
    with pytest.raises(RuntimeError), LatticeWriter(tmp_path / "lat.gz") as writer:
        writer.write("utt", lattices["utt-1"])
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "line, message",
    [
        ("0 4000000 1 2 1,1", "a lattice of 2 lines has no state 4000000"),
        ("0 1 99999999999 2 1,1", "is not a line of a lattice"),
        ("0 1 1 2 nan,1", "is not a line of a lattice"),
        ("0 1 -3 2 1,1", "is not a line of a lattice"),
        ("0 1 2 1,1,3_-4", "is not a line of a lattice"),
    ],
)
def test_invalid_text_lines_are_refused(line, message, tmp_path):
    (tmp_path / "lat.txt").write_text(f"utt \n{line}\n1\n\n")
    with pytest.raises(UserError, match=f"lat.txt.*{message}"):
        list(read_lattices(tmp_path / "lat.txt"))


@pytest.mark.parametrize(
    "field, value, message",
    [
        ("ilabels", -1, "a negative label"),
        ("olabels", -7, "a negative label"),
        ("graph_costs", np.nan, "a cost that is not a number"),
    ],
)
def test_invalid_binary_values_are_refused(field, value, message, tmp_path, lattices):
    lattice = lattices["utt-2"]
    column = getattr(lattice, field).copy()
    column[1] = value
    write_lattices(tmp_path / "lat.ark", [("utt", replace(lattice, **{field: column}))])
    with pytest.raises(UserError, match=f"lat.ark: damaged archive: the lattice of utt has {message}"):
        list(read_lattices(tmp_path / "lat.ark"))
