"""Files that a page of docs/extending shows, for the tests that follow it."""

import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType, ModuleType

ROOT = Path(__file__).resolve().parents[2]


def write_files(page: str, directory: Path) -> list[str]:
    """Write the Python files that a page shows into a directory, under their names, which are returned."""
    text = (ROOT / "docs/extending" / page).read_text()
    names = re.findall(r"`(\w+\.p[yl])`:\n", text)
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    for name, block in zip(names, blocks, strict=True):
        (directory / name).write_text(block)
        (directory / name).chmod(0o755 if block.startswith("#!") else 0o644)
    return names


@contextmanager
def among_modules(
    page: str, package: ModuleType, directory: Path, programs: Mapping[str, Path] = MappingProxyType({})
) -> Iterator[None]:
    """In the block, the one file that a page shows, written to `directory`, is a module of a package.

    programs  {further file of the page: directory to which it is written}
    """
    assert len(write_files(page, directory)) == 1 + len(programs)
    for name, place in programs.items():
        (directory / name).rename(place / name)
    package.__path__.append(str(directory))
    try:
        yield
    finally:
        package.__path__.remove(str(directory))


def toolkit_with(page: str, places: dict[str, str], directory: Path) -> Path:
    """A copy of the toolkit's modules and programs in `directory`, with the files of a page in these folders
    of it; for programs that must find them by themselves."""
    for folder in ("pyasr", "steps", "utils"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / folder, directory / folder, symlinks=True, ignore=ignored)
    assert sorted(write_files(page, directory)) == sorted(places)
    for name, folder in places.items():
        (directory / name).rename(directory / folder / name)
    return directory
