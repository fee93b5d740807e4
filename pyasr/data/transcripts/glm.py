r"""NIST's word mapping rules (glm): reading the file and applying the rules to a text.

    ;; a comment                                       the first word of the file, here ';;', starts comments
    * name "en20000405_hub5.glm"                       header: name, desc, format, max_nrules, copy_no_hit,
                                                       case_sensitive
    UH-HUH  =>  %BCACK  / [ ] __ [ ]                   between blanks
    'CAUSE  =>  BECAUSE                                anywhere, also within words
    [IT'S]  =>  [{IT IS / IT HAS}] / [ ] __ [ ]        alternatives
    ;; INPUT_DEPENDENT_APPLICATION = "ctm"             the rules after this line apply to the ctm only

At each position of the text the first rule of the file applies whose left side matches there between its
contexts. Matching continues after the left side. Contexts are compared with the original text, before any
rule was applied. This is what rfilter1 of NIST's sctk does. Two kinds of rules are read as intended, although
rfilter1 cuts their right side: rules with a slash within braces and no context, and rules without a blank
after `=>`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pyasr.base import log
from pyasr.base.errors import UserError
from pyasr.io.content import read_content

_FORM = "'A => B / [ ] __ [ ]'"
_UPPER = str.maketrans("abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ")
_HEADER = re.compile(r"""\*\s*(\w+)\s*=?\s*["']([^"']*)["']""")
_FOR_INPUT = re.compile(r';;\s+INPUT_DEPENDENT_APPLICATION\s*=\s*"([^"]*)"')


@dataclass(frozen=True)
class GlmRule:
    """`source` is replaced by `target` after `left` and before `right`; a context may be empty."""

    source: str
    target: str
    left: str = ""
    right: str = ""


@dataclass(frozen=True)
class RuleSet:
    """The rules for one kind of text, in the order of the file.

    case_sensitive  False: ASCII letters of the rules match upper-case letters of the text
    copies          whether text that no rule matches is kept
    """

    rules: tuple[GlmRule, ...] = ()
    case_sensitive: bool = False
    copies: bool = True

    def apply(self, text: str) -> str:
        """The text after application of the rules."""
        pattern, targets = self._compiled
        if pattern is None:
            return text if self.copies else ""
        if self.copies:
            return pattern.sub(lambda match: targets[match.lastindex or 0], text)
        return "".join(targets[match.lastindex or 0] for match in pattern.finditer(text))

    @cached_property
    def _compiled(self) -> tuple[re.Pattern | None, list[str]]:
        """(a pattern with one group for each rule, the target of each group). Rules are grouped by first
        letter, in their order."""
        by_letter: dict[str, list[GlmRule]] = {}
        for rule in self.rules:
            by_letter.setdefault(self._matched(rule.source)[0], []).append(rule)
        parts = (
            f"{re.escape(letter)}(?:{'|'.join(map(self._rest, rules))})"
            for letter, rules in by_letter.items()
        )
        targets = ["", *(rule.target for rules in by_letter.values() for rule in rules)]
        return re.compile("|".join(parts)) if by_letter else None, targets

    def _rest(self, rule: GlmRule) -> str:
        """The pattern of a rule after its first letter."""
        source, left, right = map(self._matched, (rule.source, rule.left, rule.right))
        before = f"(?<={re.escape(left + source)})" if left else ""
        return f"({re.escape(source[1:])}){before}" + (f"(?={re.escape(right)})" if right else "")

    def _matched(self, text: str) -> str:
        return text if self.case_sensitive else ascii_upper(text)


@dataclass(frozen=True)
class Glm:
    """The rules of a glm; `identity` is its name and a digest of its content."""

    identity: str
    reference: RuleSet
    hypothesis: RuleSet


def ascii_upper(text: str) -> str:
    """`text` with a to z as A to Z; as in csrfilt, all other letters are unchanged."""
    return text.translate(_UPPER)


def read_glm(path: Path) -> Glm:
    """The rules for stm and ctm. Raises UserError with file and line for a malformed rule, and for a file
    without rules."""
    lines = _lines(path)
    header = dict(_header(path, lines))
    form = header.get("format", "NIST1")
    if form != "NIST1":
        raise UserError(f"{path}: format '{form}' is unknown; only rules in format 'NIST1' can be read")
    case_sensitive, copies = (
        header.get(name, "T").upper() in ("T", "YES", "TRUE") for name in ("case_sensitive", "copy_no_hit")
    )
    reference, hypothesis = (
        RuleSet(tuple(_rules(path, lines, kinds)), case_sensitive, copies)
        for kinds in (("stm", "ref"), ("ctm", "hyp"))
    )
    if not (reference.rules or hypothesis.rules):
        raise UserError(f"{path}: no rules; a rule is {_FORM}")
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:8]
    return Glm(f"{'_'.join(header.get('name', path.resolve().name).split())}@{digest}", reference, hypothesis)


def _lines(path: Path) -> list[str]:
    """The lines of a glm. A file that is not UTF-8 is read as Latin-1."""
    content = read_content(path)
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        log.info(f"{path}: not UTF-8 text; read as Latin-1")
        text = content.decode("latin-1")
    return text.split("\n")


def _comment_mark(lines: list[str]) -> str:
    """The word that starts comments: the first word of the first line."""
    return ((lines[0] if lines else "").split() or [";;"])[0]


def _contents(lines: list[str]) -> Iterator[tuple[int, str]]:
    """(number, line) without comments and blank lines; the first line is always a comment."""
    mark = _comment_mark(lines)
    for number, line in enumerate(lines[1:], 2):
        if line.strip() and not line.startswith(mark):
            yield number, line.rstrip() if line.startswith("*") else line.partition(mark)[0].strip()


def _header(path: Path, lines: list[str]) -> Iterator[tuple[str, str]]:
    """(name, value) of the header lines."""
    for number, line in _contents(lines):
        if line.startswith("*"):
            found = _HEADER.match(line)
            if not found:
                raise UserError(
                    f"{path}:{number}: '{line}' has no value in quotes; write it as '* name \"value\"'"
                )
            yield found[1].lower(), found[2]


def _rules(path: Path, lines: list[str], kinds: tuple[str, str]) -> Iterator[GlmRule]:
    """The rules for inputs of these kinds."""
    applies = list(_applying(path, lines, kinds))
    for number, line in _contents(lines):
        if applies[number - 1] and not line.startswith("*"):
            yield _rule(line, f"{path}:{number}")


def _applying(path: Path, lines: list[str], kinds: tuple[str, str]) -> Iterator[bool]:
    """For each line, whether its section of the file is for inputs of these kinds."""
    applies = True
    for number, line in enumerate(lines, 1):
        if wanted := _FOR_INPUT.match(line):
            try:
                applies = any(re.search(wanted[1].lower(), kind) for kind in kinds)
            except re.error as error:
                raise UserError(
                    f"{path}:{number}: '{wanted[1]}' is not a regular expression: {error}; "
                    'write "stm" or "ctm"'
                ) from None
        yield applies


def _rule(line: str, place: str) -> GlmRule:
    source, arrow, rest = line.partition("=>")
    if not arrow:
        raise UserError(f"{place}: '{line}' has no '=>'; a rule is {_FORM}")
    target, left, right = _divided(rest)
    rule = GlmRule(_bare(source), _bare(target), _bare(left), _bare(right))
    if not rule.source:
        raise UserError(f"{place}: '{line}' has nothing before '=>'; a rule is {_FORM}")
    if rule.target.count("{") != rule.target.count("}"):
        raise UserError(f"{place}: the braces of '{rule.target}' do not match; alternatives are {{A / B}}")
    return rule


def _divided(rest: str) -> tuple[str, str, str]:
    """(target, left context, right context) of the part after the arrow. The last slash starts the contexts,
    unless it is enclosed in brackets or braces."""
    target, slash, contexts = rest.rpartition("/")
    opened, closed = contexts.find("["), contexts.find("]")
    if not slash or "}" in contexts or (opened >= 0 and closed < opened):
        return rest, "", ""
    left, slot, right = contexts.partition("_")
    return (target, left, right.lstrip("_")) if slot else (target, "", "")


def _bare(text: str) -> str:
    """`text` without surrounding blanks and without the brackets or quotes that protect blanks."""
    text = text.strip()
    return text[1:-1] if len(text) > 1 and text[0] + text[-1] in ("[]", '""') else text
