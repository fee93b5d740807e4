"""Programs that end early (--help, a mistake, an output that is up to date) do not import modules that only
the work needs."""

import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import pytest
from startup import Run, start_all
from steps_here import run_here
from training_corpora import make_alignments, make_data

from pyasr.base.errors import UpToDate
from pyasr.base.outputs.output import stage_output
from pyasr.feats.inputs import InputOptions
from pyasr.hmm.model.gmm_dir import LANG_FILES, TREE_FILES

ROOT = Path(__file__).parents[1]
PROGRAMS = [path for folder in ("steps", "utils") for path in sorted((ROOT / folder).glob("*.py"))]
MAX_MODULES = 480  # in total; numpy and its imports of Python are more than 200
OF_NO_OPTIONS = ("build_environment.py", "supervise.py")  # their arguments are files and a command

OF_ALIGNMENTS = ["data", "lang", "ali"]
KINDS = {  # arguments of each kind of step that trains or uses a network, or whose work uses numba
    "train_mono.py": ["data", "lang"],
    "train_deltas.py": OF_ALIGNMENTS,
    "train_lda_mllt.py": OF_ALIGNMENTS,
    "train_sat.py": OF_ALIGNMENTS,
    "train_ivector_extractor.py": ["data"],
    "pretrain_dbn.py": ["data"],
    "train_dnn.py": ["--shrink-value", 0.9, "--activation", "tanh", *OF_ALIGNMENTS],
    "train_dnn.py --network": ["--network", "network", "--shrink-value", 0.9, *OF_ALIGNMENTS],
    "train_dnn.py --dbn": ["--dbn", "dbn", *OF_ALIGNMENTS],
    "train_dnn.py --teacher": ["--teacher", "dnn", *OF_ALIGNMENTS],
    "simulate_parallel.py": OF_ALIGNMENTS,
    "train_ctc.py": ["data", "units", "network"],
    "train_lfmmi.py": ["--network", "network", "data", "ali", "tree"],
    "train_smbr.py": [*OF_ALIGNMENTS, "lattices", "dnn"],
    "train_lstm_lm.py": ["text", "text", "words"],
    "prune_lm.py": ["--lowprobs", "lm.arpa"],
    "lm_rescore_lstm.py": ["lang", "lstm", "data", "lattices"],
    "align_dnn.py": ["data", "lang", "dnn"],
    "align_si.py": ["data", "lang", "ali"],
    "decode.py": ["dnn/graph", "data"],
    "export_kaldi.py": ["dnn"],
}


@pytest.fixture(scope="module")
def asked() -> dict[tuple[str, str], Run]:
    """Results of each program with --help, and with an unknown option."""
    flags = {
        path: ["--help"] if path.name in OF_NO_OPTIONS else ["--help", "--no-such-option"]
        for path in PROGRAMS
    }
    keys = [(str(path), flag) for path in PROGRAMS for flag in flags[path]]
    return dict(zip(keys, start_all([list(key) for key in keys])))


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.name)
def test_help_and_errors_import_few_modules(path, asked):
    report, refused = asked[str(path), "--help"], asked.get((str(path), "--no-such-option"))
    assert report.status == 0 and len(report.output) > 60 and not report.errors
    assert (
        not refused
        or refused.status == 1
        and "--no-such-option: no such option" in refused.errors
        and refused.errors.count("\n") == 1
    )
    for run in filter(None, (report, refused)):
        assert not run.heavy and len(run.modules) <= MAX_MODULES


def write_inputs(path: Path) -> None:
    """Write the inputs of the steps, with one word in each file that only the work reads."""
    make_alignments(
        path / "ali",
        make_data(path / "data", {f"{speaker}-{i}": 20 for speaker in "ab" for i in range(2)}, 3),
    )
    run_here("compute_cmvn.py", path / "data")
    write_words(path, "network lm.arpa", "affine dim=8\n")
    write_words(path, "text data/text", "a-0 one\na-1 one\nb-0 one\nb-1 one\n")
    write_words(path / "lang", " ".join([*LANG_FILES, *TREE_FILES, "G.fst"]), "one 1\n")
    write_words(path / "units", "units.model units.txt words.txt")
    write_words(path / "tree", "final.mdl tree phones.txt frame_subsampling_factor", "1\n")
    write_words(path / "dnn", "final.nnet final.mdl tree phones.txt")
    write_words(path / "dnn/graph", "HCLG.fst words.txt")
    write_words(path, "dbn/final.dbn lstm/lm.nnet lattices/num_jobs lattices/lat.1.gz words", "1\n")
    for name in ("ali", "dnn"):
        InputOptions().save(path / name)


def write_words(path: Path, names: str, content: str = "one\n") -> None:
    for name in names.split():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(content)


@contextmanager
def made_without_work(*arguments, check=None, **keywords):
    """Write an output that contains only its done-file, without checking its inputs: the test asks only
    whether it is up to date."""
    with stage_output(*arguments, **keywords):
        pass
    raise UpToDate("made")
    yield


@pytest.fixture(scope="module")
def repeated(tmp_path_factory) -> dict[str, Run]:
    """Results of each step with an existing output."""
    path, commands = tmp_path_factory.mktemp("made"), {}
    write_inputs(path)
    for number, (case, words) in enumerate(KINDS.items()):
        step = case.split()[0]
        folder = "steps" if (ROOT / "steps" / step).exists() else "utils"
        words = [path / word if (path / str(word)).exists() else word for word in words]
        commands[case] = [ROOT / folder / step, *words, path / f"out{number}"]
        with patch("pyasr.base.cli.step.stage_output", made_without_work):
            run_here(step, *commands[case][1:], folder=folder)
    return dict(zip(commands, start_all(list(commands.values()))))


@pytest.mark.parametrize("case", KINDS)
def test_up_to_date_outputs_import_few_modules(case, repeated):
    run = repeated[case]
    assert run.status == 0 and run.output.endswith(" is up to date\n"), run.output + run.errors
    assert not run.heavy and len(run.modules) <= MAX_MODULES


SCHEMES = """
import sys
from pyasr.base.cli.options import parse
from pyasr.parallel.strategies import check_ranks, strategy_names
from pyasr.train.steps.dnn_step import DnnTraining
for name in strategy_names():
    check_ranks(parse(DnnTraining, ["--parallel", name])[0].mixing, 4)
print(len(strategy_names()), "torch" in sys.modules)
"""


def test_numbers_of_ranks_are_checked_without_torch():
    done = subprocess.run([sys.executable, "-c", SCHEMES], capture_output=True, text=True)
    assert done.stdout.endswith(" False\n") and int(done.stdout.split()[0]) > 20, done.stdout + done.stderr
