"""Lattice criteria against sums over all paths in float64, their derivatives against finite differences."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from graphs import lattice_paths, random_graph, tid2pdf

from pyasr.base.errors import UserError
from pyasr.decode.lattices.compact_lattice import to_compact
from pyasr.decode.lattices.determinize import determinize
from pyasr.decode.lattices.lattice import Lattice, from_arcs
from pyasr.decode.search.beam_search import Decoder
from pyasr.decode.search.decode_options import DecodeOptions
from pyasr.sequence.lattices.hypotheses import hypotheses_of
from pyasr.sequence.lattices.lattice_criteria import CriterionOptions, evaluate, path_posteriors
from pyasr.sequence.lattices.lattice_kernels import spread
from pyasr.sequence.lattices.lattice_objective import LatticeObjective, LatticeSupervision
from pyasr.sequence.lattices.tid_classes import TidClasses

NUM_PDFS, NUM_FRAMES, SCALE = 6, 5, 0.7
PDFS = tid2pdf(NUM_PDFS)
PHONES = np.array([0, *np.repeat([1, 1, 2, 2, 3, 4], 2)], np.int32)  # 3 and 4 are silence
CLASSES = TidClasses(PDFS, PHONES, np.isin(PHONES, [3, 4]))
OPTIONS = CriterionOptions(acoustic_scale=SCALE)
ALL = {
    "sMBR": OPTIONS,
    "sMBR, silence never right": replace(OPTIONS, one_silence_class=False),
    "MPFE": replace(OPTIONS, criterion="mpfe"),
    "MPFE, silence never right": replace(OPTIONS, criterion="mpfe", one_silence_class=False),
    "MMI": replace(OPTIONS, criterion="mmi", drop_frames=False),
    "boosted MMI": replace(OPTIONS, criterion="mmi", drop_frames=False, boost=0.4),
}


def searched(seed: int) -> Lattice:
    """A lattice with epsilons and several final states."""
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, 7, 26, NUM_PDFS)
    loglikes = rng.standard_normal((NUM_FRAMES, NUM_PDFS)).astype(np.float32)
    return Decoder(graph, PDFS, DecodeOptions(beam=30.0, lattice_beam=8.0, acoustic_scale=SCALE)).decode(
        loglikes
    )


def task(seed: int, lattice: Lattice | None = None):
    """(lattice, log-likelihoods that differ from those of its search, reference)."""
    rng = np.random.default_rng(1000 + seed)
    return (
        lattice or searched(seed),
        rng.standard_normal((NUM_FRAMES, NUM_PDFS)),
        rng.integers(1, 2 * NUM_PDFS + 1, NUM_FRAMES),
    )


def weighted_paths(lattice: Lattice, loglikes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(transition-ids of all paths (n, T), their weights w (n,))."""
    found = [
        (
            [label for label in labels if label],
            np.exp(
                SCALE
                * sum(loglikes[t, PDFS[tid]] for t, tid in enumerate(label for label in labels if label))
                - graph
            ),
        )
        for (labels, _), costs in lattice_paths(lattice).items()
        for graph, _ in costs
    ]
    return np.array([tids for tids, _ in found]), np.array([weight for _, weight in found])


def is_right(tid: int, wanted: int, options: CriterionOptions) -> bool:
    """The rule of LatticeForwardBackwardMpeVariants, frame by frame."""
    table = PHONES if options.criterion == "mpfe" else PDFS
    if options.one_silence_class:
        return table[tid] == table[wanted] or (PHONES[tid] >= 3 and PHONES[wanted] >= 3)
    return table[tid] == table[wanted] and PHONES[tid] < 3


def by_enumeration(
    lattice: Lattice, loglikes: np.ndarray, reference: np.ndarray, options: CriterionOptions
) -> float:
    tids, weights = weighted_paths(lattice, loglikes)
    if options.criterion == "mmi":
        errors = ((PHONES[tids] != PHONES[reference]) & (PHONES[tids] < 3)).sum(1)
        numerator = SCALE * loglikes[np.arange(NUM_FRAMES), PDFS[reference]].sum()
        return numerator - np.log((weights * np.exp(options.boost * errors)).sum())
    accuracies = [sum(is_right(*pair, options) for pair in zip(path, reference)) for path in tids]
    return weights @ accuracies / weights.sum()


@pytest.mark.parametrize("seed", range(5))
def test_state_posteriors_of_each_frame(seed):
    lattice, loglikes, _ = task(seed)
    tids, weights = weighted_paths(lattice, loglikes)
    expected = np.zeros((NUM_FRAMES, NUM_PDFS))
    for path, weight in zip(tids, weights):
        expected[np.arange(NUM_FRAMES), PDFS[path]] += weight / weights.sum()
    one = hypotheses_of(lattice, 2 * NUM_PDFS)
    posteriors, log_sum = path_posteriors(loglikes, one, PDFS[one.tids], SCALE)
    found = np.zeros_like(expected)
    spread(one.begins, one.lengths, PDFS[one.tids], posteriors, found)
    assert len(weights) > 5 and one.num_frames == NUM_FRAMES
    np.testing.assert_allclose(found, expected, atol=1e-7)
    np.testing.assert_allclose(found.sum(1), 1.0, atol=1e-12)
    assert log_sum == pytest.approx(np.log(weights.sum()), abs=1e-6)


@pytest.mark.parametrize("options", ALL.values(), ids=ALL)
@pytest.mark.parametrize("seed", range(4))
def test_criteria_equal_enumeration_of_all_paths(seed, options):
    lattice, loglikes, reference = task(seed)
    found = evaluate(loglikes, hypotheses_of(lattice, 2 * NUM_PDFS), reference, CLASSES, options)
    assert found.objective == pytest.approx(by_enumeration(lattice, loglikes, reference, options), abs=1e-6)


@pytest.mark.parametrize("options", ALL.values(), ids=ALL)
def test_derivatives_equal_finite_differences(options):
    lattice, loglikes, reference = task(7)
    one, step = hypotheses_of(lattice, 2 * NUM_PDFS), 1e-5
    found, expected = evaluate(loglikes, one, reference, CLASSES, options).derivative, np.zeros_like(loglikes)
    for place in np.ndindex(*loglikes.shape):
        moved = np.zeros_like(loglikes)
        moved[place] = step
        ends = [
            evaluate(loglikes + sign * moved, one, reference, CLASSES, options).objective for sign in (1, -1)
        ]
        expected[place] = (ends[0] - ends[1]) / (2 * step)
    np.testing.assert_allclose(found, expected, atol=1e-8)
    assert np.abs(found).max() > 0.01


def test_one_silence_class():
    """With one class, a path with another silence is correct; otherwise it is not."""
    line = dict(graph_costs=[0.0, 0.0], acoustic_costs=[0.0, 0.0], final_graph=[np.inf, np.inf, 0.0])
    # silences 3 and 4, then the same pdf
    lattice, reference = from_arcs(0, [0, 1], [1, 2], [9, 1], [0, 0], **line), np.array([11, 1])
    one, loglikes = hypotheses_of(lattice, 12), np.zeros((2, NUM_PDFS))
    for wanted, right in ((reference, [2, 1]), (np.array([9, 1]), [2, 1])):
        options = [replace(OPTIONS, one_silence_class=flag) for flag in (True, False)]
        assert [evaluate(loglikes, one, wanted, CLASSES, each).objective for each in options] == right


def test_frames_with_reference_outside_lattice_are_rejected():
    lattice, loglikes, reference = task(3)
    one, options = hypotheses_of(lattice, 2 * NUM_PDFS), replace(OPTIONS, criterion="mmi")
    tids, _ = weighted_paths(lattice, loglikes)
    absent = [t for t in range(NUM_FRAMES) if PDFS[reference[t]] not in PDFS[tids[:, t]]]
    whole, rejecting = (
        evaluate(loglikes, one, reference, CLASSES, replace(options, drop_frames=flag))
        for flag in (False, True)
    )
    assert 0 < len(absent) < NUM_FRAMES and rejecting.num_rejected == len(absent) and whole.num_rejected == 0
    assert (rejecting.derivative[absent] == 0).all() and rejecting.objective == whole.objective
    kept = np.setdiff1d(np.arange(NUM_FRAMES), absent)
    np.testing.assert_array_equal(rejecting.derivative[kept], whole.derivative[kept])


def test_rejected_frames_have_only_cross_entropy_gradient():
    lattice, logits, reference = task(3)
    options = replace(OPTIONS, criterion="mmi", frame_smoothing=0.25)
    tids, _ = weighted_paths(lattice, logits)
    absent = [t for t in range(NUM_FRAMES) if PDFS[reference[t]] not in PDFS[tids[:, t]]]
    z = torch.from_numpy(logits).requires_grad_()
    supervision = LatticeSupervision([reference], [hypotheses_of(lattice, 2 * NUM_PDFS)])
    loss, counts = LatticeObjective(options, CLASSES, torch.zeros(NUM_PDFS)).loss(z, supervision)
    loss.backward()
    of_cross_entropy = (
        np.exp(logits) / np.exp(logits).sum(1, keepdims=True) - np.eye(NUM_PDFS)[PDFS[reference]]
    )
    assert counts[1:].tolist() == [len(absent), NUM_FRAMES] and 0 < len(absent) < NUM_FRAMES
    np.testing.assert_allclose(z.grad[absent], 0.25 * of_cross_entropy[absent], atol=1e-12)
    others = np.setdiff1d(np.arange(NUM_FRAMES), absent)
    assert (np.abs(z.grad.numpy() - 0.25 * of_cross_entropy)[others].max(1) > 1e-3).all()


@pytest.mark.parametrize("seed", range(3))
def test_compact_lattices_give_same_criteria(seed):
    lattice, loglikes, reference = task(seed)
    values = [
        evaluate(loglikes, hypotheses_of(form, 2 * NUM_PDFS), reference, CLASSES, OPTIONS)
        for form in (lattice, to_compact(lattice))
    ]
    assert values[0].objective == pytest.approx(values[1].objective)
    np.testing.assert_allclose(values[0].derivative, values[1].derivative, atol=1e-12)
    compact = determinize(lattice, 8.0, SCALE)[0]
    assert hypotheses_of(compact, 2 * NUM_PDFS).num_frames == NUM_FRAMES


@pytest.mark.parametrize("options", ALL.values(), ids=ALL)
def test_softmax_normaliser_cancels(options):
    """Logits and their log posteriors have the same criterion, and the same derivatives by the logits."""
    lattice, logits, reference = task(2)
    supervision = LatticeSupervision([reference], [hypotheses_of(lattice, 2 * NUM_PDFS)])
    objective = LatticeObjective(
        options, CLASSES, torch.randn(NUM_PDFS, generator=torch.Generator().manual_seed(1))
    )
    values, grads = [], []
    for function in (lambda z: z, lambda z: z.log_softmax(1)):
        z = torch.from_numpy(logits).requires_grad_()
        value, _ = objective(function(z), supervision)
        value.backward()
        values.append(value.item())
        grads.append(z.grad)
    assert values[0] == pytest.approx(values[1])
    torch.testing.assert_close(grads[0], grads[1])
    torch.testing.assert_close(
        grads[0].sum(1), torch.zeros(NUM_FRAMES, dtype=torch.float64), atol=1e-12, rtol=0
    )


@pytest.mark.parametrize("options", ALL.values(), ids=ALL)
def test_gradient_of_several_utterances_passes_gradcheck(options):
    tasks = [task(seed) for seed in (0, 4)]
    supervision = LatticeSupervision(
        [reference for *_, reference in tasks],
        [hypotheses_of(lattice, 2 * NUM_PDFS) for lattice, *_ in tasks],
    )
    objective = LatticeObjective(options, CLASSES, torch.zeros(NUM_PDFS))
    logits = torch.from_numpy(np.concatenate([loglikes for _, loglikes, _ in tasks])).requires_grad_()
    assert torch.autograd.gradcheck(lambda z: objective(z, supervision)[0], logits, eps=1e-5, atol=1e-7)
    value, counts = objective(logits, supervision)
    loss, negated = objective.loss(logits, supervision)
    assert counts.tolist() == [value.item(), 0, 2 * NUM_FRAMES] and negated.tolist() == [
        -value.item(),
        0,
        2 * NUM_FRAMES,
    ]
    assert loss.item() == pytest.approx(-value.item() / SCALE)


@pytest.mark.parametrize("options", ALL.values(), ids=ALL)
def test_frame_smoothing_adds_cross_entropy(options):
    lattice, logits, reference = task(3)
    supervision = LatticeSupervision([reference], [hypotheses_of(lattice, 2 * NUM_PDFS)])
    objective = LatticeObjective(replace(options, frame_smoothing=0.25), CLASSES, torch.zeros(NUM_PDFS))
    states = logits[np.arange(NUM_FRAMES), PDFS[reference]]
    cross_entropy = (np.log(np.exp(logits).sum(1)) - states).sum()
    loss, counts = objective.loss(torch.from_numpy(logits), supervision)
    value = by_enumeration(lattice, logits, reference, options)
    assert loss.item() == pytest.approx(0.75 * -value / SCALE + 0.25 * cross_entropy)
    assert counts[0].item() == pytest.approx(-value)  # the reported value is the criterion without smoothing
    z = torch.from_numpy(logits).requires_grad_()
    assert torch.autograd.gradcheck(lambda z: objective.loss(z, supervision)[0], z, eps=1e-5, atol=1e-7)


def test_float32_is_close_to_float64():
    lattice, loglikes, reference = task(6)
    one = hypotheses_of(lattice, 2 * NUM_PDFS)
    narrow, wide = (
        evaluate(loglikes.astype(dtype), one, reference, CLASSES, OPTIONS)
        for dtype in (np.float32, np.float64)
    )
    assert narrow.derivative.dtype == np.float32 and narrow.objective == pytest.approx(
        wide.objective, rel=1e-5
    )
    np.testing.assert_allclose(narrow.derivative, wide.derivative, atol=1e-6)


def test_gradient_ascent_raises_every_criterion():
    lattice, loglikes, reference = task(5)
    one = hypotheses_of(lattice, 2 * NUM_PDFS)
    for options in ALL.values():
        x, values = loglikes.copy(), []
        for _ in range(20):
            value = evaluate(x, one, reference, CLASSES, options)
            values.append(value.objective)
            x += 0.5 * value.derivative
        assert (np.diff(values) > 0).all() and values[-1] > values[0] + 0.05


def test_unusable_lattices_are_refused():
    costs = dict(graph_costs=[0.1] * 3, acoustic_costs=[0.0] * 3, final_graph=[np.inf, np.inf, 0.0])
    with pytest.raises(UserError, match="lat.1.gz: utt1: the paths have different numbers of frames"):
        hypotheses_of(from_arcs(0, [0, 0, 1], [1, 2, 2], [1, 2, 3], [1, 2, 3], **costs), 12, "lat.1.gz: utt1")
    endless = from_arcs(0, [0], [1], [3], [1], [0.5], [1.0], [np.inf, np.inf])
    assert hypotheses_of(endless, 12) is None
    with pytest.raises(UserError, match="transition-ids above the model's 3"):
        hypotheses_of(searched(0), 3)
