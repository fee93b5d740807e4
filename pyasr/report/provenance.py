"""Inputs, commands, machines and versions of a page's results, from the records of steps."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pyasr.base.outputs.fingerprint import DONE, read_done

_FACTS = ("command", "ended", "commit", "machine", "versions")  # fields of a step that a page shows


def records(directories: Iterable[Path]) -> list[dict]:
    """The done-files of `directories` and of all their inputs, earliest first."""
    found: dict[Path, dict] = {}
    waiting = list(directories)
    while waiting:
        directory = waiting.pop()
        done = read_done(directory)
        if done is None or directory.resolve() in found:
            continue
        found[directory.resolve()] = done
        waiting += [
            near for path in done.get("inputs", {}) for near in _made_by(Path(path)) if (near / DONE).exists()
        ]
    return in_order(done for done in found.values() if "command" in done)


def _made_by(path: Path) -> list[Path]:
    """Possible places of the record of the step that made `path`: itself, its directory, or a data
    directory's features and CMVN."""
    return [
        path,
        path.parent,
        *([path.parent / "feats", path.parent / "cmvn"] if path.suffix == ".scp" else []),
    ]


def facts(record: dict) -> dict:
    """The fields of a done-file that a page shows. Raises KeyError if one is missing."""
    return {name: record[name] for name in _FACTS}


def in_order(found: Iterable[dict]) -> list[dict]:
    """Distinct records of steps, earliest first."""
    return sorted(
        {(record["ended"], record["command"]): record for record in found}.values(),
        key=lambda record: (record["ended"], record["command"]),
    )


def made_with(found: list[dict]) -> str:
    """A list of commits, machines, versions and dates."""
    facts = {
        "commit": [record["commit"] for record in found],
        "machine": [record["machine"] for record in found],
        "versions": [
            " ".join(f"{name} {version}" for name, version in record["versions"].items()) for record in found
        ],
        "date (UTC)": [" to ".join(dict.fromkeys((found[0]["ended"], found[-1]["ended"])))]
        if found
        else ["unknown"],
    }
    return "\n".join(
        f"* {name}: {', '.join(dict.fromkeys(values)) or 'unknown'}" for name, values in facts.items()
    )


def commands(found: list[dict]) -> str:
    """The commands, one per line, as a Markdown code block."""
    return "```\n" + "\n".join(dict.fromkeys(record["command"] for record in found)) + "\n```\n"
