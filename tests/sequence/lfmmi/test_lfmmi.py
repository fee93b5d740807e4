"""LF-MMI against enumeration of all strings of pdfs, dense formulas and finite differences."""

import numpy as np
import pytest
import torch
from lfmmi_toys import (
    all_strings,
    chain_model,
    dense,
    enumerated,
    log_space_denominator,
    random_sequences,
    string_weight,
    two_loops,
    two_state_graph,
)
from torch.utils._python_dispatch import TorchDispatchMode

from pyasr.sequence.lfmmi import leaky_hmm
from pyasr.sequence.lfmmi.chain import AlignedPhones
from pyasr.sequence.lfmmi.denominator_graph import DenominatorGraph, make_denominator_graph
from pyasr.sequence.lfmmi.lfmmi import LfMmiCounts, LfMmiOptions, lf_mmi, lf_mmi_with_posteriors
from pyasr.sequence.lfmmi.pdf_expansion import PdfArcs
from pyasr.sequence.lfmmi.phone_lm import PhoneLmOptions, estimate_phone_lm
from pyasr.sequence.lfmmi.supervision import Supervision, SupervisionMaker

MODEL = chain_model(2, 1)
GRAPH = make_denominator_graph(estimate_phone_lm(random_sequences(0), PhoneLmOptions(3, 2, 4)), *MODEL)
MAKER = SupervisionMaker(GRAPH, *MODEL)
SUPERVISIONS = [
    MAKER.whole(key, AlignedPhones(np.array(phones, np.int32), np.array(starts)))
    for key, phones, starts in (
        ("a", [1, 2, 1], [0, 3, 9, 15]),
        ("b", [3, 3, 1], [0, 6, 9, 14]),
        ("c", [1, 1, 2], [0, 3, 6, 9]),
    )
]


def on_cpus(logits, graph, leak, lengths=None):
    return leaky_hmm._over_blocks(
        logits, graph, leak, np.full(len(logits), logits.shape[1]) if lengths is None else lengths
    )


def on_devices(logits, graph, leak, lengths=None):
    return leaky_hmm._by_sparse_matrices(
        logits, graph, leak, np.full(len(logits), logits.shape[1]) if lengths is None else lengths
    )


PATHS = [on_cpus, on_devices]


def random_logits(*shape, seed=0, scale=2.0, dtype=torch.float64):
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape) * scale).to(dtype)


def dense_denominator(graph, logits: np.ndarray, leak: float) -> tuple[float, np.ndarray]:
    """(log-likelihood, posteriors) of one sequence by dense float64 matrices scaled at each frame, with
    mixing by I + eps 1 pi' between frames."""
    table, pi = dense(graph), graph.initial_probs
    mix = np.eye(len(pi)) + leak * np.outer(np.ones(len(pi)), pi)
    steps = [np.einsum("spt,p->st", table, np.exp(y - y.max())) @ mix for y in logits]
    alphas, log_like = [pi @ mix], 0.0
    for y, step in zip(logits, steps):
        alpha = alphas[-1] @ step
        log_like += np.log(alpha.sum()) + y.max()
        alphas.append(alpha / alpha.sum())
    beta, posteriors = np.ones(len(pi)), np.zeros(logits.shape)
    for t in range(len(logits) - 1, -1, -1):
        joint = np.einsum("s,spt,p,t->p", alphas[t], table, np.exp(logits[t] - logits[t].max()), mix @ beta)
        posteriors[t] = joint / joint.sum()
        beta = steps[t] @ beta
        beta /= beta.sum()
    return log_like, posteriors


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("leak", [0.0, 1e-5, 0.1])
def test_denominator_equals_sum_over_all_strings(path, leak):
    graph = two_state_graph()
    for num_frames in (1, 2, 4):
        logits = random_logits(3, num_frames, graph.num_pdfs, seed=num_frames)
        log_likes, posteriors = path(logits, graph, leak)
        for n in range(3):
            expected, shares = enumerated(all_strings(graph, num_frames, leak), logits[n].numpy())
            assert float(log_likes[n]) == pytest.approx(expected, rel=1e-10)
            assert posteriors[n].numpy() == pytest.approx(shares, abs=1e-10)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("dtype, precision", [(torch.float64, 1e-10), (torch.float32, 2e-4)])
def test_leaky_hmm_equals_explicit_formula(path, dtype, precision):
    """For more sequences than a block has, and for a number that is not a multiple of the block size."""
    for leak in (1e-5, 0.1):
        logits = random_logits(19, 20, GRAPH.num_pdfs, scale=4.0, dtype=dtype)
        log_likes, posteriors = path(logits, GRAPH, leak)
        for n in (0, 15, 16, 18):
            expected, shares = dense_denominator(GRAPH, logits[n].double().numpy(), leak)
            assert float(log_likes[n]) == pytest.approx(expected, rel=precision)
            assert posteriors[n].double().numpy() == pytest.approx(shares, abs=precision)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("num_frames", [1, 2, 3, 40, 10_000])
def test_float32_is_stable_for_any_length(path, num_frames):
    """Outputs of several hundred, positive and negative, stay within the range of float32."""
    logits = random_logits(2, num_frames, GRAPH.num_pdfs, scale=20.0, dtype=torch.float32)
    logits[1] += 500
    log_likes, posteriors = path(logits, GRAPH, 1e-5)
    assert posteriors.sum(dim=2).numpy() == pytest.approx(1, abs=1e-3)
    expected, shares = dense_denominator(GRAPH, logits[1].double().numpy(), 1e-5)
    assert float(log_likes[1]) == pytest.approx(expected, rel=1e-5)
    assert posteriors[1].double().numpy() == pytest.approx(shares, abs=1e-2)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("leak", [1e-6, 1e-5, 0.1])
def test_scaled_sums_equal_log_space(path, leak):
    """Over 500 frames whose outputs differ by up to 200, and if the final best state was worse by thousands
    for a long time."""
    turning = torch.zeros(1, 500, 4)
    turning[0, :200, 2], turning[0, 200:, 0] = -120, -60
    for graph, logits in (
        (GRAPH, random_logits(2, 500, GRAPH.num_pdfs, scale=30.0, dtype=torch.float32)),
        (two_loops(), turning),
    ):
        expected = [log_space_denominator(graph, y, leak) for y in logits]
        for dtype, precision, of_posteriors in ((torch.float64, 1e-12, 1e-9), (torch.float32, 1e-7, 1e-4)):
            for log_like, posteriors, (total, shares) in zip(*path(logits.to(dtype), graph, leak), expected):
                assert float(log_like) == pytest.approx(total, rel=precision)
                torch.testing.assert_close(posteriors.double(), shares, rtol=0, atol=of_posteriors)


@pytest.mark.parametrize("path", PATHS)
def test_loss_of_accuracy_without_leak_is_detected(path):
    """Likelihoods are finite, but those of the first frame and of the last differ."""
    logits = random_logits(16, 500, GRAPH.num_pdfs, scale=30.0, dtype=torch.float32)
    log_likes, posteriors = path(logits, GRAPH, 0.0)
    kept = torch.isfinite(log_likes)
    assert 0 < kept.sum() < 16 and ((posteriors.sum(dim=2) - 1).abs().amax(dim=1) < 0.01).equal(kept)
    assert torch.isfinite(posteriors[~kept]).all(dim=2).all(dim=1).any()
    wide = path(logits.double(), GRAPH, 0.0)[0]
    assert torch.isfinite(wide).all() and (wide - log_likes).abs()[kept].max() < 1


class Operations(TorchDispatchMode):
    """Names of the torch operations that are called."""

    def __init__(self):
        super().__init__()
        self.names = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.add(function.overloadpacket.__name__)
        return function(*args, **(kwargs or {}))


def test_graph_data_is_computed_once():
    """Once per number type and graph. From the second call on, no number is copied to or from a device, and
    the host does not wait."""
    graph, logits = two_state_graph(), random_logits(2, 5, 4)
    operations = Operations()
    with operations:
        first = on_devices(logits, graph, 0.1)
    made = {"sparse_coo_tensor", "_sparse_coo_tensor_with_dims_and_tensors", "_coalesce"}
    assert operations.names & made
    narrow = on_devices(logits.float(), graph, 0.1)
    assert len(graph.kept) == 2 and narrow[1].dtype == torch.float32 and not two_state_graph().kept
    operations = Operations()
    with operations:
        again = on_devices(logits, graph, 0.1)
    assert "mm" in operations.names and not operations.names & (
        made | {"_to_copy", "_local_scalar_dense", "nonzero"}
    )
    assert all(torch.equal(*pair) for pair in zip(first, again)) and len(graph.kept) == 2


def large_graph() -> DenominatorGraph:
    """Thousands of arcs; some pdfs are on none."""
    rng = np.random.default_rng(4)
    sources = rng.integers(200, size=4000)
    targets = rng.integers(200, size=4000)
    pdfs = rng.integers(50, size=4000)
    return DenominatorGraph.from_arcs(
        PdfArcs(sources, targets, pdfs, rng.dirichlet(np.ones(4000)) * 200, np.full(200, 0.1)), 60
    )


def test_sparse_matrices_equal_kernel():
    graph = large_graph()
    for dtype, precision in ((torch.float64, 1e-11), (torch.float32, 1e-4)):
        logits = random_logits(20, 40, 60, scale=5.0, dtype=dtype)
        for one, other in zip(*(path(logits, graph, 0.1) for path in PATHS)):
            torch.testing.assert_close(one, other, rtol=precision, atol=precision)


@pytest.mark.parametrize("path", PATHS)
def test_batched_sequences_equal_single_ones(path):
    """In any order, more than fit into a block. Values after the end of a sequence are arbitrary and
    unused."""
    lengths = np.random.default_rng(3).integers(1, 30, 20)
    logits = random_logits(20, 30, GRAPH.num_pdfs, scale=4.0)
    for n, length in enumerate(lengths):
        logits[n, length:] = (torch.nan, torch.inf, 1e4)[n % 3]
    log_likes, posteriors = path(logits, GRAPH, 1e-5, lengths)
    for n, length in enumerate(lengths):
        (expected,), (shares,) = path(logits[n : n + 1, :length], GRAPH, 1e-5)
        assert (
            float(log_likes[n]) == pytest.approx(float(expected), rel=1e-12)
            and not posteriors[n, length:].any()
        )
        torch.testing.assert_close(posteriors[n, :length], shares, rtol=1e-12, atol=1e-14)


def test_long_sequences_use_smaller_blocks(monkeypatch):
    logits = random_logits(5, 7, GRAPH.num_pdfs)
    expected = leaky_hmm.forward_backward(logits, GRAPH, 0.1)
    for num_bytes in (1, 2 * 7 * GRAPH.num_entries * 8):
        monkeypatch.setattr(leaky_hmm, "_FLOW_BYTES", num_bytes)
        assert all(
            torch.allclose(*pair, rtol=1e-12)
            for pair in zip(leaky_hmm.forward_backward(logits, GRAPH, 0.1), expected)
        )


def test_gradients_equal_finite_differences():
    options = LfMmiOptions(leaky_hmm_coefficient=0.1, l2_regularize=0.01)
    logits = random_logits(3, 5, GRAPH.num_pdfs).requires_grad_()

    def objective(y):
        return lf_mmi(y, SUPERVISIONS, GRAPH, options)[0]

    assert torch.autograd.gradcheck(objective, (logits,), eps=1e-5, atol=1e-6)


def test_objective_equals_difference_of_enumerated_sums():
    logits = random_logits(3, 5, GRAPH.num_pdfs, seed=5)
    objf, counts = lf_mmi(logits, SUPERVISIONS, GRAPH, LfMmiOptions(0.0, 0.01))
    numerator = denominator = squares = 0.0
    posteriors = lf_mmi_with_posteriors(logits, SUPERVISIONS, GRAPH)[1]
    for y, supervision, share in zip(logits.numpy(), SUPERVISIONS, posteriors.numpy()):
        y = y[: supervision.num_frames]
        strings = set(chosen_strings(supervision))
        own, own_share = enumerated({pdfs: string_weight(GRAPH, pdfs) for pdfs in strings}, y)
        assert share[: len(y)] == pytest.approx(own_share, abs=1e-9)
        numerator, squares = numerator + own, squares + (y**2).sum()
        denominator += dense_denominator(GRAPH, y, 0.0)[0]
    assert (counts.num_sequences, counts.num_frames, counts.num_skipped) == (3, 5 + 5 + 3, 0)
    assert (counts.numerator, counts.denominator) == (pytest.approx(numerator), pytest.approx(denominator))
    assert objf.item() == pytest.approx(numerator - denominator - 0.005 * squares) and counts.log_prob < 0


def chosen_strings(supervision: Supervision, state: int = 0, pdfs: tuple = ()):
    if supervision.finals[state] == 0:
        yield pdfs
    for a in np.flatnonzero(supervision.sources == state):
        yield from chosen_strings(
            supervision,
            int(supervision.targets[a]),
            (*pdfs, int(supervision.slot_pdfs[supervision.slots[a]])),
        )


def test_objective_is_at_most_zero_and_can_reach_it():
    for seed in range(5):
        _, counts = lf_mmi(
            random_logits(3, 5, GRAPH.num_pdfs, seed=seed, scale=6.0), SUPERVISIONS, GRAPH, LfMmiOptions(0.0)
        )
        assert counts.log_prob <= 1e-9
    logits = torch.zeros(3, 5, GRAPH.num_pdfs, requires_grad=True)
    values = []
    for _ in range(30):
        objf, counts = lf_mmi(logits, SUPERVISIONS, GRAPH)
        (gradient,) = torch.autograd.grad(objf, logits)
        logits = (logits + 2 * gradient).detach().requires_grad_()
        values.append(objf.item())
    assert values[-1] > values[0] / 5 and values[-1] < 0


def test_frames_after_end_and_skipped_rows_have_zero_gradient(caplog):
    logits = random_logits(3, 6, GRAPH.num_pdfs, dtype=torch.float32)
    logits[1, 2, 0] = float("nan")
    logits.requires_grad_()
    with caplog.at_level("WARNING", logger="pyasr"):
        objf, counts = lf_mmi(logits, SUPERVISIONS, GRAPH)
    objf.backward()
    assert "1 of 3 sequences have no finite likelihood and are skipped: b" in caplog.text
    assert not lf_mmi_with_posteriors(logits, SUPERVISIONS, GRAPH)[1][1].any()
    assert (
        counts.num_skipped == 1
        and counts.num_sequences == 2
        and counts.num_frames == 8
        and np.isfinite(objf.item())
    )
    assert not logits.grad[1].any() and not logits.grad[0, 5:].any() and not logits.grad[2, 3:].any()
    assert logits.grad[0, :5].any(dim=1).all() and torch.isfinite(logits.grad).all()
    alone, _ = lf_mmi(logits.detach()[[0, 2]], [SUPERVISIONS[0], SUPERVISIONS[2]], GRAPH)
    assert objf.item() == pytest.approx(float(alone), rel=1e-5)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU")
@pytest.mark.parametrize("dtype, tolerance", [(torch.float64, 1e-9), (torch.float32, 2e-4)])
def test_gpu_equals_cpu_in_float64(dtype, tolerance):
    """Value, counts, gradient and posteriors of sequences of several lengths, and the denominator of a graph
    with thousands of arcs."""
    options = LfMmiOptions(leaky_hmm_coefficient=0.1, l2_regularize=0.01)
    logits = random_logits(3, 6, GRAPH.num_pdfs, scale=4.0)
    found = [results(logits.to(*place), options) for place in (("cpu", torch.float64), ("cuda", dtype))]
    (expected, counts), (tensors, report) = found
    assert all(tensor.is_cuda and tensor.dtype == dtype for tensor in tensors)
    for one, other in zip(tensors, expected, strict=True):
        torch.testing.assert_close(one.double().cpu(), other, rtol=tolerance, atol=tolerance)
    assert vars(report) == pytest.approx(vars(counts), rel=tolerance)
    graph = large_graph()
    logits, lengths = random_logits(20, 40, 60, scale=5.0), np.random.default_rng(3).integers(1, 41, 20)
    expected = leaky_hmm.forward_backward(logits, graph, 0.1, lengths)
    found = leaky_hmm.forward_backward(logits.to("cuda", dtype), graph, 0.1, lengths)
    for one, other in zip(found, expected, strict=True):
        assert one.is_cuda
        torch.testing.assert_close(one.double().cpu(), other, rtol=tolerance, atol=tolerance)


def results(logits: torch.Tensor, options: LfMmiOptions) -> tuple[list[torch.Tensor], LfMmiCounts]:
    """([objective, posteriors, gradient], counts) of the three utterances."""
    logits = logits.requires_grad_()
    objf, posteriors, counts = lf_mmi_with_posteriors(logits, SUPERVISIONS, GRAPH, options)
    (gradient,) = torch.autograd.grad(objf, logits)
    return [objf.detach(), posteriors, gradient], counts


@pytest.mark.parametrize("path", PATHS)
def test_underflowing_likelihoods_are_not_finite(path):
    """Without a leak, all paths of a sequence can underflow in float32."""
    logits = torch.zeros(2, 3, 4)
    logits[1, 1, :3], logits[1, 2, :3] = torch.tensor([[0.0, -500, -500], [-500, -500, 0]])
    log_likes, posteriors = path(logits, two_loops(), 0.0)
    assert torch.isfinite(log_likes).tolist() == [True, False]
    assert posteriors[0].sum(dim=1).numpy() == pytest.approx(1, abs=1e-5)


def test_gradient_scale_follows_caller():
    logits = random_logits(3, 5, GRAPH.num_pdfs).requires_grad_()
    (once,) = torch.autograd.grad(lf_mmi(logits, SUPERVISIONS, GRAPH)[0], logits)
    (halved,) = torch.autograd.grad(lf_mmi(logits, SUPERVISIONS, GRAPH)[0] / -2, logits)
    assert torch.allclose(halved, once / -2) and once.dtype == torch.float64
    narrow = logits.detach().to(torch.bfloat16).requires_grad_()
    lf_mmi(narrow, SUPERVISIONS, GRAPH)[0].backward()
    assert narrow.grad.dtype == torch.bfloat16 and torch.isfinite(narrow.grad).all()


def test_inconsistent_shapes_are_refused():
    good = torch.zeros(3, 5, GRAPH.num_pdfs)
    for logits, message in (
        (good[:2], "for 3 supervisions"),
        (good[0], "for 3 supervisions"),
        (good[:, :0], "for 3 supervisions"),
        (good[:, :4], "a: a supervision of 5 frames"),
        (good[..., :3], "the network has 3 outputs"),
    ):
        with pytest.raises(ValueError, match=message):
            lf_mmi(logits, SUPERVISIONS, GRAPH)
    with pytest.raises(ValueError, match="for 0 supervisions"):
        lf_mmi(torch.zeros(0, 5, GRAPH.num_pdfs), [], GRAPH)
    fields = vars(SUPERVISIONS[0])
    beyond = Supervision(**{**fields, "slot_pdfs": fields["slot_pdfs"] + GRAPH.num_pdfs})
    with pytest.raises(ValueError, match=f"a: pdf .* but the model has {GRAPH.num_pdfs}"):
        lf_mmi(good[:1], [beyond], GRAPH)
