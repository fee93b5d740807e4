"""Options that are used only with certain values of another option."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from pyasr.base.cli import options as opt
from pyasr.base.cli.option_uses import if_is, if_set, unless_is, unless_set
from pyasr.base.cli.options import group, option
from pyasr.base.errors import UserError


@dataclass(frozen=True)
class Prefix:
    width: int = option(8, "prefixes to keep")
    bonus: float = option(0.0, "for a word", only=if_set("lm"))


@dataclass(frozen=True)
class Search:
    search: str = option("graph", "how to search", choices=("graph", "prefix", "greedy"))
    lm: Path | None = option(None, "a language model")
    exact: bool = option(False, "search exactly")
    prefix: Prefix = group(Prefix, only=if_is("search", "prefix"))
    beam: float = option(15.0, "of the search", only=if_is("search", "graph", "prefix"))
    pruning: float = option(1.0, "of the search", only=unless_set("exact"))
    scale: float = option(1.0, "of scores", only=unless_is("search", "greedy"))
    else_where: int = option(1, "what another program chooses", only=if_set("no-option-of-ours"))


def parse(*words):
    return opt.parse(Search, list(words))[0]


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--beam", "15"),
        ("--search", "prefix", "--width", "3"),
        ("--search", "prefix", "--bonus", "1", "--lm", "x"),
        ("--pruning", "2"),
        ("--exact", "false", "--pruning", "2"),
        ("--search", "greedy", "--exact"),
        ("--else-where", "3"),
        ("--lm", "none"),
    ],
)
def test_used_option_is_accepted(words):
    parse(*words)


@pytest.mark.parametrize("words, sentence", [
    (("--width", "8"), "--width cannot be combined with --search graph; omit it, or give --search prefix"),
    (("--width", "8", "--bonus", "0"),
     "--width, --bonus cannot be combined with --search graph; omit them, or give --search prefix"),
    (("--search", "prefix", "--bonus", "0"), "--bonus has no effect without --lm; omit it"),
    (("--search", "prefix", "--lm", "none", "--bonus", "0"), "--bonus has no effect without --lm; omit it"),
    (("--search", "greedy", "--beam", "15"),
     "--beam cannot be combined with --search greedy; omit it, or choose one of graph, prefix"),
    (("--exact", "--pruning", "1"), "--pruning cannot be combined with --exact; omit it"),
    (("--search", "greedy", "--scale", "1"), "--scale cannot be combined with --search greedy; omit it"),
])  # fmt: skip
def test_unused_option_is_refused_by_name(words, sentence, tmp_path):
    """On the command line and in a file."""
    path = tmp_path / "search.conf"
    path.write_text(
        "".join(
            f"{'--' if not word.startswith('--') else ''}{word}\n"
            for word in [
                f"{words[i]}={words[i + 1]}"
                if i + 1 < len(words) and not words[i + 1].startswith("--")
                else words[i]
                for i in range(len(words))
                if words[i].startswith("--")
            ]
        )
    )
    line = next(
        number
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if line.partition("=")[0] == sentence.split()[0].rstrip(",")
    )
    for given, where in ((words, ""), (("--config", str(path)), f"{path}:{line}: ")):
        with pytest.raises(UserError) as caught:
            parse(*given)
        assert str(caught.value) == where + sentence


def test_config_line_made_unused_by_command_line_is_refused_with_line_number(tmp_path):
    path = tmp_path / "search.conf"
    path.write_text("# of prefixes\n--scale=2\n--width=8\n--bonus=0\n")
    parse("--search", "prefix", "--lm", "x", "--config", str(path))
    for words, sentence in (
        ((), "--width, --bonus cannot be combined with --search graph; omit them, or give --search prefix"),
        (
            ("--bonus", "1"),
            "--bonus cannot be combined with --search graph; omit it, or give --search prefix",
        ),
        (("--search", "prefix"), "--bonus has no effect without --lm; omit it"),
    ):
        with pytest.raises(UserError) as caught:
            parse("--config", str(path), *words)
        where = "" if "--bonus" in words else f"{path}:{4 if words else 3}: "
        assert str(caught.value) == where + sentence


def test_help_shows_conditions():
    with pytest.raises(opt.HelpRequested) as caught:
        parse("--help")
    for message in (
        "prefixes to keep (with --search prefix) [8]",
        "for a word (with --search prefix, with --lm) [0.0]",
        "of the search (with --search graph, prefix) [15.0]",
        "of the search (without --exact) [1.0]",
        "of scores (with any --search except greedy) [1.0]",
    ):
        assert message in str(caught.value)
