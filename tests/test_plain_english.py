"""Pages, docstrings, help texts, messages, comments and names do not contain a few words that make sentences
hard to read."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
# names in `...` are allowed
AVOIDED = re.compile(
    r"\b(?i:alike|anew|as ever|besides|go(?:es)? on|heed(?:s|ed)?|it is said|ke(?:ep|eps|pt) back|nobody"
    r"|so many|went on|whence|whoever)\b|\b[Tt]hat is none\b|(?<![.`\w])(?i:beside|told)(?![`\w]|\.\w|  )"
)
NAME_PARTS = {"alike", "anew", "beside", "besides", "heeds", "nobody", "told", "whoever"}  # not in names
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted(ROOT.glob("requirements*.txt")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
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
    """(line, text) of all strings with a space: docstrings, help texts and messages; and of all comments, if
    the file has an avoided word. Adjacent strings are one string."""
    source = path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield from enumerate(node.value.splitlines(), node.lineno)
    if AVOIDED.search(source):  # comments are parts of lines
        yield from (
            (token.start[0], token.string) for token in tokens_of(source) if token.type == tokenize.COMMENT
        )


def tokens_of(source: str) -> Iterator[tokenize.TokenInfo]:
    return tokenize.generate_tokens(io.StringIO(source).readline)


def names_found_in(path: Path) -> set[str]:
    """The names in a Python file, and its own name, that have a part of NAME_PARTS, each as `FILE: NAME`."""
    source = path.read_text(encoding="utf-8")
    may_have_some = any(part in source.lower() for part in NAME_PARTS)
    tokens = tokens_of(source) if may_have_some else ()
    names = {path.stem, *(token.string for token in tokens if token.type == tokenize.NAME)}
    return {
        f"{path.relative_to(ROOT)}: {name}" for name in names if NAME_PARTS & set(name.lower().split("_"))
    }


def files_in(folder: str) -> list[Path]:
    """Programs, shell scripts, option files, tables and pages in a folder of the repository."""
    paths = [
        path
        for pattern in ("*.py", "*.pl", "*.sh", "*.conf", "*.md", "*.tsv", "*.txt")
        for path in (ROOT / folder).rglob(pattern)
    ]
    return sorted(
        path
        for path in paths
        if path.is_file()
        and not UNCHECKED & set(path.parts)
        and (folder != "egs" or not OF_RUNS & set(path.relative_to(ROOT).parts[3:-1]))
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_pages_avoid_listed_words(page):
    assert not found_in(page)


@pytest.mark.parametrize("folder", FOLDERS)
def test_texts_in_code_avoid_listed_words(folder):
    paths = files_in(folder)
    found = [word for path in paths for word in found_in(path)]
    assert paths, f"no file in {folder}"
    assert not found


# records of benchmarks have a field `told`
@pytest.mark.parametrize("folder", [folder for folder in FOLDERS if folder != "benchmarks"])
def test_names_avoid_listed_words(folder):
    paths = [path for path in files_in(folder) if path.suffix in (".py", ".pl")]
    assert not sorted(name for path in paths for name in names_found_in(path))


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
        ("every so many frames, besides", ["so many", "besides"]),
        ("it goes on, they are treated alike; `goes` on", ["goes on", "alike"]),
    ],
)
def test_avoided_words_are_found(text, words):
    assert [word[0] for word in AVOIDED.finditer(text)] == words
