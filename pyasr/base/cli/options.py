"""Declaration of options: flags, config files, help, validation and saved JSON are derived from one frozen
dataclass.

    @dataclass(frozen=True)
    class MfccOptions:
        num_ceps: int = option(13, "cepstra per frame", minimum=1)

    options = parse(MfccOptions, ["--num-ceps", "20"], doc="Compute MFCCs.")

A field is a flag (`option`), a positional argument (`argument`), a dataclass of flags (`group`), or a
dataclass selected by the value of a flag (`chosen_group`). Groups are flattened into the flags of their
owner. `only` is the condition under which a flag or group is used (`pyasr.base.cli.option_uses`); a flag is
refused if its condition is false. `--config FILE` reads `--name=value` lines, as in Kaldi; flags on the
command line override the file. `pyasr.base.cli.option_flags` lists the flags of a dataclass,
`pyasr.base.cli.option_files` converts it to and from JSON.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import typing
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from pyasr.base.cli import kaldi_names
from pyasr.base.cli.help_text import ALL, help_text
from pyasr.base.cli.option_files import completed, defaults, from_json, load, paths_in, save, to_json
from pyasr.base.cli.option_flags import (
    Flag,
    choose,
    flags_of,
    kind_of,
    on_command_line,
    positionals_of,
    shown_name,
    with_unused,
)
from pyasr.base.cli.option_uses import refuse_unused
from pyasr.base.cli.option_values import from_text, item_type, plain_type
from pyasr.base.errors import UserError
from pyasr.base.system_errors import disk_error
from pyasr.base.utf8 import text_of
from pyasr.base.version import VERSION

__all__ = ["HelpRequested", "argument", "choose", "chosen_group", "completed", "defaults", "did_you_mean",
           "from_json", "group", "load", "option", "parse", "paths_in", "refuse_combination", "save",
           "to_json"]  # fmt: skip


class HelpRequested(Exception):
    """`--help` or `--version` was given; the message is the text to print."""


def option(
    default,
    help,
    *,
    choices=None,
    minimum=None,
    maximum=None,
    only=(),
    is_command=False,
    rare=False,
    common=False,
    heading="",
):
    """A flag with a default.

    choices, minimum, maximum  accepted values (bounds are inclusive)
    only                       conditions under which the flag has an effect
    is_command                 the value is a command with options of its own, which needs quotation marks
    rare                       --help omits the flag, --help-all lists it last under its heading
    common                     the flag is listed first under its heading
    heading                    heading in --help, instead of that of the class
    """
    metadata = dict(
        kind="option",
        help=help,
        choices=choices,
        minimum=minimum,
        maximum=maximum,
        only=only,
        is_command=is_command,
        rare=rare,
        common=common,
        heading=heading,
    )
    return dataclasses.field(default=default, metadata=metadata)


def argument(help, *, many=False, name=""):
    """A positional argument; with `many`, the last one takes all remaining words (type `tuple`). `name`: the
    name in --help and in messages, instead of the field's in capital letters."""
    return dataclasses.field(
        default=dataclasses.MISSING, metadata=dict(kind="argument", help=help, many=many, name=name)
    )


def group(cls, *, only=(), **defaults):
    """All flags of the dataclass `cls`, flattened. `defaults` override its defaults. `only` are conditions of
    all fields, or {field: conditions} of some; the conditions of a field that is a group can be such a
    dictionary, too."""
    return dataclasses.field(
        default_factory=lambda: cls(**defaults),
        metadata=dict(kind="group", cls=cls, defaults=defaults, only=only),
    )


def chosen_group(by: str, kinds: Callable[[], dict[str, type]], what: str):
    """The flags of one of several dataclasses, selected by the value of the option `by`, which is declared
    before the group.

    kinds  {value: dataclass}; flags in common come from a common base class
    what   noun for the values in messages
    """
    return dataclasses.field(default=None, metadata=dict(kind="chosen", by=by, kinds=kinds, what=what))


def parse(cls, argv: list[str], doc: str = "", extra_flags: dict[str, str] | None = None):
    """Parse a command line into an instance of `cls`.

    `extra_flags` are switches without a value that the caller handles itself ({"force": help}); those given
    are returned as a set: `(instance, {"force"})`.

    Raises UserError for an unknown flag, a missing or invalid value, too few or too many positional
    arguments; HelpRequested for --help and --version.
    """
    extra_flags = extra_flags or {}
    own_flags = {flag.name: flag for flag in flags_of(cls)}
    of_files = with_unused(own_flags)
    flags = on_command_line(of_files)
    positionals = positionals_of(cls)
    from_line: dict[str, object] = {}
    from_config: dict[str, tuple[object, str]] = {}
    words, switched = list[str](), set[str]()
    rest = list(argv)
    while rest:
        word = rest.pop(0)
        if word in ("--help", "-h", ALL):
            raise HelpRequested(help_text(cls, doc, extra_flags, word == ALL))
        if word == "--version":
            raise HelpRequested(f"pyasr {VERSION}")
        if word == "--":
            words += rest
            break
        if not word.startswith("--"):
            words.append(word)
            continue
        name, equals, value = word[2:].partition("=")
        name = name.replace("_", "-")
        if name in extra_flags and not equals:
            switched.add(name)
            continue
        if name in extra_flags:
            raise UserError(f"--{name}: takes no value; give it without '='")
        if name != "config" and name not in flags:
            known = [*own_flags, *extra_flags, "config", "help", "help-all", "version"]
            unknown = did_you_mean(f"--{name}", known)
            raise UserError(unknown + _on_quotes(f"--{name}", flags, from_line))
        if not equals:
            value = _value_of(name, flags, rest)
        if name == "config":
            from_config |= _read_config(Path(value), of_files)
        else:
            from_line[name] = flags[name].convert(value, f"--{name}")
    for word in words:
        if word.startswith("-") and (hint := _on_quotes(word, flags, from_line)):
            raise UserError(f"{word}: no such option{hint}")
    return _instance(
        cls, own_flags, of_files, from_line, from_config, _bind(positionals, words, cls, own_flags)
    ), switched


def _on_quotes(word: str, flags: dict[str, Flag], given: dict[str, object]) -> str:
    """A hint for an unknown option that may belong to a given command; '' if no command was given."""
    commands = [name for name in given if flags[name].meta.get("is_command")]
    return (
        f"; if it belongs to --{commands[0]}, write --{commands[0]} '{given[commands[0]]} {word} ...'"
        if commands
        else ""
    )


def _value_of(name, flags, rest):
    """The word after a flag; a boolean flag may stand alone."""
    is_bool = name in flags and flags[name].type is bool
    if is_bool and (not rest or rest[0].lower() not in ("true", "false")):
        return "true"
    if not rest or (rest[0].startswith("--") and not rest[0][2:3].isdigit()):
        raise UserError(f"--{name}: a value is missing after it")
    return rest.pop(0)


def did_you_mean(name: str, flags, where: str = "") -> str:
    """The error message for a flag that does not exist."""
    import difflib

    of_kaldi = kaldi_names.advice(name.lstrip("-"), flags)
    near = difflib.get_close_matches(name.lstrip("-"), flags, n=1)
    hint = of_kaldi or (f"did you mean --{near[0]}?" if near else "see --help")
    return f"{where}{name}: no such option; {hint}"


def refuse_combination(flag: str, given: Mapping[str, object], reason: str) -> None:
    """Raise UserError if any of these other flags, which cannot be combined with `flag`, has a value."""
    if unknown := [other for other, value in given.items() if value]:
        raise UserError(
            f"{flag} cannot be combined with {', '.join(unknown)}: {reason}; omit "
            f"{'them' if unknown[1:] else 'it'}"
        )


def _read_config(path: Path, flags) -> dict[str, tuple[object, str]]:
    """Read {name: (value, FILE:LINE)} in Kaldi's config format: one `--name=value` per line, `#` starts a
    comment."""
    try:
        lines = text_of(path.read_bytes(), path).splitlines()
    except OSError as error:
        raise UserError(f"--config {disk_error(error, path)}") from None
    values = {}
    for number, line in enumerate(lines, 1):
        line = line.split("#")[0].strip()
        if not line:
            continue
        name, equals, value = line.removeprefix("--").partition("=")
        name = name.strip().replace("_", "-")
        where = f"{path}:{number}: "
        if name not in flags:
            raise UserError(did_you_mean(f"--{name}", [known for known in flags if flags[known].path], where))
        if not equals and flags[name].type is not bool:
            raise UserError(f"{where}--{name}: a value is missing, write --{name}=VALUE")
        values[name] = (
            flags[name].convert(value.strip() if equals else "true", f"{where}--{name}"),
            f"{path}:{number}",
        )
    return values


def _instance(
    cls,
    flags: dict[str, Flag],
    of_files: dict[str, Flag],
    from_line: dict,
    from_config: dict,
    positionals: dict,
):
    """Build an instance from the command line and files ({name: (value, FILE:LINE)}). Raises UserError for
    options without effect."""
    places = {name: place for name, (_, place) in from_config.items() if name not in from_line}
    given = {name: value for name, (value, _) in from_config.items()} | from_line
    values = {name: given.get(name, flag.default) for name, flag in flags.items()}
    with _placing(places):
        instance = _build(cls, flags, given, positionals)
        for names in (from_line, places):
            refuse_unused({name: of_files[name].only for name in names}, values)
    return instance


@contextlib.contextmanager
def _placing(places: dict[str, str]) -> Iterator[None]:
    """Prefix a UserError that begins with an option of a file by its FILE:LINE."""
    try:
        yield
    except UserError as error:
        name = re.match(r"--([a-z0-9-]+)", str(error))
        if name and name[1] in places:
            raise UserError(f"{places[name[1]]}: {error}") from None
        raise


def _bind(positionals, words, cls, flags):
    """Assign positional words to fields."""
    hints = typing.get_type_hints(cls)
    many = bool(positionals) and positionals[-1].metadata["many"]
    names = " ".join(map(shown_name, positionals))
    if len(words) < len(positionals) or (len(words) > len(positionals) and not many):
        hint = kaldi_names.on_leading_numbers(words, flags) or "; see --help"
        raise UserError(
            f"expected {len(positionals)} argument(s) ({names}), got {len(words)}: "
            f"{' '.join(words) or 'none'}{hint}"
        )
    bound = {}
    for i, field in enumerate(positionals):
        kind, where = plain_type(hints[field.name])[0], shown_name(field)
        if many and i == len(positionals) - 1:
            bound[field.name] = tuple(from_text(item_type(kind), word, where) for word in words[i:])
        else:
            bound[field.name] = from_text(kind, words[i], where)
    return bound


def _build(cls, flags, values, positionals):
    """Build nested instances from flat values."""
    return _construct(
        cls,
        _nested({flag.path: values.get(name, flag.default) for name, flag in flags.items()}) | positionals,
    )


def _nested(values: dict[tuple[str, ...], object]) -> dict:
    """A tree of the values {path: value}."""
    tree: dict[str, typing.Any] = {}
    for path, value in values.items():
        node = tree
        for part in path[:-1]:
            node = node.setdefault(part, {})
        node[path[-1]] = value
    return tree


def _construct(cls, tree: dict):
    arguments = {}
    for field in dataclasses.fields(cls):
        if kind := kind_of(field, tree):
            arguments[field.name] = _construct(kind, tree.get(field.name, {}))
        elif field.name in tree:
            arguments[field.name] = tree[field.name]
    return cls(**arguments)
