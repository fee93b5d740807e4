"""Plans before a run: arithmetic by hand, declared defaults and the programs' options, rates of finished
recipes, run.sh --plan."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from steps_here import run_here, step_of

from pyasr.base.cli.options import defaults
from pyasr.base.errors import UserError
from pyasr.report.plan import networks, plan_page, works
from pyasr.report.plan.derived_dirs import Speech
from pyasr.report.plan.estimate import Cost, make_plan
from pyasr.report.plan.plan_page import page
from pyasr.report.plan.planned_calls import parse_call, read_record
from pyasr.report.plan.planned_data import Disk, PlannedCorpus
from pyasr.report.plan.rates import Rate, Rates, line_through, read_rates, write_rates

ROOT = Path(__file__).parents[3]
RATES = Rates(
    "a machine",
    "2026-01-02",
    {
        "make_mfcc": Rate("hour", (2.0, 30.0), (100.0, 2e7), (50.0, 10.0), 3),
        "train_sat": Rate("hour x", (10.0, 0.5), (0.0, 1e6), (100.0, 200.0), 1),
        "decode": Rate("hour", (0.0, 400.0), (0.0, 1e7), (300.0, 0.0), 2),
        "train_dnn feed-forward": Rate("Gflop", (0.0, 0.01), (1000.0, 0.0), (500.0, 1.0), 1),
    },
    {
        "gflop_per_s": 1000.0,
        "s_per_launch": 0.001,
        "launches": {"SGD": 10, "natural gradient": 100, "recurrent step": 40},
        "source": "by counting",
    },
)
RECORD = """\
== stage	1	Features	
steps/make_mfcc.py	--nj	4	--cmd	run.pl	--config	{conf}	data/train	
utils/perturb_data_dir.py	--speeds	0.5 2.0	data/train	data/train_sp	
== stage	2	GMM	
steps/train_sat.py	--nj	4	--num-iters	10	--num-leaves=100	\
--num-gauss	1000	data/train	data/lang	exp/ali	exp/tri3	
steps/align_fmllr.py	--nj	4	data/train_sp	data/lang	exp/tri3	exp/tri3_ali	
steps/decode.py	--beam	15	--nj	2	exp/tri3/graph	data/test	exp/tri3/decode	
== stage	3	DNN	
steps/make_fmllr_feats.py	data/train_sp	exp/tri3	data/train_fmllr	
steps/train_dnn.py	--num-ranks	2	--hidden-layers	3	--hidden-dim	100	\
--num-epochs	5	data/train_fmllr	data/lang	exp/tri3_ali	exp/dnn	
local/odd.py	data	
"""


def write_record(path: Path) -> Path:
    (path / "mfcc.conf").write_text("--num-ceps=13  # comment\n# more\n--dither=1\n")
    (path / "record").write_text(RECORD.format(conf=path / "mfcc.conf"))
    return path / "record"


def speech(path: str) -> Speech | None:
    return {"data/train": Speech(8.0, 4000), "data/test": Speech(2.0, 100)}.get(path)


def test_costs_equal_hand_calculation(tmp_path):
    """8 h of training speech, three speeds (8 + 16 + 4 h), 100 leaves of 10 Gaussians, a network of
    440-3x100-100."""
    corpus = PlannedCorpus(Disk(speech))
    plan = make_plan(read_record(write_record(tmp_path)), corpus, RATES)
    features, gmm, dnn = plan.stages.values()
    assert list(plan.stages) == ["1 Features", "2 GMM", "3 DNN"] and corpus.hours_of("data/train_sp") == 28
    assert (
        features.core_s == 2 + 30 * 8
        and features.wall_s == (2 + 30 * 8) / 4
        and features.disk_bytes == 100 + 2e7 * 8
        and features.memory_mb == 50
    )
    sat, decoding = 10 + 0.5 * (8 * 10 * 10), 400 * 2 * works._FACTOR_OF_BEAM**2
    assert (
        gmm.core_s == pytest.approx(sat + decoding)
        and gmm.wall_s == pytest.approx(sat / 4 + decoding / 2)
        and gmm.memory_mb == 300
    )
    gflop = 6 * (440 * 100 + 2 * 100**2 + 100 * 100) * 28 * 360_000 * 5 / 1e9
    assert (
        dnn.core_s == pytest.approx(0.01 * gflop)
        and dnn.wall_s == pytest.approx(0.005 * gflop)
        and dnn.memory_mb == 500 + 14
    )
    assert (
        dnn.gpu_s == pytest.approx(gflop / 1000 + 28 * 360_000 * 5 / 512 * 4 * 10 * 0.001) and gmm.gpu_s == 0
    )
    total = plan.total
    assert total.core_s == pytest.approx(2 + 240 + sat + decoding + 0.01 * gflop) and total.memory_mb == 514
    assert plan.unknown == ["align_fmllr", "make_fmllr_feats", "local/odd.py"]


def test_page_states_measured_and_estimated_numbers(tmp_path):
    corpus = PlannedCorpus(Disk(speech))
    text = "\n".join(page(make_plan(read_record(write_record(tmp_path)), corpus, RATES), corpus, RATES))
    assert "data/train 8.00 h, data/test 2.00 h" in text and "| all " in text
    assert (
        "measured:   CPU time, disk and memory, on a machine, 2026-01-02" in text
        and "benchmarks/measure_rates.py --run true" in text
    )
    assert (
        "estimated:  GPU time of network trainings on one GPU" in text and "            by counting" in text
    )
    assert "left out:   align_fmllr, make_fmllr_feats, local/odd.py: no rate is known" in text
    without = Rates(RATES.machine, RATES.measured, RATES.of)
    assert "has no estimate" in "\n".join(
        page(
            make_plan(read_record(write_record(tmp_path)), PlannedCorpus(Disk(speech)), without),
            corpus,
            without,
        )
    )


@pytest.mark.parametrize(
    "cost, row",
    [
        (Cost(45.4, 20.0, 3.9e8, 80.0), ["45 s", "20 s", "390 MB", "80 MB", ""]),
        (Cost(720.0, 360.0, 3.7e10, 2500.0, 11500.0), ["12 min", "6 min", "37 GB", "2.5 GB", "3.2 h"]),
        (Cost(3.6e6, 36e4, 0.0, 12000.0, 7200.0, True), ["1000 h", "100 h", "0 MB", "12 GB", "2 h + ?"]),
        (Cost(without_gpu=True), ["0 s", "0 s", "0 MB", "0 MB", "?"]),
    ],
)
def test_numbers_have_readable_units(cost, row):
    assert plan_page.row("2 GMM", cost)[1:] == row


@pytest.mark.parametrize(
    "command, made, wanted",
    [
        ("copy_data_dir.py --features false data/train data/new", "data/new", 8.0),
        ("subset_data_dir.py --shortest 1000 data/train data/new", "data/new", 2.0),
        ("subset_data_dir.py --all-but-first 1000 data/train data/new", "data/new", 6.0),
        ("subset_data_dir.py --random 9000 data/train data/new", "data/new", 8.0),
        ("subset_data_dir.py --utt-list list data/train data/new", "data/new", 8.0),
        ("perturb_data_dir.py --speeds 0.5 data/train data/new", "data/new", 24.0),
        ("reverberate_data_dir.py --num-replications 2 data/train data/new", "data/new", 16.0),
        ("combine_data.py data/new data/train data/test", "data/new", 10.0),
        ("paste_feats.py data/new data/test data/train", "data/new", 2.0),
    ],
)
def test_hours_of_derived_directories(command, made, wanted):
    corpus = PlannedCorpus(Disk(speech))
    program, *words = command.split()
    corpus.note(parse_call(f"utils/{program}", words))
    assert corpus.hours_of(made) == wanted and made not in corpus.found


def test_unknown_hours_are_an_error():
    with pytest.raises(UserError, match=r"data/other does not exist, .*run.sh --stop-stage 1"):
        make_plan([parse_call("steps/make_mfcc.py", ["data/other"])], PlannedCorpus(Disk(speech)), RATES)


@pytest.mark.parametrize("seed", range(5))
def test_lines_are_least_squares_fits(seed):
    rng = np.random.default_rng(seed)
    x = np.append(rng.uniform(0, 10, 20), (1.0, 6.0))
    y = 3 + 2 * x + rng.normal(0, 0.1, 22)
    slope, begin = np.polyfit(x, y, 1, w=1 / np.sqrt(np.maximum(x, 1e-3 * x.max())))
    assert line_through(zip(x, y)) == pytest.approx((begin, slope))
    assert line_through(zip(x, y - 30))[0] == 0 and line_through(zip(x, -y))[1] == 0


def test_lines_through_close_points_start_at_zero():
    assert line_through([(3.0, 39.0), (8.0, 60.0)]) == (0.0, 9.0)
    assert line_through([(4.0, 8.0)]) == (0.0, 2.0) and line_through([(4.0, 8.0), (4.0, 10.0)]) == (0.0, 2.25)
    assert line_through([(0.0, 5.0)]) == (5.0, 0.0)


def flat(values: dict) -> dict:
    """All options of a step by name."""
    found = {}
    for name, value in values.items():
        found |= flat(value) if isinstance(value, dict) else {name: value}
    return found


def options_of(program: str) -> dict:
    folders = ["steps", "utils", *(folder.relative_to(ROOT) for folder in ROOT.glob("egs/*/s5/local"))]
    folder = next(folder for folder in folders if (ROOT / folder / f"{program}.py").exists())
    return flat(defaults(step_of(f"{program}.py", folder)[1]))


@pytest.mark.parametrize("program", sorted(works.WORKS))
def test_declared_work_uses_options_of_programs(program):
    options, work = options_of(program), works.WORKS[program]
    assert not work.workers or work.workers.replace("-", "_") in options
    expected = works.DEFAULTS | ({work.workers: work.default} if work.default else {})
    assert {
        name: options[name.replace("-", "_")] for name in works.DEFAULTS if name.replace("-", "_") in options
    }.items() <= expected.items()
    assert options.get("num_epochs", works.EPOCHS.get(program)) == works.EPOCHS.get(program)
    if program in ("train_mono", "train_deltas", "train_lda_mllt", "train_sat"):
        call = parse_call(f"steps/{program}.py", ["data/train", "lang", "ali", "out"])
        gauss = options["num_gauss"] / options.get("num_leaves", 130)
        assert work.amount(call, PlannedCorpus(Disk(speech))) == pytest.approx(
            8 * options["num_iters"] * gauss
        )


def test_defaults_of_networks_and_beams_equal_programs():
    shapes = {
        program: (options_of(program)["hidden_layers"], options_of(program)["hidden_dim"])
        for program in networks.SHAPES
    }
    assert shapes == networks.SHAPES and options_of("pretrain_dbn")["rbm_iter"] == 1
    assert options_of("decode")["beam"] == options_of("decode_fmllr")["beam"] == works.BEAM


def write_done(path: Path, command: str, seconds: float, size: int, memory: float) -> None:
    (path / "log").mkdir(parents=True)
    (path / "log/a.1.status").write_text(json.dumps({"peak_memory_mb": memory}))
    done = {
        "command": command,
        "seconds": seconds,
        "files": {"a": [size, 0, ""]},
        "ended": f"2026-01-0{1 + len(path.name) % 9} 00:00:00",
        "machine": "m",
    }
    (path / ".done.json").write_text(json.dumps(done))


def test_rates_come_from_finished_recipes(tmp_path, monkeypatch):
    """Two recipes of 1 and 8 hours, whose alignment took 2 + 30 core seconds per hour with 2 jobs, and
    features the same."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    for name, num_hours in (("a", 1), ("b", 8)):
        data = tmp_path / name / "data/train"
        data.mkdir(parents=True)
        (data / "utt2spk").write_text("u s\n")
        (data / "utt2dur").write_text(f"u {3600 * num_hours}\n")
        for path, command in (
            (data / "feats", "make_mfcc.py --nj 2 data/train"),
            (tmp_path / name / "ali", "align_si.py --nj 2 data/train lang mono ali"),
        ):
            write_done(
                path,
                f"steps/{command}",
                (2 + 30 * num_hours) / 2,
                100 + 7 * num_hours,
                50 + 10 * num_hours / 2,
            )
    out = tmp_path / "rates.json"
    run_here(
        "measure_rates.py", "--out", out, "--memory-of", tmp_path / "a", tmp_path / "b", folder="benchmarks"
    )
    alignment = read_rates(out).of["align_si"]
    assert (alignment.core_s, alignment.memory_mb, alignment.num_measured) == ((0.0, 30.25), (50.0, 10.0), 1)
    run_here("measure_rates.py", "--out", out, tmp_path / "a", tmp_path / "b", folder="benchmarks")
    features, alignment = (read_rates(out).of[name] for name in ("make_mfcc", "align_si"))
    assert (features.core_s, features.output_bytes, features.memory_mb, features.num_measured) == (
        (2.0, 30.0),
        (100.0, 7.0),
        (90.0, 0.0),
        2,
    )
    assert (alignment.core_s, alignment.output_bytes, alignment.memory_mb) == (
        (2.0, 30.0),
        (100.0, 7.0),
        (50.0, 10.0),
    )


def test_rates_survive_file_round_trip(tmp_path):
    write_rates(tmp_path / "rates.json", RATES)
    assert read_rates(tmp_path / "rates.json") == RATES
    (tmp_path / "rates.json").write_text("[]")
    with pytest.raises(UserError, match="rates.json: not a file of rates"):
        read_rates(tmp_path / "rates.json")


def plan_of(recipe: str, *words) -> subprocess.CompletedProcess:
    command = ["./run.sh", "--plan", "true", *map(str, words)]
    return subprocess.run(
        command, cwd=ROOT / "egs" / recipe / "s5", capture_output=True, text=True, timeout=60
    )


def test_recipe_plan_runs_nothing(tmp_path):
    """The toy recipe, whose decoding is in the background."""
    data = tmp_path / "data"
    run_here("make_corpus.py", "--num-train", 8, "--num-test", 2, data, folder="egs/toy/s5/local")
    before = sorted(tmp_path.rglob("*"))
    done = plan_of("toy", "--dir", tmp_path)
    assert done.returncode == 0 and sorted(tmp_path.rglob("*")) == before, done.stdout + done.stderr
    stages = re.findall(r"^\| (\d) \w", done.stdout, re.M)
    assert stages == ["2", "3", "4", "5", "6", "7"] and "== stage" not in done.stdout
    assert "left out:" not in done.stdout and "DOES NOT FIT" not in done.stdout


def test_unprepared_data_is_reported(tmp_path):
    done = plan_of("toy", "--dir", tmp_path)
    assert (
        done.returncode == 1
        and "data/train does not exist" in done.stderr
        and "run.sh --stop-stage 1" in done.stderr
    )
    assert not list(tmp_path.iterdir())


def test_program_error_is_one_sentence(tmp_path):
    done = subprocess.run(
        [sys.executable, ROOT / "utils/plan_recipe.py", tmp_path / "nothing"], capture_output=True, text=True
    )
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and "nothing: no such file" in done.stderr
