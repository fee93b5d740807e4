"""The CTC loss against sums over all alignments in float64, finite differences, and torch's own."""

import itertools

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from ctc_toys import collapse

from pyasr.base.errors import UserError
from pyasr.sequence.ctc import CtcCounts, CtcSupervision, ctc_loss


def brute_force(logits: np.ndarray, labels) -> float:
    """-ln of the sum over all paths of (T, K) logits that stand for `labels`."""
    log_probs = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    frames, outputs = logits.shape
    paths = [
        path for path in itertools.product(range(outputs), repeat=frames) if collapse(path) == tuple(labels)
    ]
    return -np.log(sum(np.exp(log_probs[np.arange(frames), list(path)].sum()) for path in paths))


def batch(seed: int, labels, frames, num_outputs: int = 3, dtype=torch.float64):
    rng = np.random.default_rng(seed)
    logits = torch.tensor(
        rng.standard_normal((len(labels), max(frames), num_outputs)), dtype=dtype, requires_grad=True
    )
    return logits, CtcSupervision.of(
        [np.array(one, np.int64) for one in labels], frames, [f"utt{n}" for n in range(len(labels))]
    )


def test_loss_equals_sum_over_all_alignments():
    labels, frames = [[1, 2], [1, 1], [], [2], [2, 1, 2], [2, 2, 1]], [5, 3, 4, 1, 4, 5]
    logits, supervision = batch(0, labels, frames)
    expected = sum(
        brute_force(logits[n, : frames[n]].detach().numpy(), labels[n]) for n in range(len(labels))
    )
    loss, counts = ctc_loss(logits, supervision)
    assert loss.item() == pytest.approx(expected, rel=1e-12)
    assert counts == CtcCounts(6, sum(frames), 11)
    single, _ = ctc_loss(logits.float(), supervision)
    assert single.dtype == torch.float32 and single.item() == pytest.approx(expected, rel=1e-5)
    assert ctc_loss(logits.bfloat16(), supervision)[0].dtype == torch.float32


def test_gradient_equals_finite_differences_and_is_zero_after_end():
    logits, supervision = batch(1, [[1, 1], [2], []], [4, 2, 3])
    assert torch.autograd.gradcheck(lambda x: ctc_loss(x, supervision)[0], logits)
    ctc_loss(logits, supervision)[0].backward()
    assert logits.grad[1, 2:].abs().max() == 0 and logits.grad[1, :2].abs().min() > 0
    assert logits.grad.sum(2).abs().max() < 1e-12


def test_loss_equals_torch_on_larger_sequences():
    rng = np.random.default_rng(2)
    labels, frames = [rng.integers(1, 20, rng.integers(1, 12)) for _ in range(8)], rng.integers(30, 60, 8)
    logits, supervision = batch(3, labels, frames.tolist(), 20, torch.float32)
    padded = torch.zeros(8, 12, dtype=torch.int64)
    for n, one in enumerate(labels):
        padded[n, : len(one)] = torch.from_numpy(one)
    peer = F.ctc_loss(
        F.log_softmax(logits, 2).transpose(0, 1),
        padded,
        torch.tensor(frames),
        torch.tensor([len(one) for one in labels]),
        reduction="none",
    )
    assert ctc_loss(logits, supervision)[0].item() == pytest.approx(peer.sum().item(), rel=1e-5)


def test_too_short_utterances_are_skipped_and_named():
    logits, supervision = batch(4, [[1, 1], [1, 2], [1, 2, 1], [1]], [2, 2, 2, 0])
    assert supervision.min_frames.tolist() == [3, 2, 3, 1]
    assert supervision.too_short()[0] == "utt0: 2 output frame(s) for 2 unit(s), which need 3"
    loss, counts = ctc_loss(logits, supervision)
    assert counts == CtcCounts(1, 2, 2, ("utt0", "utt2", "utt3"))
    assert loss.item() == pytest.approx(brute_force(logits[1].detach().numpy(), [1, 2]))
    loss.backward()
    assert logits.grad[[0, 2, 3]].abs().max() == 0 and logits.grad[1].abs().min() > 0


def test_minibatch_without_possible_alignment_is_zero():
    logits, supervision = batch(5, [[1, 1]], [2])
    loss, counts = ctc_loss(logits, supervision)
    loss.backward()
    assert loss.item() == 0 and counts.skipped == ("utt0",) and logits.grad.abs().max() == 0


def test_errors_name_the_utterance():
    for labels, frames, message in (
        ([3], 2, "utt1: unit 3 is not in 1 to 2"),
        ([0], 2, "utt1: unit 0 is not in 1 to 2"),
        ([1], 5, "utt1: expected 5 output frames, but the network has 2"),
    ):
        logits, _ = batch(6, [[1], [1]], [2, 2])
        with pytest.raises(UserError, match=message):
            ctc_loss(
                logits, CtcSupervision.of([np.array([1]), np.array(labels)], [2, frames], ["utt0", "utt1"])
            )
