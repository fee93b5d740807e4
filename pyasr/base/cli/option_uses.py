"""Conditions: options that are used only with certain values of another option.

    beam: float = option(15.0, "beam of the search", only=if_is("search", "graph"))
    lm_weight: float = option(1.0, "weight of the language model", only=if_set("lm"))

An option that is given although its condition is false is refused; --help shows the condition. A condition on
an option that the program does not have is always true.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyasr.base.cli.option_values import as_typed
from pyasr.base.errors import UserError

_UNSET = (None, False, 0, "", "none")


@dataclass(frozen=True)
class Condition:
    """The condition that an option has one of some values or, with `unless`, none of them. Without values:
    that it is set.

    flag    name of the option without dashes
    values  values of the option
    reason  why the options cannot be combined, as part of a sentence; '' if obvious
    """

    flag: str
    values: tuple = ()
    unless: bool = False
    reason: str = ""

    def holds(self, values: dict[str, object]) -> bool:
        """Whether the condition is true for values of a program's options {name without dashes: value}."""
        if self.flag not in values:
            return True
        value = values[self.flag]
        return self.unless != (value in self.values if self.values else is_set(value))

    @property
    def usage_text(self) -> str:
        """The condition in the text of --help."""
        named = f"--{self.flag} {', '.join(map(str, self.values))}".strip()
        if not self.unless:
            return f"with {named}"
        return (
            f"with any --{self.flag} except {', '.join(map(str, self.values))}"
            if self.values
            else f"without {named}"
        )

    def refusal(self, names: str, values: dict[str, object]) -> str:
        """The error message for options that were given although the condition is false."""
        value, them = values[self.flag], _them(names)
        if not self.values and not self.unless:
            return f"{names} {_have(names)} no effect without --{self.flag}; omit {them}"
        given = f"--{self.flag}" if value is True else f"--{self.flag} {as_typed(value)}"
        hint = (
            ""
            if self.unless
            else f", or choose one of {', '.join(map(str, self.values))}"
            if self.values[1:]
            else f", or give --{self.flag} {self.values[0]}"
        )
        return (
            f"{names} cannot be combined with {given}{': ' * bool(self.reason)}{self.reason}; omit "
            f"{them}{hint}"
        )


@dataclass(frozen=True)
class AnyOf:
    """The condition that at least one of several conditions is true, on options that the program has."""

    conditions: tuple[Condition, ...]

    def holds(self, values: dict[str, object]) -> bool:
        """As `Condition.holds`."""
        return any(condition.flag in values and condition.holds(values) for condition in self.conditions)

    @property
    def usage_text(self) -> str:
        """The condition in the text of --help."""
        return " or ".join(condition.usage_text for condition in self.conditions)

    def refusal(self, names: str, values: dict[str, object]) -> str:
        """As `Condition.refusal`."""
        known = [
            condition.usage_text.removeprefix("with ")
            for condition in self.conditions
            if condition.flag in values
        ]
        return f"{names} {_have(names)} no effect without {' or '.join(known)}; omit {_them(names)}"


@dataclass(frozen=True)
class Never:
    """The condition of a group's option that a program never uses.

    reason  why, as part of a sentence
    """

    reason: str

    usage_text = "not used here"

    def holds(self, values: dict[str, object]) -> bool:
        """Always false."""
        return False

    def refusal(self, names: str, values: dict[str, object]) -> str:
        """As `Condition.refusal`."""
        return f"{names} {_have(names)} no effect: {self.reason}; omit {_them(names)}"


def is_set(value) -> bool:
    """Whether an option's value is other than none, false, 0 and empty."""
    return value not in _UNSET


def if_is(flag: str, *values, reason: str = "") -> tuple[Condition, ...]:
    """The condition that the option has one of these values."""
    return (Condition(flag, values, reason=reason),)


def unless_is(flag: str, *values) -> tuple[Condition, ...]:
    """The condition that the option has none of these values."""
    return (Condition(flag, values, unless=True),)


def if_set(flag: str) -> tuple[Condition, ...]:
    """The condition that the option has a value other than none, false and 0."""
    return (Condition(flag),)


def unless_set(flag: str, reason: str = "") -> tuple[Condition, ...]:
    """The condition that the option is none, false or 0."""
    return (Condition(flag, unless=True, reason=reason),)


def any_of(*conditions: tuple[Condition, ...]) -> tuple[AnyOf, ...]:
    """The condition that at least one of these is true."""
    return (AnyOf(sum(conditions, ())),)


def never(reason: str) -> tuple[Never, ...]:
    """The condition of a group's option that a program does not use."""
    return (Never(reason),)


def is_never_used(conditions: tuple) -> bool:
    """Whether a program does not use the option with these conditions at all."""
    return any(isinstance(condition, Never) for condition in conditions)


def usage_text(conditions: tuple) -> str:
    """The conditions of an option in the text of --help, with a leading space; "" if there are none."""
    return f" ({', '.join(condition.usage_text for condition in conditions)})" if conditions else ""


def refuse_unused(given: dict[str, tuple], values: dict[str, object]) -> None:
    """Raise UserError for options that were given but have no effect.

    given   {name without dashes: conditions} of the given options
    values  {name without dashes: value} of all options of the program
    """
    unmet = {
        name: next((c for c in conditions if not c.holds(values)), None) for name, conditions in given.items()
    }
    unused = {name: condition for name, condition in unmet.items() if condition}
    for condition in unused.values():
        names = ", ".join(f"--{name}" for name, other in unused.items() if other == condition)
        raise UserError(condition.refusal(names, values))


def _them(names: str) -> str:
    return "them" if "," in names else "it"


def _have(names: str) -> str:
    return "have" if "," in names else "has"
