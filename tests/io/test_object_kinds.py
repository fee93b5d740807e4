"""Messages name the kind of objects found in an archive of another kind."""

import gzip
import io
import struct

import numpy as np
import pytest
import soundfile

from pyasr.base.errors import UserError
from pyasr.data.audio.audio_reading import read_audio
from pyasr.decode.lattices.lattice_io import read_either
from pyasr.feats.transforms import read_matrix
from pyasr.io.ark import load_matrix, read_ark, read_scp
from pyasr.io.fst_archive import read_fsts
from pyasr.io.int_vectors import read_int_vectors
from pyasr.io.object_kinds import kind_of
from pyasr.io.posteriors import read_posteriors

MATRIX = np.arange(12, dtype=np.float32).reshape(4, 3)


def sized(*numbers) -> bytes:
    return b"".join(
        b"\4" + struct.pack("<f" if isinstance(number, float) else "<i", number) for number in numbers
    )


def wav() -> bytes:
    file = io.BytesIO()
    soundfile.write(file, np.zeros(400), 8000, format="WAV")
    return file.getvalue()


BINARY = {
    "an nnet3 example": b"\0B<Nnet3Eg> <NumIo> " + sized(2) + b"<NnetIo> input ",
    "an nnet3 chain example": b"\0B<Nnet3ChainEg> <NumInputs> " + sized(1),
    "an nnet3 discriminative example": b"\0B<Nnet3DiscriminativeEg> <NumInputs> " + sized(1),
    "a transition model": b"\0B<TransitionModel> <Topology> ",
    "an object that begins with <IvectorExtractor>": b"\0B<IvectorExtractor> <w> ",
    "an nnet1 network": b"\0B<Nnet> <AffineTransform> ",
    "an nnet3 network": b"\0B<Nnet3> ",
    "a decision tree": b"\0BContextDependency " + sized(3, 1),
    "a sparse matrix": b"\0BSM " + sized(1) + b"SV " + sized(4, 1, 2, 1.0),
    "a sparse vector": b"\0BSV " + sized(4, 1, 2, 1.0),
    "a packed matrix": b"\0BFP " + sized(1, 1.0),
    "a WAV file": wav(),
    "a vector of integers": b"\0B" + sized(3, 7, 8, 9),
    "a list of posteriors or of integers": b"\0B" + sized(2, 1, 7, 1.0, 1, 8, 1.0),
    "a number": b"\0B" + sized(300),
    "a lattice or another transducer": struct.pack("<i", 2125659606) + b"\6\0\0\0vector",
    "a numpy file": b"\x93NUMPY\1\0",
}
TEXT = {
    "a vector of integers": b"3 4 5\n",
    "a list of posteriors or of integers": b"[ 1 0.5 2 0.5 ] [ 3 1 ] \n",
    "a list of lists of integers": b"1 2 ; 3 4 ;\n",
    "a lattice or another transducer": b"\n0 1 2 3 1.5\n1\n\n",
    "a sparse matrix": b" rows=1 dim=4 [ 2 1 ]\n",
    "text": b"so it is\n",
}


def archive(path, *objects: bytes, packed: bool = False):
    content = b"".join(b"utt%d " % number + one for number, one in enumerate(objects))
    path.write_bytes(gzip.compress(content) if packed else content)
    return path


@pytest.mark.parametrize("objects", [BINARY, TEXT], ids=["binary", "text"])
def test_objects_in_place_of_matrix_are_named(objects, tmp_path):
    for kind, content in objects.items():
        path = archive(tmp_path / "a.ark", content, content)
        for read in (lambda: load_matrix(f"{path}:5"), lambda: read_ark(path)):
            with pytest.raises(UserError, match=f"^{path}:.*: found {kind}, expected a matrix"):
                read()


def test_vectors_in_place_of_matrices_are_named(tmp_path):
    path = archive(tmp_path / "a.ark", b"\0BFV " + sized(2)[:5] + bytes(8))
    with pytest.raises(UserError, match="a.ark:5: found a vector, expected a matrix; give an archive"):
        load_matrix(f"{path}:5")
    assert read_ark(path)["utt0"].shape == (2,)
    (tmp_path / "b.ark").write_bytes(b"utt  [ 1 2 ]\n")
    with pytest.raises(UserError, match="b.ark:4: found a vector, expected a matrix"):
        load_matrix(f"{tmp_path}/b.ark:4")


def test_integers_in_place_of_matrix_are_named(tmp_path):
    path = archive(tmp_path / "a.ark", b"\0B" + sized(2, 1, 2))
    with pytest.raises(
        UserError,
        match=f"^{path}:5: found a list of integers, expected a matrix; give an archive of matrices$",
    ):
        load_matrix(f"{path}:5")


def test_offset_before_key_is_corrected_in_message(tmp_path):
    path = archive(tmp_path / "a.ark", b"\0BFM " + sized(4, 3) + MATRIX.tobytes())
    for rx in (f"{path}", f"{path}:0"):
        with pytest.raises(
            UserError,
            match=(
                f"^{rx}: the entry of utt0 begins there, and its matrix at byte 5; write FILE:5 in the table"
            ),
        ):
            load_matrix(rx)
    assert np.array_equal(load_matrix(f"{path}:5"), MATRIX)


@pytest.mark.parametrize("num_frames", [3, 9000])
def test_htk_feature_files_are_named(num_frames, tmp_path):
    """With HTK's big-endian header, and more bytes than PEEK_BYTES, or fewer."""
    path = tmp_path / "utt.htk"
    path.write_bytes(struct.pack(">iihh", num_frames, 100000, 52, 6 | 0o20000) + bytes(52 * num_frames))
    with pytest.raises(UserError, match=f"^{path}: found a feature file of HTK, expected a matrix"):
        load_matrix(f"{path}")
    path.write_bytes(path.read_bytes()[:-1] if num_frames == 3 else bytes(100))
    with pytest.raises(UserError, match="truncated or damaged"):
        load_matrix(f"{path}")


def test_objects_in_place_of_model_matrix_are_named(tmp_path):
    path = tmp_path / "final.mat"
    for content in BINARY.values():
        path.write_bytes(content)
        with pytest.raises(
            UserError,
            match=f"^{path}: found {kind_of(content)}, expected a matrix; give a file of one matrix$",
        ):
            read_matrix(path)
    path.write_bytes(b"[ 1 2\n3 x ]\n")
    with pytest.raises(UserError, match=f"^{path}: at byte "):
        read_matrix(path)


@pytest.mark.parametrize("kind", ["CM", "CM2", "CM3", "FM", "DM"])
def test_damaged_matrices_are_reported_as_damaged(kind, tmp_path):
    path = archive(tmp_path / "a.ark", b"\0B" + kind.encode() + b" " + bytes(3))
    with pytest.raises(UserError, match="truncated or damaged"):
        load_matrix(f"{path}:5")


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    "read, own, wanted",
    [
        (read_int_vectors, "a vector of integers", "a vector of integers"),
        (read_posteriors, "a list of posteriors or of integers", "a list of posteriors or of integers"),
        (
            lambda path: list(read_either(path)),
            "a lattice or another transducer",
            "a lattice or another transducer",
        ),
        (read_fsts, "a lattice or another transducer", "a lattice or another transducer"),
    ],
)
def test_objects_in_place_of_other_objects_are_named(read, own, wanted, packed, tmp_path):
    others = {
        kind: content for kind, content in BINARY.items() if kind not in (own, "a numpy file", "a number")
    }
    for kind, content in {
        **others,
        "a matrix": b"\0BFM " + sized(4, 3) + MATRIX.tobytes(),
        "a sparse matrix": TEXT["a sparse matrix"],
    }.items():
        path = archive(tmp_path / "a.gz", content, content, packed=packed)
        with pytest.raises(
            UserError, match=f"^{path}: utt0.*: found {kind}, expected {wanted}; give an archive of "
        ):
            read(path)


READERS = {
    "matrices": read_ark,
    "integer vectors": read_int_vectors,
    "posteriors": read_posteriors,
    "lattices": lambda path: list(read_either(path)),
    "transducers": read_fsts,
}
SINGLE = {
    "matrix": b"\0BFM " + sized(4, 3) + MATRIX.tobytes(),
    "compressed matrix": b"\0BCM2 " + bytes(16),
    "vector": b"\0BFV " + sized(2) + bytes(8),
    "sparse matrix": BINARY["a sparse matrix"],
    "vector of integers": b"\0B" + sized(3, 7, 8, 9) + b"utt ",
    "lattice or another transducer": BINARY["a lattice or another transducer"],
    "nnet3 example": BINARY["an nnet3 example"],
}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("wanted", READERS)
def test_single_object_in_place_of_archive_is_named(wanted, packed, tmp_path):
    path = tmp_path / "a.gz"
    for kind, content in {
        **SINGLE,
        "matrix in text": b" [\n  1 2\n  3 4 ]\n",
        "vector in text": b"[ 1 2 3 ]\n",
    }.items():
        path.write_bytes(gzip.compress(content) if packed else content)
        report = (
            f"a single {kind.removesuffix(' in text')} without a key; give an archive, in which a key "
            f"and a space precede each of the {wanted}"
        )
        with pytest.raises(UserError, match=f"^{path}: {report}$"):
            READERS[wanted](path)


@pytest.mark.parametrize("wanted", READERS)
def test_files_without_entries_in_place_of_archive_are_named(wanted, tmp_path):
    path = tmp_path / "a.ark"
    for kind in ("a WAV file", "a numpy file", "a decision tree", "an nnet3 network", "a transition model"):
        path.write_bytes(BINARY[kind])
        with pytest.raises(
            UserError, match=f"^{path}: found {kind}, expected an archive of {wanted}; give such an archive$"
        ):
            READERS[wanted](path)


def test_files_in_place_of_table_are_named(tmp_path):
    path, matrix = tmp_path / "feats.scp", SINGLE["matrix"]
    for content in (
        b"utt " + matrix,
        b"utt  [\n  1 2\n  3 4 ]\n",
        b"utt  [\n  1 2\n  1 4 ]\n",
        b"utt [ 1 2 ]\n",
    ):
        path.write_bytes(content)
        with pytest.raises(UserError, match=f"^{path}: an archive of matrices, not a table; give the table"):
            read_scp(path)
    for content in (matrix, b" [\n  1 2\n  3 4 ]\n"):
        path.write_bytes(content)
        with pytest.raises(
            UserError,
            match=(
                f"^{path}: a single matrix without a key, not a table; give a table with the line 'KEY "
                f"{path}'$"
            ),
        ):
            read_scp(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match="UTF-16 text"):
        read_scp(path)


def test_offset_in_file_of_single_matrix_is_refused(tmp_path):
    path = tmp_path / "m.mat"
    path.write_bytes(SINGLE["matrix"])
    with pytest.raises(
        UserError,
        match=(
            f"^{path}:5: the file is a single matrix without a key, which begins at byte 0; write 'KEY "
            "FILE' in the table"
        ),
    ):
        load_matrix(f"{path}:5")
    assert np.array_equal(load_matrix(f"{path}"), MATRIX)


def test_archive_in_place_of_model_matrix_is_named(tmp_path):
    path = archive(tmp_path / "final.mat", SINGLE["matrix"])
    with pytest.raises(
        UserError,
        match=(
            f"^{path}: found an archive, whose first entry is utt0, expected a matrix; give a file of one "
            "matrix$"
        ),
    ):
        read_matrix(path)


def test_objects_in_place_of_audio_are_named(tmp_path):
    for kind, content in {
        **BINARY,
        "a matrix": b"\0BFM " + sized(4, 3) + MATRIX.tobytes(),
        "a compressed matrix": b"\0BCM2 " + bytes(16),
    }.items():
        if not kind.endswith("file"):
            path = archive(tmp_path / "a.ark", content, content)
            with pytest.raises(UserError, match=f"^u: {path}:5: not readable as audio \\(found {kind}\\)"):
                read_audio(f"{path}:5", "u")


def test_kinds_in_archives_by_kaldi_are_named(tmp_path):
    """The same for archives written by Kaldi's own code."""
    native = pytest.importorskip("kaldi_native_io")
    writers = {
        "a vector of integers": (native.Int32VectorWriter, [3, 4, 5]),
        "a list of posteriors or of integers": (native.PosteriorWriter, [[(3, 0.5), (4, 0.5)], [(5, 1.0)]]),
        "a vector": (native.FloatVectorWriter, np.ones(3, np.float32)),
        "a matrix": (native.FloatMatrixWriter, MATRIX),
    }
    for kind, (writer, value) in writers.items():
        for mode in ("ark", "ark,t"):
            with writer(f"{mode}:{tmp_path}/a.ark") as file:
                file.write("utt", value)
                file.write("utt2", value)
            assert kind_of((tmp_path / "a.ark").read_bytes()[4:]) == kind, (kind, mode)
