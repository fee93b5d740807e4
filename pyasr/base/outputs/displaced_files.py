"""Keep the foreign content of a replaced output in `.OUT.changed`, next to the output.

Foreign content is everything that the output's own run did not write: outputs of other steps, their
unfinished runs with all checkpoints, and files and folders of the user. Outputs derived from the replaced
one, such as the graph and decodings of a model, are not kept, unless they are trained networks. Each entry is
moved by one rename, so that moving needs no disk space and a kill leaves the entry in one of the two places.
Not kept are entries that `.OUT.changed` already contains with the same content, logs (log/, q/), hidden
files, and copies next to the output they were copied from, such as DATA/feats.scp.
"""

from __future__ import annotations

import filecmp
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from pyasr.base.files import durable
from pyasr.base.files.places import is_there
from pyasr.base.outputs.fingerprint import DONE, files_below, read_done
from pyasr.base.outputs.run_times import RUNS

STARTED = ".started.json"
_LOGS = ("log", "q")
_MAX_NAMED = 20
_LONG_NAME_BYTES = 100


def short_name(name: str) -> str:
    """The name; its digest if the name is too long to append a suffix."""
    content = os.fsencode(name)
    return name if len(content) <= _LONG_NAME_BYTES else hashlib.sha256(content).hexdigest()[:16]


def changed_dir_of(out: Path) -> Path:
    """The directory that keeps the foreign content of this output."""
    return out.with_name(f".{short_name(out.name)}.changed")


def is_scratch_or_kept(path: Path) -> bool:
    """Whether a path is part of a scratch directory, of a replaced output (.OUT.old, or OUT.old kept by the
    user) or of kept content."""
    return any(part.endswith((".tmp", ".old", ".changed")) for part in Path(path).parts)


def keep_changed(out: Path, names: list[str]) -> None:
    """Copy changed files of an output to `.OUT.changed`, because the change may be intended."""
    for name in names:
        if is_there(out / name):
            keep_copy(out / name, changed_dir_of(out) / name)


def keep_copy(path: Path, place: Path) -> Path:
    """Copy the file to `place`, or to the first free one of PLACE.2, PLACE.3, ... if another file is there;
    the path of the copy.

    A place that already has the same content is returned without copying."""
    kept, is_there = _free_or_equal(path, place)
    if not is_there:
        durable.copy(path, kept)
    return kept


def keep_others(out: Path) -> None:
    """Move foreign content of an output to `.OUT.changed` and report it on standard output. An interrupted
    move can be repeated."""
    others = other_entries(out)
    if others:
        names = [str(path.relative_to(out)) for path in others]
        more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
        found = f"{', '.join(names[:_MAX_NAMED])}{more}"
        print(
            f"{out} is replaced; files that its step did not write ({found}) are moved to "
            f"{changed_dir_of(out)}; remove the ones that you do not need",
            flush=True,
        )
    for path in others:
        kept, is_there = _free_or_equal(path, changed_dir_of(out) / path.relative_to(out))
        if not is_there:
            durable.rename(path, kept)


def other_entries(out: Path) -> list[Path]:
    """Files, links and folders of a stage output that its own run did not write; a folder without files of
    the run is listed as a whole."""
    made = _files_of(out)
    nested = [path.parent for path in sorted(files_below(out)) if path.name == DONE and path.parent != out]
    while gone := [
        output
        for output in nested
        if _goes_with(output, made) and not any(parent in nested for parent in output.parents)
    ]:
        nested = [output for output in nested if output not in gone]
        made = made.union(*map(_files_of, gone))
    around = {folder for path in made for folder in path.parents}
    return list(_others_in(out, made, around, read_done(out) is not None))


def _files_of(output: Path) -> set[Path]:
    return {output / name for name in (read_done(output) or {}).get("files", {})}


def _goes_with(output: Path, made: set[Path]) -> bool:
    """Whether an output is derived from the replaced files and is not marked as precious (expensive to
    compute again)."""
    done, places = read_done(output) or {}, {os.path.realpath(path) for path in made}
    return not done.get("precious", True) and not places.isdisjoint(map(os.path.realpath, done["inputs"]))


def unfinished_runs(out: Path) -> list[Path]:
    """Scratch directories of other outputs in this one."""
    return [
        path.parent
        for path in sorted(files_below(out))
        if path.name == STARTED and path.parent.name.endswith(".tmp")
    ]


def _others_in(folder: Path, made: set[Path], around: set[Path], is_listed: bool) -> Iterator[Path]:
    """Foreign entries below a folder. `is_listed`: the output has a valid done-file, which lists its files;
    otherwise only outputs and runs of other steps are recognised as foreign."""
    entries = sorted(folder.iterdir())
    outputs = [path for path in entries if (path / DONE).exists()]
    for path in entries:
        if path.is_symlink() or not path.is_dir():
            if (
                is_listed
                and path not in made
                and not path.name.startswith(".")
                and not _is_copy_of_any(path, outputs)
            ):
                yield path
        elif path in around or not (is_listed or (path / DONE).exists() or (path / STARTED).exists()):
            yield from _others_in(path, made, around, is_listed)
        elif not _goes_along(path, (folder / DONE).exists()):
            yield path


def _goes_along(folder: Path, is_in_output: bool) -> bool:
    """Whether a folder need not be kept: the output's own log, a replaced output that awaits removal, or a
    folder without files."""
    own_log = is_in_output and folder.name in _LOGS
    replaced = folder.name.startswith(".") and folder.name.endswith(".old") and (folder / DONE).exists()
    return own_log or replaced or not any(files_below(folder))


def _is_copy_of_any(path: Path, outputs: list[Path]) -> bool:
    """Whether a file is a copy of the file of the same name in one of these outputs."""
    originals = (output / path.name for output in outputs)
    return path.is_file() and any(
        original.is_file() and filecmp.cmp(path, original, shallow=False) for original in originals
    )


def _free_or_equal(path: Path, place: Path) -> tuple[Path, bool]:
    """The first of PLACE, PLACE.2, PLACE.3, ... that is free or has the content of `path`; whether it has
    that content."""
    place.parent.mkdir(parents=True, exist_ok=True)
    number, kept = 1, place
    while True:
        if not is_there(kept):
            return kept, False
        if _is_same(path, kept):
            return kept, True
        number += 1
        kept = place.with_name(f"{place.name}.{number}")


def _is_same(path: Path, other: Path) -> bool:
    """Whether two files, links or folders have the same content; times and owners are ignored."""
    if path.is_symlink() or other.is_symlink():
        return path.is_symlink() and other.is_symlink() and os.readlink(path) == os.readlink(other)
    if path.is_dir() and other.is_dir():
        names = _names_in(path)
        return names == _names_in(other) and all(_is_same(path / name, other / name) for name in names)
    return path.is_file() and other.is_file() and filecmp.cmp(path, other, shallow=False)


def _names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name not in (DONE, RUNS, *_LOGS))
