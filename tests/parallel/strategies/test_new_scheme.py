"""The new scheme of docs/extending/scheme.md: its file, copied from the page."""

import numpy as np
import pytest
import torch
from page_files import among_modules
from steps_here import run_here, step_of
from training_corpora import make_training_dirs

from pyasr.base.cli.options import parse
from pyasr.base.errors import UserError
from pyasr.parallel import strategies
from pyasr.parallel.communication.rank_threads import run_threads
from pyasr.parallel.mixing.register import REGISTER
from pyasr.parallel.strategies import make_strategy, mixing_options, strategy_names

NUM_RANKS, SHARE, NUM_PDFS = 4, 0.25, 5


@pytest.fixture(scope="module", autouse=True)
def scheme(tmp_path_factory):
    """Install the file among the schemes."""
    with among_modules("scheme.md", strategies, tmp_path_factory.mktemp("strategies")):
        yield
    REGISTER.pop("left", None)


def test_mixing_equals_formula_of_its_docstring():
    assert "left" in strategy_names()
    start = np.random.default_rng(1).standard_normal((NUM_RANKS, 50)).astype(np.float32)

    def rank(comm):
        strategy = make_strategy(comm, mixing_options("left", period_frames=10, left_share=SHARE))
        master = torch.from_numpy(start[comm.rank].copy())
        strategy.restart(master)
        strategy.begin_epoch(20, 10)
        strategy.step(master, 10)
        return master.numpy()

    mixed = np.stack(run_threads(NUM_RANKS, rank))
    np.testing.assert_allclose(mixed, (1 - SHARE) * start + SHARE * np.roll(start, 1, axis=0), atol=1e-6)
    np.testing.assert_allclose(mixed.mean(0), start.mean(0), atol=1e-6)


def test_scheme_option_is_known_to_steps_and_exclusive(capsys):
    step = step_of("train_dnn.py")[1]
    words = ["data", "lang", "ali", "out"]
    options, _ = parse(step, ["--parallel", "left", "--left-share", "0.3", *words])
    assert options.training.mixing.scheme.left_share == 0.3
    with pytest.raises(UserError, match="--left-share"):
        parse(step, ["--parallel", "allreduce", "--left-share", "0.3", *words])


def test_network_is_trained_with_new_scheme(tmp_path):
    dirs = make_training_dirs(tmp_path, NUM_PDFS)
    flags = ["--cmvn", "none", "--hidden-layers", 1, "--hidden-dim", 16, "--minibatch", 32,
             "--heldout-share", 0.2, "--num-epochs", 2, "--parallel", "left", "--period-frames", 64,
             "--num-ranks", 2]  # fmt: skip
    run_here("train_dnn.py", *flags, *dirs, tmp_path / "out", threads=True)
    assert (tmp_path / "out/final.nnet").exists()
