"""Recipes whose programs only record their calls."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
RECIPE = ROOT / "egs" / "amazon_queen" / "s5"
CMD_SH = "train_cmd=run.pl decode_cmd=run.pl cuda_cmd=run.pl\n"  # on a machine without a cluster
_CORPORA = ("--swbd", "x", "--eval2000-audio", "x", "--rt03", "x")
_SUBSET = [("--subset", "960")]
# Options with which a recipe runs nearly all of its commands, if it needs any; then options for the others.
ALL_COMMANDS = {
    "librispeech run.sh": _SUBSET,
    "librispeech run_models.sh": _SUBSET,
    "fisher_swbd run.sh": [_CORPORA],
    "swbd run.sh": [(*_CORPORA, "--fisher-text", "x"), ("--front-end", "mfcc")],
    "swbd run_models.sh": [(), ("--front-end", "mfcc")],
}


def options_of_all(recipe: Path, script: str) -> list[tuple[str, ...]]:
    """`ALL_COMMANDS` of a recipe's script."""
    return ALL_COMMANDS.get(f"{recipe.parent.name} {script}", [()])


def scripts_of(recipe: Path) -> list[str]:
    """Scripts of a recipe that source utils/recipe.sh."""
    paths = [*sorted(recipe.glob("*.sh")), *sorted(recipe.glob("local/**/*.sh"))]
    return [
        str(path.relative_to(recipe))
        for path in paths
        if re.search(r"^\. .*utils/recipe\.sh", path.read_text("utf-8"), re.MULTILINE)
    ]


def recorded_recipe(path: Path, recipe: Path = RECIPE) -> Path:
    """A directory with the scripts of a recipe. Programs are shell functions that append their calls to
    `calls`, one per line, with words separated by tabs."""
    (path / "local").mkdir(parents=True)
    (path / "conf").symlink_to(recipe / "conf")
    for script in (*recipe.glob("run*.sh"), *recipe.glob("local/**/*.sh")):
        place = path / script.relative_to(recipe)
        place.parent.mkdir(exist_ok=True)
        place.symlink_to(script)
    return with_recorded_programs(path, recipe)


def with_recorded_programs(path: Path, recipe: Path = RECIPE) -> Path:
    """Directory of a script with all files that it sources."""
    (path / "utils").symlink_to(ROOT / "utils")
    programs = [
        program.relative_to(place)
        for place, folder in ((ROOT, "steps"), (ROOT, "utils"), (recipe, "local"))
        for program in sorted((place / folder).glob("*.py"))
    ]
    functions = [
        f"{program}() {{ printf '%s\\t' {program} \"$@\" >>calls; echo >>calls; }}" for program in programs
    ]
    (path / "path.sh").write_text("\n".join(functions), encoding="utf-8")
    (path / "cmd.sh").write_text(CMD_SH, encoding="utf-8")
    return path


def calls(recipe: Path, script: str, *words: str) -> list[list[str]]:
    """Commands of a run in order: program and arguments."""
    (recipe / "calls").unlink(missing_ok=True)
    environment = {**os.environ, "PYASR_SUPERVISED": "1"}  # no started process could outlive it
    done = subprocess.run(
        ["bash", f"./{script}", *words],
        cwd=recipe,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return [line.split("\t")[:-1] for line in (recipe / "calls").read_text(encoding="utf-8").splitlines()]
