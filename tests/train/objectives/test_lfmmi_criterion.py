"""The LF-MMI criterion on chunks: derivatives against finite differences in float64, numerators of chunks,
phases of the features."""

import numpy as np
import pytest
import torch
from lfmmi_toys import chain_model, random_sequences

from pyasr.base.errors import UserError
from pyasr.nn.networks.construction import network_from
from pyasr.nn.networks.layered import LayeredNetwork
from pyasr.nn.networks.two_outputs import TwoOutputs
from pyasr.sequence.lfmmi.aligned_phones_file import load_aligned_phones, save_aligned_phones
from pyasr.sequence.lfmmi.chain import AlignedPhones, num_subsampled, output_numbers
from pyasr.sequence.lfmmi.denominator_graph import make_denominator_graph
from pyasr.sequence.lfmmi.lfmmi import LfMmiOptions, lf_mmi_with_posteriors
from pyasr.sequence.lfmmi.phone_lm import PhoneLmOptions, estimate_phone_lm
from pyasr.sequence.lfmmi.supervision import SupervisionMaker, SupervisionOptions
from pyasr.train.minibatches.chunks import NO_TARGET, Packing
from pyasr.train.minibatches.feature_codec import Plain
from pyasr.train.minibatches.over_time import Phases
from pyasr.train.objectives.lfmmi_training import LfMmi, Numerators

DIM, SHARE = 3, 0.25
MODEL = chain_model(2, 1)
GRAPH = make_denominator_graph(estimate_phone_lm(random_sequences(0), PhoneLmOptions(3, 2, 4)), *MODEL)
MAKER = SupervisionMaker(GRAPH, *MODEL)
ALIGNED = {
    "a": AlignedPhones(np.array([1, 2, 1], np.int32), np.array([0, 5, 12, 19])),
    "b": AlignedPhones(np.array([3, 1], np.int32), np.array([0, 4, 7])),
    "c": AlignedPhones(np.array([1, 1, 2, 1], np.int32), np.array([0, 3, 8, 13, 21])),
}
LENGTHS = np.array([one.num_frames for one in ALIGNED.values()])


def chunks(chunk=12, left=2, right=4):
    """(features and targets of all chunks, both of which contain frame numbers)."""
    numbers = output_numbers(LENGTHS, 3)
    targets = np.split(numbers, np.cumsum(LENGTHS)[:-1])
    features = [
        np.stack([np.full(n, u), np.arange(n), np.ones(n)], 1).astype(np.float32)
        for u, n in enumerate(LENGTHS)
    ]
    store = Packing(left, right, chunk, 3).store(iter(features), targets, DIM, Plain(torch.float32), False)
    return store.gather(torch.arange(store.num_items))


def criterion(**options) -> LfMmi:
    return LfMmi(GRAPH, Numerators(MAKER, ALIGNED), LfMmiOptions(**options))


def network() -> TwoOutputs:
    random = torch.Generator().manual_seed(5)
    made = TwoOutputs(
        LayeredNetwork(
            ["tdnn splice=-1..1 dim=5 activation=tanh", "tdnn splice=-1..1 dim=4 stride=3 activation=tanh"],
            DIM,
            GRAPH.num_pdfs,
        ),
        SHARE,
    ).double()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.normal_(0, 0.5, generator=random)
    return made


def inputs(seed=0):
    """Random inputs for the targets of `chunks`, in float64."""
    x, targets = chunks()
    return torch.from_numpy(
        np.random.default_rng(seed).standard_normal((len(targets), 2 + 12 + 2, DIM))
    ), targets


def test_outputs_are_numbered_over_utterances():
    assert output_numbers(np.array([4, 0, 1, 6]), 3).tolist() == [0, 0, 0, 1, 2, 3, 3, 3, 4, 4, 4]
    assert output_numbers(np.array([2, 1]), 1).tolist() == [0, 1, 2]


def test_numerators_match_frames_of_chunks():
    """Chunks begin at frames that have an output, and the numerator is that of the frames in the features."""
    x, targets = chunks()
    for row, found, numerator in zip(x.numpy(), targets.numpy(), Numerators(MAKER, ALIGNED).of(targets)):
        utterance, first = int(row[2, 0]), int(row[2, 1])
        key = list(ALIGNED)[utterance]
        assert first % 3 == 0
        states = MAKER.utterance(key, ALIGNED[key])
        expected = MAKER.chunk(states, first // 3, min(4, states.num_frames - first // 3))
        assert numerator.key == key
        assert all(
            np.array_equal(ours, theirs)
            for ours, theirs in zip(vars(numerator).values(), vars(expected).values())
        )
        known = found[found != NO_TARGET]
        assert (np.diff(known) == 1).all() and len(known)
    seen = targets[targets != NO_TARGET].tolist()
    assert sorted(seen) == list(range(int(num_subsampled(LENGTHS, 3).sum())))


def test_derivatives_equal_finite_differences():
    """Of F + X for the second layer, F + c X below both, and F for the first, with constant posteriors of the
    numerators."""
    made, (x, targets), whole = network(), inputs(), criterion(leaky_hmm_coefficient=0.1, l2_regularize=0.01)
    loss, sums = whole.loss(made, x, targets)
    loss.backward()
    supervisions, known = whole.numerators.of(targets), (targets != NO_TARGET)[:, :, None]
    base = made(x)
    _, posteriors, counts = lf_mmi_with_posteriors(base[0], supervisions, GRAPH, whole.options)

    def parts() -> tuple[float, float]:
        """F and X; outputs without a target have their previous values."""
        with torch.no_grad():
            logits, second = (torch.where(known, now, then) for now, then in zip(made(x), base))
            objf = lf_mmi_with_posteriors(logits, supervisions, GRAPH, whole.options)[0]
            return float(objf), float((posteriors * torch.log_softmax(second, 2)).sum())

    for name, parameter in made.named_parameters():
        shares = (
            (0, 1) if name.startswith("second") else (1, 0) if name.startswith("main.output") else (1, SHARE)
        )
        for place in np.random.default_rng(len(name)).choice(
            parameter.numel(), min(6, parameter.numel()), replace=False
        ):
            slopes = []
            for step in (1e-5, -1e-5):
                parameter.data.view(-1)[place] += step
                slopes.append(sum(share * part for share, part in zip(shares, parts())))
                parameter.data.view(-1)[place] -= step
            assert -float(parameter.grad.view(-1)[place]) == pytest.approx(
                (slopes[0] - slopes[1]) / 2e-5, abs=1e-6
            ), name
    objf, cross_entropy = parts()
    assert sums.tolist() == pytest.approx([-counts.log_prob, -cross_entropy, counts.num_frames])
    assert float(loss.detach()) == pytest.approx(-objf - cross_entropy)


def test_frames_without_targets_have_zero_gradient():
    class Outputs(torch.nn.Module):
        def forward(self, x):
            return x, 2 * x

    _, targets = chunks()
    x = torch.randn(
        *targets.shape,
        GRAPH.num_pdfs,
        dtype=torch.float64,
        generator=torch.Generator().manual_seed(0),
        requires_grad=True,
    )
    criterion().loss(Outputs(), x, targets)[0].backward()
    unknown = targets == NO_TARGET
    assert unknown.any() and not x.grad[unknown].any() and x.grad[~unknown].any(dim=1).all()


def test_chunk_with_nan_is_excluded_from_both_objectives():
    """The derivatives and the sums are those of the other chunks."""

    class Outputs(torch.nn.Module):
        def forward(self, x):
            return x, 2 * x

    _, targets = chunks()
    x = torch.randn(
        *targets.shape, GRAPH.num_pdfs, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    )
    x[0] = torch.nan
    both, rest = x.clone().requires_grad_(), x[1:].clone().requires_grad_()
    learned = criterion()
    loss, sums = learned.loss(Outputs(), both, targets)
    expected, sums_of_rest = criterion().loss(Outputs(), rest, targets[1:])
    loss.backward()
    expected.backward()
    assert learned.num_skipped == 1 and sums.tolist() == pytest.approx(sums_of_rest.tolist())
    assert not both.grad[0].any() and torch.allclose(both.grad[1:], rest.grad)


def test_second_output_is_excluded_from_model_combination():
    made, (x, targets) = network(), inputs()
    value = criterion().log_probability(made, x, targets).detach()
    with torch.no_grad():
        made.second.weight.add_(1.0)
    for network_now in (made, made.main):
        assert torch.equal(criterion().log_probability(network_now, x, targets).detach(), value)
    again = network_from(made.describe())
    assert type(again) is TwoOutputs and [p.shape for p in again.parameters()] == [
        p.shape for p in made.parameters()
    ]


def test_minibatches_alternate_frame_phases():
    assert [Phases.of(factor) for factor in (1, 2, 3, 4)] == [
        Phases(0, 0),
        Phases(1, 0),
        Phases(1, 1),
        Phases(2, 1),
    ]
    x = torch.arange(9.0)[None, :, None]
    phases = Phases.of(3)
    assert [phases.cut(x, turn)[0, :, 0].tolist() for turn in (0, 1, 2, 3)] == [
        [*range(7)],
        [*range(1, 8)],
        [*range(2, 9)],
        [*range(7)],
    ]
    assert phases.cut(x)[0, :, 0].tolist() == [*range(1, 8)] and torch.equal(Phases().cut(x, 5), x)


def test_tolerances_decide_whether_phones_fit():
    rng, message = np.random.default_rng(4), set()
    for _ in range(200):
        tolerances = SupervisionOptions(*rng.integers(0, 3, 2).tolist())
        durations = rng.integers(1, 5, rng.integers(1, 7))
        aligned = AlignedPhones(
            rng.choice([1, 2], len(durations)).astype(np.int32), np.r_[0, np.cumsum(durations)]
        )
        try:
            SupervisionMaker(GRAPH, *MODEL, tolerances).utterance("utt", aligned)
            fits = True
        except UserError:
            fits = False
        assert tolerances.have_room(aligned) == fits
        message.add(fits)
    assert message == {True, False}


def test_phones_are_stored_on_disk(tmp_path):
    for aligned in (ALIGNED, {}):
        save_aligned_phones(tmp_path / "phones.npz", aligned.items())
        stored = load_aligned_phones(tmp_path / "phones.npz")
        found = dict(iter(stored))
        assert list(found) == list(aligned) and stored.lengths.tolist() == [
            one.num_frames for one in aligned.values()
        ]
        for key, one in aligned.items():
            assert np.array_equal(found[key].phones, one.phones) and np.array_equal(
                found[key].starts, one.starts
            )
