"""Of what, by which commands and with what a page's results were made, from the records that steps leave."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pyasr.base.fingerprint import DONE, read_done

_FACTS = ("command", "ended", "commit", "machine", "versions")  # what a page tells of a step


def records(directories: Iterable[Path]) -> list[dict]:
    """The done-files of `directories` and of everything that they were made from, earliest first."""
    found: dict[Path, dict] = {}
    waiting = list(directories)
    while waiting:
        directory = waiting.pop()
        done = read_done(directory)
        if done is None or directory.resolve() in found:
            continue
        found[directory.resolve()] = done
        waiting += [near for path in done.get("inputs", {}) for near in _made_by(Path(path)) if (near / DONE).exists()]
    return in_order(done for done in found.values() if "command" in done)


def _made_by(path: Path) -> list[Path]:
    """Where the record of the step that made `path` may lie: itself, its directory, or a data directory's features and CMVN."""
    return [path, path.parent, *([path.parent / "feats", path.parent / "cmvn"] if path.suffix == ".scp" else [])]


def facts(record: dict) -> dict:
    """What a page tells of the step that left a done-file. Raises KeyError where it lacks some of it."""
    return {name: record[name] for name in _FACTS}


def in_order(found: Iterable[dict]) -> list[dict]:
    """Records of steps, each once, earliest first."""
    return sorted({(record["ended"], record["command"]): record for record in found}.values(),
                  key=lambda record: (record["ended"], record["command"]))


def made_with(found: list[dict]) -> str:
    """A list of commits, machines, versions and dates."""
    facts = {"commit": [record["commit"] for record in found], "machine": [record["machine"] for record in found],
             "versions": [" ".join(f"{name} {version}" for name, version in record["versions"].items()) for record in found],
             "date (UTC)": [" to ".join(dict.fromkeys((found[0]["ended"], found[-1]["ended"])))] if found else ["unknown"]}
    return "\n".join(f"* {name}: {', '.join(dict.fromkeys(values)) or 'unknown'}" for name, values in facts.items())


def commands(found: list[dict]) -> str:
    """The commands, a line each, as Markdown has code."""
    return "```\n" + "\n".join(dict.fromkeys(record["command"] for record in found)) + "\n```\n"
