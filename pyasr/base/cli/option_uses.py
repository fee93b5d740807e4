"""Which options a program uses where that depends on the value of another one.

    beam: float = option(15.0, "beam of the search", only=if_is("search", "graph"))
    lm_weight: float = option(1.0, "weight of the language model", only=if_set("lm"))

An option that is given although its condition does not hold is refused by its name; --help tells the condition. A condition on an option
that the program does not have always holds.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyasr.base.cli.option_values import as_typed
from pyasr.base.errors import UserError

_UNSET = (None, False, 0, "", "none")


@dataclass(frozen=True)
class Condition:
    """That an option has one of some values or, `unless`, has none of them. Without values: that it is set.

    flag    the option without dashes
    values  of the option
    reason  why the options do not go together, as a part of a sentence; '' where that is plain
    """

    flag: str
    values: tuple = ()
    unless: bool = False
    reason: str = ""

    def holds(self, values: dict[str, object]) -> bool:
        """Whether it holds for the values of a program's options, by their names without dashes."""
        if self.flag not in values:
            return True
        value = values[self.flag]
        return self.unless != (value in self.values if self.values else is_set(value))

    @property
    def told(self) -> str:
        """As --help tells it."""
        named = f"--{self.flag} {', '.join(map(str, self.values))}".strip()
        if not self.unless:
            return f"with {named}"
        return f"with any --{self.flag} but {', '.join(map(str, self.values))}" if self.values else f"without {named}"

    def refusal(self, names: str, values: dict[str, object]) -> str:
        """The sentence on options that were given while it does not hold."""
        value, them = values[self.flag], _them(names)
        if not self.values and not self.unless:
            return f"{names} {_do(names)} nothing without --{self.flag}; leave {them} out"
        given = f"--{self.flag}" if value is True else f"--{self.flag} {as_typed(value)}"
        hint = "" if self.unless else f", or choose one of {', '.join(map(str, self.values))}" if self.values[1:] else \
            f", or give --{self.flag} {self.values[0]}"
        return f"{names} {_do(names)} not go with {given}{': ' * bool(self.reason)}{self.reason}; leave {them} out{hint}"


@dataclass(frozen=True)
class AnyOf:
    """That at least one of some conditions holds, on options that the program has."""

    conditions: tuple[Condition, ...]

    def holds(self, values: dict[str, object]) -> bool:
        """As `Condition.holds`."""
        return any(condition.flag in values and condition.holds(values) for condition in self.conditions)

    @property
    def told(self) -> str:
        """As --help tells it."""
        return " or ".join(condition.told for condition in self.conditions)

    def refusal(self, names: str, values: dict[str, object]) -> str:
        """As `Condition.refusal`."""
        known = [condition.told.removeprefix("with ") for condition in self.conditions if condition.flag in values]
        return f"{names} {_do(names)} nothing without {' or '.join(known)}; leave {_them(names)} out"


@dataclass(frozen=True)
class Never:
    """That an option of a group has no use in a program.

    reason  why, as a part of a sentence
    """

    reason: str

    told = "not used here"

    def holds(self, values: dict[str, object]) -> bool:
        """Never."""
        return False

    def refusal(self, names: str, values: dict[str, object]) -> str:
        """As `Condition.refusal`."""
        return f"{names} {_do(names)} nothing here: {self.reason}; leave {_them(names)} out"


def is_set(value) -> bool:
    """Whether an option's value asks for something."""
    return value not in _UNSET


def if_is(flag: str, *values, reason: str = "") -> tuple[Condition, ...]:
    """That the option has one of these values."""
    return (Condition(flag, values, reason=reason),)


def unless_is(flag: str, *values) -> tuple[Condition, ...]:
    """That the option has another value."""
    return (Condition(flag, values, unless=True),)


def if_set(flag: str) -> tuple[Condition, ...]:
    """That the option has a value other than none, false and 0."""
    return (Condition(flag),)


def unless_set(flag: str, reason: str = "") -> tuple[Condition, ...]:
    """The opposite."""
    return (Condition(flag, unless=True, reason=reason),)


def any_of(*conditions: tuple[Condition, ...]) -> tuple[AnyOf, ...]:
    """That at least one of these holds."""
    return (AnyOf(sum(conditions, ())),)


def never(reason: str) -> tuple[Never, ...]:
    """For an option of a group that a program does not use."""
    return (Never(reason),)


def told(conditions: tuple) -> str:
    """What --help says of an option's conditions, with a space before it; "" where there is none."""
    return f" ({', '.join(condition.told for condition in conditions)})" if conditions else ""


def refuse_unused(given: dict[str, tuple], values: dict[str, object]) -> None:
    """Raise UserError, by name, for options that were given and have no use.

    given   the conditions of each option that was given, by its name without dashes
    values  of all options of the program
    """
    unmet = {name: next((c for c in conditions if not c.holds(values)), None) for name, conditions in given.items()}
    unused = {name: condition for name, condition in unmet.items() if condition}
    for condition in unused.values():
        names = ", ".join(f"--{name}" for name, other in unused.items() if other == condition)
        raise UserError(condition.refusal(names, values))


def _them(names: str) -> str:
    return "them" if "," in names else "it"


def _do(names: str) -> str:
    return "do" if "," in names else "does"
