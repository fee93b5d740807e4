"""Files that recipes share are links to one place, so that copies cannot drift apart."""

import os
import re
from collections import defaultdict
from pathlib import Path

import pytest
from recorded_calls import ROOT, calls, recorded_recipe
from steps_here import step_of

from pyasr.base.cli.options import parse

RECIPES = sorted((ROOT / "egs").glob("*/s5"))
SETTINGS = ("cmd.sh", "path.sh")  # users have their own copies


def files_of(recipe: Path) -> list[Path]:
    """Files and links of its configurations and scripts."""
    return [
        path
        for folder in ("conf", "local")
        for path in sorted((recipe / folder).rglob("*"))
        if (path.is_symlink() or path.is_file()) and path.suffix != ".pyc"
    ]


def content(path: Path) -> str:
    """Content without comments, trailing blanks and empty lines."""
    lines = [
        re.sub(r"(^|\s+)#.*", "", line).rstrip() for line in path.read_text(encoding="utf-8").splitlines()
    ]
    return "\n".join(filter(None, lines))


def test_no_file_is_a_copy_of_another_recipe():
    places = defaultdict(list)
    for path in (path for recipe in RECIPES for path in files_of(recipe) if not path.is_symlink()):
        places[content(path)].append(str(path.relative_to(ROOT)))
    assert not [paths for text, paths in places.items() if text and len(paths) > 1]


def test_links_lead_to_files_of_toolkit():
    links = [path for recipe in RECIPES for path in files_of(recipe) if path.is_symlink()]
    assert len(links) > 15
    for link in links:
        assert not os.path.isabs(os.readlink(link)) and link.exists() and ROOT in link.resolve().parents, link


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_are_equal_in_all_recipes(name):
    assert len({(recipe / name).read_text(encoding="utf-8") for recipe in RECIPES}) == 1


@pytest.mark.parametrize("name", ["swbd", "fisher_swbd"])
def test_recipes_prepare_same_test_sets(name, tmp_path):
    words = ("--eval2000-audio", "/a", "--eval2000-text", "/t", "--rt03", "/r", "--stop-stage", "1")
    recipe = recorded_recipe(tmp_path / "s5", ROOT / "egs" / name / "s5")
    prepared = {
        program: parse(step_of(Path(program).name, f"egs/{name}/s5/local")[1], arguments)[0]
        for program, *arguments in calls(recipe, "run.sh", *words)
        if program.startswith("local/prepare_")
    }
    eval2000, rt03 = prepared["local/prepare_eval2000.py"], prepared["local/prepare_rt03.py"]
    assert (eval2000.audio, eval2000.text, rt03.rt03, rt03.glm) == ("/a", "/t", "/r", None)
