"""Topologies and transition models against Kaldi's answers (fixtures/kaldi_hmm.json) and a plain enumeration;
invalid files."""

import json

import numpy as np
import pytest

from pyasr.base.errors import UserError
from pyasr.hmm.model.model_file import read_transitions, read_tree
from pyasr.hmm.model.topology import NO_PDF, HmmState, Topology, left_to_right
from pyasr.hmm.model.transitions import TransitionModel
from pyasr.hmm.model.tree import ContextTree, monophone_tree
from pyasr.io.kaldi_objects import KaldiReader


@pytest.fixture(scope="module")
def kaldi(root):
    return json.loads((root / "tests/fixtures/kaldi_hmm.json").read_text())


@pytest.fixture(scope="module")
def topology(kaldi):
    return Topology.read(KaldiReader("topo", kaldi["topo"].encode()))


@pytest.fixture
def model(kaldi, topology):
    return TransitionModel.from_tree(topology, ContextTree.read(KaldiReader("tree", kaldi["tree"].encode())))


def test_numbering_equals_kaldi(kaldi, model):
    expected = kaldi["transitions"]
    assert model.tuples.tolist() == expected["tuples"]
    for ours, theirs in (
        ("tid2pdf", "pdf"),
        ("tid2phone", "phone"),
        ("is_final", "is_final"),
        ("is_self_loop", "is_self_loop"),
    ):
        assert getattr(model, ours)[1:].tolist() == expected[theirs]
    assert np.allclose(model.log_prob, expected["log_probs"], atol=1e-6)
    assert np.allclose(model.non_self_loop_log_prob, expected["non_self_loop_log_probs"][1:], atol=1e-6)


def test_update_equals_kaldi(kaldi, model):
    gain, count = model.update(np.array(kaldi["update"]["counts"]))
    assert np.allclose(model.log_prob, kaldi["update"]["log_probs"], atol=1e-6)
    assert gain == pytest.approx(kaldi["update"]["gain"], rel=1e-5) and count == pytest.approx(
        kaldi["update"]["count"]
    )


def test_numbering_equals_plain_enumeration(topology, model):
    """The documented rule: sorted triples, each with the arcs of the topology."""
    tree_pdfs = {
        (phone, c): model.tuples[(model.tuples[:, 0] == phone)][:, 2]
        for phone in topology.phones
        for c in range(3)
    }
    assert all(len(pdfs) for pdfs in tree_pdfs.values())
    tid = 0
    for state, (phone, hmm_state, pdf) in enumerate(sorted(map(tuple, model.tuples.tolist()))):
        assert model.transition_state(phone, hmm_state, pdf) == state
        for index, (destination, probability) in enumerate(topology.entry(phone)[hmm_state].transitions):
            tid += 1
            assert model.tids_of(state)[index] == tid
            assert (model.tid2phone[tid], model.tid2hmm_state[tid], model.tid2pdf[tid]) == (
                phone,
                hmm_state,
                pdf,
            )
            assert (model.tid2index[tid], model.tid2next_hmm_state[tid]) == (index, destination)
            assert model.is_self_loop[tid] == (destination == hmm_state) and model.log_prob[
                tid
            ] == pytest.approx(np.log(probability))
    assert tid == model.num_tids


def test_self_loops_have_transition_ids_and_log_probabilities(model):
    for state in range(model.num_states):
        loops = [tid for tid in model.tids_of(state) if model.is_self_loop[tid]]
        assert model.self_loop_tid[state] == (loops[0] if loops else 0)
        left = sum(np.exp(model.log_prob[tid]) for tid in model.tids_of(state) if tid not in loops)
        assert np.exp(model.non_self_loop_log_prob[state]) == pytest.approx(left, abs=1e-6)


def test_transition_states_of_arrays(model):
    phones, states, pdfs = model.tuples.T
    assert (model.transition_states(phones, states, pdfs) == np.arange(model.num_states)).all()
    assert model.transition_states([1, 99, 3, -1], [0, 0, 0, 0], [1, 0, 500, 0]).tolist() == [-1, -1, -1, -1]
    with pytest.raises(UserError, match="no state 0 of phone 1 with pdf 5"):
        model.transition_state(1, 0, 5)


def test_update_keeps_rare_states_and_applies_floor(topology):
    model = TransitionModel.from_tree(
        topology, monophone_tree([[p] for p in topology.phones], dict.fromkeys(topology.phones, 3))
    )
    before, counts = model.log_prob.copy(), np.zeros(model.num_tids + 1)
    counts[list(model.tids_of(0))], counts[list(model.tids_of(1))] = [1000, 0, 0], [2, 1, 1]
    model.update(counts)
    assert (model.log_prob[model.tids_of(1)] == before[model.tids_of(1)]).all()
    assert np.exp(model.log_prob[list(model.tids_of(0))]) == pytest.approx([0.98, 0.01, 0.01], abs=1e-3)
    with pytest.raises(UserError, match="counts of 3 transition-ids"):
        model.update(np.zeros(4))


@pytest.mark.parametrize("binary", [True, False])
def test_models_survive_round_trip(tmp_path, model, binary):
    model.update(np.random.default_rng(0).uniform(10, 100, model.num_tids + 1))
    model.write(tmp_path / "model", binary)
    again = read_transitions(tmp_path / "model")
    assert (again.tuples == model.tuples).all() and again.topology == model.topology
    assert np.allclose(again.log_prob, model.log_prob, atol=1e-6)
    again.write(tmp_path / "again", binary)
    assert (tmp_path / "again").read_bytes() == (tmp_path / "model").read_bytes()
    model.topology.write(tmp_path / "topo", binary)
    assert Topology.read(tmp_path / "topo") == model.topology


def test_tuples_of_newer_kaldi_are_read(tmp_path, model):
    model.write(tmp_path / "model", binary=False)
    lines = (tmp_path / "model").read_text().replace("Triples>", "Tuples>").splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("<Tuples>")) + 1
    for i in range(first, first + model.num_states):
        lines[i] += lines[i].split()[2] + " "
    (tmp_path / "newer").write_text("\n".join(lines))
    assert (read_transitions(tmp_path / "newer").tuples == model.tuples).all()


def test_truncated_model_is_refused(tmp_path, model):
    for binary in (True, False):
        model.write(tmp_path / "final.mdl", binary)
        content = (tmp_path / "final.mdl").read_bytes().rstrip()
        for size in range(0, len(content) - 1, 37):
            with pytest.raises(UserError, match=r"final.mdl: at byte \d+: "):
                TransitionModel.read(KaldiReader("final.mdl", content[:size]))


def test_model_not_matching_topology_is_refused(tmp_path, model):
    model.write(tmp_path / "model", binary=False)
    text = (tmp_path / "model").read_text()
    for old, new, message in (
        ("1 0 0 \n", "1 9 0 \n", "phone 1, state 9, pdf 0"),
        ("1 0 0 \n", "6 0 0 \n", "phone 6, state 0"),
        ("1 1 1 \n", "1 0 0 \n", "not in ascending order"),
        ("<LogProbs>  [ 0.0 ", "<LogProbs>  [ ", "log-probabilities were expected"),
    ):
        assert old in text
        with pytest.raises(UserError, match=f"final.mdl: at byte .*{message}"):
            TransitionModel.read(KaldiReader("final.mdl", text.replace(old, new, 1).encode()))


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("<State> 1 <PdfClass> 1", "<State> 2 <PdfClass> 1", "state 1 was expected, found state 2"),
        ("3 4 5 7 8", "2 4 5 7 8", "phone 2 has two topologies"),
        (
            "<State> 3 </State>",
            "<State> 3 <PdfClass> 2 <Transition> 3 1.0 </State>",
            "last state must be final",
        ),
        ("<Transition> 1 0.25", "<Transition> 9 0.25", "one to a state that does not exist"),
        ("<Transition> 1 0.25", "<Transition> 1 1.25", r"probability outside \(0, 1\]"),
        ("<PdfClass> 2", "<PdfClass> 5", "without a gap"),
        ("<PdfClass> 2", "<ForwardPdfClass> 2", "chain topology"),
        ("</Topology>", "", "truncated"),
    ],
)
def test_invalid_topologies_are_refused(kaldi, old, new, message):
    with pytest.raises(UserError, match=rf"lang/topo: at byte \d+: .*{message}"):
        Topology.read(KaldiReader("lang/topo", kaldi["topo"].replace(old, new, 1).encode()))


def test_topology_without_some_phones_is_refused(topology):
    topology.check_phones([1, 2, 3, 4, 5, 7, 8])
    with pytest.raises(
        UserError, match=r"lang/topo: the topology does not match the phones \(phones 6 9 without HMM\)"
    ):
        topology.check_phones(range(1, 10), "lang/topo")
    with pytest.raises(UserError, match="7 8 only in the topology"):
        topology.check_phones(range(1, 6))
    with pytest.raises(UserError, match="phone 6 has no HMM"):
        topology.entry(6)


def test_left_to_right_topology():
    assert left_to_right(1, 0.5) == (HmmState(0, ((0, 0.5), (1, 0.5))), HmmState(NO_PDF, ()))


def test_alignment_of_other_model_is_refused(model):
    with pytest.raises(
        UserError,
        match=f"exp/ali utt-1: transition-id {model.num_tids + 1} in frame 1, but the model has 1 to",
    ):
        model.check_alignment(np.array([1, model.num_tids + 1]), "exp/ali utt-1")


def test_tree_of_other_model_is_refused(tmp_path, model):
    monophone_tree([[p] for p in model.topology.phones], dict.fromkeys(model.topology.phones, 2)).write(
        tmp_path / "tree"
    )
    with pytest.raises(UserError, match=f"tree: the tree has 14 pdfs, the model {model.num_pdfs}"):
        read_tree(tmp_path / "tree", model)


def test_topology_with_phones_missing_in_tree_is_refused(kaldi, topology):
    tree = monophone_tree([[1], [2], [3]], dict.fromkeys((1, 2, 3), 3))
    with pytest.raises(UserError, match="the tree has no pdf for phone 4"):
        TransitionModel.from_tree(topology, tree)
