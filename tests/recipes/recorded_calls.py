"""The Amazon Queen recipe with programs that only record how they are called."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
RECIPE = ROOT / "egs" / "amazon_queen" / "s5"
SCRIPTS = ("run.sh", "run_models.sh", "run_averaging.sh", "local/compare_parallel.sh")


def recorded_recipe(path: Path) -> Path:
    """A directory with the recipe's scripts, where programs are functions of the shell, whose calls are lines of `calls`, words ended by
    tabs."""
    (path / "local").mkdir(parents=True)
    for name in (*SCRIPTS, "conf"):
        (path / name).symlink_to(RECIPE / name)
    (path / "utils").symlink_to(ROOT / "utils")
    programs = [program.relative_to(place) for place, folder in ((ROOT, "steps"), (ROOT, "utils"), (RECIPE, "local"))
                for program in (place / folder).glob("*.py")]  # fmt: skip
    functions = [f"{program}() {{ printf '%s\\t' {program} \"$@\" >>calls; echo >>calls; }}" for program in programs]
    (path / "path.sh").write_text("\n".join(functions), encoding="utf-8")
    (path / "cmd.sh").write_text("train_cmd=run.pl decode_cmd=run.pl cuda_cmd=run.pl\n", encoding="utf-8")
    return path


def calls(recipe: Path, script: str, *words: str) -> list[list[str]]:
    """The commands of a run, in order: the program and its words."""
    (recipe / "calls").unlink(missing_ok=True)
    environment = {**os.environ, "PYASR_SUPERVISED": "1"}  # nothing is started that could outlive it
    done = subprocess.run(["bash", f"./{script}", *words], cwd=recipe, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return [line.split("\t")[:-1] for line in (recipe / "calls").read_text(encoding="utf-8").splitlines()]
