"""Published word error rates next to pyasr's on the page of results."""

import json

import pytest
from steps_here import ROOT, run_here
from test_results import make_experiment

from pyasr.base.errors import UserError
from pyasr.report.published_comparison import PublishedWer, published_table, read_published
from pyasr.score.score_dir import read_summary

TABLES = sorted([*ROOT.glob("egs/*/s5/conf/published/*.tsv"), *ROOT.glob("egs/*/s5/conf/published.tsv")])


def test_page_has_our_rates_published_comparison_ones(tmp_path):
    exp = make_experiment(tmp_path, {"mono": 0.4})
    page = tmp_path / "RESULTS.md"
    table = tmp_path / "published.tsv"
    table.write_text(
        "# decoding\tWER\tsource\n\nmono/decode_dev\t12.5\tsome paper\nmono/decode_test\t99.25\tanother\n"
        "tri/decode_test\t9.1\tKaldi\n"
    )
    run_here("collect_results.py", "--published", table, exp, page, folder="utils")
    section = page.read_text().partition("## Comparison with published results")[2].partition("\n## ")[0]
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in section.splitlines()
        if line.startswith("| ")
    ][2:]
    ours = {
        name: read_summary(exp / "mono" / name)["chosen"]["wer"] for name in ("decode_dev", "decode_test")
    }
    assert rows == [
        [
            "mono/decode_dev",
            "12.50",
            f"{ours['decode_dev']:.2f}",
            f"{ours['decode_dev'] - 12.5:+.2f}",
            "some paper",
        ],
        [
            "mono/decode_test",
            "99.25",
            f"{ours['decode_test']:.2f}",
            f"{ours['decode_test'] - 99.25:+.2f}",
            "another",
        ],
        ["tri/decode_test", "9.10", "-", "-", "Kaldi"],
    ]
    assert 30 < ours["decode_test"] < 60
    run_here("collect_results.py", exp, page, folder="utils")
    assert "Comparison with published results" not in page.read_text()


def test_subsets_of_a_set(tmp_path):
    summary = {
        "data": "d",
        "signature": "s",
        "best": {},
        "chosen": {"wer": 20.0},
        "subsets": {"swbd": {"chosen": {"wer": 15.25}}},
    }
    scoring = tmp_path / "dnn" / "decode_eval2000" / "scoring"
    scoring.mkdir(parents=True)
    (scoring / "summary.json").write_text(json.dumps(summary))
    table = published_table(
        tmp_path,
        [
            PublishedWer(f"dnn/decode_eval2000{subset}", 14.7, "a paper")
            for subset in ("", " swbd", " callhm")
        ],
    )
    cells = [
        tuple(cell.strip() for cell in line.split("|")[1:5])
        for line in table.splitlines()
        if line.startswith("| dnn")
    ]
    assert cells == [
        ("dnn/decode_eval2000", "14.70", "20.00", "+5.30"),
        ("dnn/decode_eval2000 swbd", "14.70", "15.25", "+0.55"),
        ("dnn/decode_eval2000 callhm", "14.70", "-", "-"),
    ]


@pytest.mark.parametrize(
    "line, message",
    [
        (
            "a/decode 12.5 paper",
            ":2: 'a/decode 12.5 paper' is not 'DECODING WER SOURCE', separated by tabs; correct the line",
        ),
        ("a/decode\t12.5", "is not 'DECODING WER SOURCE'"),
        ("a/decode\tlow\tpaper", "is not 'DECODING WER SOURCE'"),
        ("b/decode\t3\tpaper", ":2: 'b/decode' occurs twice; keep one of the two lines"),
    ],
)
def test_invalid_lines_are_refused(line, message, tmp_path):
    path = tmp_path / "published.tsv"
    path.write_text(f"b/decode\t1\tpaper\n{line}\n")
    with pytest.raises(UserError, match=message):
        read_published(path)


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.relative_to(ROOT / "egs").as_posix())
def test_recipe_tables_are_valid(path):
    found = read_published(path)
    assert found and all(0 < row.wer < 100 and "/decode_" in row.decoding and row.source for row in found)


def test_librispeech_table_equals_kaldi_results():
    found = {
        row.decoding: row.wer for row in read_published(ROOT / "egs/librispeech/s5/conf/published/full.tsv")
    }
    assert found["tri4b/decode_test_other_fglarge"] == 30.33 and found["tri6b/decode_dev_clean"] == 10.38
    assert (
        found["dnn_100/decode_test_clean_fglarge"] == 6.59
        and found["lfmmi_960/decode_test_clean_fglarge"] == 3.80
    )
