"""Carried states: the order of chunks in rows, and equality of chunks with carried state and whole
utterances."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from test_chunks import CODE, DIM, utterances

from pyasr.nn.networks.layered import LayeredNetwork
from pyasr.train.minibatches.chunks import NO_TARGET, Packing, RowStore
from pyasr.train.minibatches.rows import Rows, deal
from pyasr.train.sgd.carried_states import CarriedCrossEntropy
from pyasr.train.sgd.learner import Learner, LearnerOptions

LENGTHS = [1, 4, 5, 6, 13, 20, 3, 0, 5, 31, 2]
CHUNK, NUM_PDFS = 5, 4


def store_of(features, targets, left=0, right=0) -> RowStore:
    return Packing(left, right, CHUNK, carried=True).store(
        iter(features), targets, features[0].shape[1], CODE, False
    )


def test_rows_equal_example_of_docstring():
    names = [
        f"{name}{number}"
        for name, length in zip("abcdef", [3, 1, 3, 3, 3, 1])
        for number in range(1, length + 1)
    ]
    chunks, sizes = deal(np.array([3, 1, 3, 3, 3, 1]), np.arange(6), 3)
    assert [
        names[chunk] for chunk in chunks
    ] == "a1 b1 c1 a2 d1 c2 a3 d2 c3 e1 d3 f1 e2 e3".split() and sizes.tolist() == [3, 3, 3, 3, 1, 1]


@pytest.mark.parametrize("num_rows", [1, 3, 8, 50])
def test_utterances_are_distributed_evenly_over_rows(num_rows):
    """Each row has whole utterances without gaps, and the lengths of rows differ by at most the longest
    utterance."""
    num_chunks, order = np.random.default_rng(3).integers(0, 9, 40), np.random.default_rng(4).permutation(40)
    chunks, sizes = deal(num_chunks, order, num_rows)
    assert sorted(chunks.tolist()) == list(range(num_chunks.sum()))
    first = np.cumsum(num_chunks) - num_chunks
    rows = [[] for _ in range(sizes[0])]
    for minibatch in np.split(chunks, np.cumsum(sizes)[:-1]):
        for row, chunk in enumerate(minibatch):
            rows[row].append(int(chunk))
    lengths = [len(row) for row in rows]
    assert len(rows) == min(num_rows, (num_chunks > 0).sum()) and lengths == sorted(lengths, reverse=True)
    begins = {}
    for row in rows:
        while row:
            utterance = int(np.flatnonzero((first == row[0]) & (num_chunks > 0))[0])
            begins[utterance] = len(begins)
            assert row[: num_chunks[utterance]] == list(
                range(first[utterance], first[utterance] + num_chunks[utterance])
            )
            row = row[num_chunks[utterance] :]
    assert set(begins) == set(np.flatnonzero(num_chunks))
    assert lengths[0] - lengths[-1] <= num_chunks.max()


@pytest.mark.parametrize("left, right", [(0, 0), (2, 3)])
def test_chunk_follows_previous_one_of_its_row(left, right):
    """Every frame is a target once. Each chunk either begins an utterance or follows the last frame of the
    previous chunk in its row."""
    features, numbers = utterances(LENGTHS)
    last, seen = {}, []
    for x, targets in store_of(features, numbers, left, right).shuffled(3 * CHUNK, 0, 777, 1):
        assert x.first == 0 and x.x.shape[:2] == (len(targets), left + CHUNK + right)
        for row, (begins, frames, found) in enumerate(zip(x.begins, x.x[:, :, :2], targets)):
            known = found[found != NO_TARGET].tolist()
            seen += known
            utterance, frame = frames[left].tolist()
            assert begins == (frame == 0) and (begins or last[row] == (utterance, frame - 1))
            places = np.arange(frame - left, frame + CHUNK + right).clip(0, LENGTHS[int(utterance)] - 1)
            np.testing.assert_array_equal(frames[:, 1], places)
            last[row] = (utterance, frame + CHUNK - 1)
    assert sorted(seen) == list(range(sum(LENGTHS)))


def test_epoch_is_shuffled_and_resumes_anywhere():
    features, numbers = utterances(LENGTHS)
    store = store_of(features, numbers)

    def chunks(epoch, begin=0):
        return [
            (int(targets[0]), x.first + row)
            for x, pdfs in store.shuffled(20, begin, 777, epoch)
            for row, targets in enumerate(pdfs)
        ]

    assert chunks(1) == chunks(1) != chunks(2)
    for begin in range(0, store.num_frames + 1, CHUNK):
        assert chunks(1, begin) == chunks(1)[begin // CHUNK :]


def test_split_minibatch_keeps_row_states():
    """Two halves of a minibatch give the same outputs as the whole minibatch."""
    features, numbers = utterances(LENGTHS)
    learner, store = learner_of(["lstm cells=4", "delay frames=1"]), store_of(features, numbers, right=1)
    learner.network.eval()
    whole = [learner.criterion.logits(learner.network, x) for x, _ in store.in_turn(4 * CHUNK)]
    for (x, _), logits in zip(store.in_turn(4 * CHUNK), whole, strict=True):
        torch.testing.assert_close(
            torch.cat([learner.criterion.logits(learner.network, half) for half in x.chunk(2)]), logits
        )


def learner_of(lines, dim=DIM, **options) -> Learner:
    network = LayeredNetwork(lines, dim, NUM_PDFS)
    random = torch.Generator().manual_seed(1)
    for parameter in network.parameters():
        parameter.data.normal_(0, 0.6, generator=random)
    return Learner(
        network, LearnerOptions(precision="float32", device="cpu", **options), criterion=CarriedCrossEntropy()
    )


def speech(seed=0):
    """Random features and pdfs of utterances with LENGTHS frames."""
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((n, DIM)).astype(np.float32) for n in LENGTHS], [
        rng.integers(NUM_PDFS, size=n) for n in LENGTHS
    ]


@pytest.mark.parametrize(
    "lines",
    [
        ["lstm cells=5"],
        [
            "tdnn splice=-2..2 dim=6",
            "lstm cells=5 recurrent=3 delay=3",
            "tdnn splice=-1,1 dim=5",
            "delay frames=4",
        ],
    ],
)
def test_chunks_with_rate_0_equal_whole_utterances(lines):
    features, targets = speech()
    learner = learner_of(lines)
    store = store_of(features, targets, learner.network.left, learner.network.right)
    sums = sum(learner.step(x, pdfs, 0.0) for x, pdfs in store.shuffled(3 * CHUNK, 0, 777, 1))
    with torch.no_grad():
        posteriors = [learner.network.log_posteriors(torch.from_numpy(x)) for x in features]
    expected = -sum(float(log_p[range(len(pdfs)), pdfs].sum()) for log_p, pdfs in zip(posteriors, targets))
    assert sums[0].item() == pytest.approx(expected, rel=1e-6) and sums[2] == sum(LENGTHS)
    assert sums[1] == sum((log_p.argmax(1).numpy() == pdfs).sum() for log_p, pdfs in zip(posteriors, targets))


def truncated(network, features: torch.Tensor, pdfs: torch.Tensor, late: int) -> torch.Tensor:
    """The loss of an utterance with torch's own LSTM, computed in one piece with the state detached at each
    chunk boundary; float64."""
    affine, lstm = network.layers[0].others[0].double(), torch.nn.LSTM(6, 5).double()
    own = network.layers[1].directions[0].double()
    names = (
        ("weight_ih_l0", own.input.weight),
        ("weight_hh_l0", own.recurrent.weight),
        ("bias_ih_l0", own.input.bias),
    )
    weights = {**dict(names), "bias_hh_l0": torch.zeros(20, dtype=torch.float64)}
    padded = F.pad(features.T[None], (1, 1 + late), mode="replicate")[0].T
    h = torch.tanh(affine(padded.unfold(0, 3, 1).transpose(1, 2).flatten(1)))
    state, loss = None, 0.0
    for begin in range(0, len(pdfs), CHUNK):
        end = min(begin + CHUNK, len(pdfs))
        y, _ = torch.func.functional_call(lstm, weights, (h[begin : end + late], state))
        loss = loss + F.cross_entropy(network.output.double()(y[late:]), pdfs[begin:end], reduction="sum")
        _, state = torch.func.functional_call(lstm, weights, (h[begin:end], state))
        state = tuple(part.detach() for part in state)
    return loss


@pytest.mark.parametrize("late", [0, 2])
def test_gradients_equal_truncated_backpropagation(late):
    """Gradients summed over an epoch's minibatches are compared with whole utterances in float64."""
    lines = ["tdnn splice=-1..1 dim=6 activation=tanh", "lstm cells=5"] + [f"delay frames={late}"] * (
        late > 0
    )
    features, targets = speech()
    learner, exact = learner_of(lines), learner_of(lines).network
    learner.network.train()
    for x, pdfs in store_of(features, targets, learner.network.left, learner.network.right).shuffled(
        3 * CHUNK, 0, 777, 1
    ):
        learner.loss(x, pdfs)[0].backward()
    exact.double()
    pieces = [
        truncated(exact, torch.from_numpy(x).double(), torch.from_numpy(pdfs), late)
        for x, pdfs in zip(features, targets)
        if len(pdfs)
    ]
    wanted = torch.autograd.grad(sum(pieces), list(exact.parameters()))
    for found, expected in zip(learner.network.parameters(), wanted, strict=True):
        torch.testing.assert_close(found.grad.double(), expected, rtol=1e-4, atol=1e-4)


def test_checkpoint_restores_row_states_for_same_number_of_ranks():
    features, targets = speech()
    learner, store = learner_of(["lstm cells=4 delay=2"]), store_of(features, targets)
    minibatches = list(store.shuffled(3 * CHUNK, 0, 777, 1))
    before, after = minibatches[:3], minibatches[3:]
    for minibatch in before:
        learner.step(*minibatch, 0.0)
    state = learner.state_dict()
    expected = [learner.step(*minibatch, 0.0) for minibatch in after]
    resumed, resized = learner_of(["lstm cells=4 delay=2"]), learner_of(["lstm cells=4 delay=2"])
    resumed.load_state_dict(state)
    assert all(
        torch.equal(resumed.step(*minibatch, 0.0), sums)
        for minibatch, sums in zip(after, expected, strict=True)
    )
    resized.resume_resized(state)
    assert not all(
        torch.equal(resized.step(*minibatch, 0.0), sums) for minibatch, sums in zip(after, expected)
    )


def test_evaluation_keeps_row_states_of_training():
    features, targets = speech()
    learner, store = learner_of(["lstm cells=4"]), store_of(features, targets)
    minibatches = list(store.shuffled(3 * CHUNK, 0, 777, 1))
    plain = [learner.step(*minibatch, 0.0) for minibatch in minibatches]
    for minibatch, sums in zip(minibatches, plain):
        learner.evaluate(*minibatches[0])
        assert torch.equal(learner.step(*minibatch, 0.0), sums)


def test_rows_are_split_into_parts():
    rows = Rows(torch.zeros(5, 3, 2), torch.tensor([True, False, False, True, False]), first=2)
    assert [(len(part.x), part.begins.tolist(), part.first) for part in rows.chunk(2)] == [
        (3, [True, False, False], 2),
        (2, [True, False], 5),
    ]
