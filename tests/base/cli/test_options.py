"""Declared options: valid and invalid command lines, config files, saving and loading."""

import dataclasses
import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyasr.base.cli import options as opt
from pyasr.base.cli.job_options import JobOptions
from pyasr.base.cli.options import argument, group, option
from pyasr.base.errors import UserError


@dataclass(frozen=True)
class Inner:
    num_ceps: int = option(13, "cepstra", minimum=1, maximum=40)
    window: str = option("povey", "window", choices=("povey", "hamming"))


@dataclass(frozen=True)
class Step:
    data: Path = argument("data directory")
    out: Path = argument("output directory")
    inner: Inner = group(Inner, num_ceps=20)
    jobs: JobOptions = group(JobOptions, nj=4)
    rate: float = option(0.5, "a rate")
    fast: bool = option(False, "go fast")
    lm: Path | None = option(None, "a language model")


@dataclass(frozen=True)
class Many:
    number: int = argument("a number")
    dirs: tuple[Path, ...] = argument("directories", many=True)


def parse(*words, cls=Step):
    return opt.parse(cls, list(words), "A step.", {"force": "compute it again"})


@pytest.mark.parametrize(
    "words, changes",
    [
        ((), {}),
        (("--rate", "-2.5"), dict(rate=-2.5)),
        (("--rate=1e-3",), dict(rate=1e-3)),
        (("--fast",), dict(fast=True)),
        (("--fast", "false"), dict(fast=False)),
        (("--lm", "a=b"), dict(lm=Path("a=b"))),
        (("--lm", "none"), dict(lm=None)),
        (("--num-ceps", "13"), dict(inner=Inner(13))),
        (("--num_ceps=13", "--window", "hamming"), dict(inner=Inner(13, "hamming"))),
        (("--nj", "1", "--cmd", "run.pl --mem 2G"), dict(jobs=JobOptions(nj=1, cmd="run.pl --mem 2G"))),
        (("--nj", "1", "--nj", "2"), dict(jobs=JobOptions(nj=2))),
    ],
)
def test_valid_command_lines(words, changes):
    expected = dataclasses.replace(Step(Path("d"), Path("o"), Inner(20), JobOptions(nj=4)), **changes)
    assert parse(*words, "d", "o") == (expected, set())
    if "--fast" not in words:
        assert parse("d", "o", *words)[0] == expected == parse("d", *words, "o")[0]


def test_words_after_two_dashes_are_positional():
    assert parse("--", "--d", "-o")[0].data == Path("--d")


def test_switches_and_variadic_positionals():
    assert parse("d", "o", "--force")[1] == {"force"}
    assert parse("3", "a", "b", cls=Many)[0] == Many(3, (Path("a"), Path("b")))


@pytest.mark.parametrize(
    "words, sentence",
    [
        (("d", "o", "--nj"), "--nj: a value is missing after it"),
        (("d", "o", "--nj", "--fast"), "--nj: a value is missing after it"),
        (("d", "o", "--nj", "abc"), "--nj: 'abc' is not a whole number"),
        (("d", "o", "--nj", "2.5"), "--nj: '2.5' is not a whole number"),
        (("d", "o", "--nj", "1_0"), "--nj: '1_0' is not a whole number"),
        (("d", "o", "--nj="), "--nj: '' is not a whole number"),
        (("d", "o", "--nj", "0"), "--nj: 0 is below the minimum 1"),
        (("d", "o", "--nj", "-4"), "--nj: -4 is below the minimum 1"),
        (("d", "o", "--num-ceps", "41"), "--num-ceps: 41 is above the maximum 40"),
        (("d", "o", "--rate", "fast"), "--rate: 'fast' is not a number"),
        (("d", "o", "--rate", "nan"), "--rate: 'nan' is not a number"),
        (("d", "o", "--rate", "inf"), "--rate: 'inf' is not a number"),
        (("d", "o", "--rate", "-1e999"), "--rate: '-1e999' is not a number"),
        (("d", "o", "--fast=perhaps"), "--fast: 'perhaps' is neither true nor false"),
        (("d", "o", "--window", "hann"), "--window: 'hann' is not one of povey, hamming"),
        (("d", "o", "--num-cep", "3"), "--num-cep: no such option; did you mean --num-ceps?"),
        (("d", "o", "--forse"), "--forse: no such option; did you mean --force?"),
        (("d", "o", "--force=yes"), "--force: takes no value"),
        (("d", "o", "--xyzzy"), "--xyzzy: no such option; see --help"),
        (("d", "o", "--config"), "--config: a value is missing after it"),
        (("d", "o", "--config", "none.conf"), "--config none.conf: no such file"),
        (("d",), "expected 2 argument(s) (DATA OUT), got 1: d"),
        (("d", "o", "x"), "got 3: d o x"),
        (("d", ""), "OUT: the path is empty"),
    ],
)
def test_invalid_command_lines_give_one_sentence(words, sentence):
    with pytest.raises(UserError) as caught:
        parse(*words)
    assert sentence in str(caught.value) and "\n" not in str(caught.value)


def test_invalid_positional_is_refused():
    with pytest.raises(UserError, match="NUMBER: 'x' is not a whole number"):
        parse("x", "a", cls=Many)


@given(
    st.lists(
        st.sampled_from(
            [
                "--nj",
                "--rate",
                "--fast",
                "--config",
                "--force",
                "--",
                "=",
                "3",
                "-1",
                "true",
                "a",
                "",
                "--nj=",
                "-",
                "---",
                "--=x",
            ]
        ),
        max_size=7,
    )
)
def test_random_words_give_options_or_one_sentence(words):
    try:
        parse(*words)
    except UserError as error:
        assert str(error) and "\n" not in str(error)


def test_config_file(tmp_path):
    path = tmp_path / "mfcc.conf"
    path.write_text("# Kaldi's way\n\n--num-ceps=13   # thirteen\nrate=2\n--fast\n")
    step = parse("d", "o", "--rate", "3", "--config", str(path))[0]
    assert (step.inner.num_ceps, step.rate, step.fast) == (13, 3.0, True)


@pytest.mark.parametrize(
    "line, sentence",
    [
        ("--num-ceps=x", r"c\.conf:2: --num-ceps: 'x' is not a whole number"),
        ("--num-cepz=1", r"c\.conf:2: --num-cepz: no such option; did you mean --num-ceps\?"),
        ("--num-ceps 13", r"c\.conf:2: --num-ceps 13: no such option"),
        ("--num-ceps", r"c\.conf:2: --num-ceps: a value is missing"),
    ],
)
def test_invalid_config_file_is_refused(line, sentence, tmp_path):
    path = tmp_path / "c.conf"
    path.write_text(f"--rate=1\n{line}\n")
    with pytest.raises(UserError, match=sentence):
        parse("d", "o", "--config", str(path))


def test_help_shows_flags_with_defaults():
    with pytest.raises(opt.HelpRequested) as caught:
        parse("--help")
    text = str(caught.value)
    for word in (
        "A step.",
        "DATA",
        "--num-ceps INT",
        "[20]",
        "(povey|hamming)",
        "--nj INT",
        "[4]",
        "--config FILE",
        "--force",
        "go fast [false]",
        "a language model [none]",
    ):
        assert word in text


@dataclass(frozen=True)
class Room:
    heading = "resources"
    room: int = option(1, "room")


def many(number: int, rare: int):
    """A class of options, the last of them rare, in a group of a step."""
    names = {f"x{i}": (int, option(i, f"number {i}", rare=i >= number - rare)) for i in range(number)}
    numbers = dataclasses.make_dataclass(
        "Numbers",
        [(name, kind, field) for name, (kind, field) in names.items()],
        bases=(Room,),
        frozen=True,
        namespace={"heading": "network"},
    )
    return dataclasses.make_dataclass("Many", [("numbers", numbers, group(numbers))], frozen=True)


def help_of(cls, flag: str) -> str:
    with pytest.raises(opt.HelpRequested) as caught:
        opt.parse(cls, [flag], "A step.")
    return str(caught.value)


def test_help_groups_flags_by_declaring_class():
    text = help_of(many(3, 0), "--help")
    assert re.search(
        r"Network:\n  --x0 .*\n  --x1 .*\n  --x2 .*\n\nResources:\n  --room .*\n\nGeneral:\n  --config FILE",
        text,
    )


@dataclass(frozen=True)
class Wide(Room):
    """The heading of a base class is only that of its own flags."""

    rarely: int = option(1, "rarely used", rare=True)
    sometimes: int = option(1, "sometimes used")
    often: int = option(1, "often used", common=True)
    beam: int = option(1, "beam", heading="search")


@dataclass(frozen=True)
class Program:
    paths: tuple[Path, ...] = argument("a folder, then files", many=True, name="FOLDER FILE...")
    wide: Wide = group(Wide)


def test_help_orders_flags_of_a_class():
    text = help_of(Program, "--help")
    assert re.search(
        r"\n  FOLDER FILE\.\.\. .*\n\nOptions:\n  --often .*\n  --sometimes .*\n  --rarely .*\n\n"
        r"Search:\n  --beam .*\n\nResources:\n  --room .*\n\nGeneral:\n",
        text,
    )


def test_help_leaves_rare_flags_to_help_all():
    short, whole = help_of(many(40, 12), "--help"), help_of(many(40, 12), "--help-all")
    assert short.count("--x") == 28 and "--help-all                   show 12 more options" in short
    assert whole.count("--x") == 40 and "help-all" not in whole
    assert help_of(many(20, 12), "--help").count("--x") == 20  # few flags are all shown


def test_name_declared_twice_is_type_error():
    @dataclass(frozen=True)
    class Twice:
        nj: int = option(1, "jobs")
        jobs: JobOptions = group(JobOptions)

    with pytest.raises(TypeError, match="declares nj twice"):
        parse(cls=Twice)


def test_save_and_load(tmp_path):
    jobs = JobOptions("run.pl --gpu 0", 2, 3)
    opt.save(tmp_path / "o.json", jobs)
    assert opt.load(tmp_path / "o.json") == jobs
    assert list(tmp_path.iterdir()) == [tmp_path / "o.json"]


def test_json_round_trip_of_nested_values():
    for instance in (
        Step(Path("d"), Path("o"), Inner(7), JobOptions(nj=2), 0.25, True, Path("x")),
        Many(1, (Path("a"), Path("b"))),
    ):
        content = json.loads(json.dumps(opt.to_json(instance)))
        content.pop("type")
        assert opt.from_json(type(instance), content) == instance


def test_unset_options_equal_defaults():
    """Defaults of groups are those of the step; arguments have none."""
    content = opt.to_json(parse("d", "o")[0])
    assert opt.defaults(Step) == {
        name: value for name, value in content.items() if name not in ("type", "data", "out")
    }


@pytest.mark.parametrize(
    "text, sentence",
    [
        ("", "not a file of saved options"),
        ('{"nj": 1}', "not a file of saved options"),
        ("[1]", "not a file of saved options"),
        ('{"type": "os:system"}', "not part of pyasr"),
        ('{"type": "pyasr.base.cli.job_options:Nothing"}', "not compatible with this version"),
        ('{"type": "pyasr.nowhere:Nothing"}', "not compatible with this version"),
        ('{"type": "pyasr.base.cli.job_options:JobOptions", "njobs": 1}', "JobOptions has no njobs"),
    ],
)
def test_invalid_saved_options_are_refused(text, sentence, tmp_path):
    path = tmp_path / "o.json"
    path.write_text(text)
    with pytest.raises(UserError, match=sentence):
        opt.load(path)


def test_missing_saved_options_are_refused(tmp_path):
    with pytest.raises(UserError, match="no.json: no such file"):
        opt.load(tmp_path / "no.json")


@pytest.mark.parametrize(
    "words, status, sentence",
    [
        (["--nj", "abc", "d", "o"], 1, "step.py: error: --nj: 'abc' is not a whole number\n"),
        (["--nj"], 1, "step.py: error: --nj: a value is missing after it\n"),
        (["d", "o"], 1, "step.py: error: d: no such file or directory\n"),
    ],
)
def test_step_with_user_error_prints_one_sentence_and_exits(words, status, sentence, tmp_path):
    script = tmp_path / "step.py"
    script.write_text("""
from dataclasses import dataclass
from pathlib import Path
from pyasr.base.cli.job_options import JobOptions
from pyasr.base.cli.options import argument, group
from pyasr.base.cli.step import output_of, run_step
@dataclass(frozen=True)
class Step:
    data: Path = argument("in")
    out: Path = argument("out")
    jobs: JobOptions = group(JobOptions)
def main(options):
    with output_of(options, options.out, [options.data]) as out:
        (out / "x").write_text("x")
run_step(Step, main, "A step.")
""")
    done = subprocess.run(
        [sys.executable, str(script), *words], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert (done.returncode, done.stderr) == (status, sentence)
    assert [path.name for path in tmp_path.iterdir()] == ["step.py"]
