"""The help pages of all programs: they name only options and arguments that the program has, and show many
options under headings."""

import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from startup import start_all

ROOT = Path(__file__).resolve().parents[3]
PROGRAMS = [
    path
    for pattern in ("steps/*.py", "utils/*.py", "egs/*/s5/local/*.py")
    for path in sorted(ROOT.glob(pattern))
    if not path.is_symlink() and re.search(r"^ *run_step\(", path.read_text(encoding="utf-8"), re.MULTILINE)
]
MOST_WITHOUT_HEADING = 7
GENERAL = {"--help", "--help-all"}

_FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")
_FLAG_LINE = re.compile(r"^  (--[a-z0-9-]+)", re.MULTILINE)
_ARGUMENT_LINE = re.compile(r"^  ([A-Z][A-Z_]*(?:\.\.\.)?(?: [A-Z][A-Z_.]*)*) {2,}\S", re.MULTILINE)
_PLACE = re.compile(r"(?<![\w/*`.])([A-Z][A-Z_]*)(?=/)")
_EXAMPLE = re.compile(
    r"^ +(?:[\w.]+ -t .*\| )?(?:steps|utils|local)/(?:.*\\\n)*.*$|`[^`\n]*`|'[a-z]+\.pl [^']*'", re.MULTILINE
)


@dataclass(frozen=True)
class HelpPage:
    """What --help-all prints: a description, lines of arguments, and lines of options under headings."""

    text: str

    @property
    def description(self) -> str:
        """The text before the arguments and options."""
        return re.split(r"\n\n(?:  [A-Z][A-Z_. ]* {2,}\S|\n?[A-Z][^\n]*:\n  --)", self.text)[0]

    @property
    def prose(self) -> str:
        """The page without examples, which may be commands of other programs."""
        return _EXAMPLE.sub("", self.text)

    @property
    def flags(self) -> set[str]:
        """The options, with dashes."""
        return set(_FLAG_LINE.findall(self.text)) | GENERAL

    @property
    def arguments(self) -> set[str]:
        """The positional arguments."""
        lines = _ARGUMENT_LINE.findall(self.text)
        return {word.removesuffix("...") for line in lines for word in line.split()}

    @property
    def places(self) -> set[str]:
        """Names in capital letters that stand for values of options."""
        named = re.findall(r"--[a-z-]+\s+([A-Z][A-Z_]*)", self.description)
        return {flag[2:].replace("-", "_").upper() for flag in self.flags} | set(named)

    def section(self, heading: str) -> list[str]:
        """The options under a heading."""
        found = re.search(rf"^{heading}:\n((?:  --.*\n)+)", self.text, re.MULTILINE)
        return _FLAG_LINE.findall(found[1]) if found else []


@pytest.fixture(scope="module")
def pages() -> dict[Path, HelpPage]:
    """The complete help of each program."""
    runs = start_all([[path, "--help-all"] for path in PROGRAMS])
    return {path: HelpPage(run.output) for path, run in zip(PROGRAMS, runs)}


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", PROGRAMS, ids=name_of)
def test_page_names_only_options_of_program(path, pages):
    page = pages[path]
    assert set(_FLAG.findall(page.prose)) <= page.flags


@pytest.mark.parametrize("path", PROGRAMS, ids=name_of)
def test_description_names_arguments_as_list_of_arguments_does(path, pages):
    page = pages[path]
    words = set(re.findall(r"[A-Z][A-Z_]*", page.description))
    assert page.arguments <= words
    assert set(_PLACE.findall(page.description)) <= page.arguments | page.places


@pytest.mark.parametrize("path", PROGRAMS, ids=name_of)
def test_many_options_are_under_headings(path, pages):
    assert len(pages[path].section("Options")) <= MOST_WITHOUT_HEADING


@pytest.mark.parametrize(
    "program, heading, first",
    [
        (
            "steps/train_dnn.py",
            "Optimisation",
            ["--learning-rate", "--schedule", "--num-epochs", "--minibatch"],
        ),
        ("steps/train_dnn.py", "Network", ["--hidden-layers", "--hidden-dim"]),
        ("steps/decode.py", "Jobs", ["--nj"]),
        ("steps/make_mfcc.py", "Features", ["--sample-frequency"]),
        ("utils/train_lstm_lm.py", "Network", ["--dim", "--num-layers", "--dropout"]),
        ("utils/train_lstm_lm.py", "Resources", ["--device"]),
        ("steps/lm_rescore_lstm.py", "Resources", ["--device"]),
        ("steps/lm_rescore_lstm.py", "Search", ["--ngram-order", "--rescore-beam"]),
    ],
)
def test_most_used_options_come_first(program, heading, first, pages):
    section = pages[ROOT / program].section(heading)
    assert section[: len(first)] == first
    assert heading != "Resources" or section == first


def test_conditions_on_options_of_other_programs_are_left_out(pages):
    assert "number of frames of left context to append [0]\n" in pages[ROOT / "steps/train_mono.py"].text
    assert "to append (without --network) [5]\n" in pages[ROOT / "steps/train_dnn.py"].text
    assert "--splice-left" not in pages[ROOT / "steps/train_ctc.py"].text


def test_all_programs_with_options_are_checked():
    assert {"check_install.py", "train_dnn.py", "get_corpus.py", "make_corpus.py"} <= {
        path.name for path in PROGRAMS
    }
    assert len(PROGRAMS) > 90
