"""Zip archives written by numpy and torch, whose members are not compressed."""

from __future__ import annotations

import os
import zipfile


def check_stored(archive: zipfile.ZipFile) -> None:
    """Raise BadZipFile if members of an open archive are compressed or overlap, because they could unpack to
    any size."""
    assert archive.fp is not None  # the archive is open
    members = archive.infolist()
    if any(
        member.compress_type != zipfile.ZIP_STORED or member.file_size != member.compress_size
        for member in members
    ):
        raise zipfile.BadZipFile("members are compressed")
    if sum(member.file_size for member in members) > os.fstat(archive.fp.fileno()).st_size:
        raise zipfile.BadZipFile("members are larger than the file")
