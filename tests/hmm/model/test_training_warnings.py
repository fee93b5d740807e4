"""Warnings about results of little use: small trees and models, unadapted speakers."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from gmm_corpus import write_corpus
from steps_here import run_here

from pyasr.base.errors import UserError
from pyasr.feats.transforms import read_transforms
from pyasr.hmm.model.model_file import read_model, read_tree
from pyasr.hmm.model.tree import leaves
from pyasr.io.ark import read_ark, write_ark
from pyasr.io.text_tables import read_table, write_table

SHORT = (
    "--nj",
    1,
    "--num-iters",
    4,
    "--max-iter-inc",
    2,
    "--realign-iters",
    "1 3",
    "--beam",
    30,
    "--retry-beam",
    100,
)
SIZE = ("--num-gauss", 50)
TREE = ("--num-leaves", 30)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("corpus"), num_utterances=40)


@pytest.fixture(scope="module")
def mono(corpus, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("mono") / "mono"
    run_here("train_mono.py", *SHORT, *SIZE, "--deltas", 0, *corpus, path, threads=True)
    return path


def warnings_of(caplog) -> str:
    return "\n".join(record.message for record in caplog.records if record.levelname == "WARNING")


def steps(extra: dict) -> dict[str, tuple]:
    return {
        "train_deltas.py": (),
        "train_lda_mllt.py": ("--dim", 4, "--mllt-iters", "2"),
        "train_sat.py": ("--fmllr-min-count", 100),
    } | extra


@pytest.mark.parametrize("program", steps({}))
def test_fewer_leaves_and_gaussians_than_requested_give_warning(program, corpus, mono, tmp_path, caplog):
    run_here(
        program,
        *SHORT,
        *SIZE,
        "--num-leaves",
        2000,
        *steps({})[program],
        *corpus,
        mono,
        tmp_path / "tri",
        threads=True,
    )
    tree = read_tree(tmp_path / "tri/tree")
    assert (
        f"tree of {len(leaves(tree.root))} leaves (--num-leaves 2000), merged to {tree.num_pdfs} pdfs: no "
        "further split"
    ) in warnings_of(caplog)
    caplog.clear()
    run_here(
        program,
        *SHORT,
        "--num-gauss",
        90000,
        *TREE,
        *steps({})[program],
        *corpus,
        mono,
        tmp_path / "wide",
        threads=True,
    )
    num_gauss = read_model(tmp_path / "wide/final.mdl")[1].num_gauss
    assert (
        f"{num_gauss} Gaussians (--num-gauss 90000): the pdfs have too few frames for more; lower --num-gauss"
        in warnings_of(caplog)
    )


def test_too_short_schedule_gives_warning(corpus, tmp_path, caplog):
    run_here(
        "train_mono.py",
        *SHORT,
        "--max-iter-inc",
        30,
        "--num-gauss",
        200,
        "--deltas",
        0,
        *corpus,
        tmp_path / "mono",
        threads=True,
    )
    assert (
        "Gaussians (--num-gauss 200): training ends at --num-iters 4, but Gaussians are added until "
        "--max-iter-inc 30"
    ) in warnings_of(caplog)


def test_schedule_adding_less_than_one_gaussian_gives_warning(corpus, mono, tmp_path, caplog):
    num_pdfs = read_model(mono / "final.mdl")[1].num_pdfs
    num_gauss = num_pdfs * 3 // 2
    late = num_gauss - num_pdfs + 1
    words = ("--max-iter-inc", late, "--num-iters", late + 1, "--num-gauss", num_gauss, "--deltas", 0)
    run_here("train_mono.py", *SHORT, *words, *corpus, tmp_path / "mono", threads=True)
    cause = (
        f"each iteration up to --max-iter-inc {late} adds the same integer, which gives at most "
        f"{num_pdfs} Gaussians"
    )
    assert (
        f"{num_pdfs} Gaussians (--num-gauss {num_gauss}): {cause}; lower --max-iter-inc or raise --num-gauss"
        in warnings_of(caplog)
    )


def test_expected_results_give_no_warning(corpus, mono, tmp_path, caplog):
    with caplog.at_level("INFO", "pyasr"):
        run_here(
            "train_sat.py",
            *SHORT,
            *SIZE,
            "--num-leaves",
            12,
            "--fmllr-min-count",
            100,
            *corpus,
            mono,
            tmp_path / "sat",
            threads=True,
        )
    assert (
        "leaves (--num-leaves 12), merged to" in caplog.text and "Gaussians (--num-gauss 50)" in caplog.text
    )
    assert all(word not in warnings_of(caplog) for word in ("adapted", "leaves", "Gaussians"))


def every_utterance_a_speaker(data: Path) -> None:
    """Make every utterance its own speaker, with the CMVN statistics of the original speaker."""
    speakers = read_table(data / "utt2spk")
    if (data / "cmvn.scp").exists():
        cmvn = read_table(data / "cmvn.scp")
        write_table(data / "cmvn.scp", {utt: cmvn[speaker] for utt, speaker in speakers.items()})
    write_table(data / "utt2spk", {utt: utt for utt in speakers})


def test_unadapted_speakers_give_warning(corpus, mono, tmp_path, caplog):
    data = Path(shutil.copytree(corpus[0], tmp_path / "data"))
    every_utterance_a_speaker(data)
    reason = (
        f"{data}: none of 40 speakers is adapted by fMLLR, because each has too little speech (each "
        "utterance has its own speaker in"
    )
    run_here("train_sat.py", *SHORT, *SIZE, *TREE, data, corpus[1], mono, tmp_path / "sat", threads=True)
    assert reason in warnings_of(
        caplog
    ) and "lower --fmllr-min-count 500, or assign utterances to their real speakers" in warnings_of(caplog)
    caplog.clear()
    run_here(
        "align_fmllr.py",
        "--nj",
        1,
        "--beam",
        30,
        data,
        corpus[1],
        tmp_path / "sat",
        tmp_path / "ali",
        threads=True,
    )
    assert reason in warnings_of(caplog)
    caplog.clear()
    run_here(
        "make_fmllr_feats.py",
        "--nj",
        1,
        "--transform-dir",
        tmp_path / "ali",
        data,
        tmp_path / "sat",
        tmp_path / "adapted",
    )
    assert reason in warnings_of(
        caplog
    ) and f"estimate {tmp_path}/ali again with a lower --fmllr-min-count" in warnings_of(caplog)
    caplog.clear()
    run_here(
        "align_fmllr.py",
        "--nj",
        1,
        "--fmllr-update-type",
        "none",
        data,
        corpus[1],
        tmp_path / "sat",
        tmp_path / "plain",
        threads=True,
    )
    assert "adapted" not in warnings_of(caplog)


def test_warning_depends_on_fraction_of_unadapted_data(corpus, mono, tmp_path, caplog):
    """Two or three of four speakers keep the identity."""
    run_here(
        "align_fmllr.py",
        "--nj",
        1,
        "--beam",
        30,
        "--fmllr-min-count",
        100,
        *corpus,
        mono,
        tmp_path / "ali",
        threads=True,
    )
    speakers = sorted(read_transforms(tmp_path / "ali"))
    for number in (1, len(speakers) - 1):
        caplog.clear()
        found = read_ark(tmp_path / "ali/trans.1")
        write_ark(
            tmp_path / "ali/trans.1",
            found
            | {speaker: np.eye(*found[speaker].shape, dtype=np.float32) for speaker in speakers[:number]},
        )
        run_here("make_fmllr_feats.py", "--nj", 1, corpus[0], tmp_path / "ali", tmp_path / f"adapted{number}")
        assert (f"{number} of {len(speakers)} speakers, with " in warnings_of(caplog)) == (number > 1)


@pytest.mark.parametrize("program", steps({}))
def test_alignments_of_other_utterances_are_refused(program, corpus, mono, tmp_path):
    data = Path(shutil.copytree(corpus[0], tmp_path / "data"))
    for name in ("feats.scp", "text", "utt2spk"):
        write_table(
            data / name,
            {
                f"{value.split()[0] if name == 'utt2spk' else key[:2]}-x{key}": value
                for key, value in read_table(data / name).items()
            },
        )
    with pytest.raises(
        UserError, match=f"{mono}: no alignment of any utterance of {data}; align this data directory first"
    ):
        run_here(
            program,
            *SHORT,
            *SIZE,
            *TREE,
            *steps({})[program],
            data,
            corpus[1],
            mono,
            tmp_path / "tri",
            threads=True,
        )
