"""Kaldi directories with one broken file at a time: each problem is reported with its fix, all in one pass;
correct ones have none."""

import gzip
import shutil
import subprocess

import numpy as np
import pytest
from training_corpora import make_alignments, make_data, transition_model

from pyasr.base.errors import UserError
from pyasr.feats.inputs import InputOptions
from pyasr.feats.transforms import write_matrix, write_transforms
from pyasr.hmm.model.gmm import AmDiagGmm
from pyasr.hmm.model.model_file import write_model
from pyasr.intake.kaldi_dir_checks import CheckOptions, check_directories, kinds_of
from pyasr.io.int_vectors import read_int_vectors, write_int_vectors
from pyasr.io.kaldi_objects import KaldiWriter
from pyasr.io.openfst import Fst, write_fst
from pyasr.lang.lang_dirs.subword_lang import write_subword_lang
from pyasr.lang.lexicons.lexicon import Lexicon

NUM_PDFS, DIM = 5, 6
OPTIONS = CheckOptions(need_text=False, audio="no", same_features=True)


def write_gmm(path, num_pdfs=NUM_PDFS, binary=True):
    means = np.arange(num_pdfs * DIM, dtype=float).reshape(num_pdfs, DIM)
    gmm = AmDiagGmm.from_moments(np.arange(num_pdfs + 1), np.ones(num_pdfs), means, np.ones_like(means))
    write_model(path, transition_model(num_pdfs)[0], gmm, binary)


@pytest.fixture
def dirs(tmp_path):
    """data, an alignment directory with transforms, and a graph in it."""
    lengths = {"ann-1": 12, "ann-2": 15, "bob-1": 9}
    targets = make_data(tmp_path / "data", lengths, NUM_PDFS)
    (tmp_path / "data" / "spk2utt").write_text("ann ann-1 ann-2\nbob bob-1\n")
    ali = tmp_path / "ali"
    make_alignments(ali, targets)
    write_gmm(ali / "final.mdl")
    InputOptions(cmvn="none").save(ali)
    (ali / "final.occs").write_text(" [ 9 8 7 6 5 ]\n")
    write_transforms(ali / "trans.1", {"ann": np.eye(DIM, DIM + 1)})
    write_transforms(ali / "trans.2", {"bob": np.eye(DIM, DIM + 1)})
    (ali / "phones.txt").write_text("<eps> 0\n" + "".join(f"P{i} {i}\n" for i in range(1, NUM_PDFS + 1)))
    graph = ali / "graph"
    graph.mkdir()
    write_fst(graph / "HCLG.fst", Fst.from_arcs(1, 0, [0], [1], [1], [0.0], [0], {0: 0.0}))
    (graph / "words.txt").write_text("<eps> 0\nw 1\n")
    return [tmp_path / "data", ali, graph]


def problems(dirs):
    return check_directories(dirs, OPTIONS)[0]


def test_valid_directories_have_no_problems(dirs):
    found, kinds = check_directories(dirs, OPTIONS)
    assert found == [] and list(kinds.values()) == [["data"], ["model"], ["graph"]]


def test_units_of_ctc_network_are_accepted_with_data(dirs, tmp_path):
    (tmp_path / "units").mkdir()
    write_subword_lang(Lexicon({"w": {("a",): 1.0}}), ["<blk>", "<unk>", "a"], tmp_path / "units")
    (tmp_path / "data" / "text").write_text("ann-1 w\nann-2 w w\nbob-1 v\n")
    (problem,) = problems([tmp_path / "data", tmp_path / "units"])
    assert f"none of its words is in {tmp_path}/units/words.txt" in problem


def test_gaussians_next_to_network_may_have_any_dimension(dirs):
    InputOptions(cmvn="none", splice_left=5).save(dirs[1])
    (dirs[1] / "final.occs").unlink()
    assert problems(dirs) == []


@pytest.mark.parametrize("other_file", ["frame_subsampling_factor", "final.nnet", None])
def test_final_mdl_with_only_a_transition_model(dirs, other_file):
    """That of a tree for LF-MMI, and of its networks; elsewhere the Gaussians have been cut off."""
    _, ali, graph = dirs
    with KaldiWriter(ali / "final.mdl") as writer:
        transition_model(NUM_PDFS)[0].write(writer)
    for path in ali.glob("trans.*"):
        path.unlink()
    (ali / "final.occs").unlink()
    if other_file:
        (ali / other_file).write_text("3\n")
        assert problems(dirs) == []
    else:
        assert any("a transition model without GMMs" in problem for problem in problems(dirs))


def test_features_of_other_kind_are_no_problem_by_default(dirs):
    """Networks are trained on other features by the alignments of a GMM system."""
    InputOptions(cmvn="none", splice_left=5).save(dirs[1])
    assert check_directories(dirs, CheckOptions(need_text=False, audio="no"))[0] == []
    assert len(problems(dirs)) == 1


def test_text_and_uncompressed_files_are_accepted(dirs):
    """A text model, a text archive named .gz that is not compressed, and a compressed text archive."""
    ali = dirs[1]
    write_gmm(ali / "final.mdl", binary=False)
    write_int_vectors(ali / "plain", read_int_vectors(ali / "ali.1.gz"), binary=False)
    (ali / "plain").rename(ali / "ali.1.gz")
    text = read_int_vectors(ali / "ali.2.gz")
    (ali / "ali.2.gz").write_bytes(
        gzip.compress("".join(f"{utt} {' '.join(map(str, tids))}\n" for utt, tids in text.items()).encode())
    )
    assert problems(dirs) == []


def test_file_name_used_by_steps_is_checked_first(dirs):
    """The advice does not move one archive onto another."""
    ali = dirs[1]
    shutil.copy(ali / "ali.1.gz", ali / "ali.1")
    (ali / "trans.1.gz").write_bytes(b"nonsense")
    assert problems(dirs) == []
    (ali / "ali.1.gz").write_bytes(b"\x1f\x8bno")
    assert [problem.split(": ")[0] for problem in problems(dirs)] == [str(ali / "ali.1.gz")]


def of_another_model(ali):
    write_gmm(ali / "final.mdl", NUM_PDFS + 1)


def shortened(ali):
    vectors = read_int_vectors(ali / "ali.1.gz")
    write_int_vectors(ali / "ali.1.gz", {utt: tids[:-1] for utt, tids in vectors.items()})


BREAKS = {
    "no model": (lambda ali: (ali / "final.mdl").unlink(), "final.mdl: missing"),
    "truncated model": (lambda ali: (ali / "final.mdl").write_bytes((ali / "final.mdl").read_bytes()[:-9]),
                        "final.mdl: at byte"),
    "no tree": (lambda ali: (ali / "tree").unlink(), "tree: missing"),
    "another model": (of_another_model, "the tree has 5 pdfs, the model 6"),
    "no num_jobs": (lambda ali: (ali / "num_jobs").unlink(), "num_jobs: missing or empty; fix: echo 2 >"),
    "odd num_jobs": (lambda ali: (ali / "num_jobs").write_text("two\n"), "'two' is not a number of jobs"),
    "missing archive": (lambda ali: (ali / "num_jobs").write_text("3\n"),
                        "ali.3: missing, but num_jobs is 3"),
    "surplus archive": (lambda ali: shutil.copy(ali / "ali.1.gz", ali / "ali.3.gz"),
                        "ali.3.gz: exceeds num_jobs, which is 2"),
    "twice": (lambda ali: shutil.copy(ali / "ali.1.gz", ali / "ali.2.gz"),
              "is also in the archive of an earlier job"),
    "plain name": (lambda ali: (ali / "ali.2.gz").rename(ali / "ali.2"), "steps expect a name with .gz"),
    "gzipped name": (lambda ali: (ali / "trans.2").rename(ali / "trans.2.gz"),
                     "steps expect a name without .gz"),
    "damaged archive": (lambda ali: (ali / "ali.1.gz").write_bytes(b"\x1f\x8bno"), "ali.1.gz: "),
    "strange tids": (lambda ali: write_int_vectors(ali / "ali.1.gz", {"ann-1": np.full(12, 99, np.int32)}),
                     "transition-id 99"),
    "broken path": (lambda ali: write_int_vectors(ali / "ali.1.gz", {"ann-1": np.array([1] * 12, np.int32)}),
                    "belongs to another model"),
    "length": (shortened, "utt2num_frames, such as ann-1: 11 and 12"),
    "other utterances": (lambda ali: (ali.parent / "data/utt2num_frames").write_text("carl-1 7\n"),
                         "no alignment of any utterance of"),
    "occupancies": (lambda ali: (ali / "final.occs").write_text(" [ 1 2 ]\n"),
                    "final.occs: 2 counts, but final.mdl has 5 pdfs"),
    "phones": (lambda ali: (ali / "phones.txt").write_text("<eps> 0\nP1 1\n"),
               "lacks phone 2 of final.mdl and 3 more"),
    "matrix": (lambda ali: write_matrix(ali / "final.mat", np.zeros((4, DIM))),
               "final.mat: 4 rows, but the Gaussians have 6 dimensions"),
    "splicing": (lambda ali: ((ali / "input.json").unlink(),
                              write_matrix(ali / "final.mat", np.zeros((DIM, 91)))),
                 "splice_opts: missing, and final.mat has 91 columns, which are 13 x 7; fix: copy it too, "
                 "or echo '--left-context=3 --right-context=3' >"),
    "transform": (lambda ali: write_transforms(ali / "trans.2", {"bob": np.eye(3)}),
                  "speaker bob: a matrix of 3 x 3"),
    "vector": (lambda ali: (ali / "trans.2").write_text("bob  [ 1 2 3 ]\n"),
               "trans.2: speaker bob has a vector of 3 numbers, not a matrix"),
    "no jobs": (lambda ali: (ali / "num_jobs").write_text("0\n"), "'0' is not a number of jobs"),
    "options": (lambda ali: ((ali / "input.json").unlink(),
                             (ali / "cmvn_opts").write_text("--frobnicate=1\n")),
                "unknown option '--frobnicate=1'"),
    "dimension": (lambda ali: InputOptions(cmvn="none", deltas=1).save(ali),
                  "features have 12 dimensions after"),
    "damaged graph": (lambda ali: (ali / "graph" / "HCLG.fst").write_bytes(b"nonsense"), "HCLG.fst"),
    "graph of another": (lambda ali: write_fst(ali / "graph/HCLG.fst",
                                               Fst.from_arcs(1, 0, [0], [99], [1], [0.0], [0], {0: 0.0})),
                         "transition-id 99"),
    "words of another": (lambda ali: (ali / "graph" / "words.txt").write_text("<eps> 0\n"),
                         "lacks word 1 of HCLG.fst"),
}  # fmt: skip


@pytest.mark.parametrize("name", BREAKS)
def test_each_problem_is_reported_with_its_fix(dirs, name):
    change, message = BREAKS[name]
    change(dirs[1])
    found = problems(dirs)
    assert any(message in problem for problem in found), found
    assert all("; fix: " in problem and "\n" not in problem for problem in found)


def test_all_problems_are_reported_in_one_pass(dirs):
    for name in ("no tree", "no num_jobs", "damaged archive", "transform", "words of another"):
        BREAKS[name][0](dirs[1])
    (dirs[0] / "spk2utt").unlink()
    assert len(problems(dirs)) >= 6


def test_directory_of_other_format_is_refused(tmp_path):
    with pytest.raises(UserError, match="no such directory"):
        kinds_of(tmp_path / "nowhere")
    with pytest.raises(UserError, match="not a directory in Kaldi's format: it has none of"):
        kinds_of(tmp_path)


def test_step_reports_problems(dirs, root):
    def run():
        words = ["utils/validate_kaldi.py", "--need-text", "false", "--audio", "no", *dirs]
        return subprocess.run(words, cwd=root, capture_output=True, text=True)

    assert run().returncode == 0
    (dirs[1] / "tree").unlink()
    done = run()
    assert (
        done.returncode == 1 and "tree: missing; fix: copy" in done.stdout and "1 problem(s)" in done.stderr
    )
