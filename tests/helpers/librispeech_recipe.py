"""The LibriSpeech recipe at toy size for tests: mini_librispeech of speech-like signals, with lexicon and
language models."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from librispeech_tree import write_models, write_tree

ROOT = Path(__file__).parents[2]
RECIPE = ROOT / "egs" / "librispeech" / "s5"
SIZES = {
    "toy.sh": """mono_utts=48
mono_opts="--num-iters 12 --num-gauss 120"
tri1_opts="--num-iters 10 --num-leaves 80 --num-gauss 200"
tri2b_opts="--config lda.conf"
tri3b_opts="--config sat.conf"
dnn_opts="--config dnn.conf"
decoded="tri2b tri3b"
score_opts="--min-lmwt 8 --max-lmwt 12 --word-ins-penalties 0.0"
""",
    "lda.conf": (
        "--num-iters=8\n--max-iter-inc=6\n--mllt-iters=2 4\n--realign-iters=5\n--dim=30\n"
        "--num-leaves=80\n--num-gauss=200\n"
    ),
    "sat.conf": (
        "--num-iters=8\n--max-iter-inc=6\n--fmllr-iters=2 4\n--realign-iters=5\n--num-leaves=80\n"
        "--num-gauss=200\n"
    ),
    "dnn.conf": (
        "--hidden-layers=2\n--hidden-dim=64\n--minibatch=64\n--period-frames=640\n--num-epochs=4\n"
        "--cmvn=none\n"
    ),
}
WORDS = ("--sizes", "toy.sh", "--rescoring", "tgmed fglarge", "--nj", "1")


def make(place: Path) -> None:
    """Create a corpus, its lexicon and language models, and the recipe with matching sizes, in
    PLACE/{corpus,models,s5}."""
    write_tree(place / "corpus", {"train-clean-5": 96, "dev-clean-2": 24})
    write_models(place / "models")
    recipe = place / "s5"
    shutil.copytree(RECIPE, recipe, ignore=shutil.ignore_patterns("data*", "exp*", "steps", "utils"))
    for name in ("steps", "utils"):
        (recipe / name).symlink_to(ROOT / name)
    (recipe / "path.sh").write_text(f". {ROOT}/path.sh\n")
    for name, content in SIZES.items():
        (recipe / name).write_text(content)


def start(place: Path, *words: str, environment: dict | None = None) -> subprocess.Popen:
    """Start the recipe in its own process group, with its output in PLACE/recipe.log."""
    with (place / "recipe.log").open("a") as log:
        command = [
            "./run.sh",
            "--corpus",
            str(place / "corpus"),
            "--lm-dir",
            str(place / "models"),
            *WORDS,
            *words,
        ]
        return subprocess.Popen(
            command,
            cwd=place / "s5",
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, "PYASR_NO_PIPES": "1", **(environment or {})},
        )


def run(place: Path, *words: str, timeout_s: float = 1800, status: int = 0) -> str:
    """Run the recipe to its end and check its exit status; the output of this run."""
    log = place / "recipe.log"
    before = log.stat().st_size if log.exists() else 0
    ended = start(place, *words).wait(timeout_s)
    said = log.read_text()[before:]
    assert ended == status, said[-4000:]
    return said


def wers(place: Path) -> dict[str, str]:
    """{decode directory: its full WER line}."""
    found = sorted(place.glob("s5/exp_mini/*/decode_*/best_wer"))
    return {str(path.parent.relative_to(place / "s5/exp_mini")): path.read_text() for path in found}
