"""Files written by Kaldi (fixtures/kaldi, see its README): read, compared with their content, written
again."""

import gzip
import json
import re
from pathlib import Path

import numpy as np
import pytest

from pyasr.base.errors import UserError
from pyasr.feats.transforms import read_matrix, read_transforms, write_matrix, write_transforms
from pyasr.hmm.model.model_file import read_model, read_transitions, read_tree, write_model
from pyasr.hmm.model.topology import Topology
from pyasr.hmm.model.tree import ContextTree, Leaf, Split, TreeTable, subnodes
from pyasr.io.ark import ArkWriter, iterate, read_ark, write_ark
from pyasr.io.fst_archive import read_fsts, write_fsts
from pyasr.io.int_vectors import read_int_vectors, write_int_vectors
from pyasr.io.kaldi_objects import KaldiReader, KaldiWriter
from pyasr.io.openfst import read_fst, write_fst
from pyasr.io.posteriors import Posteriors, read_posteriors, write_posteriors
from pyasr.lang.lang_dirs.check_lang import find_problems
from pyasr.lang.symbols import SymbolTable

KALDI = Path(__file__).parents[1] / "fixtures" / "kaldi"
FILES = KALDI / "files"
VALUES = json.loads((FILES / "values.json").read_text())
FEATURES = {key: np.array(matrix, np.float32) for key, matrix in VALUES["features"].items()}
GRAPH = "0\t1\t1\t3\t0.5\n0\t1\t2\t1\t1.25\n0\t2\t0\t2\t0\n1\t2\t3\t0\t2\n1\t3\n2\t0.75\n"


def assert_equal(found, expected, atol=0.0):
    assert found.keys() == expected.keys()
    for key in expected:
        np.testing.assert_allclose(found[key], expected[key], rtol=0, atol=atol)


@pytest.mark.parametrize("name, atol", [("float", 0), ("double", 0), ("text", 1e-5)])
def test_feature_archives(tmp_path, name, atol):
    found = read_ark(FILES / f"feats_{name}.ark", None)
    assert_equal(found, FEATURES, atol)
    with ArkWriter(tmp_path / "f.ark", tmp_path / "f.scp", binary=name != "text") as writer:
        for key, matrix in found.items():
            writer.write(key, matrix)
    if name != "text":
        assert (tmp_path / "f.ark").read_bytes() == (FILES / f"feats_{name}.ark").read_bytes()
    assert_equal(dict(iterate(tmp_path / "f.scp")), FEATURES, atol)


@pytest.mark.parametrize("name, method", [("cm", "speech"), ("cm2", "two_bytes"), ("cm3", "one_byte")])
def test_compressed_features(tmp_path, name, method):
    expected = {key: np.array(matrix, np.float32) for key, matrix in VALUES[name].items()}
    assert_equal(read_ark(FILES / f"feats_{name}.ark"), expected, 1e-5)
    with ArkWriter(tmp_path / "f.ark", tmp_path / "f.scp", compress=method) as writer:
        for key, matrix in FEATURES.items():
            writer.write(key, matrix)
    assert (tmp_path / "f.ark").read_bytes() == (FILES / f"feats_{name}.ark").read_bytes()


def test_cmvn_statistics(tmp_path):
    stats = read_ark(KALDI / "data/cmvn.ark", None)
    assert sorted(stats) == ["s0", "s1", "s2", "s3"] and all(
        matrix.shape == (2, 5) and matrix.dtype == np.float64 for matrix in stats.values()
    )
    frames = sum(len(matrix) for matrix in read_ark(KALDI / "data/feats.ark").values())
    assert sum(matrix[0, -1] for matrix in stats.values()) == frames and all(
        matrix[1, -1] == 0 for matrix in stats.values()
    )
    write_ark(tmp_path / "cmvn.ark", stats)
    assert (tmp_path / "cmvn.ark").read_bytes() == (KALDI / "data/cmvn.ark").read_bytes()


@pytest.mark.parametrize("binary, suffix", [(True, "ark"), (False, "txt")])
def test_archives_of_integers_posteriors_and_vectors(tmp_path, binary, suffix):
    ints = read_int_vectors(FILES / f"ints.{suffix}")
    assert {key: vector.tolist() for key, vector in ints.items()} == VALUES["ints"]
    write_int_vectors(tmp_path / "ints", ints, binary)
    posteriors = read_posteriors(FILES / f"post.{suffix}")
    (frames,) = VALUES["posteriors"].values()
    assert [posteriors["utt-1"].frame(t) for t in range(3)] == [
        [tuple(pair) for pair in frame] for frame in frames
    ]
    assert isinstance(posteriors["utt-1"], Posteriors)
    write_posteriors(tmp_path / "post", posteriors, binary)
    for name in ("ints", "post"):
        ours, theirs = (path.read_bytes() for path in (tmp_path / name, FILES / f"{name}.{suffix}"))
        assert ours == theirs if binary else ours.split() == theirs.split()
    vectors = read_ark(FILES / f"vectors.{suffix}")
    np.testing.assert_allclose(vectors["spk"], FEATURES["utt0"][0], rtol=1e-6)
    write_ark(tmp_path / "vectors", vectors, binary)
    np.testing.assert_array_equal(read_ark(tmp_path / "vectors")["spk"], vectors["spk"])


@pytest.mark.parametrize("type_, dtype", [("float", np.float32), ("double", np.float64)])
@pytest.mark.parametrize("binary, suffix", [(True, "ark"), (False, "txt")])
def test_matrices_and_vectors_in_single_files(tmp_path, type_, dtype, binary, suffix):
    for kind, expected in (("matrix", FEATURES["utt0"]), ("vector", FEATURES["utt0"][0])):
        path = FILES / f"{kind}_{type_}.{suffix}"
        found = getattr(KaldiReader(path), kind)()
        np.testing.assert_allclose(found, expected, rtol=0 if binary else 1e-6)
        assert found.dtype == (dtype if binary else np.float32)
        with KaldiWriter(tmp_path / "again", binary) as writer:
            getattr(writer, kind)(found)
        if binary:
            assert (tmp_path / "again").read_bytes() == path.read_bytes()
        np.testing.assert_array_equal(getattr(KaldiReader(tmp_path / "again"), kind)(), found)


def test_transforms(tmp_path):
    system = KALDI / "exp/tri4_ali"
    matrix, transforms = read_matrix(system / "final.mat"), read_transforms(system)
    assert matrix.shape == (5, 28) and {
        key: found.shape for key, found in transforms.items()
    } == dict.fromkeys(("s0", "s1", "s2", "s3"), (5, 6))
    write_matrix(tmp_path / "final.mat", matrix)
    assert (tmp_path / "final.mat").read_bytes() == (system / "final.mat").read_bytes()
    for job in (1, 2):
        write_transforms(tmp_path / "trans", read_ark(system / f"trans.{job}"))
        assert (tmp_path / "trans").read_bytes() == (system / f"trans.{job}").read_bytes()


@pytest.mark.parametrize("system", ["tri1", "tri4_ali"])
def test_alignments(tmp_path, system):
    trans = read_transitions(KALDI / f"exp/{system}/final.mdl")
    for job in (1, 2):
        path = KALDI / f"exp/{system}/ali.{job}.gz"
        alignments = read_int_vectors(path)
        for key, alignment in alignments.items():
            trans.check_alignment(alignment, key)
        write_int_vectors(tmp_path / "ali.gz", alignments)
        assert gzip.decompress((tmp_path / "ali.gz").read_bytes()) == gzip.decompress(path.read_bytes())


def model_numbers(trans, gmm):
    return [trans.log_prob, gmm.weights, gmm.means_invvars, gmm.inv_vars]


def test_models_binary_and_text(tmp_path):
    binary, text = KALDI / "exp/tri1/final.mdl", FILES / "final.mdl.txt"
    trans, gmm = read_model(binary)
    again, other = read_model(text)
    assert (
        (trans.tuples == again.tuples).all()
        and trans.topology == again.topology
        and (gmm.offsets == other.offsets).all()
    )
    for one, two in zip(model_numbers(trans, gmm), model_numbers(again, other)):
        np.testing.assert_allclose(one, two, rtol=2e-6, atol=1e-6)
    write_model(tmp_path / "final.mdl", trans, gmm)
    assert (tmp_path / "final.mdl").stat().st_size == binary.stat().st_size
    for one, two in zip(model_numbers(trans, gmm), model_numbers(*read_model(tmp_path / "final.mdl"))):
        np.testing.assert_array_equal(one, two)
    write_model(tmp_path / "text", trans, gmm, binary=False)
    assert len((tmp_path / "text").read_text().split()) == len(text.read_text().split())


def test_log_likelihoods_equal_kaldi():
    gmm = read_model(KALDI / "exp/tri1/final.mdl")[1]
    found = gmm.log_likelihoods(np.array(VALUES["scores"]["frames"], np.float32))
    np.testing.assert_allclose(found, VALUES["scores"]["log_likelihoods"], rtol=2e-6)


def kinds(node) -> set:
    return {type(node)}.union(*(kinds(child) for child in subnodes(node)))


@pytest.mark.parametrize(
    "binary, text", [("../exp/tri1/tree", "tree.txt"), ("tree_tables.binary", "tree_tables.text")]
)
def test_trees(tmp_path, binary, text):
    tree, other = ContextTree.read(FILES / binary), ContextTree.read(FILES / text)
    assert tree.root == other.root and tree.context_width == other.context_width == 3
    tree.write(tmp_path / "tree")
    assert (tmp_path / "tree").read_bytes() == (FILES / binary).read_bytes()
    tree.write(tmp_path / "tree", binary=False)
    assert (tmp_path / "tree").read_text().split() == (FILES / text).read_text().split()
    assert kinds(tree.root) == ({Leaf, Split, TreeTable, type(None)} if "tables" in text else {Leaf, Split})


def test_topologies(tmp_path):
    binary, text = Topology.read(FILES / "topo.binary"), Topology.read(FILES / "topo.text")
    assert binary == text == Topology.read(KALDI / "lang/topo")
    binary.write(tmp_path / "topo", binary=True)
    assert (tmp_path / "topo").read_bytes() == (FILES / "topo.binary").read_bytes()


@pytest.mark.parametrize("kind", ["vector", "const"])
@pytest.mark.parametrize("name", ["vector", "const", "symbols", "const_symbols"])
def test_graphs(tmp_path, name, kind):
    fst = read_fst(FILES / f"{name}.fst")
    write_fst(tmp_path / "again.fst", fst, kind)
    assert (
        sorted(fst.text().splitlines())
        == sorted(GRAPH.replace("1\t3\n", "1\t3\t0\t0\t0\n3\t0\n").splitlines())
        or fst.text() == GRAPH
    )
    assert read_fst(tmp_path / "again.fst").text() == fst.text()


def test_graph_sorted_by_output():
    fst = read_fst(FILES / "olabel.fst")
    for state in range(fst.num_states):
        labels = fst.olabels[fst.arc_offsets[state] : fst.arc_offsets[state + 1]]
        assert (np.diff(labels) >= 0).all()
    assert read_fst(FILES / "vector.fst").arcsort("olabel").text() == fst.text()


@pytest.mark.parametrize("binary, suffix", [(True, "ark"), (False, "txt")])
def test_graph_archives(tmp_path, binary, suffix):
    fsts = read_fsts(FILES / f"fsts.{suffix}")
    assert {key: fst.olabels.tolist() for key, fst in fsts.items()} == {"utt-1": [3, 4, 5], "utt-2": [7]}
    write_fsts(tmp_path / "fsts", fsts, binary)
    assert {key: fst.text() for key, fst in read_fsts(tmp_path / "fsts").items()} == {
        key: fst.text() for key, fst in fsts.items()
    }


def test_symbol_tables(tmp_path):
    for name in ("words", "phones"):
        table = SymbolTable.read(KALDI / f"lang/{name}.txt")
        table.write(tmp_path / name)
        assert (tmp_path / name).read_bytes() == (KALDI / f"lang/{name}.txt").read_bytes() and table[
            "<eps>"
        ] == 0


def test_language_directory_is_valid():
    assert find_problems(KALDI / "lang") == []


def newer(text: str, other_loops: bool = False) -> bytes:
    """A model in text form with the <Tuples> of newer versions: separate pdfs for the self-loop and the
    forward transition."""
    lines = text.replace("Triples>", "Tuples>").splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("<Tuples>"))
    for i in range(first + 1, first + 1 + int(lines[first].split()[1])):
        lines[i] += str(int(lines[i].split()[2]) + other_loops)
    return "\n".join(lines).encode()


def test_newer_form_of_transition_models(tmp_path):
    text = (FILES / "final.mdl.txt").read_text()
    (tmp_path / "final.mdl").write_bytes(newer(text))
    assert (
        read_model(tmp_path / "final.mdl")[0].tuples == read_model(FILES / "final.mdl.txt")[0].tuples
    ).all()
    (tmp_path / "final.mdl").write_bytes(newer(text, other_loops=True))
    with pytest.raises(
        UserError,
        match=r"final.mdl: at byte \d+: separate forward and self-loop pdfs \(Kaldi's chain models\)",
    ):
        read_model(tmp_path / "final.mdl")


def networks(kind: bytes) -> bytes:
    content = (KALDI / "exp/tri1/final.mdl").read_bytes()
    return content[: content.index(b"<DIMENSION>")] + kind


REFUSED = [
    (
        lambda: (FILES / "full.mdl").read_bytes(),
        read_model,
        r"Gaussians with full covariances \(<FullGMM>\), expected diagonal GMMs; give the directory",
    ),
    (
        lambda: networks(b"<Nnet3> "),
        read_model,
        (
            r"a network of Kaldi's nnet3 \(<Nnet3>\), expected diagonal GMMs; give the directory of a GMM "
            r"system, written by steps/"
        ),
    ),
    (
        lambda: networks(b"<SGMM> "),
        read_model,
        r"a subspace GMM \(<SGMM>\), expected diagonal GMMs; give the directory",
    ),
    (
        lambda: (FILES / "chain_topo.binary").read_bytes(),
        Topology.read,
        r"at byte \d+: separate forward and self-loop pdf-classes",
    ),
    (
        lambda: (FILES / "chain_topo.text").read_bytes(),
        Topology.read,
        r"at byte \d+: separate forward and self-loop pdf-classes",
    ),
    (
        lambda: (FILES / "log.fst").read_bytes(),
        read_fst,
        r"at byte 0 an FST of type 'vector' with 'log' arcs",
    ),
    (lambda: (FILES / "compact.fst").read_bytes(), read_fst, r"at byte 0 an FST of type 'compact_string'"),
    (
        lambda: (FILES / "ints.ark").read_bytes(),
        read_ark,
        r"utt-1 at byte 6: found a vector of integers, expected a matrix",
    ),
    (
        lambda: (FILES / "feats_float.ark").read_bytes(),
        read_int_vectors,
        r"utt0 at byte 5: found a matrix, expected a vector of integers",
    ),
    (
        lambda: (FILES / "feats_cm.ark").read_bytes(),
        read_posteriors,
        r"utt0 at byte 5: found a compressed matrix, expected a list of posteriors",
    ),
    (
        lambda: (FILES / "post.ark").read_bytes(),
        read_fsts,
        r"utt-1 at byte 6: found a list of posteriors or of integers, expected a lattice",
    ),
    (
        lambda: (FILES / "topo.binary").read_bytes(),
        read_tree,
        r"found an object that begins with <Topology>, expected a decision tree; give the tree that",
    ),
    (
        lambda: (KALDI / "exp/tri1/tree").read_bytes(),
        read_transitions,
        r"found a decision tree, expected a transition model; give the final.mdl written by",
    ),
]


@pytest.mark.parametrize("content, read, message", REFUSED, ids=range(len(REFUSED)))
def test_other_files_are_refused_by_name_and_byte(tmp_path, content, read, message):
    (tmp_path / "given").write_bytes(content())
    with pytest.raises(UserError, match=f"given: .*{message}") as error:
        read(tmp_path / "given")
    assert "\n" not in str(error.value)


READERS = [
    ("exp/tri1/final.mdl", read_model),
    ("exp/tri1/tree", read_tree),
    ("files/topo.binary", Topology.read),
    ("data/cmvn.ark", read_ark),
    ("files/feats_cm.ark", read_ark),
    ("files/feats_cm2.ark", read_ark),
    ("files/feats_cm3.ark", read_ark),
    ("files/const_symbols.fst", read_fst),
    ("files/symbols.fst", read_fst),
    ("files/fsts.ark", read_fsts),
    ("files/post.ark", read_posteriors),
    ("files/ints.ark", read_int_vectors),
]


@pytest.mark.parametrize("name, read", READERS, ids=[name for name, _ in READERS])
def test_truncated_files_give_one_sentence(tmp_path, name, read):
    content = (KALDI / name).read_bytes()
    for size in {*range(1, len(content), max(len(content) // 40, 1)), len(content) - 1}:
        (tmp_path / "cut").write_bytes(content[:size])
        try:
            found = read(tmp_path / "cut")
        except UserError as error:
            assert "cut" in str(error) and "byte" in str(error) and "\n" not in str(error)
        else:
            assert len(found) < len(read(KALDI / name))  # cut between two entries


def test_documentation_names_existing_tests():
    root = KALDI.parents[2]
    sources = "".join(path.read_text() for path in (root / "tests").rglob("test_*.py"))
    rows = [
        line.split("|")[1:-1]
        for line in (root / "docs/decoding/kaldi_files.md").read_text().splitlines()
        if line.startswith("| `")
    ]
    assert sum(len(row) == 6 for row in rows) > 15
    for row in filter(lambda row: len(row) == 6, rows):
        names = re.findall(r"`(test_\w+)`", row[-1])
        assert names and not [name for name in names if f"def {name}(" not in sources], row
