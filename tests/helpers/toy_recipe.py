"""The toy recipe, run by tests."""

import subprocess
from pathlib import Path

RECIPE = Path(__file__).parents[2] / "egs" / "toy" / "s5"


def start(directory: Path, environment: dict | None = None, *words: str) -> subprocess.Popen:
    """Start the recipe in its own process group."""
    with (directory / "recipe.log").open("a") as log:
        command = ["./run.sh", "--dir", str(directory), "--num-train", "80", *words]
        return subprocess.Popen(
            command, cwd=RECIPE, stdout=log, stderr=subprocess.STDOUT, start_new_session=True, env=environment
        )


def run(directory: Path, timeout_s: float = 600, *words: str, environment: dict | None = None) -> str:
    """Run the recipe to its end; the output of this run."""
    log = directory / "recipe.log"
    before = log.stat().st_size if log.exists() else 0
    assert start(directory, environment, *words).wait(timeout_s) == 0, log.read_text()[-4000:]
    return log.read_text()[before:]


def wers(directory: Path) -> dict[str, str]:
    """{system: full WER line of the test set}."""
    return {
        path.parent.parent.name: path.read_text().replace(str(directory), "DIR")
        for path in sorted(directory.glob("exp/*/decode_test/best_wer"))
    }
