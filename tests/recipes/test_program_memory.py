"""A sample of benchmarks/scaling/scale.py: programs on a corpus of some thousand utterances stay within the
recorded memory."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from pyasr.base.errors import UserError

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "benchmarks/scaling"))
import scale_page  # noqa: E402
import scale_recipes  # noqa: E402
import scale_usage  # noqa: E402
from scale_ground import Ground, Names  # noqa: E402
from scale_rows import ROWS, TABLES, UNMEASURED, Row  # noqa: E402
from scale_usage import Growth, Usage  # noqa: E402

NUM = 10_000
SAMPLED = [row for row in ROWS if row.in_ci]
START_MB = 68  # memory of a program that has imported numpy
MORE = 1.3  # factor on the recorded memory above that of the start


@pytest.fixture(scope="module")
def ground(tmp_path_factory):
    return Ground(tmp_path_factory.mktemp("scale"))


def command(row: Row, ground: Ground, work: Path) -> str:
    """Command of a row for the sample."""
    return row.command.format_map(Names(ground, row.ladder.kind, NUM, work))


def kept(row: Row) -> Growth:
    """Record of a row in benchmarks/scaling/scale.json."""
    usages = scale_usage.read_usages(ROOT / "benchmarks/scaling/scale.json")
    return Growth(row, [usage for usage in usages if usage.row == row.name])


@pytest.mark.parametrize("row", SAMPLED, ids=lambda row: row.name)
def test_programs_stay_within_recorded_memory(row, ground, tmp_path):
    of_start, of_sample = (kept(row).at("memory_mb", size) for size in (row.ladder.sizes[0], NUM))
    most_mb = START_MB + MORE * (of_sample - of_start)
    scale_usage.run(command(row, ground, tmp_path), tmp_path, 120, most_mb)


def test_program_exceeding_memory_fails(ground, tmp_path):
    row = next(row for row in SAMPLED if row.name == "compute_cmvn")
    with pytest.raises(UserError, match="failed: .*[Mm]emory"):
        scale_usage.run(command(row, ground, tmp_path), tmp_path, 120, START_MB / 2)


def test_every_program_has_a_row_or_a_reason():
    programs = {path.stem for folder in ("steps", "utils") for path in (ROOT / folder).glob("*.py")}
    measured = {Path(row.command.split()[0]).stem for row in ROWS}
    assert measured | UNMEASURED.keys() == programs and not measured & UNMEASURED.keys()
    assert len({row.name for row in ROWS}) == len(ROWS)


def growth(points: dict[float, tuple[float, float]], **limits) -> Growth:
    row = replace(ROWS[0], cpu_s=None, memory_mb=None, **limits)
    return Growth(
        row, [Usage(row.name, int(amount), amount, *taken, "x") for amount, taken in points.items()]
    )


def test_growth_is_measured_beyond_startup():
    linear = growth({1e3: (1.0, 40.0), 1e5: (3.0, 60.0), 1e6: (21.0, 240.0)})
    assert linear.exponent("cpu_s") == pytest.approx(1.0) and linear.exponent("memory_mb") == pytest.approx(
        1.0
    )
    assert linear.at("cpu_s", 1e7) == pytest.approx(201.0) and linear.at("memory_mb", 5.5e5) == pytest.approx(
        150.0
    )
    assert linear.broken() == []
    assert growth({1e3: (1.0, 40.0)}).at("cpu_s", 1e4) is None and growth({}).at("cpu_s", 1.0) is None
    square = growth({1e3: (1.0, 40.0), 1e5: (3.0, 41.0), 1e6: (201.0, 42.0)})
    assert square.exponent("cpu_s") == pytest.approx(2.0) and square.exponent("memory_mb") is None
    assert square.at("cpu_s", 1e7) == pytest.approx(20_001.0) and square.at("memory_mb", 1e9) == 42.0
    assert square.broken() == ["cpu_s"]


def test_limits_hold_at_given_amount():
    points = {1e3: (1.0, 40.0), 1e5: (3.0, 60.0), 1e6: (21.0, 240.0)}
    assert growth(points, at=1e6).broken() == []
    limited = Growth(replace(growth(points, at=1e6).row, cpu_s=20.9, memory_mb=241.0), growth(points).usages)
    assert limited.broken() == ["cpu_s"]
    beyond = Growth(replace(limited.row, at=2e6), limited.usages)
    assert beyond.broken() == ["cpu_s", "memory_mb"]


def test_usages_survive_file_round_trip(tmp_path):
    path, usages = tmp_path / "kept.json", growth({1e6: (21.0, 240.0), 1e3: (1.0, 40.0)}).usages
    scale_usage.write_usages(path, "a machine", usages)
    assert scale_usage.read_usages(path) == usages
    assert json.loads(path.read_text(encoding="utf-8"))["machine"] == "a machine"
    path.write_text("[]")
    with pytest.raises(UserError, match="not a file of benchmarks/scaling/scale.py"):
        scale_usage.read_usages(path)


def test_page_has_figures_of_recipes_and_programs(tmp_path, monkeypatch):
    librispeech = [recipe for recipe in scale_recipes.recipes() if recipe.folder == "librispeech"]
    monkeypatch.setattr(scale_recipes, "recipes", lambda: librispeech)
    page = tmp_path / "page.md"
    growths = [
        Growth(row, [Usage(row.name, 1, 1e3, 1.0, 40.0, "x"), Usage(row.name, 2, 1e6, 2.0, 50.0, "x")])
        for row in ROWS
        if row.ladder is TABLES
    ]
    page.write_text((ROOT / "docs/running/scale.md").read_text(encoding="utf-8"), encoding="utf-8")
    scale_page.write_page(page, growths, "a machine")
    text = page.read_text(encoding="utf-8")
    assert text.count("| all ") == 1 and "Measured on a machine; commits x." in text
    assert all(f"| {growth.row.name} " in text for growth in growths) and "LibriSpeech, 960 h" in text
    page.write_text("no place", encoding="utf-8")
    with pytest.raises(UserError, match="are missing"):
        scale_page.write_page(page, growths, "a machine")
