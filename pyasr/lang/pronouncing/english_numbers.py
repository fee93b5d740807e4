"""English numbers in words: cardinals, ordinals and years."""

from __future__ import annotations

_ONES = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen"
).split()
_TENS = "- - twenty thirty forty fifty sixty seventy eighty ninety".split()
_ORDINALS = dict(
    one="first", two="second", three="third", five="fifth", eight="eighth", nine="ninth", twelve="twelfth"
)
_UNITS = ((10**9, "billion"), (10**6, "million"), (1000, "thousand"), (100, "hundred"))


def cardinal(value: int) -> str:
    """0 to 10^12 - 1 in words, without 'and': 'one hundred five'."""
    if value < 20:
        return _ONES[value]
    if value < 100:
        return _TENS[value // 10] + (f" {_ONES[value % 10]}" if value % 10 else "")
    unit, name = next((unit, name) for unit, name in _UNITS if value >= unit)
    rest = f" {cardinal(value % unit)}" if value % unit else ""
    return f"{cardinal(value // unit)} {name}{rest}"


def year(value: int) -> str:
    """1944 as 'nineteen forty four', 1900 as 'nineteen hundred', 1905 as 'nineteen oh five'; 2005 as 'two
    thousand five'."""
    century, rest = divmod(value, 100)
    if century % 10 == 0 and rest < 10:
        return cardinal(value)
    tail = "hundred" if rest == 0 else f"oh {_ONES[rest]}" if rest < 10 else cardinal(rest)
    return f"{cardinal(century)} {tail}"


def ordinal(words: str) -> str:
    """'twenty one' as 'twenty first'."""
    return _with_last(words, _ORDINALS, "th")


def plural(words: str) -> str:
    """'nineteen sixty' as 'nineteen sixties', 'six' as 'sixes'."""
    return _with_last(words, {"six": "sixes"}, "s")


def _with_last(words: str, irregular: dict[str, str], ending: str) -> str:
    """The last word as `irregular` has it, else with the ending; y becomes ie."""
    head, _, last = words.rpartition(" ")
    changed = irregular.get(last) or (f"{last[:-1]}ie" if last.endswith("y") else last) + ending
    return f"{head} {changed}".strip()
