"""Online i-vectors against the definition, frame by frame; the last one equals the offline one; statistics of
earlier utterances."""

import numpy as np
import pytest
from ivector_toys import DIM, random_extractor, spoken, ubm_of

from pyasr.ivector import online_ivectors
from pyasr.ivector.online_ivectors import ExtractOptions, OnlineIvectorExtractor, SpeakerStats
from pyasr.ivector.ubm import PosteriorOptions, frame_posteriors

EXTRACTOR = random_extractor()
UBM = ubm_of(EXTRACTOR)
LENGTHS = [1, 10, 11, 47, 0, 101]


def utterance(num_frames: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng([seed, num_frames])
    return spoken(EXTRACTOR, np.array([5.0, 1.0, -2.0]), num_frames, rng)[1].astype(np.float32)


def direct(frames: np.ndarray, options: ExtractOptions) -> np.ndarray:
    """The i-vector of some frames by the formula, in one batch."""
    gamma = frame_posteriors(UBM, frames, options.posteriors)
    precision, linear = np.zeros((EXTRACTOR.dim,) * 2), np.zeros(EXTRACTOR.dim)
    for g, (matrix, inverse) in enumerate(zip(EXTRACTOR.projections, EXTRACTOR.precisions)):
        precision += gamma[:, g].sum() * matrix.T @ inverse @ matrix
        linear += matrix.T @ inverse @ (gamma[:, g] @ frames.astype(np.float64))
    scale = max(1.0, gamma.sum() / options.max_count) if options.max_count else 1.0
    first = np.eye(EXTRACTOR.dim)[0] * EXTRACTOR.prior_offset
    return np.linalg.solve(precision + scale * np.eye(EXTRACTOR.dim), linear + scale * first) - first


@pytest.mark.parametrize(
    "options",
    [
        ExtractOptions(max_remembered_frames=0),
        ExtractOptions(max_remembered_frames=0, max_count=0.0, posteriors=PosteriorOptions(1.0)),
        ExtractOptions(max_remembered_frames=0, max_count=3.0, ivector_period=7),
        ExtractOptions(max_remembered_frames=0, ivector_period=1),
    ],
)
def test_rows_equal_ivectors_of_frames_so_far(options, monkeypatch):
    """Frames are those of all earlier utterances of the speaker, and 0 ... i P of this one; with many or few
    rows per batch."""
    monkeypatch.setattr(online_ivectors, "_PERIODS_AT_ONCE", 4)
    speaker = OnlineIvectorExtractor(EXTRACTOR, UBM, options)
    before = SpeakerStats.zeros(EXTRACTOR.dim)
    heard = np.zeros((0, DIM), np.float32)
    for length in LENGTHS:
        frames = utterance(length)
        rows, own = speaker(frames, frames, before)
        assert (
            rows.shape == (-(-length // options.ivector_period), EXTRACTOR.dim) and rows.dtype == np.float32
        )
        for i in {0, 1, 3, 4, len(rows) - 1} & set(range(len(rows))):
            expected = direct(np.concatenate([heard, frames[: i * options.ivector_period + 1]]), options)
            np.testing.assert_allclose(rows[i], expected, rtol=1e-4, atol=1e-4)
        before, heard = before + own, np.concatenate([heard, frames])
        np.testing.assert_allclose(before.count, options.posteriors.posterior_scale * len(heard))
        np.testing.assert_allclose(speaker.ivector(before), direct(heard, options), rtol=1e-4, atol=1e-4)


def test_online_equals_offline_at_last_frame():
    """If the last frame is a multiple of the period, so that no frames follow the last row."""
    speaker = OnlineIvectorExtractor(EXTRACTOR, UBM, ExtractOptions())
    nothing = SpeakerStats.zeros(EXTRACTOR.dim)
    frames = utterance(61)
    rows, own = speaker(frames, frames, nothing)
    np.testing.assert_array_equal(rows[-1], speaker.ivector(own))
    again, _ = speaker(frames[:33], frames[:33], nothing)
    np.testing.assert_allclose(again, rows[:4], atol=1e-5)  # later frames do not change earlier rows


def test_no_frames_give_the_prior():
    speaker = OnlineIvectorExtractor(EXTRACTOR, UBM, ExtractOptions())
    nothing = SpeakerStats.zeros(EXTRACTOR.dim)
    assert speaker.ivector(nothing).tolist() == [0.0] * EXTRACTOR.dim
    rows, own = speaker(utterance(0), utterance(0), nothing)
    assert rows.shape == (0, EXTRACTOR.dim) and own.count == 0


def test_earlier_utterances_count_up_to_limit():
    speaker = OnlineIvectorExtractor(EXTRACTOR, UBM, ExtractOptions(max_remembered_frames=30))
    nothing = SpeakerStats.zeros(EXTRACTOR.dim)
    frames = utterance(90)
    _, own = speaker(frames, frames, nothing)
    kept = speaker.remembered(own)
    np.testing.assert_allclose(
        [kept.count, kept.linear[1], kept.quadratic[0, 1]], [3.0, own.linear[1] / 3, own.quadratic[0, 1] / 3]
    )
    _, little = speaker(frames[:20], frames[:20], nothing)
    assert speaker.remembered(little).count == little.count and speaker.remembered(nothing).count == 0


def test_posteriors_use_normalised_frames_and_moments_plain_ones():
    """A shift of only the plain frames leaves the posteriors, and thus the quadratic term, unchanged."""
    speaker = OnlineIvectorExtractor(EXTRACTOR, UBM, ExtractOptions())
    nothing = SpeakerStats.zeros(EXTRACTOR.dim)
    frames = utterance(40)
    (_, own), (_, shifted) = speaker(frames, frames, nothing), speaker(frames + 1, frames, nothing)
    np.testing.assert_array_equal(own.quadratic, shifted.quadratic)
    assert np.abs(own.linear - shifted.linear).max() > 1
