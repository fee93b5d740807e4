"""The flags of a program, flattened from the dataclass of its options (`pyasr.base.cli.options`)."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping

from pyasr.base.cli import kaldi_names
from pyasr.base.cli.option_uses import Condition, applicable, is_usable
from pyasr.base.cli.option_values import check_bounds, from_text, plain_type
from pyasr.base.errors import UserError

Conditions = tuple[Condition, ...]


@dataclasses.dataclass(frozen=True)
class Flag:
    """One flag of a step: the path of its field, and the accepted values."""

    name: str
    path: tuple[str, ...]
    type: type
    optional: bool
    default: object
    meta: Mapping
    only: tuple[Condition, ...] = ()
    heading: str = ""

    def convert(self, text: str, where: str):
        """Parse `text`. Raises UserError, beginning with `where`, for a wrong type, an invalid choice or a
        value out of bounds."""
        value = self._typed(text, where)
        check_bounds(value, self.meta, where, text)
        return value

    def _typed(self, text: str, where: str):
        if self.optional and text in ("", "none"):
            return None
        if self.type is bool:
            if text.lower() in kaldi_names.BOOLS:
                return kaldi_names.BOOLS[text.lower()]
            raise UserError(f"{where}: '{text}' is neither true nor false")
        return from_text(self.type, text, where)


@dataclasses.dataclass(frozen=True, kw_only=True)
class UnusedFlag(Flag):
    """An option of Kaldi that is accepted with values that have no effect."""

    unused: kaldi_names.Unused

    def convert(self, text: str, where: str):
        value = self._typed(text, where) if text or self.type is not str else ""
        if self.unused.taken is not None and value not in self.unused.taken:
            raise UserError(f"{where}: '{text}' is not supported: {self.unused.reason}")
        return value


def flags_of(cls) -> list[Flag]:
    """All flags of a program with the options `cls`, groups flattened, with their conditions on options that
    the program uses. Raises TypeError if a name occurs twice, which is a programming error."""
    flags = _flags_in(cls)
    names = [flag.name for flag in flags]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise TypeError(f"{cls.__name__} declares {', '.join(sorted(twice))} twice")
    used = {flag.name for flag in flags if is_usable(flag.only)}
    return [dataclasses.replace(flag, only=applicable(flag.only, used)) for flag in flags]


def _flags_in(
    cls,
    path=(),
    defaults=None,
    only: tuple[Conditions | Mapping[str, Conditions], ...] = (),
    heading: str = "",
) -> list[Flag]:
    """All flags of `cls`, groups flattened.

    only     conditions of each of the groups around `cls`: of all of its fields, or {field: conditions}
    heading  heading of the fields of classes without an attribute `heading`
    """
    hints = typing.get_type_hints(cls)
    found = []
    for field in dataclasses.fields(cls):
        meta, place = field.metadata, (*path, field.name)
        under = meta.get("heading") or vars(_owner(cls, field.name)).get("heading", heading)
        if meta.get("kind") == "group":
            found += _flags_in(
                meta["cls"], place, meta["defaults"], (*_of(only, field.name), meta["only"]), under
            )
        elif meta.get("kind") == "chosen":
            found += _chosen_flags(meta, place, sum(_of(only, field.name), ()), under)
        elif meta.get("kind") == "option":
            hint, optional = plain_type(hints[field.name])
            default = (defaults or {}).get(field.name, field.default)
            conditions = sum(_of(only, field.name), ()) + meta["only"]
            found.append(
                Flag(field.name.replace("_", "-"), place, hint, optional, default, meta, conditions, under)
            )
    return found


def _owner(cls: type, name: str) -> type:
    """The class that declares a field of `cls`: `cls` or one of its bases."""
    return next(base for base in cls.__mro__ if name in vars(base).get("__annotations__", {}))


def _of(only: tuple[Conditions | Mapping[str, Conditions], ...], name: str) -> tuple[Conditions, ...]:
    """A field's conditions among those of the groups around it."""
    return tuple(
        conditions if isinstance(conditions, tuple) else conditions.get(name, ()) for conditions in only
    )


def _chosen_flags(meta: Mapping, path: tuple[str, ...], only: Conditions, heading: str) -> list[Flag]:
    """The flags of all dataclasses that an option selects from, without duplicates, with the condition under
    which each is used."""
    kinds = meta["kinds"]()
    of_kinds = {value: _flags_in(kind, path, heading=heading) for value, kind in kinds.items()}
    found = {id(flag.meta): flag for flags in of_kinds.values() for flag in flags}
    users = {
        key: [
            value for value, flags in of_kinds.items() if any(flag.meta is found[key].meta for flag in flags)
        ]
        for key in found
    }
    return [
        dataclasses.replace(flag, only=only + flag.only + _for_values(meta["by"], users[key], kinds))
        for key, flag in found.items()
    ]


def _for_values(by: str, users: list[str], kinds: dict) -> tuple[Condition, ...]:
    """The condition that an option has one of the values `users`, or none of the others if those are fewer;
    () if there are no others."""
    others, flag = [value for value in kinds if value not in users], by.replace("_", "-")
    if not others:
        return ()
    return (
        Condition(flag, tuple(others), unless=True)
        if len(others) < len(users)
        else Condition(flag, tuple(users)),
    )


def with_unused(flags: dict[str, Flag]) -> dict[str, Flag]:
    """The flags of a step, and the options of Kaldi that it accepts and ignores."""
    taken = {
        name: unused
        for name, unused in kaldi_names.UNUSED.items()
        if unused.flag in flags and name not in flags
    }
    return flags | {
        name: UnusedFlag(name, (), unused.type, False, None, {}, unused=unused)
        for name, unused in taken.items()
    }


def on_command_line(flags: dict[str, Flag]) -> dict[str, Flag]:
    """The flags without those that are accepted in --config files only."""
    return {
        name: flag
        for name, flag in flags.items()
        if not (isinstance(flag, UnusedFlag) and flag.unused.in_files)
    }


def positionals_of(cls) -> list[dataclasses.Field]:
    """The positional arguments of `cls`, in order."""
    return [f for f in dataclasses.fields(cls) if f.metadata.get("kind") == "argument"]


def shown_name(positional: dataclasses.Field) -> str:
    """The name of a positional argument in --help and in messages."""
    return positional.metadata["name"] or positional.name.upper()


def kind_of(field, values: dict) -> type | None:
    """The dataclass of a group field, selected by the values of the owner's options; None for other fields.
    Raises UserError for a value without a dataclass."""
    meta = field.metadata
    return _chosen_kind(meta, values) if meta.get("kind") == "chosen" else meta.get("cls")


def _chosen_kind(meta: Mapping, values: dict) -> type:
    """The dataclass that an option selects. Raises UserError for a value without a dataclass."""
    kinds, value = meta["kinds"](), values.get(meta["by"])
    if value not in kinds:
        raise UserError(
            f"--{meta['by'].replace('_', '-')} '{value}': no such {meta['what']}; choose one of "
            f"{', '.join(kinds)}"
        )
    return kinds[value]


def choose(instance) -> None:
    """For `__post_init__`: set a missing group that one of the options selects, with its defaults. Raises
    TypeError if the group belongs to another value of the option, which is a programming error."""
    for field in dataclasses.fields(instance):
        if field.metadata.get("kind") == "chosen":
            kind, group = _chosen_kind(field.metadata, vars(instance)), getattr(instance, field.name)
            if group is None:
                object.__setattr__(instance, field.name, kind())
            elif type(group) is not kind:
                raise TypeError(f"{field.name}: {kind.__name__} was expected, not {type(group).__name__}")
