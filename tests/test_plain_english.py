"""Pages, docstrings, help texts and messages do not contain a few words that make sentences hard to read."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
# names in `...` are allowed
AVOIDED = re.compile(
    r"\b(?i:anew|as ever|heed(?:s|ed)?|it is said|ke(?:ep|eps|pt) back|nobody|whence|whoever)\b"
    r"|\b[Tt]hat is none\b|(?<![.`\w])(?i:beside|told)(?![`\w]|\.\w|  )"
)
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FOLDERS = [
    *sorted(f"pyasr/{path.name}" for path in (ROOT / "pyasr").iterdir() if (path / "__init__.py").exists()),
    "steps",
    "utils",
    "egs",
    "benchmarks",
    "tests",
]
OF_RUNS = {"data", "exp", "corpus"}  # directories of a recipe that are not part of the repository
UNCHECKED = {"fixtures", Path(__file__).name}  # files by other toolkits; the list of words itself


def found_in(path: Path) -> list[str]:
    """The avoided words in a file, each as `FILE:LINE: WORD`."""
    lines = (
        texts_of_python(path)
        if path.suffix in (".py", ".pl")
        else enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
    )
    return [
        f"{path.relative_to(ROOT)}:{number}: {word[0]}"
        for number, text in lines
        for word in AVOIDED.finditer(text)
    ]


def texts_of_python(path: Path) -> Iterator[tuple[int, str]]:
    """(line, text) of all strings with a space: docstrings, help texts and messages. Adjacent strings are one
    string."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield from enumerate(node.value.splitlines(), node.lineno)


def files_in(folder: str) -> list[Path]:
    """Programs, shell scripts, option files and pages in a folder of the repository."""
    paths = [
        path
        for pattern in ("*.py", "*.pl", "*.sh", "*.conf", "*.md")
        for path in (ROOT / folder).rglob(pattern)
    ]
    return sorted(
        path
        for path in paths
        if path.is_file()
        and not UNCHECKED & set(path.parts)
        and (folder != "egs" or not OF_RUNS & set(path.relative_to(ROOT).parts[3:-1]))
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_pages_avoid_listed_words(page):
    assert not found_in(page)


@pytest.mark.parametrize("folder", FOLDERS)
def test_texts_in_code_avoid_listed_words(folder):
    paths = files_in(folder)
    found = [word for path in paths for word in found_in(path)]
    assert paths, f"no file in {folder}"
    assert not found


@pytest.mark.parametrize(
    "text, words",
    [
        ("make it anew", ["anew"]),
        ("Nobody is told.", ["Nobody", "told"]),
        ("lists that are none", []),
        ("a list that is none", ["that is none"]),
        ("until that is None", []),
        ("the text that `told` returns; PLAN.told.json", []),
        ("what whoever reads", ["whoever"]),
        ("beside it; as ever", ["beside", "as ever"]),
        ("beside    the name of an argument", []),
        ("Limits are heeded, the rest is kept back.", ["heeded", "kept back"]),
    ],
)
def test_avoided_words_are_found(text, words):
    assert [word[0] for word in AVOIDED.finditer(text)] == words
