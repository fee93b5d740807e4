"""The text of --help: a program's docstring, its arguments, and its flags under headings.

A dataclass of options names its heading in a class attribute `heading`, which groups inside it inherit. Flags
that are declared as `rare` are omitted by --help and shown by --help-all, unless the program has few flags.
Both omit flags that the program never uses.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyasr.base.cli.option_flags import Flag, flags_of, positionals_of
from pyasr.base.cli.option_uses import is_never_used, usage_text
from pyasr.base.cli.option_values import as_typed

ALL = "--help-all"
HEADINGS = (
    "", "audio", "features", "pitch", "input", "data", "network", "objective", "tree", "alignment",
    "Gaussians", "transforms and adaptation", "optimisation", "teacher", "parallel training", "simulation",
    "search", "scoring", "progress and checkpoints", "resources", "jobs",
)  # fmt: skip
_MAX_SHOWN = 30  # flags of a program that shows all of them
_WIDTH = 28


def help_text(cls, doc: str, switches: dict[str, str], show_all: bool) -> str:
    """The text for a program with the options `cls` and the docstring `doc`; `switches` are further flags and
    their texts."""
    flags = [flag for flag in flags_of(cls) if not is_never_used(flag.only)]
    shown = (
        flags if show_all or len(flags) <= _MAX_SHOWN else [flag for flag in flags if not flag.meta["rare"]]
    )
    arguments = [_line(field.name.upper(), field.metadata["help"]) for field in positionals_of(cls)]
    general = {
        "config FILE": "read --name=value lines from FILE",
        **switches,
        "version": "show pyasr's version",
    }
    if len(shown) < len(flags):
        general["help-all"] = f"show {len(flags) - len(shown)} more options, which are rarely used"
    last = ["", "General:", *(_line("--" + name, text) for name, text in general.items())]
    return "\n".join([doc.strip(), "", *arguments, *_sections(shown), *last])


def _sections(flags: list[Flag]) -> Iterator[str]:
    """Lines of the flags under their headings, in the order of HEADINGS."""
    for heading in sorted({flag.heading for flag in flags}, key=HEADINGS.index):
        yield from ("", f"{heading[:1].upper()}{heading[1:] or 'Options'}:")
        yield from (_flag_line(flag) for flag in flags if flag.heading == heading)


def _flag_line(flag: Flag) -> str:
    choices = f" ({'|'.join(map(str, flag.meta['choices']))})" if flag.meta["choices"] else ""
    typed = f"--{flag.name} {flag.type.__name__.upper()}"
    return _line(typed, f"{flag.meta['help']}{usage_text(flag.only)}{choices} [{as_typed(flag.default)}]")


def _line(name: str, text: str) -> str:
    return f"  {name:<{_WIDTH}} {text}"
