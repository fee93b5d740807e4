"""Conversion of operating system errors to error messages of one sentence: what, which file, what to do.

    # an OSError in the block becomes a UserError; it names `path` unless it names a file itself
    with naming(path):
        content = path.read_bytes()

Libraries also raise such errors as other exceptions: numpy for a full disk, torch and numba for memory,
ImportError for a library that cannot be mapped. `as_user_error` finds the system's reason in their text.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from pyasr.base.errors import UserError

AGAIN = "run the same command again"
_ADVICE: dict[int | None, str] = {
    errno.ENOSPC: f"the disk is full; free some space and {AGAIN}",
    errno.EDQUOT: f"the disk is full; free some space and {AGAIN}",
    errno.ENAMETOOLONG: "the name is too long for the filesystem; give a shorter one",
    errno.EFBIG: "the file exceeds the size limit; see 'ulimit -f'",
    errno.EACCES: "cannot be read or written ({reason}); check its owner and permissions",
    errno.EROFS: "cannot be read or written ({reason}); check its owner and permissions",
    errno.EPERM: "cannot be read or written ({reason}); check its owner and permissions",
    errno.ENOENT: "no such file or directory",
    errno.EEXIST: "a directory of this name exists; move it elsewhere, or give another name",
    errno.EISDIR: "{reason}; check the path",
    errno.ENOTDIR: "{reason}; check the path",
    errno.ELOOP: "{reason}; check where its links lead",
    errno.EIO: f"the disk or the filesystem failed ({{reason}}); see 'dmesg', and {AGAIN}",
    errno.ESTALE: (
        "removed or replaced on the file server while it was in use ({reason}); make sure that no other "
        f"program changes it, and {AGAIN}"
    ),
    errno.EMFILE: (
        f"too many files are open in this process; raise the limit with 'ulimit -n 4096', and {AGAIN}"
    ),
    errno.ENFILE: f"too many files are open on this machine; end other programs, and {AGAIN}",
    errno.ENOMEM: (
        f"memory ran out ({{reason}}); end other programs or run fewer jobs or ranks per host, and {AGAIN}"
    ),
    errno.EAGAIN: (
        f"the system allows no more processes or threads ({{reason}}); see 'ulimit -u', and {AGAIN}"
    ),
    errno.EINTR: f"interrupted by a signal; {AGAIN}",
    errno.EBUSY: f"in use by another program ({{reason}}); wait until it has ended, and {AGAIN}",
    errno.ETXTBSY: f"in use by another program ({{reason}}); wait until it has ended, and {AGAIN}",
    errno.ENOTEMPTY: (
        f"another program writes to this directory ({{reason}}); wait until it has ended, and {AGAIN}"
    ),
    errno.ENOLCK: "the filesystem does not support locks ({reason}); use another one, or mount it with locks",
    errno.ENOEXEC: "not a program for this machine; install the one for its processor and operating system",
    errno.E2BIG: (
        "the command line or the environment is too long ({reason}); give shorter names, or run it "
        "with 'env -i'"
    ),
}
_ELSE = f"the system refused ({{reason}}); correct the cause, and {AGAIN}"
_NUMBER = re.compile(r"\[Errno (\d+)\]")
_IN_TEXT = {
    os.strerror(number): number
    for number in (
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EIO,
        errno.ESTALE,
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOMEM,
    )
}
_IN_TEXT |= {
    "can't start new thread": errno.EAGAIN,
    "DefaultCPUAllocator": errno.ENOMEM,
    "CUDA out of memory": errno.ENOMEM,
}
# of numpy.save, which omits the system's reason
_NUMPY_DISK_FULL = re.compile(r"\d+ requested and \d+ written")
_ABSENCE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)
_PACKAGE = str(Path(__file__).resolve().parents[2])


class SystemRefusal(UserError):
    """An error of the operating system; `errno` is its number, None if unknown."""

    def __init__(self, sentence: str, number: int | None = None):
        super().__init__(sentence)
        self.errno = number

    @property
    def is_absence(self) -> bool:
        """Whether the file does not exist."""
        return self.errno in _ABSENCE


def disk_error(error: OSError, path: Path | str | None = None) -> Exception:
    """A UserError for an OSError. The message names `path` if the error names no file.

    A BrokenPipeError is returned unchanged: a reader that ends early is not an error (`pyasr.base.cli.step`).
    """
    return error if isinstance(error, BrokenPipeError) else _refusal(error, path)


@contextlib.contextmanager
def naming(path: Path | str) -> Iterator[None]:
    """Convert an OSError in the block to the UserError of `disk_error(error, path)`."""
    try:
        yield
    except OSError as error:
        raise disk_error(error, path) from error


@contextlib.contextmanager
def keeping_name(path: Path | str) -> Iterator[None]:
    """Add the file's name to an OSError in the block; Python sets it only for errors of opening."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and not _names(error):
            error.filename = str(path)
        raise


def as_user_error(error: BaseException) -> UserError | None:
    """`error` itself if it is a UserError, a UserError for the system error in it, else None."""
    if isinstance(error, UserError):
        return error
    if isinstance(error, OSError):
        return _refusal(error, None)
    if isinstance(error, MemoryError):
        return SystemRefusal(
            _sentence(_place(error), errno.ENOMEM, str(error) or "MemoryError"), errno.ENOMEM
        )
    number = _number_in(str(error)) if isinstance(error, Exception) else None
    return SystemRefusal(_sentence(_place(error), number, str(error)), number) if number else None


def is_absence(error: OSError) -> bool:
    """Whether the error says that the file does not exist, as opposed to a file that cannot be accessed."""
    return error.errno in _ABSENCE


def _refusal(error: OSError, path: Path | str | None) -> SystemRefusal:
    number, names = error.errno, _names(error)
    if isinstance(error, shutil.Error) and error.args and isinstance(error.args[0], list):
        _, target, reason = error.args[0][0]
        return SystemRefusal(_sentence(target, _number_in(str(reason)), str(reason)), _number_in(str(reason)))
    if number is None:
        number = errno.ENOSPC if _NUMPY_DISK_FULL.fullmatch(str(error)) else _number_in(str(error))
    of_copy = number in (errno.ENOSPC, errno.EDQUOT, errno.ENAMETOOLONG)
    where = names[-1 if of_copy else 0] if names else path or _place(error)
    if number == errno.EEXIST and not os.path.isdir(where):
        return SystemRefusal(
            f"{where}: a file in the place of a directory; check the path, or move the file elsewhere", number
        )
    return SystemRefusal(_sentence(where, number, error.strerror or str(error)), number)


def _names(error: OSError) -> list[str]:
    """The file names in the error, without descriptors."""
    return [
        os.fsdecode(name)
        for name in (error.filename, error.filename2)
        if isinstance(name, (str, bytes, os.PathLike))
    ]


def _sentence(where: Path | str, number: int | None, reason: str) -> str:
    first_line = (reason.strip().splitlines() or ["no reason given"])[0]
    return f"{where}: {_ADVICE.get(number, _ELSE).format(reason=first_line)}"


def _number_in(text: str) -> int | None:
    """The errno in the text of an error message; None if the text has no errno."""
    if found := _NUMBER.search(text):
        return int(found[1])
    return next((number for words, number in _IN_TEXT.items() if words in text), None)


def _place(error: BaseException) -> str:
    """The innermost function of pyasr in which an error without a file name was raised, as
    `pyasr/io/text_tables.py:read_lines`."""
    place, trace = "the system", error.__traceback__
    while trace:
        code = trace.tb_frame.f_code
        if code.co_filename.startswith(_PACKAGE) and "site-packages" not in code.co_filename:
            place = f"{os.path.relpath(code.co_filename, _PACKAGE)}:{code.co_name}"
        trace = trace.tb_next
    return place
