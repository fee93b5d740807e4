"""Fingerprints of trainings on alignments and of decoding with transforms include all files that are read, of
all jobs."""

from __future__ import annotations

from pathlib import Path

import pytest
from gmm_corpus import write_corpus
from steps_here import run_here

from pyasr.base.errors import UserError
from pyasr.decode.decoding.decode_dir import input_files
from pyasr.feats.inputs import InputOptions
from pyasr.hmm.model.gmm_dir import training_files
from pyasr.hmm.model.model_file import SUBSAMPLING, write_subsampling


def touched(directory: Path, *names: str) -> Path:
    for name in names:
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).touch()
    return directory


def test_input_files_include_alignments_and_transforms_of_all_jobs(tmp_path):
    (tmp_path / "num_jobs").write_text("3\n")
    alignments, transforms = (
        {tmp_path / name.format(job) for job in (1, 2, 3)} for name in ("ali.{}.gz", "trans.{}")
    )
    found = set(training_files(tmp_path / "data", tmp_path / "lang", tmp_path))
    assert alignments <= found and not transforms & found
    touched(tmp_path, "trans.1", "final.mat")
    assert alignments | transforms | {tmp_path / "final.mat"} <= set(
        training_files(tmp_path / "data", tmp_path / "lang", tmp_path)
    )
    touched(tmp_path, "graph/HCLG.fst", "graph/words.txt", "final.mdl", "data/feats.scp", "data/utt2spk")
    found = [set(input_files(tmp_path / "graph", tmp_path, tmp_path / "data", of)) for of in (None, tmp_path)]
    assert found[1] - found[0] == transforms
    write_subsampling(tmp_path, 3)
    assert set(input_files(tmp_path / "graph", tmp_path, tmp_path / "data")) - found[0] == {
        tmp_path / SUBSAMPLING
    }


def test_directory_without_alignments_is_refused(tmp_path):
    with pytest.raises(UserError, match="num_jobs: missing or not a number; is this an alignment directory?"):
        training_files(tmp_path, tmp_path, tmp_path)


@pytest.mark.parametrize(
    "step, names",
    [
        ("train_mono", ["sets"]),
        ("align_fmllr", ["silence"]),
        ("train_lda_mllt", ["silence"]),
        ("train_deltas", ["roots", "sets", "extra_questions", "context_indep"]),
    ],
)
def test_phone_lists_are_inputs(tmp_path, monkeypatch, capsys, step, names):
    data, lang = write_corpus(tmp_path, num_utterances=2)
    model = touched(tmp_path / "model", "final.mdl", "tree", "ali.1.gz")
    (model / "num_jobs").write_text("1\n")
    InputOptions().save(model)
    work = f"pyasr.hmm.training.{step}.{'align' if step == 'align_fmllr' else 'train'}_rank"
    monkeypatch.setattr(
        work, lambda spec, comm: touched(getattr(spec, "triphones", spec).out, "failed_utterances")
    )
    for look in (
        "hmm.training.model_size.report_gaussians",
        "hmm.training.model_size.report_leaves",
        "hmm.transforms.unadapted.warn_of_unadapted",
        "hmm.training.align_gmm.check_gmm_input",
        "hmm.training.align_gmm.read_tree",
        "hmm.training.train_triphones.read_transitions",
    ):
        monkeypatch.setattr(f"pyasr.{look}", lambda *arguments: None)  # models, which this test does not make

    def messages() -> str:
        run_here(
            f"{step}.py",
            data,
            lang,
            *([] if step == "train_mono" else [model]),
            tmp_path / "out",
            threads=True,
        )
        return capsys.readouterr().out

    messages()
    assert f"{tmp_path / 'out'} is up to date" in messages()
    for name in names:
        with (lang / f"phones/{name}.int").open("a") as f:
            f.write("\n")
        assert f"is out of date: {lang}/phones/{name}.int changed" in messages()
