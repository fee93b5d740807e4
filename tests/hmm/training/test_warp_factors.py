"""Warp factors of speakers: those of synthetic vocal tracts are recovered; the likelihood equals a direct
computation."""

import numpy as np
import pytest
import soundfile
from steps_here import run_here as run_step_here

from pyasr.base.cli.job_options import JobOptions
from pyasr.base.errors import UserError
from pyasr.data.tables.datadir import DataDir
from pyasr.feats.cmvn import cmvn_stats, normaliser
from pyasr.feats.compute.feature_extractor import Extractor
from pyasr.feats.deltas import add_deltas
from pyasr.feats.extraction.extract_dir import ArchiveOptions, FeatureStep, extract_shard, make_features
from pyasr.feats.extraction.speaker_cmvn import publish, write_speaker_cmvn
from pyasr.feats.inputs import InputOptions
from pyasr.feats.options import FrameOptions, MfccOptions
from pyasr.hmm.align.viterbi import AlignOptions
from pyasr.hmm.model.gmm_dir import copy_model, write_static_files
from pyasr.hmm.model.gmm_update import GmmUpdateOptions
from pyasr.hmm.model.model_file import read_model
from pyasr.hmm.training.align_gmm import AlignSpec, align_shard
from pyasr.hmm.training.train_gmm import GmmScheduleOptions, TrainOptions
from pyasr.hmm.training.train_mono import MonoSpec, train_rank
from pyasr.hmm.training.warp_factors import (
    VtlnOptions,
    VtlnSpec,
    WarpedInputs,
    choose_warps,
    merge_scores,
    score_speaker,
    score_speakers,
    speakers_of_jobs,
)
from pyasr.io.ark import load_all
from pyasr.io.int_vectors import read_job_archives, write_int_vectors
from pyasr.io.text_tables import read_table, write_table
from pyasr.lang.lang_dirs.lang_dir import LangDir
from pyasr.lang.lang_dirs.prepare_lang import LangOptions, write_lang
from pyasr.lang.lexicons.dict_dir import DictDir
from pyasr.lang.lexicons.lexicon import Lexicon
from pyasr.parallel.communication.comm import SoloComm

VOWELS = {"A": (750, 1250), "E": (500, 1900), "I": (300, 2250), "O": (450, 850)}
# on formants: a shorter tract has higher ones
SCALES = {"child": 1.12, "man": 0.9, "neutral": 1.0, "woman": 1.06}
RATE = 8000
OPTIONS = MfccOptions(frame=FrameOptions(sample_frequency=float(RATE)), use_energy=False)
INPUTS = InputOptions(deltas=1)


def whispered(vowel, seconds, scale, rng):
    """Noise through the resonances of a vowel."""
    spectrum = np.fft.rfft(rng.standard_normal(int(seconds * RATE)))
    hertz = np.fft.rfftfreq(int(seconds * RATE), 1 / RATE) / scale
    shape = sum(1 / (1 + ((hertz - formant) / 90) ** 2) for formant in VOWELS[vowel]) + 0.003
    return np.fft.irfft(3000 * spectrum * shape, int(seconds * RATE))


def utterance(words, scale, rng):
    pause = [30 * rng.standard_normal(int(0.15 * RATE)) for _ in range(2)]
    vowels = [whispered(word, rng.uniform(0.15, 0.25), scale, rng) for word in words]
    return np.round(np.concatenate([pause[0], *vowels, pause[1]])).astype(np.int16)


@pytest.fixture(scope="module")
def system(tmp_path_factory):
    """(data, lang, alignment directory) of a monophone system trained on the neutral speaker."""
    place, rng = tmp_path_factory.mktemp("vtln"), np.random.default_rng(0)
    data, train, lang, mono, ali = (place / name for name in ("data", "train", "lang", "mono", "ali"))
    for directory in (data, train, lang, mono, ali):
        directory.mkdir()
    text, utt2spk = {}, {}
    for speaker, scale in SCALES.items():
        for i in range(16 if speaker == "neutral" else 8):
            utt, words = f"{speaker}-{i}", rng.choice(list(VOWELS), 6)
            soundfile.write(place / f"{utt}.wav", utterance(words, scale, rng), RATE, subtype="PCM_16")
            text[utt], utt2spk[utt] = " ".join(words), speaker
    write_table(data / "wav.scp", {utt: f"{place}/{utt}.wav" for utt in text})
    write_table(data / "text", text)
    write_table(data / "utt2spk", utt2spk)
    make_features(FeatureStep(data, archive=ArchiveOptions(), jobs=JobOptions(nj=1)), OPTIONS, run_here)
    (data / "cmvn").mkdir()
    write_speaker_cmvn(data, data / "cmvn", data / "cmvn")
    publish(data)
    lexicon = Lexicon()
    for vowel in VOWELS:
        lexicon.add(vowel, (vowel,), 1.0)
    lexicon.add("<unk>", ("SPN",), 1.0)
    write_lang(
        DictDir(lexicon, [("SIL",), ("SPN",)], [(vowel,) for vowel in VOWELS], "SIL", []),
        "<unk>",
        LangOptions(),
        lang,
    )
    for name in ("text", "utt2spk", "feats.scp", "cmvn.scp"):
        write_table(
            train / name,
            {key: value for key, value in read_table(data / name).items() if key.startswith("neutral")},
        )
    schedule = GmmScheduleOptions(
        num_iters=12, max_iter_inc=8, num_gauss=40, realign_iters="1 2 3 4 6 8 10", first_beam=20.0
    )
    beams = AlignOptions(beam=100.0, retry_beam=400.0)
    train_rank(
        MonoSpec(train, lang, mono, TrainOptions(schedule, beams, GmmUpdateOptions(min_count=5.0)), INPUTS),
        SoloComm(),
    )
    align_shard(AlignSpec(data, lang, mono, ali, 1, beams, 1.0), 1)
    write_static_files(ali, LangDir(lang), INPUTS, 1)
    copy_model(mono, ali)
    return data, lang, ali


def run_here(jobs, log, function, spec):
    extract_shard(spec, 1)


def estimate(system, out, num_jobs=1, **options):
    out.mkdir()
    spec = VtlnSpec(*system, out, num_jobs, 0, VtlnOptions(**options))
    for job in range(1, num_jobs + 1):
        score_speakers(spec, job)
    merge_scores(spec)
    return {speaker: float(warp) for speaker, warp in read_table(out / "spk2warp").items()}


def test_warp_factors_recover_vocal_tract_scales(system, tmp_path):
    """The factors invert the speakers' scales. The number of jobs has no effect."""
    warps = estimate(system, tmp_path / "one")
    for speaker, scale in SCALES.items():
        assert warps[speaker] == pytest.approx(1 / scale, abs=0.035), warps
    assert estimate(system, tmp_path / "three", 3) == warps


def test_features_are_computed_with_warp_factors(system, tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    for name in ("wav.scp", "utt2spk"):
        write_table(data / name, read_table(system[0] / name))
    write_table(data / "spk2warp", {"child": 0.9, "man": 1.1, "neutral": 1, "woman": 0.94})
    make_features(FeatureStep(data, archive=ArchiveOptions(), jobs=JobOptions(nj=1)), OPTIONS, run_here)
    made = load_all(data / "feats.scp")
    for utt, warp in {"child-1": 0.9, "man-2": 1.1, "neutral-0": 1.0}.items():
        wave = soundfile.read(read_table(data / "wav.scp")[utt], dtype="int16")[0].astype(np.float32)
        np.testing.assert_allclose(made[utt], Extractor(OPTIONS)([wave], warp=warp)[0], atol=1e-3)
    write_table(data / "spk2warp", {"child": 0.9})
    with pytest.raises(UserError, match="spk2warp: no line for man; 3 of 4 are missing"):
        make_features(FeatureStep(data, archive=ArchiveOptions(), jobs=JobOptions(nj=1)), OPTIONS, run_here)


def test_likelihood_equals_direct_computation(system):
    data, lang, mono = system
    trans, gmm = read_model(mono / "final.mdl")
    silence = LangDir(lang).silence_phones
    tids = {utt: ids for utt, ids in read_job_archives(mono).items() if utt.startswith("woman")}
    pdfs = {
        utt: np.where(np.isin(trans.tid2phone[ids], silence), -1, trans.tid2pdf[ids])
        for utt, ids in tids.items()
    }
    del pdfs["woman-3"]  # an utterance without alignment counts only in the mean of the speaker
    utterances = sorted(tids)
    waves = [
        soundfile.read(read_table(data / "wav.scp")[utt], dtype="int16")[0].astype(np.float32)
        for utt in utterances
    ]

    def speech(warp):
        raw = Extractor(OPTIONS)(waves, utterances, warp=warp)
        mean, _ = normaliser(sum(map(cmvn_stats, raw)), False)
        rows = {utt: add_deltas(x - mean, 1) for utt, x in zip(utterances, raw)}
        return np.concatenate([rows[utt][pdfs[utt] >= 0] for utt in utterances if utt in pdfs]).astype(
            np.float64
        )

    plain, warped = speech(1.0), speech(0.94)
    x = warped.mean(0) + (warped - warped.mean(0)) / warped.std(0) * plain.std(0)
    wanted = np.concatenate([pdfs[utt][pdfs[utt] >= 0] for utt in utterances if utt in pdfs])
    total = 0.0
    for frame, pdf in zip(x, wanted):
        own = slice(gmm.offsets[pdf], gmm.offsets[pdf + 1])
        exponents = -0.5 * (
            np.log(2 * np.pi * gmm.variances[own]) + (frame - gmm.means[own]) ** 2 / gmm.variances[own]
        ).sum(1)
        total += np.log(np.sum(gmm.weights[own] * np.exp(exponents)))
    warped_inputs = WarpedInputs(DataDir(data), mono, 0)
    num_frames, log_likes = score_speaker(utterances, warped_inputs, pdfs, gmm, np.array([0.94, 1.0]))
    assert num_frames == len(x)
    assert log_likes[0] == pytest.approx(total, rel=1e-5)


def test_speakers_with_little_speech_get_factor_one():
    options = VtlnOptions(least_warp=0.9, greatest_warp=1.1, warp_step=0.1, min_speech=50)
    np.testing.assert_allclose(options.factors, [0.9, 1.0, 1.1])
    scores = {
        "a": (49, [5.0, 1.0, 2.0]),
        "b": (50, [5.0, 1.0, 2.0]),
        "c": (0, [0.0, 0.0, 0.0]),
        "d": (80, [1.0, 1.0, 1.5]),
    }
    assert choose_warps(scores, options) == {"a": 1.0, "b": 0.9, "c": 1.0, "d": 1.1}


def test_factor_grid_contains_one():
    assert len(VtlnOptions().factors) == 21 and VtlnOptions().factors[10] == 1
    assert 1 in VtlnOptions(least_warp=0.85, warp_step=0.1).factors


def test_jobs_keep_speakers_whole(system):
    lists = speakers_of_jobs(DataDir(system[0]), 3)
    assert sorted(sum(lists, [])) == sorted(SCALES) and all(lists)


def test_alignments_of_other_data_are_refused(system, tmp_path):
    data, lang, mono = system
    other = tmp_path / "ali"
    other.mkdir()
    for name in ("final.mdl", "input.json", "num_jobs", "phones.txt"):
        (other / name).write_bytes((mono / name).read_bytes())
    alignments = read_job_archives(mono)
    write_int_vectors(other / "ali.1.gz", {f"x-{utt}": tids for utt, tids in alignments.items()})
    with pytest.raises(UserError, match="contains no alignment of an utterance"):
        estimate((data, lang, other), tmp_path / "none")
    write_int_vectors(other / "ali.1.gz", {utt: tids[:-1] for utt, tids in alignments.items()})
    report = (
        r"the alignment of neutral-0 has \d+ frames, its audio has \d+; compute the features and align "
        r"the data directory again"
    )
    with pytest.raises(UserError, match=report):
        estimate((data, lang, other), tmp_path / "short")


def test_changed_inputs_recompute_warp_factors(tmp_path, monkeypatch, capsys):
    data, lang, ali = (tmp_path / name for name in ("data", "lang", "ali"))
    names = {
        data: ["feats/options.json", "segments", "reco2speed", "reco2volume", "reco2distortion"],
        lang: ["phones.txt", "phones/silence.int"],
        ali: ["final.alimdl", "final.mat", "input.json", "ali.1.gz"],
    }
    files = [directory / name for directory in names for name in names[directory]]
    for path in files:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (ali / "num_jobs").write_text("1\n")
    write_table(data / "wav.scp", {"u1": "u1.wav"})
    write_table(data / "utt2spk", {"u1": "s1"})
    monkeypatch.setattr("pyasr.hmm.training.warp_factors.score_speakers", lambda spec, job: None)
    monkeypatch.setattr("pyasr.hmm.training.warp_factors.merge_scores", lambda spec: None)
    # this test does not make the model
    monkeypatch.setattr("pyasr.hmm.model.input_checks.check_gmm_input", lambda data, model: None)

    def messages() -> str:
        run_step_here("compute_vtln.py", data, lang, ali, tmp_path / "out")
        return capsys.readouterr().out

    messages()
    assert "is up to date" in messages()
    for path in files:
        path.write_text("u1 u1 0 1\n" if path.name == "segments" else "u1 {}\n")
        assert f"is out of date: {path} changed" in messages()


def test_features_not_written_by_a_step_are_refused(tmp_path):
    (tmp_path / "ali").mkdir()
    (tmp_path / "ali/final.mdl").touch()
    report = (
        "data/feats/options.json: no such file, which is needed to compute warped features; compute the "
        "features"
    )
    with pytest.raises(UserError, match=report):
        run_step_here(
            "compute_vtln.py", tmp_path / "data", tmp_path / "lang", tmp_path / "ali", tmp_path / "out"
        )
