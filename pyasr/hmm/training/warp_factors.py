r"""Warp factors of speakers' frequencies by maximum likelihood, with a GMM system and its alignments.

Reference: L. Lee, R. Rose, "Speaker normalization using efficient frequency warping procedures", ICASSP 1996.
For a speaker whose speech frames t are aligned with pdfs s(t), the factor is

    argmax_a sum_t log p(m^a + (x_t^a - m^a) sigma^1 / sigma^a | s(t))

where x^a is the input of the model for audio warped by a, with means m^a and standard deviations sigma^a over
these frames. Without the scaling, warps that reduce the variance of the features would be preferred. The
scaling takes the place of the Jacobian of the warp, like `--normalize-var` in Kaldi's `train_lvtln.sh`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pyasr.base import log
from pyasr.base.cli.options import group, option
from pyasr.base.errors import UserError
from pyasr.base.outputs.output import atomic_write
from pyasr.data.parts.job_parts import part_of, parts_of_jobs
from pyasr.data.tables.datadir import DataDir
from pyasr.feats.cmvn import cmvn_stats, normaliser
from pyasr.feats.compute.feature_extractor import Extractor
from pyasr.feats.extraction.extract_dir import TABLES_OF_AUDIO, audio_options, batches, read_waveforms
from pyasr.feats.extraction.vtln import SPEAKER_WARPS
from pyasr.feats.inputs import InputOptions
from pyasr.feats.options import read_feature_options
from pyasr.feats.transforms import MATRIX_FILE, apply_transform, read_matrix
from pyasr.hmm.align.pdf_posteriors import SilenceWeighting
from pyasr.hmm.model.gmm import AmDiagGmm
from pyasr.hmm.model.gmm_dir import check_phones
from pyasr.hmm.model.gmm_update import by_pdf, pdf_blocks
from pyasr.hmm.model.model_file import first_pass_model, read_model
from pyasr.hmm.transforms.unadapted import speakers_advice
from pyasr.io.int_vectors import read_job_archives
from pyasr.io.text_tables import write_table
from pyasr.lang.lang_dirs.lang_dir import LangDir


@dataclass(frozen=True)
class VtlnOptions:
    """The warp factors to try."""

    least_warp: float = option(0.8, "minimum warp factor", minimum=0.5, maximum=1.0, rare=True)
    greatest_warp: float = option(1.2, "maximum warp factor", minimum=1.0, maximum=2.0, rare=True)
    warp_step: float = option(0.02, "step between warp factors", minimum=0.001, rare=True)
    min_speech: int = option(
        200, "minimum number of speech frames of a speaker; with fewer, its factor is 1", minimum=1, rare=True
    )

    @property
    def factors(self) -> np.ndarray:
        """All factors, ascending; 1 is among them."""
        below = int((1 - self.least_warp) / self.warp_step + 1e-6)
        above = int((self.greatest_warp - 1) / self.warp_step + 1e-6)
        return 1 + self.warp_step * np.arange(-below, above + 1)


@dataclass(frozen=True)
class VtlnSpec:
    """The work of all jobs. `seed` is the seed of the dither of features."""

    data: Path
    lang: Path
    ali_dir: Path
    out: Path
    num_jobs: int
    seed: int
    vtln: VtlnOptions = group(VtlnOptions)


class WarpedInputs:
    """The input of a model for a speaker's utterances, at any warp factor."""

    def __init__(self, data: DataDir, model_dir: Path, seed: int):
        self.data, self.seed = data, seed
        self.inputs = InputOptions.load(model_dir)
        matrix = Path(model_dir) / MATRIX_FILE
        self.matrix = read_matrix(matrix) if matrix.exists() else None
        self.audio = audio_options(data.path)
        self.extractor = Extractor(read_feature_options(data.path, "is needed to compute warped features"))

    def read(self, utterances: Sequence[str]) -> list[tuple[list[str], list[np.ndarray]]]:
        """The audio of utterances, in batches for `features`."""
        rate = self.extractor.rate_hz
        return list(batches(read_waveforms(self.data, utterances, rate, self.audio), rate))

    def features(
        self, audio: list[tuple[list[str], list[np.ndarray]]], factor: float
    ) -> dict[str, np.ndarray]:
        """{utterance: float32 (T, D)} of the audio of one speaker."""
        raw: dict[str, np.ndarray] = {}
        for keys, waves in audio:
            raw |= zip(keys, self.extractor(waves, keys, self.seed, factor))
        of_speaker = normaliser(sum(map(cmvn_stats, raw.values()), np.zeros(())), self.inputs.norm_vars)
        return {utt: self._input(features, of_speaker) for utt, features in raw.items()}

    def _input(self, raw: np.ndarray, of_speaker) -> np.ndarray:
        features = self.inputs.extend(self.inputs.normalise(raw, of_speaker))
        return (
            features if self.matrix is None else apply_transform(features, self.matrix, "the model's matrix")
        )


def score_speakers(spec: VtlnSpec, job: int) -> None:
    """Score the speakers of job `job` (1-based): writes scores.JOB.json, {speaker: [frames of speech,
    [log-likelihoods]]}."""
    lang = LangDir(spec.lang)
    check_phones(spec.ali_dir, lang)
    trans, gmm = read_model(first_pass_model(spec.ali_dir))
    weighting = SilenceWeighting(trans, lang.silence_phones, 0.0)
    part = part_of(spec.data, spec.out, spec.num_jobs, job, _cut)
    data = part.directory()
    warped = WarpedInputs(data, spec.ali_dir, spec.seed)
    speakers = list(dict.fromkeys(data.utt2spk[utt] for utt in part.utterances))
    scores: dict[str, tuple[int, list[float]]] = {}
    alignments = read_job_archives(spec.ali_dir, keys=set(part.utterances))
    pdfs = {utt: weighting.pdfs_of_alignment(tids) for utt, tids in alignments.items()}
    progress = log.Progress("warps", len(speakers), "speakers")
    for speaker in speakers:
        num_frames, log_likes = score_speaker(data.spk2utt[speaker], warped, pdfs, gmm, spec.vtln.factors)
        scores[speaker] = num_frames, log_likes.tolist()
        progress.update(len(scores))
    with atomic_write(_scores(spec.out, job)) as f:
        json.dump(scores, f)


def _scores(out: Path, job: int) -> Path:
    return out / f"scores.{job}.json"


def score_speaker(
    utterances: Sequence[str],
    warped: WarpedInputs,
    pdfs: dict[str, np.ndarray],
    gmm: AmDiagGmm,
    factors: np.ndarray,
) -> tuple[int, np.ndarray]:
    """(frames of speech, their log-likelihood for each factor). `pdfs`: {aligned utterance: pdf of each
    frame, -1 for silence}."""
    aligned = [utt for utt in utterances if utt in pdfs]
    if not aligned:
        return 0, np.zeros(len(factors))
    audio = warped.read(utterances)
    plain, wanted = _speech(warped.features(audio, 1.0), aligned, pdfs)
    spread = plain.std(0, dtype=np.float64)
    log_likes = [
        _log_like(_speech(warped.features(audio, factor), aligned, pdfs)[0], spread, wanted, gmm)
        for factor in factors
    ]
    return len(plain), np.array(log_likes)


def _log_like(features: np.ndarray, spread: np.ndarray, pdfs: np.ndarray, gmm: AmDiagGmm) -> float:
    """Log-likelihood of frames (N, D) with `pdfs`, scaled to the standard deviations `spread`."""
    if not len(features):
        return 0.0
    mean, own = features.mean(0, dtype=np.float64), features.std(0, dtype=np.float64)
    scaled = mean + (features - mean) * np.divide(spread, own, out=np.ones_like(own), where=own > 0)
    return sum(
        float(block.log_likes.sum(dtype=np.float64))
        for block in pdf_blocks(gmm, by_pdf(scaled.astype(np.float32), pdfs))
    )


def _speech(
    features: dict[str, np.ndarray], aligned: list[str], pdfs: dict[str, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """The frames that are not silence, float32 (N, D), and their pdfs (N)."""
    for utt in aligned:
        if len(features[utt]) != len(pdfs[utt]):
            found = f"the alignment of {utt} has {len(pdfs[utt])} frames, its audio has {len(features[utt])}"
            raise UserError(f"{found}; compute the features and align the data directory again")
    wanted = np.concatenate([pdfs[utt] for utt in aligned])
    return np.concatenate([features[utt] for utt in aligned])[wanted >= 0], wanted[wanted >= 0]


def parts_to_score(spec: VtlnSpec) -> AbstractContextManager[None]:
    """Context in which the jobs have their parts of the data directory."""
    return parts_of_jobs(spec.data, spec.out, _cut(spec.data, spec.num_jobs), TABLES_OF_AUDIO)


def _cut(data: Path, num_jobs: int) -> list[list[str]]:
    """The utterances of each job; all utterances of a speaker are in one job."""
    tables = DataDir(data)
    return [
        [utt for speaker in speakers for utt in tables.spk2utt[speaker]]
        for speakers in speakers_of_jobs(tables, num_jobs)
    ]


def speakers_of_jobs(data: DataDir, num_jobs: int) -> list[list[str]]:
    """Speakers in `num_jobs` lists of nearly equal duration: in descending order of duration, each to the
    list that is shortest so far."""
    length = {
        speaker: sum(data.durations[utt] for utt in utterances)
        for speaker, utterances in data.spk2utt.items()
    }
    lists, loads = [list[str]() for _ in range(num_jobs)], np.zeros(num_jobs)
    for speaker in sorted(length, key=lambda speaker: (-length[speaker], speaker)):
        least = int(np.argmin(loads))
        lists[least].append(speaker)
        loads[least] += length[speaker]
    return lists


def choose_warps(
    scores: dict[str, tuple[int, list[float]]], options: VtlnOptions, of_speakers: str = ""
) -> dict[str, float]:
    """{speaker: the factor of maximum likelihood}, 1 for speakers with too little speech. Logs the gain.

    of_speakers  the reason why speakers have little speech, for the log; '' if unknown
    """
    factors = options.factors
    neutral = int(np.argmin(np.abs(factors - 1)))
    short = {speaker for speaker, (num_frames, _) in scores.items() if num_frames < options.min_speech}
    if short:
        names = ", ".join(sorted(short)[:5]) + ", ..." * (len(short) > 5)
        who = (
            f"{len(short)} of {len(scores)} speakers have fewer than {options.min_speech} frames of "
            f"aligned speech{of_speakers}"
        )
        log.warning(
            f"{who} and keep the factor 1: {names}; lower --min-speech, or assign utterances to their real "
            "speakers"
        )
    chosen = {
        speaker: neutral if speaker in short else int(np.argmax(log_likes))
        for speaker, (_, log_likes) in scores.items()
    }
    gain = sum(scores[speaker][1][place] - scores[speaker][1][neutral] for speaker, place in chosen.items())
    warps = {speaker: round(float(factors[place]), 6) for speaker, place in chosen.items()}
    num_frames = sum(num_frames for num_frames, _ in scores.values())
    warp_range = f"warp factors of {min(warps.values()):g} to {max(warps.values()):g}"
    log.info(
        f"{len(warps)} speakers, {warp_range}, log-likelihood per frame {gain / num_frames:+.3f} over "
        f"{num_frames} frames of speech"
    )
    return warps


def merge_scores(spec: VtlnSpec) -> None:
    """Choose the factors from the scores of all jobs and write spk2warp. Raises UserError if no utterance was
    aligned."""
    scores: dict[str, tuple[int, list[float]]] = {}
    for job in range(1, spec.num_jobs + 1):
        scores |= json.loads(_scores(spec.out, job).read_text(encoding="utf-8"))
    if not any(num_frames for num_frames, _ in scores.values()):
        raise UserError(
            f"{spec.ali_dir}: contains no alignment of an utterance of {spec.data}; align this data "
            "directory first"
        )
    warps = choose_warps(scores, spec.vtln, speakers_advice(DataDir(spec.data)))
    write_table(spec.out / SPEAKER_WARPS, {speaker: f"{warp:g}" for speaker, warp in warps.items()})
