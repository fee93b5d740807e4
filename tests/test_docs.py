"""Documentation compared with the code: links and names refer to something that exists, programs accept the
commands shown."""

import ast
import importlib.util
import re
import shlex
import sys
from functools import cache
from pathlib import Path

import pytest

from pyasr.base.cli import options as opt
from pyasr.base.cli import step

ROOT = Path(__file__).resolve().parents[1]
RECIPE = ROOT / "egs/amazon_queen/s5"
EXTENDING = ROOT / "docs/extending"  # its programs are those of a user; tests follow them
DOCS = sorted((ROOT / "docs").rglob("*.md"))
PAGES = [ROOT / "README.md", *(page for page in DOCS if page.parent != EXTENDING)]
RECIPES = sorted((ROOT / "egs").glob("*/s5"))
PROGRAMS = sorted(
    path
    for folder in (
        ROOT / "steps",
        ROOT / "utils",
        ROOT / "benchmarks",
        ROOT / "benchmarks/scaling",
        ROOT / "benchmarks/failures",
        *(recipe / "local" for recipe in RECIPES),
    )
    for path in folder.glob("*.py")
)
WITHOUT_PARSER = {"build_environment.py", "supervise.py"}


def by_page(pattern: str):
    """Parameters (page, matches of the pattern), for each page with matches."""
    found = {page: sorted(set(re.findall(pattern, page.read_text()))) for page in PAGES}
    return [pytest.param(page, words, id=page.stem) for page, words in found.items() if words]


@pytest.mark.parametrize("page, targets", by_page(r"\]\(([^)#\s]+)\)"))
def test_links_have_existing_targets(page, targets):
    assert not [target for target in targets if "://" not in target and not (page.parent / target).exists()]


def test_every_page_is_linked_from_the_first():
    linked = set(re.findall(r"\]\((docs/[\w/]+\.md)\)", (ROOT / "README.md").read_text()))
    assert linked == {str(page.relative_to(ROOT)) for page in DOCS}


def test_links_of_extending_pages_have_existing_targets():
    for page in EXTENDING.glob("*.md"):
        targets = re.findall(r"\]\(([^)#\s]+)\)", page.read_text())
        assert not [target for target in targets if not (page.parent / target).exists()], page


@pytest.mark.parametrize(
    "page, paths",
    by_page(r"\b((?:tests|benchmarks|steps|utils|egs|pyasr|docs)/[\w/]+\.(?:py|md|sh|pl|json|tsv))\b"),
)
def test_named_files_exist(page, paths):
    assert not [path for path in paths if not (ROOT / path).exists()]


@pytest.mark.parametrize("page, names", by_page(r"\bpyasr(?:\.\w+)+"))
def test_named_modules_and_functions_exist(page, names):
    assert not [name for name in names if not resolves(name)]


@pytest.mark.parametrize("page, imports", by_page(r"from (pyasr[\w.]*) import ([\w, ]+)"))
def test_shown_imports_work(page, imports):
    assert not [
        f"{module}.{name}"
        for module, names in imports
        for name in names.split(", ")
        if not resolves(f"{module}.{name}")
    ]


def resolves(name: str) -> bool:
    """Whether a dotted name is a module, or an object in one."""
    parts = name.split(".")
    for num in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:num]))
        except ModuleNotFoundError:
            continue
        for part in parts[num:]:
            found = getattr(found, part, None)
        return found is not None
    return False


def commands_of(text: str) -> list[str]:
    """The commands in indented lines; continued lines are joined, comments and text after two blanks
    removed."""
    lines = re.sub(r"\\\n\s*", " ", text).splitlines()
    found = (
        re.match(r" {2,}((?:steps|utils|local|benchmarks(?:/\w+)?)/\w+\.py\b.*)", line) for line in lines
    )
    return [re.split(r"   +#|\s#|   +(?=[a-z]+ |-> )", match[1])[0].strip() for match in found if match]


def shown():
    """Parameters (program, words) of all commands on the pages and in the programs' own docstrings."""
    sources = [(page, page.read_text()) for page in PAGES] + [
        (path, ast.get_docstring(ast.parse(path.read_text())) or "") for path in PROGRAMS
    ]
    for source, text in sources:
        for command in commands_of(text):
            # [--audio no|exists|read]: as if all were given, the first of each
            line = re.sub(r"\[([^\]]*)\]", r"\1", command)
            name, *words = shlex.split(re.sub(r" ?\| ?[^\s|]+", "", line))
            if words and Path(name).name not in WITHOUT_PARSER and "..." not in words:
                yield pytest.param(name, words, id=f"{source.stem}: {command}"[:90])


def test_readme_steps_have_their_inputs():
    """Each step reads existing directories (data and lang) or outputs of earlier steps, including features
    and normalisation."""
    [block] = re.findall(r"(?:^    steps/.*\n){2,}", (ROOT / "README.md").read_text(), re.M)
    there = {"data/train", "data/lang"}
    for line in block.splitlines():
        *taken, last = re.findall(r"(?:data|exp)/\w+", line)
        assert set(taken) <= there and (last in there or last.startswith("exp/")), line
        there.add(last)
    assert re.match(r"make_mfcc compute_cmvn train_", " ".join(re.findall(r"steps/(\w+)", block)))


@cache
def options_of(path: Path):
    """The options class that a program passes to `run_step`; None for a program with its own parser."""
    name = re.search(r"^ *run_step\(\s*(\w+),\s", path.read_text(), re.M)
    if name is None:
        return None
    spec = importlib.util.spec_from_file_location(f"program_{path.stem}", path)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(path.parent)
        # other tests may have loaded a program of this name from another folder
        for neighbour in path.parent.glob("*.py"):
            patched.delitem(sys.modules, neighbour.stem, raising=False)
        patched.setattr(step, "run_step", lambda *_: None)
        spec.loader.exec_module(module)
    return getattr(module, name[1])


@pytest.mark.parametrize("name, words", list(shown()))
def test_shown_commands_are_accepted(name, words, monkeypatch):
    monkeypatch.chdir(RECIPE)
    paths = [place / name for place in (ROOT, *RECIPES) if (place / name).exists()]
    assert paths, f"{name}: no such program"
    cls = options_of(paths[0])
    if cls is not None:
        opt.parse(cls, words, "", {"force": "", "no-pipes": ""})
