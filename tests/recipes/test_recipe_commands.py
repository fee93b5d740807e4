"""Programs accept every command of the recipes' scripts."""

from functools import cache

import pytest
from recorded_calls import ROOT, calls, options_of_all, recorded_recipe, scripts_of
from steps_here import step_of

from pyasr.base.cli.options import parse
from pyasr.base.errors import UserError

OF_NO_OPTIONS = ("utils/check_install.py",)
SCRIPTS = [
    (recipe, script) for recipe in sorted((ROOT / "egs").glob("*/s5")) for script in scripts_of(recipe)
]


@pytest.mark.parametrize(
    "recipe, script", SCRIPTS, ids=[f"{recipe.parent.name} {script}" for recipe, script in SCRIPTS]
)
def test_programs_accept_commands_of(recipe, script, tmp_path, monkeypatch):
    every = calls(recorded_recipe(tmp_path / "s5", recipe), script, *options_of_all(recipe, script)[0])
    commands = [words for words in every if words[0].startswith(("steps/", "utils/"))]
    monkeypatch.chdir(recipe)
    assert len(commands) > 20
    assert not [
        report
        for program, *words in commands
        if program not in OF_NO_OPTIONS and (report := refusal(program, words))
    ]


def refusal(program: str, words: list[str]) -> str:
    """Error message of a program for its command line; "" if it accepts it."""
    folder, name = program.split("/")
    try:
        parse(options_of(name, folder), words, extra_flags={"force": ""})
    except UserError as error:
        return f"{program} {' '.join(words)}: {error}"
    return ""


@cache
def options_of(name: str, folder: str) -> type:
    """Class of a program's options."""
    return step_of(name, folder)[1]
