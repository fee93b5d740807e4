"""The record of the files that a program writes into a user's folder."""

import resource

import pytest

from pyasr.base.errors import UserError
from pyasr.base.outputs.written_files import WrittenFiles


def test_files_are_known_by_content_and_source(tmp_path):
    path, source = tmp_path / "run.sh", tmp_path / "corpus"
    WrittenFiles(tmp_path, ".record").add(path, source, b"made")
    path.write_bytes(b"made")
    written = WrittenFiles(tmp_path, ".record")
    assert written.is_own(path, source) and not written.is_own(path, tmp_path / "another")
    path.write_bytes(b"edited")
    assert not written.is_own(path, source)


def test_disk_error_names_the_record(tmp_path):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))
    try:
        with pytest.raises(UserError, match=f"^{tmp_path}/.record: "):
            WrittenFiles(tmp_path, ".record").add(tmp_path / "run.sh", tmp_path, b"made")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
