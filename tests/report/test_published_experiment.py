"""Pages of published experiments: published numbers, pyasr's numbers next to them, missing ones."""

import json

import pytest
from steps_here import run_here
from test_results import make_experiment

from pyasr.base.errors import UserError
from pyasr.base.outputs.fingerprint import DONE
from pyasr.report.published_experiment import page, read_experiment

TABLES = """# A paper (arXiv:1234.5678)
# A sentence on it.
WER %\tclean\t1 GPU\t14.7\twer mono/decode_test
WER %\tclean\t2 GPUs\t15.1\twer tri/decode_test
WER %\tnoisy\t2 GPUs\t27.4\twer tri/decode_test noisy
WER %\tnoisy\t4 GPUs\tdiverges\twer nnet/decode_test
Speed\thours\t1 GPU\t3.00\thours mono
Speed\tspeed-up\t2 GPUs\t1.50\tspeed-up tri mono
Speed\tslow-down\t2 GPUs\t0.50\tslow-down tri mono
Loss\tnetwork\tloss\t1.58\tloss tri
Loss\tanother set\tloss\t1.60\tnone
"""


@pytest.fixture
def tables(tmp_path):
    path = tmp_path / "tables.tsv"
    path.write_text(TABLES)
    return path


def seconds(model_dir, number: float) -> None:
    """Set the duration of a training."""
    done = json.loads((model_dir / DONE).read_text())
    (model_dir / DONE).write_text(json.dumps({**done, "seconds": number}))


def rows(text: str) -> dict[str, list[str]]:
    """{first cell: the other cells} of all tables."""
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if line.startswith("|")
    ]
    return {row[0]: row[1:] for row in cells}


def test_all_numbers_are_missing_without_systems(tables, tmp_path):
    text = page(read_experiment(tables), tmp_path / "exp")
    assert text.startswith(
        "# A paper (arXiv:1234.5678)\n\nWritten by `utils/compare_published.py`; not edited by hand.\n\n* A "
        "sentence on it.\n"
    )
    found = rows(text)
    assert found["clean"] == ["14.7", "missing", "15.1", "missing", "", ""]
    assert found["noisy"] == ["", "", "27.4", "missing", "diverges", "missing"]
    assert found["another set"] == ["1.60", "-"] and "## Commands" not in text


def test_our_numbers_are_shown_with_published_ones(tables, tmp_path):
    exp = make_experiment(tmp_path, {"mono": 0.5, "tri": 0.3})
    seconds(exp / "mono", 7200)
    seconds(exp / "tri", 3600)
    (exp / "tri" / "metrics.jsonl").write_text(
        '{"heldout_objective": -2.0}\n{"objective": -1.0}\n{"heldout_objective": -1.25}\n'
    )
    summary = exp / "tri/decode_test/scoring/summary.json"
    of_test = json.loads(summary.read_text())
    summary.write_text(
        json.dumps({**of_test, "subsets": {"noisy": {"chosen": {**of_test["chosen"], "wer": 41.5}}}})
    )
    found = rows(page(read_experiment(tables), exp))
    wer = {
        name: json.loads((exp / name / "decode_test/scoring/summary.json").read_text())["chosen"]["wer"]
        for name in ("mono", "tri")
    }
    assert found["clean"] == ["14.7", f"{wer['mono']:.2f}", "15.1", f"{wer['tri']:.2f}", "", ""]
    assert found["noisy"][2:] == ["27.4", "41.50", "diverges", "missing"]
    assert [found[name][-1] for name in ("hours", "speed-up", "slow-down", "network")] == [
        "",
        "2.00",
        "0.50",
        "1.25",
    ]
    assert found["hours"][:2] == ["3.00", "2.00"]


def test_program_replaces_only_its_own_page(tables, tmp_path, capsys):
    out = tmp_path / "pages" / "RESULTS.md"
    for _ in range(2):
        run_here("compare_published.py", tables, tmp_path / "exp", out, folder="utils")
        assert "0 of 8 numbers are ours, 8 are missing" in capsys.readouterr().out
    out.write_text("my own notes\n")
    with pytest.raises(UserError, match="RESULTS.md.*--force"):
        run_here("compare_published.py", tables, tmp_path / "exp", out, folder="utils")
    assert out.read_text() == "my own notes\n"


@pytest.mark.parametrize(
    "line, message",
    [
        (
            "WER %\tclean\t8 GPUs\t15.0",
            "4 fields, expected TABLE ROW COLUMN PUBLISHED MEASURE, separated by tabs",
        ),
        (
            "WER %\tclean\t8 GPUs\t15.0\tword errors",
            "'word errors' is not a measure; known are 'wer SYSTEM/DECODING",
        ),
        ("WER %\tclean\t8 GPUs\t15.0\tspeed-up tri", "'speed-up tri' is not a measure"),
        (
            "WER %\tclean\t2 GPUs\t15.0\tnone",
            "'clean', '2 GPUs' occurs twice in this table; keep one of the two lines",
        ),
    ],
)
def test_malformed_lines_are_refused(line, message, tables):
    tables.write_text(TABLES + line + "\n")
    with pytest.raises(UserError) as refused:
        read_experiment(tables)
    assert str(refused.value).startswith(f"{tables}:12: ") and message in str(refused.value)


def test_file_without_title_is_refused(tmp_path):
    (tmp_path / "tables.tsv").write_text("T\tr\tc\t1\tnone\n")
    with pytest.raises(
        UserError, match="expected a title, '# TITLE', and lines of TABLE ROW COLUMN PUBLISHED MEASURE"
    ):
        read_experiment(tmp_path / "tables.tsv")
