"""The comparison of parallel schemes as a user runs it, with a toy corpus in the place of the recipe's."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from scheme_toys import names_of

from pyasr.parallel.strategies.register import option_kinds

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "tests" / "train"))
from corpora import make_alignments, make_data  # noqa: E402

RECIPE = ROOT / "egs" / "amazon_queen" / "s5"


@pytest.fixture(scope="module")
def recipe(tmp_path_factory) -> Path:
    """A recipe's directory with this repository's steps, and what run.sh would have made."""
    path = tmp_path_factory.mktemp("egs") / "s5"
    (path / "local").mkdir(parents=True)
    for name, target in {"steps": ROOT / "steps", "utils": ROOT / "utils", "conf": RECIPE / "conf", "cmd.sh": RECIPE / "cmd.sh"}.items():
        (path / name).symlink_to(target)
    (path / "path.sh").write_text(f". {ROOT}/path.sh\n")
    script = path / "local" / "compare_parallel.sh"
    script.write_bytes((RECIPE / "local" / "compare_parallel.sh").read_bytes())
    script.chmod(0o755)
    make_alignments(path / "exp" / "tri3_ali", make_data(path / "data" / "train_fmllr", {f"{s}-{i}": 80 for s in "abcd" for i in range(5)}, 6))
    (path / "data" / "lang_prons").mkdir()
    (path / "data" / "lang_prons" / "phones.txt").write_text("<eps> 0\n")
    return path


def run(recipe: Path, *words: str) -> subprocess.CompletedProcess:
    options = ["--schemes", "allreduce", "--learners", "2", "--seeds", "", "--num-utts", "16", "--straggler-utts", "8", "--decode", "false"]
    return subprocess.run(["local/compare_parallel.sh", *options, *words], cwd=recipe, capture_output=True, text=True)


def test_from_data_to_the_page(recipe):
    trained = run(recipe, "--stop-stage", "2")
    assert trained.returncode == 0, trained.stderr
    simulations = {path.parent.name for path in recipe.glob("exp/parallel/*/simulation.json")}
    assert simulations == {"allreduce_1", "allreduce_2"}
    collected = run(recipe, "--stage", "10")
    assert collected.returncode == 0, collected.stderr
    page = (recipe / "exp" / "parallel" / "RESULTS.md").read_text()
    assert "| allreduce | arXiv:1507.01239 | 2 " in page and (recipe / "exp" / "parallel" / "consensus.svg").exists()
    assert "\nsteps/simulate_parallel.py " in page.partition("## Commands")[2] and "* machine: " in page.partition("## Made with")[2]


def test_schemes_are_given_periods_where_they_go_by_them():
    """The script names those that do not."""
    script = (RECIPE / "local" / "compare_parallel.sh").read_text()
    named = re.search(r"^set_period\(\) \{\n  case .* in\n    (.*)\) mixing_period=\(\) ;;$", script, re.M)[1]
    assert named.split(" | ") == [name for name, kind in option_kinds().items() if "period_frames" not in names_of(kind)]


def test_an_option_that_there_is_not(recipe):
    told = run(recipe, "--scheme", "ring")
    assert told.returncode == 1 and len(told.stderr.splitlines()) == 1 and "--scheme" in told.stderr
