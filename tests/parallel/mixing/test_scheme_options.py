"""Each scheme has options of its own: those of others are refused; options that saved ones lack have their
defaults."""

import dataclasses
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from scheme_toys import names_of

from pyasr.base.cli import options as opt
from pyasr.base.cli.option_values import as_typed
from pyasr.base.cli.options import argument, group, option, parse
from pyasr.base.cli.step import output_of
from pyasr.base.errors import UpToDate, UserError
from pyasr.base.outputs.fingerprint import DONE
from pyasr.parallel.mixing.periodic import PeriodicStrategy
from pyasr.parallel.mixing.register import REGISTER, option_kinds, register
from pyasr.parallel.mixing.scheme_options import PeriodOptions
from pyasr.parallel.strategies import MixingOptions, SchemeOptions, mixing_options

KINDS = option_kinds()
ALL = sorted(set().union(*map(names_of, KINDS.values())))


def flag_of(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def default_of(name: str) -> str:
    """The default as typed on a command line."""
    return next(
        as_typed(field.default)
        for kind in KINDS.values()
        for field in dataclasses.fields(kind)
        if field.name == name
    )


def given(*words) -> MixingOptions:
    return parse(MixingOptions, list(words))[0]


@pytest.mark.parametrize("scheme", KINDS)
def test_options_of_other_schemes_are_refused_by_name(scheme):
    """Even with their default values."""
    for name in ALL:
        words = ["--parallel", scheme, flag_of(name), default_of(name)]
        if name in names_of(KINDS[scheme]):
            assert given(*words) == mixing_options(scheme)
        else:
            with pytest.raises(
                UserError, match=f"^{flag_of(name)} cannot be combined with --parallel {scheme}; omit it"
            ):
                given(*words)


@pytest.mark.parametrize("words, sentence", [
    (["--topology", "nonsense"],
     "^--topology cannot be combined with --parallel allreduce; omit it, or choose one of adpsgd, dpsgd, "
     "hadpsgd$"),
    (["--outer-rate", "1"],
     "--outer-rate cannot be combined with --parallel allreduce; omit it, or choose one of bmuf, "
     "bmuf-classical, diloco, slowmo$"),
    (["--parallel=asgd", "--period-frames=5"],
     "^--period-frames cannot be combined with --parallel asgd; omit it$"),
    (["--server-momentum", "0", "--max-distance", "3"],
     "^--server-momentum, --max-distance cannot be combined with --parallel allreduce; omit them, or give"),
    (["--parallel", "telepathy", "--topology", "ring"],
     "^--parallel 'telepathy': no such scheme; choose one of adpsgd, "),
    (["--parallel", "adpsgd", "--topology", "fixed-ring", "--random-peers", "true"],
     "^--random-peers cannot be combined with --topology fixed-ring: its rounds define the neighbours; "
     "omit it$"),
    (["--parallel", "bmuf", "--outer-momentum", "-1"], "^--outer-momentum: -1 is below the minimum 0"),
])  # fmt: skip
def test_invalid_values_give_one_sentence(words, sentence):
    with pytest.raises(UserError, match=sentence):
        given(*words)


def test_config_file_options_of_other_schemes_are_refused(tmp_path):
    (tmp_path / "x.conf").write_text("--period-frames=640\n")
    assert given("--config", str(tmp_path / "x.conf")).scheme.period_frames == 640
    with pytest.raises(
        UserError, match=f"^{tmp_path}/x.conf:1: --period-frames cannot be combined with --parallel gradient"
    ):
        given("--config", str(tmp_path / "x.conf"), "--parallel", "gradient")
    (tmp_path / "x.conf").write_text("--topology=ring\n")
    with pytest.raises(
        UserError,
        match=(
            f"^{tmp_path}/x.conf:1: --topology cannot be combined with --parallel allreduce; omit it, or "
            "choose"
        ),
    ):
        given("--config", str(tmp_path / "x.conf"), "--parallel", "allreduce")
    (tmp_path / "x.conf").write_text("\n--parallel=telepathy\n")
    with pytest.raises(UserError, match=f"^{tmp_path}/x.conf:2: --parallel 'telepathy': no such scheme"):
        given("--config", str(tmp_path / "x.conf"))


def test_help_names_scheme_of_each_option():
    with pytest.raises(opt.HelpRequested) as caught:
        given("--help")
    for message in (
        "neighbours (without --topology, with --parallel adpsgd, hadpsgd) [false]",
        "minibatches (with any --parallel except adpsgd, asgd, d1d, dpsgd, gradient, hadpsgd)",
        "the scheme's own (with --parallel bmuf, bmuf-classical, diloco, slowmo) [none]",
        "halve their size (float32|float16|bfloat16)",
    ):
        assert message in str(caught.value)


def test_new_scheme_adds_its_options():
    @dataclass(frozen=True)
    class LeapOptions(PeriodOptions):
        leap: int = option(3, "ranks to leap over", minimum=1)

    try:
        register("leaps", options=LeapOptions)(type("Leaps", (PeriodicStrategy,), {}))
        assert given("--parallel", "leaps", "--leap", "4").scheme == LeapOptions(leap=4)
        with pytest.raises(
            UserError,
            match="--leap cannot be combined with --parallel ring; omit it, or give --parallel leaps",
        ):
            given("--parallel", "ring", "--leap", "4")
    finally:
        REGISTER.pop("leaps", None)
    with pytest.raises(UserError, match="--leap: no such option"):
        given("--leap", "4")


def test_schemes_with_same_option_name_are_refused():
    @dataclass(frozen=True)
    class OtherPeriod(SchemeOptions):
        period_frames: int = option(7, "another period")

    try:
        register("other", options=OtherPeriod)(type("Other", (PeriodicStrategy,), {}))
        with pytest.raises(TypeError, match="declares period-frames twice"):
            given()
    finally:
        REGISTER.pop("other", None)


def test_missing_saved_options_have_defaults():
    assert opt.from_json(MixingOptions, {}) == mixing_options()


@dataclass(frozen=True)
class Step:
    out: Path = argument("output")
    mixing: MixingOptions = group(MixingOptions)


def made(*words) -> None:
    """Make an output with these options. Raises UpToDate if it exists."""
    options = parse(Step, list(map(str, words)))[0]
    with output_of(options, options.out, []) as scratch:
        (scratch / "model").write_text("x")


@pytest.mark.parametrize(
    "flags, saved",
    [
        ([], {}),
        (["--parallel", "butterfly"], {"parallel": "butterfly", "scheme": {"period_frames": 10240}}),
        (
            ["--parallel", "adpsgd"],
            {
                "parallel": "adpsgd",
                "scheme": {"payload": "float32", "all_reduce": "auto", "random_peers": False},
            },
        ),
        (
            ["--parallel", "dpsgd"],
            {"parallel": "dpsgd", "scheme": {"topology": "fixed-ring", "payload": "float32"}},
        ),
        (["--parallel", "dpsgd"], {"parallel": "dpsgd"}),
    ],
)
def test_outputs_saved_with_fewer_options_are_up_to_date(flags, saved, tmp_path):
    made(*flags, tmp_path / "out")
    path = tmp_path / "out" / DONE
    done = json.loads(path.read_text())
    done["options"] = {"out": done["options"]["out"], **({"mixing": saved} if saved else {})}
    path.write_text(json.dumps(done))
    with pytest.raises(UpToDate):
        made(*flags, tmp_path / "out")
    with pytest.raises(UserError, match="exists with other options"):
        made("--parallel", "easgd", tmp_path / "out")


def test_options_of_wrong_scheme_are_type_error():
    with pytest.raises(TypeError, match="scheme: AveragingOptions was expected, not PeerOptions"):
        MixingOptions("allreduce", mixing_options("adpsgd").scheme)


def test_scheme_options_need_no_torch():
    code = (
        "import sys; from pyasr.parallel.strategies import MixingOptions, strategy_names; from "
        "pyasr.base.cli.options import defaults; strategy_names(); defaults(MixingOptions); print([name for "
        "name in ('torch', 'numba', 'mpi4py') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parents[3]
    )
    assert done.stdout == "[]\n", done.stderr
