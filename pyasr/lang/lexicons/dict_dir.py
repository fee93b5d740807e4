"""Kaldi's dictionary directory (`data/local/dict`): a lexicon and the lists of its phones."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pyasr.base.errors import UserError
from pyasr.lang.lexicons.lexicon import Lexicon, read_lexicon
from pyasr.lang.lexicons.silence_probs import LEXICON_FILE, SilenceProbs, read_silence_probs
from pyasr.lang.symbols import EPSILON, read_word_lines, write_lines

POSITIONS = ("_B", "_E", "_I", "_S")
_RESERVED = {  # symbols of every words.txt that are not words, and their use
    EPSILON: "arcs without a word",
    "<s>": "the beginning of a sentence",
    "</s>": "the end of a sentence",
    "#0": "the back-off arcs of a grammar",
}
RESERVED_WORDS = tuple(_RESERVED)
_POSITION_OF = dict(
    zip(
        POSITIONS,
        ("at the beginning of a word", "at the end of a word", "inside a word", "that are a whole word"),
    )
)
_LEXICA = (LEXICON_FILE, "lexiconp.txt", "lexicon.txt")
PhoneGroups = list[tuple[str, ...]]


@dataclass
class DictDir:
    """Content of `local/dict`.

    silence, nonsilence  groups of phones: a line of `silence_phones.txt`; the phones of a group share a root
                         of the decision tree
    optional_silence     the optional silence phone between words
    extra_questions      sets of phones as questions of the tree, in addition to those found by clustering
    silence_probs        probabilities of silence around each word, if estimated; then `lexicon` has
                         pronunciation probabilities
    """

    lexicon: Lexicon
    silence: PhoneGroups
    nonsilence: PhoneGroups
    optional_silence: str
    extra_questions: PhoneGroups
    silence_probs: SilenceProbs | None = None

    def write(self, directory: Path) -> None:
        """Write Kaldi's files to the existing `directory`; `read_dict_dir` reads them."""
        directory = Path(directory)
        self.lexicon.write(directory)
        if self.silence_probs:
            self.silence_probs.write(directory, self.lexicon)
        for name, groups in (
            ("silence_phones", self.silence),
            ("nonsilence_phones", self.nonsilence),
            ("extra_questions", self.extra_questions),
        ):
            write_lines(directory / f"{name}.txt", map(" ".join, groups))
        write_lines(directory / "optional_silence.txt", [self.optional_silence])


def read_dict_dir(directory: Path) -> DictDir:
    """Read and check `local/dict`; `extra_questions.txt` may be missing. The lexicon is the first existing
    one of `lexiconp_silprob.txt` (with `silprob.txt`), `lexiconp.txt`, `lexicon.txt`; the others must contain
    the same pronunciations, in any order.

    Raises UserError for a pronunciation that only one of the lexicons has, for a phone with a reserved name,
    and with every inconsistency between lexicon and phone lists.
    """
    directory = Path(directory)
    silence, nonsilence = (_phones(directory / f"{name}_phones.txt") for name in ("silence", "nonsilence"))
    extra = directory / "extra_questions.txt"
    optional = [phone for group in _groups(directory / "optional_silence.txt") for phone in group]
    lexicon, silence_probs = _read_lexicon(directory)
    content = DictDir(
        lexicon,
        silence,
        nonsilence,
        " ".join(optional),
        _groups(extra) if extra.exists() else [],
        silence_probs,
    )
    problems = find_problems(content)
    if problems:
        raise UserError(f"{directory}: {'; '.join(problems)}")
    return content


def _read_lexicon(directory: Path) -> tuple[Lexicon, SilenceProbs | None]:
    first, *others = [name for name in _LEXICA if (directory / name).exists()] or _LEXICA[-1:]
    lexicon, silence_probs = (
        read_silence_probs(directory) if first == LEXICON_FILE else (read_lexicon(directory / first), None)
    )
    for name in others:
        other = read_lexicon(directory / name)
        _check_is_in_other(directory, name, other, first, lexicon)
        _check_is_in_other(directory, first, lexicon, name, other)
    return lexicon, silence_probs


def _check_is_in_other(directory: Path, name: str, lexicon: Lexicon, other_name: str, other: Lexicon) -> None:
    lacking = [
        (word, phones) for word, _, phones in lexicon.rows() if phones not in other.entries.get(word, ())
    ]
    if lacking:
        word, phones = lacking[0]
        more = f" (nor {len(lacking) - 1} more)" if len(lacking) > 1 else ""
        raise UserError(
            f"{directory}: {name} has '{word} {' '.join(phones)}', but {other_name} does not have it{more}; "
            "write it into both, or remove the outdated file"
        )


def _groups(path: Path) -> PhoneGroups:
    return [tuple(line.split()) for line in read_word_lines(path) if line.strip()]


def _phones(path: Path) -> PhoneGroups:
    """A list of phones. Raises UserError, with file and line, for invalid names."""
    for number, line in enumerate(read_word_lines(path), 1):
        for phone in line.split():
            check_phone(phone, f"{path}:{number}", "rename it in the lexicon and the phone lists")
    return _groups(path)


def find_problems(content: DictDir) -> list[str]:
    """Problems of the content for Kaldi's tools, one clause each with its repair."""
    listed = [phone for group in content.silence + content.nonsilence for phone in group]
    known = set(listed)
    problems = [
        f"the phone {phone} is listed twice in silence_phones.txt and nonsilence_phones.txt, remove one"
        for phone in sorted(known)
        if listed.count(phone) > 1
    ]
    problems += [
        f"{name}_phones.txt lists no phone"
        for name in ("silence", "nonsilence")
        if not getattr(content, name)
    ]
    if content.optional_silence not in {phone for group in content.silence for phone in group}:
        problems.append(
            "optional_silence.txt must contain one phone of silence_phones.txt, not "
            f"'{content.optional_silence}'"
        )
    for word, variants in content.lexicon.entries.items():
        unknown = sorted({phone for phones in variants for phone in phones} - known)
        if unknown:
            problems.append(
                f"the phone {unknown[0]} of '{word}' is in neither phone list, add it or correct the "
                "pronunciation"
            )
    asked = {phone for group in content.extra_questions for phone in group}
    problems += [
        f"extra_questions.txt asks about the unknown phone {phone}, remove it"
        for phone in sorted(asked - known)
    ]
    problems += [
        f"'{word}' {reserved(word)}, remove it from the lexicon"
        for word in RESERVED_WORDS
        if word in content.lexicon
    ]
    return _shortened(problems)


def reserved(word: str) -> str:
    """Reason why a symbol cannot be a word; '' if it can."""
    return (
        f"is reserved and cannot be a word (words.txt uses it for {_RESERVED[word]})"
        if word in _RESERVED
        else ""
    )


def check_phone(phone: str, where: str, remedy: str) -> None:
    """Raise UserError for an invalid phone name; the message begins with `where` and ends with `remedy`."""
    if reason := phone_complaint(phone):
        raise UserError(f"{where}: '{phone}' cannot be the name of a phone, since {reason}; {remedy}")


def phone_complaint(phone: str) -> str:
    """Reason why a symbol cannot be the name of a phone; '' if it can."""
    if phone == EPSILON:
        return "phones.txt uses this symbol for arcs without a phone"
    if phone.startswith("#"):
        return "#0, #1 and so on are the disambiguation symbols of phones.txt"
    if suffix := next(filter(phone.endswith, POSITIONS), ""):
        return f"prepare_lang.py adds {suffix} to phones {_POSITION_OF[suffix]}"
    return ""


def _shortened(problems: list[str], most: int = 10) -> list[str]:
    return (
        problems
        if len(problems) <= most
        else [*problems[:most], f"and {len(problems) - most} more problems of these kinds"]
    )
