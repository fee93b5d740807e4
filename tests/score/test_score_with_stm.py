"""steps/score.py on a data directory with an stm."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from spoken_toys import SCALE, System, make_system
from steps_here import run_here
from stm_toys import MISSING, our_rows, rows_of_sctk

from pyasr.base.errors import UserError
from pyasr.data.tables.datadir import write_data_dir
from pyasr.data.transcripts.ctm import CtmLine
from pyasr.decode.lattices.determinize import determinize
from pyasr.decode.lattices.lattice import best_path
from pyasr.decode.lattices.lattice_io import write_lattices

PLACES = {
    "a-1": ("en_1 A", 1.0),
    "a-2": ("en_1 A", 2.0),
    "b-1": ("en_1 B", 0.25),
    "c-1": ("sw_2 A", 0.5),
    "c-2": ("sw_2 A", 3.0),
}
NUM_FRAMES, GLM = 80, "w1 => {W1 / W2 W3} / [ ] __ [ ]\nw4 => W5 W6\n"
RANGE = ("--min-lmwt", 4, "--max-lmwt", 6, "--word-ins-penalties", "0.0,0.5")


@pytest.fixture(scope="module")
def system(tmp_path_factory) -> System:
    return make_system(tmp_path_factory.mktemp("spoken"))


@pytest.fixture(scope="module")
def exp(system, tmp_path_factory) -> Path:
    """Decoded utterances of three channels. The stm has the best words of some, other words for the rest, and
    a fourth channel."""
    root = tmp_path_factory.mktemp("exp")
    lattices = {
        utt: determinize(system.lattice(seed, NUM_FRAMES), 8.0, SCALE)[0] for seed, utt in enumerate(PLACES)
    }
    text = {
        utt: " ".join(map(system.lang.words.symbol, best_path(lattice, SCALE).words))
        for utt, lattice in lattices.items()
    }
    for name in ("data", "decode"):
        (root / name).mkdir()
    write_data_dir(
        root / "data",
        {
            "text": text,
            "utt2spk": {utt: utt[0] for utt in text},
            "segments": {
                utt: f"{side.replace(' ', '-')} {begin} {begin + NUM_FRAMES / 100}"
                for utt, (side, begin) in PLACES.items()
            },
            "reco2file_and_channel": {side.replace(" ", "-"): side for side, _ in PLACES.values()},
        },
    )
    rows = [
        (*place, text[utt].upper() if i % 2 else "W1 (W3) W7")
        for i, (utt, place) in enumerate(PLACES.items())
    ]
    stm = [
        f"{side} {side.replace(' ', '_')} {begin:.2f} {begin + NUM_FRAMES / 100:.2f} <O,{side[:2]}> {spoken}"
        for side, begin, spoken in rows
    ]
    (root / "data/stm").write_text("\n".join([*stm, "sw_2 B sw_2_B 0.00 1.00 <O,sw> W0 W1"]) + "\n")
    (root / "data/glm").write_text(f";; rules\n* case_sensitive = 'F'\n{GLM}")
    (root / "data/stm_subsets").write_text("callhm ^en_\nswbd ^sw_\n")
    (root / "decode/num_jobs").write_text("2\n")
    for job in (1, 2):
        write_lattices(root / f"decode/lat.{job}.gz", sorted(lattices.items())[job - 1 :: 2])
    return root


def score(system: System, root: Path, *options, decode: str = "decode") -> Path:
    model = () if "--stm" in options else ("--model-dir", system.lang.path.parent / "model")
    run_here("score.py", "--nj", 2, *RANGE, *model, *options, root / "data", system.lang.path, root / decode)
    return root / decode / ("scoring_mbr" if "--decode-mbr" in options else "scoring")


@pytest.fixture(scope="module")
def scored(system, exp) -> Path:
    return score(system, exp)


def ctm_at(system: System, root: Path, point: str, decode_mbr: str) -> list[CtmLine]:
    """Output of steps/get_ctm.py at a point, with posteriors so sharp that times are those of the best
    path."""
    weight, penalty = point.split("_")
    options = {
        "--lmwt": weight,
        "--word-ins-penalty": penalty,
        "--decode-mbr": decode_mbr,
        "--posterior-scale": 0.5 if decode_mbr == "true" else 1e4,
        "--model-dir": system.lang.path.parent / "model",
    }
    run_here(
        "get_ctm.py",
        *(word for option in options.items() for word in option),
        root / "data",
        system.lang.path,
        root / "decode",
        root / f"ctm_{decode_mbr}_{point}",
    )
    return [CtmLine.parse(line) for line in (root / f"ctm_{decode_mbr}_{point}/ctm").read_text().splitlines()]


@pytest.mark.parametrize("decode_mbr", ["false", "true"])
def test_words_and_times_equal_get_ctm(system, exp, scored, decode_mbr):
    scoring = score(system, exp, "--decode-mbr", "true") if decode_mbr == "true" else scored
    found = {
        path.stem: [CtmLine.parse(line) for line in path.read_text().splitlines()]
        for path in (scoring / "hyp").iterdir()
    }
    assert set(found) == {f"{weight}_{penalty}" for weight in (4, 5, 6) for penalty in (0.0, 0.5)}
    for point in ("4_0.0", "6_0.5"):
        expected = [line for line in ctm_at(system, exp, point, decode_mbr) if line.word != "<unk>"]
        assert [replace(line, confidence=1.0) for line in found[point]] == [
            replace(line, confidence=1.0) for line in expected
        ]
        assert len(expected) > 10
    assert len({str(lines) for lines in found.values()}) > 1


def test_counts_equal_those_of_ctm(exp, scored):
    """At all points, and for all subsets."""
    for path in (scored / "hyp").iterdir():
        wer = (scored / f"wer_{path.stem}").read_text().split()
        _, words, _, sub, dele, ins, _ = our_rows(exp / "data/stm", path, exp / "data/glm")["sum"]
        assert wer[3:6] == [str(sub + dele + ins), "/", f"{words},"]
        assert (exp / "decode" / f"wer_{path.stem}").read_text() == (scored / f"wer_{path.stem}").read_text()
    summary = json.loads((scored / "summary.json").read_text())
    parts = summary["subsets"]
    assert list(parts) == ["callhm", "swbd"] and all(
        part["best"]["errors"] <= part["chosen"]["errors"] for part in parts.values()
    )
    assert sum(part["chosen"]["errors"] for part in parts.values()) == summary["chosen"]["errors"]
    assert summary["chosen"]["missing"] == ["sw_2_b-000"] and summary["chosen"]["num_speakers"] == 4
    assert (
        summary["signature"].startswith("wer|stm:")
        and "|glm:glm@" in summary["signature"]
        and "|drop:noises," in summary["signature"]
    )


@pytest.mark.skipif(bool(MISSING), reason=MISSING)
def test_counts_equal_sctk(exp, scored, tmp_path):
    """Without the channel that has no words, because sclite refuses it."""
    stm = tmp_path / "stm"
    stm.write_text(
        "".join(
            f"{line}\n"
            for line in (exp / "data/stm").read_text().splitlines()
            if not line.startswith("sw_2 B")
        )
    )
    for path in (scored / "hyp").iterdir():
        assert our_rows(stm, path, exp / "data/glm") == rows_of_sctk(stm, path, exp / "data/glm", tmp_path)


def test_stm_scoring_files(exp, scored):
    output = (scored / "per_subset").read_text().split()
    assert {"SUBSET", "callhm", "swbd", "<O>", "<en>"} <= set(output)
    assert [path.name for path in sorted((exp / "decode").glob("best_wer*"))] == [
        "best_wer",
        "best_wer_callhm",
        "best_wer_swbd",
    ]
    assert "(subset swbd: chosen on this set) wer|stm:" in (exp / "decode/best_wer_swbd").read_text()
    assert (
        "sw_2_b-000 #csid 0 0 0 2" in (scored / "per_utt").read_text()
        and "sw_2_B" in (scored / "per_spk").read_text()
    )


def test_results_page_has_subsets(exp, scored, tmp_path):
    run_here("collect_results.py", exp, tmp_path / "RESULTS.md", folder="utils")
    page = (tmp_path / "RESULTS.md").read_text()
    rows = [line.split("|") for line in page.splitlines() if "callhm" in line or "swbd" in line]
    summary = json.loads((scored / "summary.json").read_text())["subsets"]
    assert "## Subsets" in page and [row[1].strip() for row in rows[:2]] == ["decode"] * 2
    assert [row[4].strip() for row in rows[:2]] == [
        f"{summary[row[2].strip()]['chosen']['wer']:.2f}" for row in rows[:2]
    ]


def test_parameters_come_from_other_set(system, exp, scored, tmp_path):
    other = copy_of(exp, tmp_path)
    scoring = score(system, other, "--params-from", exp / "decode")
    ours, theirs = (json.loads((place / "summary.json").read_text()) for place in (scoring, scored))
    assert (
        ours["chosen"]["point"] == theirs["chosen"]["point"]
        and ours["chosen"]["errors"] == theirs["chosen"]["errors"]
    )
    lines = (other / "decode/best_wer_swbd").read_text().splitlines()
    assert (
        len(lines) == 2
        and f"(subset swbd: chosen on {exp}/decode)" in lines[0]
        and "subset swbd: best on this set" in lines[1]
    )


def test_repeated_scoring_is_up_to_date(system, exp, scored, tmp_path, capsys):
    other = copy_of(exp, tmp_path)
    score(system, other)
    score(system, other)
    assert "up to date" in capsys.readouterr().out
    for name, content in (
        ("stm_subsets", "callhm ^en_\n"),
        ("glm", ";; one rule\nUH => %HESITATION / [ ] __ [ ]\n"),
    ):
        (other / "data" / name).write_text(content)
        scoring = score(system, other)
        assert "up to date" not in capsys.readouterr().out
    assert list(json.loads((scoring / "summary.json").read_text())["subsets"]) == ["callhm"]
    assert not (other / "decode/best_wer_swbd").exists()


def copy_of(exp: Path, root: Path) -> Path:
    """Copy of data and lattices without scores."""
    shutil.copytree(exp / "data", root / "data")
    scores = ["scoring", "scoring_mbr", *(path.name for path in (exp / "decode").glob("*wer*"))]
    shutil.copytree(exp / "decode", root / "decode", ignore=lambda *_: scores)
    return root


def test_transcripts_are_scored_on_request(system, exp, tmp_path):
    summary = json.loads(
        (score(system, copy_of(exp, tmp_path), "--stm", "false") / "summary.json").read_text()
    )
    assert (
        "case:lower" in summary["signature"]
        and summary["chosen"]["num_utterances"] == 5
        and "subsets" not in summary
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--drop", "uh"), "--case and --drop have no effect with .*data/stm"),
        (("--stm", "false", "--model-dir", "x"), "--model-dir has no effect without an stm"),
    ],
)
def test_unused_options_are_refused(system, exp, options, message):
    with pytest.raises(UserError, match=message):
        score(system, exp, *options)
