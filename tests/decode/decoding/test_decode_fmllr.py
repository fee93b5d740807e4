"""steps/decode_fmllr.py on speakers with distorted features: adaptation recovers the words, also with several
jobs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from steps_here import run_here

from pyasr.base.errors import UserError
from pyasr.decode.decoding.decode_dir import DecodeSpec, decode_shard, start_output
from pyasr.decode.decoding.decode_fmllr import (
    AdaptOptions,
    FmllrDecodeSpec,
    check_system,
    decode_again,
    first_stats,
    remove_intermediate,
    rescore_last,
)
from pyasr.decode.lattices.lattice import best_path
from pyasr.decode.lattices.lattice_io import LatticeWriter, read_lattices
from pyasr.decode.search.decode_options import DecodeOptions
from pyasr.feats.inputs import InputOptions, open_features
from pyasr.feats.transforms import read_transforms
from pyasr.hmm.model.gmm import AmDiagGmm
from pyasr.hmm.model.model_file import read_model, write_model, write_subsampling
from pyasr.hmm.model.topology import Topology, left_to_right
from pyasr.hmm.model.transitions import TransitionModel
from pyasr.hmm.transforms.fmllr import FmllrOptions, load_stats
from pyasr.io.ark import ArkWriter
from pyasr.io.openfst import Fst, write_fst
from pyasr.io.text_tables import read_table, write_table

ROOT = Path(__file__).resolve().parents[3]
NUM_WORDS, FRAMES_PER_WORD = 5, 8
MEANS = 3 * np.random.default_rng(8).standard_normal((NUM_WORDS, 3))
SPREAD = np.array([1.0, 0.5, 0.7])
DISTORTIONS = {"a": np.eye(3), "b": np.array([[0.7, 0.3, 0.0], [-0.2, 1.2, 0.1], [0.3, 0.0, 0.8]])}


def write_data(data: Path) -> dict[str, str]:
    """Twelve utterances of six words for each of two speakers; returns their words as text."""
    rng, said = np.random.default_rng(0), {}
    data.mkdir()
    with ArkWriter(data / "f.ark", data / "feats.scp") as writer:
        for i in range(24):
            utt = f"{'ab'[i % 2]}-{i:02d}"
            # a word twice in a row would sound like one
            words = np.cumsum(rng.integers(1, NUM_WORDS, 6)) % NUM_WORDS
            frames = MEANS[np.repeat(words, FRAMES_PER_WORD)]
            frames = frames + np.sqrt(SPREAD) * rng.standard_normal(frames.shape)
            writer.write(
                utt, (frames @ DISTORTIONS[utt[0]].T + (1.0 if utt[0] == "b" else 0.0)).astype(np.float32)
            )
            said[utt] = " ".join(f"w{word}" for word in words)
    write_table(data / "utt2spk", {utt: utt[0] for utt in said})
    return said


def write_model_dir(model: Path) -> None:
    """Each word is one phone; the alignment model has the same means and larger variances."""
    graph = model / "graph"
    (graph / "phones").mkdir(parents=True)
    trans = TransitionModel(
        Topology([left_to_right(1)], dict.fromkeys(range(1, NUM_WORDS + 1), 0)),
        [(k + 1, 0, k) for k in range(NUM_WORDS)],
    )
    for name, factor in (("final.mdl", 1.0), ("final.alimdl", 3.0)):
        gmm = AmDiagGmm.from_moments(
            range(NUM_WORDS + 1), np.ones(NUM_WORDS), MEANS, factor * np.tile(SPREAD, (NUM_WORDS, 1))
        )
        write_model(model / name, trans, gmm)
    InputOptions(cmvn="none").save(model)
    arcs = [
        arc
        for k in range(NUM_WORDS)
        for arc in (
            (0, 2 * k + 2, k + 1, 4.0, k + 1),
            (k + 1, 2 * k + 1, 0, 0.1, k + 1),
            (k + 1, 0, 0, 0.5, 0),
        )
    ]
    sources, ilabels, olabels, weights, targets = zip(*arcs)
    write_fst(
        graph / "HCLG.fst",
        Fst.from_arcs(NUM_WORDS + 1, 0, sources, ilabels, olabels, weights, targets, {0: 0.0}),
    )
    (graph / "words.txt").write_text("<eps> 0\n" + "".join(f"w{k} {k + 1}\n" for k in range(NUM_WORDS)))
    (graph / "phones.txt").write_text("<eps> 0\n" + "".join(f"P{k} {k}\n" for k in range(1, NUM_WORDS + 2)))
    (graph / "phones/silence.int").write_text(f"{NUM_WORDS + 1}\n")


@pytest.fixture(scope="module")
def exp(tmp_path_factory):
    path = tmp_path_factory.mktemp("exp")
    said = write_data(path / "data")
    write_model_dir(path / "model")
    return path, said


PASSES = [first_stats, decode_again, rescore_last]


def run_passes(
    exp: Path, out: Path, num_jobs: int, kind: str = "full", last: list = PASSES
) -> FmllrDecodeSpec:
    options = DecodeOptions(acoustic_scale=0.3, lattice_beam=6.0)
    first = DecodeSpec(exp / "model/graph", exp / "model", exp / "data", out / "si", num_jobs, 1, options)
    spec = FmllrDecodeSpec(
        DecodeSpec(exp / "model/graph", exp / "model", exp / "data", out / "last", num_jobs, 1, options),
        out / "si",
        0.01,
        FmllrOptions(fmllr_update_type=kind, fmllr_min_count=100.0),
    )
    for work, directory, passes in ((first, first.out, [decode_shard]), (spec, spec.decode.out, last)):
        directory.mkdir(parents=True, exist_ok=True)
        start_output(directory, exp / "data", num_jobs)
        for one in passes:
            for job in range(1, num_jobs + 1):
                one(work, job)
    return spec


def hypotheses(directory: Path) -> dict[str, str]:
    found = {}
    for path in directory.glob("hyp.*.txt"):
        found |= read_table(path)
    return found


def num_wrong(found: dict[str, str], said: dict[str, str]) -> int:
    return sum(found[utt] != words for utt, words in said.items())


@pytest.fixture(scope="module")
def decoded(exp, tmp_path_factory):
    out = tmp_path_factory.mktemp("decoded")
    return run_passes(exp[0], out, 1), out


def test_adaptation_recovers_words_of_distorted_speakers(exp, decoded):
    spec, out = decoded
    assert num_wrong(hypotheses(out / "si"), exp[1]) >= 3 and num_wrong(hypotheses(out / "last"), exp[1]) == 0


def test_transforms_invert_the_distortion(decoded):
    transforms = read_transforms(decoded[1] / "last")
    for speaker, matrix in DISTORTIONS.items():
        np.testing.assert_allclose(transforms[speaker][:, :3] @ matrix, np.eye(3), atol=0.15)


def test_lattices_have_costs_of_adapted_features(exp, decoded):
    spec, out = decoded
    trans, gmm = read_model(exp[0] / "model/final.mdl")
    reader = open_features(exp[0] / "data", exp[0] / "model", out / "last")
    for utt, lattice in list(read_lattices(out / "last/lat.1.gz"))[:5]:
        path = best_path(lattice, 0.3)
        scores = gmm.log_likelihoods(reader[utt])[np.arange(len(path.tids)), trans.tid2pdf[path.tids]]
        assert path.acoustic_cost == pytest.approx(-scores.sum(), rel=1e-4)


@pytest.mark.parametrize(
    "change, message",
    [
        (
            dict(
                ilabels=lambda lattice: np.where(
                    lattice.ilabels % 2, lattice.ilabels, lattice.ilabels % (2 * NUM_WORDS) + 2
                )
            ),
            "not a path .* around frame",
        ),
        (
            dict(ilabels=lambda lattice: np.where(lattice.ilabels > 0, lattice.ilabels + 2 * NUM_WORDS, 0)),
            "transition-id [0-9]+ in frame",
        ),
    ],
)
def test_lattices_of_other_system_are_refused(exp, decoded, tmp_path, change, message):
    """Lattices with transition-ids inside and outside the model's range."""
    spec, out = decoded
    shutil.copytree(out / "si", tmp_path / "si")
    with LatticeWriter(tmp_path / "si/lat.1.gz") as writer:
        for utt, lattice in read_lattices(out / "si/lat.1.gz"):
            writer.write(
                utt,
                replace(lattice, **{name: make(lattice).astype(np.int32) for name, make in change.items()}),
            )
    (tmp_path / "last").mkdir()
    other = replace(spec, si_dir=tmp_path / "si", decode=replace(spec.decode, out=tmp_path / "last"))
    with pytest.raises(
        UserError, match=f"si/lat.1.gz: a-00: .*{message}.*; give lattices that were decoded with this model"
    ):
        first_stats(other, 1)
    assert not list((tmp_path / "last").iterdir())


def test_lattices_of_other_features_are_refused(exp, decoded, tmp_path):
    spec, out = decoded
    data = Path(shutil.copytree(exp[0] / "data", tmp_path / "data"))
    features = read_table(data / "feats.scp")
    write_table(data / "feats.scp", {utt: f"{rx}[0:39]" for utt, rx in features.items()})
    (tmp_path / "last").mkdir()
    other = replace(spec, decode=replace(spec.decode, data=data, out=tmp_path / "last"))
    with pytest.raises(
        UserError,
        match=(
            "lat.1.gz: a-00: the lattice has 48 frames but the features have 40; give lattices of these "
            "features"
        ),
    ):
        first_stats(other, 1)


def test_lattices_of_incomplete_searches_are_accepted(exp, decoded, tmp_path):
    """Lattices that end early are accepted if totals.json names them; otherwise they belong to other
    features."""
    spec, out = decoded
    data = Path(shutil.copytree(exp[0] / "data", tmp_path / "data"))
    reader = open_features(exp[0] / "data", exp[0] / "model")
    with ArkWriter(data / "f.ark", data / "feats.scp") as writer:
        for utt in reader.keys:
            writer.write(utt, np.append(reader[utt], reader[utt][:5], 0))
    (tmp_path / "last").mkdir()
    si_dir = Path(shutil.copytree(out / "si", tmp_path / "si"))
    other = replace(spec, si_dir=si_dir, decode=replace(spec.decode, data=data, out=tmp_path / "last"))
    for content in (None, "{", '{"cut_short": 1}', '{"cut_short": ["a-00"]}'):
        if content:
            (si_dir / "totals.json").write_text(content)
        report = "a-02" if content and "a-00" in content else "a-00"
        with pytest.raises(
            UserError,
            match=(
                f"lat.1.gz: {report}: the lattice has 48 frames but the features have 53; give lattices of "
                "these"
            ),
        ):
            first_stats(other, 1)
    (si_dir / "totals.json").write_text(json.dumps({"cut_short": list(reader.keys)}))
    first_stats(other, 1)
    found, expected = (
        load_stats([path / "last/fmllr.first.1.npz"], set(DISTORTIONS)) for path in (tmp_path, out)
    )
    for speaker in DISTORTIONS:
        np.testing.assert_allclose(found[speaker].k, expected[speaker].k, rtol=1e-6)


def test_lattices_of_other_data_are_refused(exp, decoded, tmp_path):
    spec, out = decoded
    data = Path(shutil.copytree(exp[0] / "data", tmp_path / "data"))
    for name in ("feats.scp", "utt2spk"):
        write_table(data / name, {f"x{utt}": value for utt, value in read_table(data / name).items()})
    (tmp_path / "last").mkdir()
    with pytest.raises(
        UserError,
        match=(
            f"lat.1.gz: the utterance 'a-00' is not in {data}/utt2spk; give the data directory that was "
            "decoded"
        ),
    ):
        first_stats(replace(spec, decode=replace(spec.decode, data=data, out=tmp_path / "last")), 1)


@pytest.mark.parametrize("num_jobs", [2, 3])
def test_number_of_jobs_does_not_change_transforms(exp, decoded, tmp_path, num_jobs):
    spec = run_passes(exp[0], tmp_path, num_jobs)
    one, more = read_transforms(decoded[1] / "last"), read_transforms(tmp_path / "last")
    for speaker in DISTORTIONS:
        np.testing.assert_allclose(one[speaker], more[speaker], atol=1e-4)
    assert hypotheses(tmp_path / "last") == hypotheses(decoded[1] / "last")
    remove_intermediate(spec)
    names = {
        path.name.replace(".1", ".JOB")
        for path in (tmp_path / "last").iterdir()
        if not any(f".{n}" in path.name for n in "23")
    }
    assert names == {".parts", "hyp.JOB.txt", "lat.JOB.gz", "num_jobs", "shard.JOB.json", "trans.JOB"}


def test_completed_passes_are_not_repeated(exp, decoded):
    spec, out = decoded
    before = {path.name: path.stat().st_mtime_ns for path in (out / "last").iterdir()}
    for one in (first_stats, decode_again, rescore_last):
        one(spec, 1)
    assert before == {path.name: path.stat().st_mtime_ns for path in (out / "last").iterdir()}


@pytest.mark.parametrize("before, now", [(2, 1), (2, 4)])
def test_passes_of_other_number_of_jobs_are_discarded(exp, decoded, tmp_path, before, now):
    """After an interruption before the last pass, other parts of the data restart all passes; logs remain."""
    run_passes(exp[0], tmp_path, before, last=PASSES[:2])
    (tmp_path / "last/log").mkdir()
    run_passes(exp[0], tmp_path, now)
    assert (
        hypotheses(tmp_path / "last") == hypotheses(decoded[1] / "last") and (tmp_path / "last/log").exists()
    )
    assert len(list((tmp_path / "last").glob("fmllr.*.npz"))) == 2 * now


def test_too_little_data_gives_identity_transform(exp, tmp_path):
    run_passes(exp[0], tmp_path, 1, kind="none")
    for transform in read_transforms(tmp_path / "last").values():
        np.testing.assert_array_equal(transform, np.eye(3, 4))


def test_systems_without_matching_gaussians_are_refused(exp, tmp_path):
    model = Path(shutil.copytree(exp[0] / "model", tmp_path / "model"))
    trans, gmm = read_model(model / "final.mdl")
    twice = AmDiagGmm.from_moments(
        2 * gmm.offsets,
        np.full(2 * NUM_WORDS, 0.5),
        np.repeat(gmm.means, 2, 0),
        np.repeat(gmm.variances, 2, 0),
    )
    write_model(model / "final.alimdl", trans, twice)
    with pytest.raises(UserError, match="different numbers of Gaussians"):
        check_system(model)
    check_system(exp[0] / "model")


@pytest.mark.parametrize(
    "flags, sentence",
    [
        (dict(min_active=2001), "--min-active 2001 is above --first-max-active 2000; lower the one"),
        (dict(min_active=300, max_active=200), "--min-active 300 is above --max-active 200"),
    ],
)
def test_min_active_above_max_active_of_any_pass_is_refused(flags, sentence):
    with pytest.raises(UserError, match=sentence):
        AdaptOptions().check(DecodeOptions(**flags))


def test_changed_input_recomputes_only_passes_that_use_it(exp, tmp_path, capsys):
    """The first pass does not read the list of silence phones."""
    model = Path(
        shutil.copytree(exp[0] / "model", tmp_path / "model", ignore=shutil.ignore_patterns("decode*"))
    )

    def messages() -> list[str]:
        run_here(
            "decode_fmllr.py",
            "--nj",
            1,
            "--acoustic-scale",
            0.3,
            model / "graph",
            exp[0] / "data",
            tmp_path / "decode",
        )
        return [line for line in capsys.readouterr().out.splitlines() if " date" in line]

    assert not messages()
    with (model / "graph/phones/silence.int").open("a") as f:
        f.write("\n")
    first, last = messages()
    assert first.endswith("decode.si is up to date")
    assert (
        last
        == f"{tmp_path}/decode is out of date: {model}/graph/phones/silence.int changed; computing it again"
    )
    write_subsampling(model, 3)
    assert all(f"is out of date: {model}/frame_subsampling_factor changed" in line for line in messages())


def test_passes_are_logged_and_inputs_checked_once(exp, tmp_path, monkeypatch, caplog):
    checked = []
    monkeypatch.setattr(
        "pyasr.hmm.model.input_checks.check_gmm_input", lambda data, model: checked.append(model)
    )
    words = "--nj", 1, "--acoustic-scale", 0.3, exp[0] / "model/graph", exp[0] / "data", tmp_path / "decode"
    with caplog.at_level("INFO", "pyasr"):
        run_here("decode_fmllr.py", *words)
    found = [
        record.message
        for record in caplog.records
        if "24 utterances, " in record.message and "(" in record.message
    ]
    assert [line.partition(": 24 utterances")[0] for line in found if line.startswith("with")] == [
        "without fMLLR",
        "with fMLLR",
    ]
    assert "without fMLLR: real-time factor" in caplog.text and "with fMLLR: real-time factor" in caplog.text
    assert checked == [exp[0] / "model"]
    run_here("decode_fmllr.py", *words)
    assert len(checked) == 1


def test_step_runs_twice_and_is_up_to_date(exp):
    """Run the step twice: the second run finds its output up to date."""
    command = [
        sys.executable,
        ROOT / "steps/decode_fmllr.py",
        "--nj",
        "2",
        "--acoustic-scale",
        "0.3",
        "--fmllr-min-count",
        "100",
        "model/graph",
        "data",
        "model/decode",
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    for expected in ("24 utterances", "model/decode is up to date"):
        run = subprocess.run(command, cwd=exp[0], env=environment, capture_output=True, text=True)
        assert run.returncode == 0 and expected in run.stdout, run.stderr
    assert num_wrong(hypotheses(exp[0] / "model/decode"), exp[1]) == 0
    for directory in ("decode.si", "decode"):
        assert (exp[0] / "model" / directory / "words.txt").read_text() == (
            exp[0] / "model/graph/words.txt"
        ).read_text()
    assert (exp[0] / "model/decode.si/.done.json").exists() and not list(
        (exp[0] / "model/decode").glob("*.npz")
    )
