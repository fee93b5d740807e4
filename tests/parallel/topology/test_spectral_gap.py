"""utils/spectral_gap.py, its picture, and the table in docs/parallel/topologies.md."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from steps_here import run_here

from pyasr.base.errors import UserError
from pyasr.parallel.topology import agreement
from pyasr.parallel.topology.agreement import disagreement_of, models_sent
from pyasr.parallel.topology.topologies import TOPOLOGIES, matrix

PAGE = Path(__file__).parents[3] / "docs" / "parallel" / "topologies.md"


def rows(capsys, *words) -> dict[str, list[str]]:
    """Cells of each topology's row."""
    run_here("spectral_gap.py", *words, folder="utils")
    lines = [
        line.strip("| ").split("|") for line in capsys.readouterr().out.splitlines() if line.startswith("| ")
    ]
    return {name.strip(" *"): [cell.strip() for cell in cells] for name, *cells in lines[1:]}


def test_all_topologies_are_listed(capsys):
    """Columns: sent, contraction, gap, 1 %, exact."""
    output = rows(capsys)
    assert list(output) == list(TOPOLOGIES)
    assert output["butterfly"] == output["base2"] == ["1", "0.0000", "1.0000", "4", "4"]
    assert output["complete"] == ["1.88", "0.0000", "1.0000", "1", "1"]
    assert output["fixed-ring"] == ["2", "0.9493", "0.0507", "89", "never"]
    assert output["random-ring"] == ["2", "0.5375", "0.4625", "8", "never"]


def test_selected_topologies_and_few_ranks(capsys):
    assert list(rows(capsys, "--topology", "pairs, ring", "--ranks", 5)) == ["pairs", "ring"]
    assert "butterfly" not in rows(capsys, "--ranks", 6)
    assert {tuple(cells) for cells in rows(capsys, "--ranks", 1).values()} == {
        ("0", "0.0000", "1.0000", "0", "0")
    }


def test_thousand_ranks_are_supported(capsys):
    """Small gaps are printed with more digits."""
    output = rows(capsys, "--ranks", 1024)
    assert (
        output["ring"] == ["1", "0.99999529", "0.00000471", "978533", "never"]
        and output["hopping-ring"][-1] == "512"
    )


@pytest.mark.parametrize(
    "name",
    [
        name
        for name, topology in TOPOLOGIES.items()
        if not topology.random and name not in ("butterfly", "base2")
    ],
)
def test_thousand_rank_matrices_are_decomposed(name, monkeypatch):
    """By a Fourier transform. The number of mixings, up to a million, is found by bisection."""
    looks = []
    for function in ("_radius", "_is_norm_at_least"):
        whole = getattr(agreement, function)
        monkeypatch.setattr(
            agreement,
            function,
            lambda blocks, *share, whole=whole: (looks.append(blocks.shape), whole(blocks, *share))[1],
        )
    disagreement_of(TOPOLOGIES[name], 1024).mixings_until(0.01)
    assert looks and max(block for _, block, _ in looks) <= 2 and len(looks) < 200


@pytest.mark.parametrize(
    "words, sentence",
    [
        (
            ("--topology", "rign"),
            "--topology 'rign': unknown topology; choose all or some of complete, butterfly, ring",
        ),
        (("--topology", "ring,butterfly", "--ranks", 6), "butterfly mixing takes 2, 4, 8, ... ranks, not 6"),
        (("--ranks", 0), "0 is below the minimum 1"),
        (("--ranks", 1025), "1025 is above the maximum 1024"),
        (("--ranks", "many"), "--ranks"),
        (("--ranks", 65, "--draw", "x.svg"), "cannot draw 65 ranks; use 2 to 64"),
    ],
)
def test_invalid_requests_are_refused(words, sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=re.escape(sentence)):
        run_here("spectral_gap.py", *words, folder="utils")
    assert not list(tmp_path.iterdir())


def test_picture_has_one_line_per_message(tmp_path):
    """For each message of a round. The picture in docs/parallel/topologies.md is up to date."""
    run_here(
        "spectral_gap.py",
        "--topology",
        "butterfly,ring,hopping-ring",
        "--ranks",
        8,
        "--draw",
        tmp_path / "new/x.svg",
        folder="utils",
    )
    assert (tmp_path / "new/x.svg").read_text() == PAGE.with_suffix(".svg").read_text()
    lines = [
        element.attrib
        for element in ElementTree.parse(tmp_path / "new/x.svg").getroot()
        if element.tag.endswith("line")
    ]
    messages = [line for line in lines if line["stroke"] != "#bbb"]
    assert len(messages) == 3 * 3 * 8 and len(lines) == 2 * len(messages)
    third = {
        (int(line["x1"]) // 28 - 1, int(line["x2"]) // 28 - 1)
        for line in messages[:24]
        if line["y1"] == "168"
    }
    w = matrix(TOPOLOGIES["butterfly"].round(8, 2))
    assert third == {
        (source, rank) for rank in range(8) for source in range(8) if w[rank, source] and rank != source
    }


def test_table_of_page_is_current():
    sizes = (4, 8, 16, 32, 64)
    output = dict(re.findall(r"(?m)^\| ([\w-]+) \| ([\d.]+ \| .*, \d+) \|$", PAGE.read_text()))
    assert list(output) == list(TOPOLOGIES)
    for name, row in output.items():
        falls = [disagreement_of(TOPOLOGIES[name], size) for size in sizes]
        cells = [
            f"exact, {fall.exact_after}"
            if fall.exact_after
            else f"{fall.contraction:.3f}, {fall.mixings_until(0.01)}"
            for fall in falls
        ]
        assert row == " | ".join([f"{models_sent(TOPOLOGIES[name], 64):.3g}", *cells])
