"""Options declared once: flags, config files, help, validation and saved JSON all derive from one frozen dataclass.

    @dataclass(frozen=True)
    class MfccOptions:
        num_ceps: int = option(13, "cepstra per frame", minimum=1)

    options = parse(MfccOptions, ["--num-ceps", "20"], doc="Make MFCCs.")

A field is a flag (`option`), a positional (`argument`), a whole dataclass of flags (`group`), or one that the value of a flag chooses
(`chosen_group`), flattened into the flags of its owner. `only` says where a flag or group is used (`pyasr.base.option_uses`); a flag that
is given elsewhere is refused.
`--config FILE` reads `--name=value` lines, as Kaldi does; flags on the command line win over the file.
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import json
import re
import typing
from collections.abc import Callable
from pathlib import Path

from pyasr.base import kaldi_names
from pyasr.base.errors import UserError
from pyasr.base.foreign_json import read_object
from pyasr.base.option_uses import Condition, refuse_unused, told
from pyasr.base.option_values import check, check_bounds, from_text, plain_type
from pyasr.base.output import PathText, atomic_write
from pyasr.base.system_errors import disk_error, naming
from pyasr.base.utf8 import text_of

_MISSING = dataclasses.MISSING


class HelpRequested(Exception):
    """`--help` was given; the message is the help text."""


def option(default, help, *, choices=None, minimum=None, maximum=None, only=(), is_command=False):
    """A flag with a default. `choices`, `minimum` and `maximum` (inclusive) are checked whenever an instance is parsed; so is that a flag
    which is given has a use, by the conditions `only`. The value of one that `is_command` has options of its own, and needs quotation
    marks."""
    metadata = dict(kind="option", help=help, choices=choices, minimum=minimum, maximum=maximum, only=only, is_command=is_command)
    return dataclasses.field(default=default, metadata=metadata)


def argument(help, *, many=False):
    """A positional argument; with `many` the last positional takes all that remain (type `tuple`)."""
    return dataclasses.field(default=_MISSING, metadata=dict(kind="argument", help=help, many=many))


def group(cls, *, only=(), **defaults):
    """All flags of the dataclass `cls`, flattened; `defaults` replace some of its own, `only` are conditions of all, or {field: conditions}
    of some."""
    return dataclasses.field(default_factory=lambda: cls(**defaults), metadata=dict(kind="group", cls=cls, defaults=defaults, only=only))


def chosen_group(by: str, kinds: Callable[[], dict[str, type]], what: str):
    """The flags of one of several dataclasses, which the value of the option `by`, declared before it, chooses.

    kinds  {value: dataclass}; those with a flag in common have it from a common base
    what   a value stands for, as messages say
    """
    return dataclasses.field(default=None, metadata=dict(kind="chosen", by=by, kinds=kinds, what=what))


@dataclasses.dataclass(frozen=True)
class _Flag:
    """One flag of a step: where its value goes and what it accepts."""

    name: str
    path: tuple[str, ...]
    type: type
    optional: bool
    default: object
    meta: dict
    only: tuple[Condition, ...] = ()

    def convert(self, text: str, where: str):
        """The value that `text` stands for. Raises UserError, headed by `where`: of another type, no choice, or out of bounds."""
        value = self._typed(text, where)
        check_bounds(value, self.meta, where, text)
        return value

    def _typed(self, text: str, where: str):
        if self.optional and text in ("", "none"):
            return None
        if self.type is bool:
            if text.lower() in ("true", "false"):
                return text.lower() == "true"
            raise UserError(f"{where}: '{text}' is neither true nor false")
        return from_text(self.type, text, where)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _UnusedFlag(_Flag):
    """An option of Kaldi's that changes nothing at some values, with which it is taken."""

    unused: kaldi_names.Unused

    def convert(self, text: str, where: str):
        value = self._typed(text, where) if text or self.type is not str else ""
        if self.unused.taken is not None and value not in self.unused.taken:
            raise UserError(f"{where}: '{text}' cannot be done, {self.unused.reason}")
        return value


def _with_unused(flags: dict[str, _Flag]) -> dict[str, _Flag]:
    """The flags of a step, and those of Kaldi's that it takes without using them."""
    taken = {name: unused for name, unused in kaldi_names.UNUSED.items() if unused.beside in flags and name not in flags}
    return flags | {name: _UnusedFlag(name, (), unused.type, False, None, {}, unused=unused) for name, unused in taken.items()}


def _flags(cls, path=(), defaults=None, only=()) -> list[_Flag]:
    """All flags of `cls`, groups flattened. Raises TypeError when a name occurs twice: a mistake of ours, not of the user."""
    hints = typing.get_type_hints(cls)
    found = []
    for field in dataclasses.fields(cls):
        meta, place = field.metadata, (*path, field.name)
        if meta.get("kind") == "group":
            found += _flags(meta["cls"], place, meta["defaults"], meta["only"] if isinstance(meta["only"], dict) else
                            _of(only, field.name) + meta["only"])  # fmt: skip
        elif meta.get("kind") == "chosen":
            found += _chosen_flags(meta, place, _of(only, field.name))
        elif meta.get("kind") == "option":
            hint, optional = plain_type(hints[field.name])
            default = (defaults or {}).get(field.name, field.default)
            found.append(_Flag(field.name.replace("_", "-"), place, hint, optional, default, meta, _of(only, field.name) + meta["only"]))
    names = [flag.name for flag in found]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise TypeError(f"{cls.__name__} declares {', '.join(sorted(twice))} twice")
    return found


def _of(only: tuple | dict, name: str) -> tuple:
    """A field's conditions among those of its group."""
    return only.get(name, ()) if isinstance(only, dict) else only


def _chosen_flags(meta: dict, path: tuple[str, ...], only: tuple) -> list[_Flag]:
    """The flags of all dataclasses between which an option chooses, each once, with the values of that option that it is for."""
    kinds = meta["kinds"]()
    of_kinds = {value: _flags(kind, path) for value, kind in kinds.items()}
    found = {id(flag.meta): flag for flags in of_kinds.values() for flag in flags}
    users = {key: [value for value, flags in of_kinds.items() if any(flag.meta is found[key].meta for flag in flags)] for key in found}
    return [dataclasses.replace(flag, only=only + flag.only + _for_values(meta["by"], users[key], kinds)) for key, flag in found.items()]


def _for_values(by: str, users: list[str], kinds: dict) -> tuple[Condition, ...]:
    """The condition that an option has one of the values `users`, or by the others where these are fewer; none where it is all of them."""
    others, flag = [value for value in kinds if value not in users], by.replace("_", "-")
    if not others:
        return ()
    return (Condition(flag, tuple(others), unless=True) if len(others) < len(users) else Condition(flag, tuple(users)),)


def _positionals(cls):
    return [f for f in dataclasses.fields(cls) if f.metadata.get("kind") == "argument"]


def parse(cls, argv: list[str], doc: str = "", extra_flags: dict[str, str] | None = None):
    """An instance of `cls` from a command line.

    `extra_flags` are switches without a value that the caller handles itself ({"force": help}); they come back as a set in the
    second place: `(instance, {"force"})`.

    Raises UserError for an unknown flag, a missing or impossible value, too few or too many positionals; HelpRequested for --help.
    """
    extra_flags = extra_flags or {}
    own_flags = {flag.name: flag for flag in _flags(cls)}
    flags = _with_unused(own_flags)
    positionals = _positionals(cls)
    from_line, from_config, words, switched = {}, {}, [], set()
    rest = list(argv)
    while rest:
        word = rest.pop(0)
        if word in ("--help", "-h"):
            raise HelpRequested(help_text(cls, doc, extra_flags))
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
            raise UserError(f"--{name}: takes no value, write it alone")
        if name != "config" and name not in flags:
            unknown = did_you_mean(f"--{name}", [*own_flags, *extra_flags, "config", "help"])
            raise UserError(unknown + _on_quotes(f"--{name}", flags, from_line))
        if not equals:
            value = _value_of(name, flags, rest)
        if name == "config":
            from_config |= _read_config(Path(value), flags)
        else:
            from_line[name] = flags[name].convert(value, f"--{name}")
    for word in words:
        if word.startswith("-") and (hint := _on_quotes(word, flags, from_line)):
            raise UserError(f"{word}: no such option{hint}")
    given = from_config | from_line
    instance = _build(cls, own_flags, given, _bind(positionals, words, cls))
    refuse_unused({name: flags[name].only for name in given}, {name: given.get(name, flag.default) for name, flag in own_flags.items()})
    return instance, switched


def _on_quotes(word: str, flags: dict[str, _Flag], given: dict[str, object]) -> str:
    """A hint for an unknown option, where a command was given, to which it may belong; else nothing."""
    commands = [name for name in given if flags[name].meta.get("is_command")]
    return f"; if it belongs to --{commands[0]}, write --{commands[0]} '{given[commands[0]]} {word} ...'" if commands else ""


def _value_of(name, flags, rest):
    """The word after a flag; a boolean flag may stand alone."""
    is_bool = name in flags and flags[name].type is bool
    if is_bool and (not rest or rest[0].lower() not in ("true", "false")):
        return "true"
    if not rest or (rest[0].startswith("--") and not rest[0][2:3].isdigit()):
        raise UserError(f"--{name}: a value is missing after it")
    return rest.pop(0)


def did_you_mean(name: str, flags, where: str = "") -> str:
    """The sentence on a flag that does not exist."""
    of_kaldi = kaldi_names.advice(name.lstrip("-"), flags)
    near = difflib.get_close_matches(name.lstrip("-"), flags, n=1)
    hint = of_kaldi or (f"did you mean --{near[0]}?" if near else "see --help")
    return f"{where}{name}: no such option; {hint}"


def refuse_beside(flag: str, given: dict[str, object], reason: str) -> None:
    """Raise UserError where any of these other flags, which do not go together with `flag`, has a value."""
    if unknown := [other for other, value in given.items() if value]:
        raise UserError(f"{flag} and {', '.join(unknown)} do not go together: {reason}; leave them out")


def _read_config(path: Path, flags) -> dict:
    """Kaldi's config format: one `--name=value` a line, `#` starts a comment."""
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
        values[name] = flags[name].convert(value.strip() if equals else "true", f"{where}--{name}")
    return values


def _bind(positionals, words, cls):
    """Positional words to fields."""
    hints = typing.get_type_hints(cls)
    many = bool(positionals) and positionals[-1].metadata["many"]
    names = " ".join(f.name.upper() for f in positionals)
    if len(words) < len(positionals) or (len(words) > len(positionals) and not many):
        raise UserError(f"expected {len(positionals)} argument(s) ({names}), got {len(words)}: {' '.join(words) or 'none'}; see --help")
    bound = {}
    for i, field in enumerate(positionals):
        kind, where = plain_type(hints[field.name])[0], field.name.upper()
        if many and i == len(positionals) - 1:
            bound[field.name] = tuple(from_text(_item_type(kind), word, where) for word in words[i:])
        else:
            bound[field.name] = from_text(kind, words[i], where)
    return bound


def _item_type(hint) -> type:
    """`Path` of `tuple[Path, ...]`; `str` of a bare `tuple`."""
    return (typing.get_args(hint) or (str,))[0]


def _build(cls, flags, values, positionals):
    """Nested instances from flat values."""
    return _construct(cls, _nested({flag.path: values.get(name, flag.default) for name, flag in flags.items()}) | positionals)


def _nested(values: dict[tuple[str, ...], object]) -> dict:
    """Values by their paths as a tree."""
    tree = {}
    for path, value in values.items():
        node = tree
        for part in path[:-1]:
            node = node.setdefault(part, {})
        node[path[-1]] = value
    return tree


def _construct(cls, tree: dict):
    arguments = {}
    for field in dataclasses.fields(cls):
        if kind := _kind_of(field, tree):
            arguments[field.name] = _construct(kind, tree.get(field.name, {}))
        elif field.name in tree:
            arguments[field.name] = tree[field.name]
    return cls(**arguments)


def _kind_of(field, values: dict) -> type | None:
    """The dataclass of a group's field, by the values of its owner's options; None of another field. Raises UserError for a value that
    chooses none."""
    meta = field.metadata
    if meta.get("kind") != "chosen":
        return meta.get("cls")
    kinds, value = meta["kinds"](), values.get(meta["by"])
    if value not in kinds:
        raise UserError(f"--{meta['by'].replace('_', '-')} '{value}': there is no such {meta['what']}; choose one of {', '.join(kinds)}")
    return kinds[value]


def choose(instance) -> None:
    """For a `__post_init__`: give an instance the group that one of its options chooses, with its defaults, where it was made without.
    Raises TypeError where it was made with another one: a mistake of ours."""
    for field in dataclasses.fields(instance):
        if field.metadata.get("kind") == "chosen":
            kind, group = _kind_of(field, vars(instance)), getattr(instance, field.name)
            if group is None:
                object.__setattr__(instance, field.name, kind())
            elif type(group) is not kind:
                raise TypeError(f"{field.name}: {kind.__name__} was expected, not {type(group).__name__}")


def help_text(cls, doc: str, extra_flags: dict[str, str]) -> str:
    """What --help prints: the step's docstring, then positionals and flags with types and defaults."""
    lines = [doc.strip(), ""]
    for field in _positionals(cls):
        lines.append(f"  {field.name.upper():<28} {field.metadata['help']}")
    lines.append("")
    for flag in _flags(cls):
        choices = f" ({'|'.join(map(str, flag.meta['choices']))})" if flag.meta["choices"] else ""
        typed = f"--{flag.name} {flag.type.__name__.upper()}"
        lines.append(f"  {typed:<28} {flag.meta['help']}{told(flag.only)}{choices} [{_as_typed(flag.default)}]")
    for name, text in {"config FILE": "read --name=value lines from FILE", **extra_flags}.items():
        lines.append(f"  {'--' + name:<28} {text}")
    return "\n".join(lines)


def _as_typed(default) -> str:
    """A default as it would stand on the command line."""
    return str(default).lower() if default is None or isinstance(default, bool) else str(default)


def to_json(instance) -> dict:
    """The options as plain JSON values, with the class they belong to under `"type"`."""
    return {"type": f"{type(instance).__module__}:{type(instance).__qualname__}", **_jsonable(dataclasses.asdict(instance))}


def defaults(cls) -> dict:
    """What `to_json` gives for the flags of `cls` that a user leaves alone."""
    return completed(cls, {})


def completed(cls, content: dict, standard: dict = {}) -> dict:
    """Options that this or an earlier version has saved, as plain JSON values, in the form of this one; those that are not there have
    their defaults, of which `standard` replaces some."""
    found = dict(_upgraded(cls, content))
    for field in dataclasses.fields(cls):
        if field.metadata.get("kind") == "option":
            found.setdefault(field.name, _jsonable(standard.get(field.name, field.default)))
        elif kind := _kind_of(field, found):
            found[field.name] = completed(kind, found.get(field.name, {}), field.metadata.get("defaults", {}))
    return found


def _upgraded(cls, content: dict) -> dict:
    """Saved options in the form of this version; a class whose form has changed translates it with a static method `upgraded`."""
    return cls.upgraded(content) if hasattr(cls, "upgraded") else content


def paths_in(instance) -> list[Path]:
    """All paths that the options hold."""
    if dataclasses.is_dataclass(instance):
        return [path for field in dataclasses.fields(instance) for path in paths_in(getattr(instance, field.name))]
    if isinstance(instance, (list, tuple)):
        return [path for item in instance for path in paths_in(item)]
    return [instance] if isinstance(instance, Path) else []


def _jsonable(value):
    if isinstance(value, dict):
        return {k: _jsonable(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_jsonable(v) for v in value]
    return PathText(value) if isinstance(value, Path) else value


def save(path: Path, instance) -> None:
    """Write `instance` to a JSON file, atomically."""
    with atomic_write(path) as f:
        json.dump(to_json(instance), f, indent=1)
        f.write("\n")


def load(path: Path, kinds: tuple[type, ...] = ()):
    """The instance that `save` wrote. Only classes of pyasr are taken. Raises UserError for anything else.

    kinds  for a file that may come from elsewhere: the classes it may be of; then the values are checked as those of a command line are
    """
    try:
        with naming(path):
            content = read_object(path)
        module, _, name = content.pop("type").partition(":")
    except (ValueError, KeyError, AttributeError) as error:
        raise UserError(f"{path}: not a file of saved options ({error}); make it anew with the step that wrote it") from None
    if not re.fullmatch(r"pyasr(\.\w+)+", module):
        raise UserError(f"{path}: options of {module}, which is no part of pyasr")
    try:
        cls = getattr(importlib.import_module(module), name)
        if not issubclass(cls, kinds or object) or not dataclasses.is_dataclass(cls):
            raise TypeError(f"{name} is something else than was expected")
        instance = from_json(cls, content)
    except (ImportError, AttributeError, TypeError, OverflowError) as error:
        raise UserError(f"{path}: does not fit this version of pyasr ({error}); make it anew with the step that wrote it") from None
    if kinds:
        check(instance, str(path))
    return instance


def from_json(cls, content: dict):
    """Rebuild paths, tuples and nested dataclasses from plain JSON values. Raises TypeError for fields that `cls` has not."""
    hints, content = typing.get_type_hints(cls), _upgraded(cls, content)
    unknown = content.keys() - {field.name for field in dataclasses.fields(cls)}
    if unknown:
        raise TypeError(f"{cls.__name__} has no {', '.join(sorted(unknown))}")
    groups = [field for field in dataclasses.fields(cls) if field.metadata.get("kind") == "chosen" and field.name in content]
    chosen = {field.name: _kind_of(field, content) for field in groups}
    return cls(**{name: _revive(chosen.get(name, hints[name]), value) for name, value in content.items()})


def _revive(hint, value):
    """One JSON value as the type that `hint` names."""
    hint, _ = plain_type(hint)
    if value is None:
        return None
    if dataclasses.is_dataclass(hint) and isinstance(value, dict):
        return from_json(hint, value)
    if hint is Path:
        return Path(value)
    if hint is tuple or typing.get_origin(hint) is tuple:
        inner = _item_type(hint) if typing.get_args(hint)[1:] == (...,) else None
        return tuple(_revive(inner, item) if inner else item for item in value)
    return value
