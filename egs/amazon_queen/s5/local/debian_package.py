"""Extract a file from a Debian package, and download a package without root."""

from __future__ import annotations

import io
import lzma
import shutil
import subprocess
import tarfile
import tempfile
import zlib
from pathlib import Path

from pyasr.base.errors import UserError

_LARGEST_BYTES = 1 << 30


def extract(package: Path, name: str, out: Path) -> None:
    """Write the file `name` of `package` to `out`. Raises UserError if the package is damaged or lacks the
    file."""
    member, data = _data_archive(package)
    try:
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            found = [
                m
                for m in archive
                if m.name.rpartition("/")[2] == name and m.isfile() and m.size <= _LARGEST_BYTES
            ]
            if not found:
                raise UserError(
                    f"{package} does not contain {name}; give the package flight-of-the-amazon-queen"
                )
            content = archive.extractfile(found[0])
            assert content is not None
            with content as source, out.open("wb") as target:
                shutil.copyfileobj(source, target)
    except (tarfile.TarError, EOFError, OSError, ValueError, zlib.error, lzma.LZMAError) as error:
        raise UserError(
            f"{package}: {member} cannot be read ({error}); "
            "unpack the package yourself and give queen.1c with --corpus"
        ) from None


def _data_archive(package: Path) -> tuple[str, bytes]:
    """(name, content) of `data.tar.*`; a Debian package is an `ar` archive of three members with 60-byte
    headers."""
    content = package.read_bytes()
    if not content.startswith(b"!<arch>\n"):
        raise UserError(f"{package}: not a Debian package; download it again")
    at = 8
    while at + 60 <= len(content):
        name = content[at : at + 16].decode("ascii", "replace").strip(" /")
        digits = content[at + 48 : at + 58].strip()
        if not digits.isdigit():
            raise UserError(f"{package}: damaged; download it again")
        size = int(digits)
        body, at = content[at + 60 : at + 60 + size], at + 60 + size + size % 2
        if name.startswith("data.tar"):
            if len(body) < size:
                break
            return name, body
    raise UserError(f"{package}: truncated; download it again")


def download(name: str, directory: Path) -> Path:
    """Download the package `name` into `directory` with apt-get; if apt has no package lists, fetch lists
    there, too.

    Raises UserError with the remedy if there is no apt or the download fails.
    """
    by_hand = (
        f"download the Debian package {name} (https://packages.debian.org/{name}, 35 MB, no dependencies) on "
        "any machine and give it, or its queen.1c, with --corpus FILE"
    )
    if not shutil.which("apt-get"):
        raise UserError(f"no apt-get on this machine to fetch the corpus; {by_hand}")
    with tempfile.TemporaryDirectory() as scratch:
        own_lists = ["-o", f"Dir::State={scratch}/state", "-o", f"Dir::Cache={scratch}/cache"]
        (Path(scratch) / "state/lists/partial").mkdir(parents=True)
        (Path(scratch) / "cache/archives/partial").mkdir(parents=True)
        for settings in ([], own_lists):
            if settings:
                _apt([*settings, "update"], directory)
            message = _apt([*settings, "download", name], directory)
            packages = sorted(directory.glob(f"{name}_*.deb"))
            if packages:
                return packages[0]
    raise UserError(f"apt-get cannot fetch {name} ({message}); check the network, or {by_hand}")


def _apt(arguments: list[str], directory: Path) -> str:
    """Run apt-get in `directory`; return its last line. The files in the directory show whether it
    succeeded."""
    run = subprocess.run(
        ["apt-get", "-q", *arguments],
        cwd=directory,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return (run.stdout.strip().splitlines() or ["no message"])[-1]
