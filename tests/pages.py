"""Files that a page of docs/extending shows, for the tests that follow it."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

_PAGES = Path(__file__).resolve().parents[1] / "docs/extending"


def write_files(page: str, directory: Path) -> list[str]:
    """Write the Python files that a page shows into a directory, under their names, which are returned."""
    text = (_PAGES / page).read_text()
    names, blocks = re.findall(r"`(\w+\.py)`:\n", text), re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    for name, block in zip(names, blocks, strict=True):
        (directory / name).write_text(block)
    return names


@contextmanager
def among_modules(page: str, package: ModuleType, directory: Path) -> Iterator[None]:
    """In the block, the one file that a page shows, written to `directory`, is a module of a package."""
    assert len(write_files(page, directory)) == 1
    package.__path__.append(str(directory))
    try:
        yield
    finally:
        package.__path__.remove(str(directory))
