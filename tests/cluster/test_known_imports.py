"""Libraries that were imported before are not imported again by the check of an installation, unless their
files, the host or Python have changed."""

import importlib
import json
import platform
import shutil
import sys

import pytest

from pyasr.cluster.installation import Missing, library
from pyasr.cluster.known_imports import KnownImports

NAME = "a_library_of_this_test"


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A directory on the path with an installed library, which notes its imports."""
    package = tmp_path / "site" / NAME
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(
        f"__version__ = '1.5'\nopen({str(tmp_path / 'imports')!r}, 'a').write('x')\n"
    )
    installed = package.with_name(f"{NAME}-1.5.dist-info")
    installed.mkdir()
    (installed / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {NAME}\nVersion: 1.5\n")
    monkeypatch.syspath_prepend(package.parent)
    return tmp_path


def check(place) -> tuple[str, int]:
    """(version found by a new process, number of imports so far)."""
    sys.modules.pop(NAME, None)
    importlib.invalidate_caches()
    found = library(NAME, KnownImports(place))
    return found, len((place / "imports").read_text())


def test_unchanged_library_is_imported_once(place):
    assert [check(place) for _ in range(3)] == [("1.5", 1)] * 3
    sys.modules.pop(NAME, None)
    library(NAME)
    assert len((place / "imports").read_text()) == 2, "without the option it is imported"


def test_changed_library_is_imported_again(place):
    check(place)
    code = place / "site" / NAME / "__init__.py"
    code.write_text(code.read_text().replace("1.5", "1.75"))
    assert check(place) == ("1.75", 2)
    (place / "site" / NAME / "new.py").touch()  # as an installation does
    assert check(place)[1] == 3


def test_other_host_imports_for_itself(place, monkeypatch):
    check(place)
    with monkeypatch.context() as other:
        other.setattr(platform, "node", lambda: "elsewhere")
        assert check(place)[1] == 2
    assert check(place)[1] == 2


def test_library_that_fails_or_is_removed_is_missing(place):
    check(place)
    code = place / "site" / NAME / "__init__.py"
    code.write_text("import no_module_of_this_name\n")
    for _ in range(2):
        with pytest.raises(
            Missing, match=rf"No module named 'no_module_of_this_name'; .* pip install {NAME}'"
        ):
            check(place)
    shutil.rmtree(code.parent)
    with pytest.raises(Missing):
        check(place)


@pytest.mark.parametrize("content", ["", "[]", "{", 1, {}, {NAME: 1}, {NAME: []}, {NAME: ["1.5"]}])
def test_damaged_record_is_replaced(content, place):
    if not isinstance(content, str):
        content = json.dumps({KnownImports(place).host: content})
    (place / ".imported-libraries.json").write_text(content)
    assert check(place) == check(place) == ("1.5", 1)


def test_record_that_cannot_be_written_is_left_out(place):
    (place / ".imported-libraries.json").mkdir()
    assert [check(place) for _ in range(2)] == [("1.5", 1), ("1.5", 2)]
