"""steps/score.py on lattices whose best words at each LM weight are known: 'yes' wins where
graph + acoustic / lmwt < 0."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from lattices import choice, make_data, make_decode_dir, make_lang
from steps_here import run_here

from pyasr.base.errors import UserError
from pyasr.decode.lattices.lattice import from_arcs
from pyasr.score.score_dir import PointOptions, best_point, scoring_dir

ROOT = Path(__file__).parents[2]


def score(*words, ok=True):
    run = subprocess.run(
        [sys.executable, ROOT / "steps/score.py", "--nj", "2", *map(str, words)],
        capture_output=True,
        text=True,
    )
    assert (run.returncode == 0) == ok, run.stdout + run.stderr
    return run.stdout + run.stderr


@pytest.fixture(scope="module")
def scored(tmp_path_factory):
    """Dev chooses LM weight 12 or less, because the best word changes at 12.5. Test is better at 9 or
    less."""
    root = tmp_path_factory.mktemp("score")
    lang = make_lang(root / "lang")
    dev = make_data(root / "dev", {"a-1": "yes yes", "a-2": "yes", "b-1": "no"})
    test = make_data(root / "test", {"c-1": "yes", "c-2": "no no", "d-1": "yes well"})
    wide, narrow = choice(1, 1.0, -12.5), choice(1, 1.0, -9.5)
    make_decode_dir(
        root / "exp/tri/decode_dev", {"a-1": choice(2, 1.0, -12.5), "a-2": wide, "b-1": choice(1, 1.0, -10.5)}
    )
    make_decode_dir(root / "exp/tri/decode_test", {"c-1": narrow, "c-2": choice(2, 1.0, 0.0)}, num_jobs=1)
    score(dev, lang, root / "exp/tri/decode_dev")
    report = score("--params-from", root / "exp/tri/decode_dev", test, lang, root / "exp/tri/decode_test")
    return root, report


def summary(root, name):
    return json.loads((root / f"exp/tri/{name}/scoring/summary.json").read_text())


def test_best_point_is_chosen_on_dev(scored):
    root, _ = scored
    chosen = summary(root, "decode_dev")["chosen"]
    assert chosen["point"] == [11, 0.0] and chosen["errors"] == 0
    files = list((root / "exp/tri/decode_dev").glob("wer_*"))
    assert len(files) == 33
    by_hand = {path.name: float(path.read_text().split()[1]) for path in files}
    assert (
        by_hand["wer_11_0.0"] == min(by_hand.values()) == 0
        and by_hand["wer_13_0.0"] == 75
        and by_hand["wer_7_1.0"] == 25
    )


def test_empty_decoding_is_refused():
    with pytest.raises(UserError, match="no utterance was decoded, so there is nothing to score"):
        best_point({})


def test_scores_of_other_toolkit_are_kept(scored, tmp_path):
    """Files of pyasr are replaced."""
    root, _ = scored
    shutil.copytree(root / "exp/tri/decode_dev", tmp_path / "decode")
    theirs, ours = tmp_path / "decode/wer_20", tmp_path / "decode/wer_40_9.0"
    theirs.write_text("%WER 12.00 [ 3 / 25, 1 ins, 1 del, 1 sub ]\n")
    shutil.copyfile(tmp_path / "decode/wer_7_0.0", ours)
    report = score("--force", root / "dev", root / "lang", tmp_path / "decode")
    assert not theirs.exists() and not ours.exists() and "wer_20 belongs to another toolkit" in report
    assert [path.read_text().split()[1] for path in (tmp_path / "decode/.backup").iterdir()] == ["12.00"]


def test_dev_point_and_best_point_of_test_are_reported(scored):
    root, report = scored
    chosen, best = (summary(root, "decode_test")[name] for name in ("chosen", "best"))
    assert chosen["point"] == [11, 0.0] and best["point"] == [7, 0.0]
    assert (chosen["errors"], best["errors"], chosen["words"]) == (3, 2, 5)
    lines = (root / "exp/tri/decode_test/best_wer").read_text().splitlines()
    assert (
        f"chosen on {root}/exp/tri/decode_dev" in lines[0]
        and "best on this set: for comparison only" in lines[1]
    )
    assert all("wer|case:lower|drop:none|align:sclite|v1" in line and "95%" in line for line in lines)
    assert (
        chosen["missing"] == ["d-1"]
        and "1 utterance(s) have no hypothesis and count as deleted: d-1" in report
    )


@pytest.mark.parametrize(
    "lmwt, penalty, of_scored, of_another",
    [
        (None, None, (11, 0.5), None),
        (12, None, (12, 0.5), (12, 0.0)),
        (None, 1.0, (11, 1.0), None),
        (12, 1.0, (12, 1.0), (12, 1.0)),
    ],
)
def test_given_point_overrides_chosen_one(tmp_path, lmwt, penalty, of_scored, of_another):
    """The scoring from which parameters are taken is an input."""
    path = scoring_dir(tmp_path / "scored") / "summary.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"data": "", "signature": "", "best": {}, "chosen": {"point": [11, 0.5]}}))
    options = PointOptions(lmwt, penalty)
    assert options.of(path.parents[1]) == of_scored and options.inputs(path.parents[1]) == (
        [path] if None in (lmwt, penalty) else []
    )
    if of_another:
        assert options.of(tmp_path / "another") == of_another and options.inputs(tmp_path / "another") == []
    else:
        with pytest.raises(UserError, match="score that directory first with steps/score.py, or give --lmwt"):
            options.of(tmp_path / "another")


def test_repeated_scoring_is_up_to_date(scored):
    root, _ = scored
    assert "up to date" in score(root / "dev", root / "lang", root / "exp/tri/decode_dev")


def test_intervals_do_not_depend_on_jobs(scored, tmp_path):
    root, _ = scored
    lattices = {"a-1": choice(2, 1.0, -12.5), "a-2": choice(1, 1.0, -12.5), "b-1": choice(1, 1.0, -10.5)}
    other = make_decode_dir(tmp_path / "decode", lattices, num_jobs=3)
    score("--nj", "1", root / "dev", root / "lang", other)
    mine = json.loads((other / "scoring/summary.json").read_text())
    assert mine == summary(root, "decode_dev")


def test_hypothesis_without_reference_is_refused(scored, tmp_path):
    root, _ = scored
    other = make_decode_dir(tmp_path / "decode", {"zz-1": choice(1, 1.0, 0.0)}, num_jobs=1)
    assert "utterance 'zz-1' has no reference" in score(root / "dev", root / "lang", other, ok=False)
    assert not (other / "scoring").exists() and not (other / "best_wer").exists()


def test_insertions_into_empty_transcripts_count(scored, tmp_path):
    """Also after programs that copy and repair data directories."""
    root, _ = scored
    data = make_data(tmp_path / "data", {"a-1": "yes", "a-2": "", "b-1": ""})
    (data / "wav.scp").write_text("".join(f"{utt} {utt}.wav\n" for utt in ("a-1", "a-2", "b-1")))
    run_here("fix_data_dir.py", "--audio", "no", data, folder="utils")
    run_here("copy_data_dir.py", data, tmp_path / "copy", folder="utils")
    run_here("split_data_dir.py", tmp_path / "copy", 2, folder="utils")
    run_here(
        "combine_data.py",
        tmp_path / "both",
        tmp_path / "copy/split2/1",
        tmp_path / "copy/split2/2",
        folder="utils",
    )
    run_here("subset_data_dir.py", "--first", 3, tmp_path / "both", tmp_path / "chosen", folder="utils")
    decode = make_decode_dir(
        tmp_path / "decode", {"a-1": choice(1, 1.0, -100.0), "a-2": choice(2, 1.0, 0.0)}, num_jobs=1
    )
    run_here("score.py", tmp_path / "chosen", root / "lang", decode)
    chosen = json.loads((decode / "scoring/summary.json").read_text())["chosen"]
    assert (chosen["errors"], chosen["ins"], chosen["words"], chosen["num_utterances"]) == (2, 2, 1, 3)
    assert "a-2 #csid 0 0 2 0" in (decode / "scoring/per_utt").read_text()


def test_transcript_without_speaker_is_refused(scored, tmp_path):
    root, _ = scored
    data = make_data(tmp_path / "data", {"a-1": "yes"})
    (data / "text").write_text("a-1 yes\nz-1 no\n")
    decode = make_decode_dir(tmp_path / "decode", {"a-1": choice(1, 1.0, 0.0)}, num_jobs=1)
    assert f"{data}/utt2spk: no line for utterance 'z-1' of text (1 such)" in score(
        data, root / "lang", decode, ok=False
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        *(
            (["--word-ins-penalties", f"0,{word}"], f"'0,{word}' is not a list of numbers")
            for word in ("x", "nan", "-inf", "")
        ),
        (["--min-lmwt", "12", "--max-lmwt", "9"], "--min-lmwt 12 is greater than --max-lmwt 9"),
        (
            ["--params-from", "nowhere"],
            "nowhere/scoring/summary.json: no such file; score that directory first",
        ),
        (["--nj", "abc"], "--nj: 'abc' is not a whole number"),
    ],
)
def test_invalid_options_are_refused(words, message, scored, tmp_path):
    root, _ = scored
    decode = make_decode_dir(tmp_path / "decode", {"a-1": choice(1, 1.0, 0.0)}, num_jobs=1)
    assert message in score(*words, root / "dev", root / "lang", decode, ok=False)


def test_missing_and_damaged_lattices_are_refused(scored, tmp_path):
    root, _ = scored
    assert "num_jobs: missing or not a number; decode with steps/decode.py" in score(
        root / "dev", root / "lang", tmp_path / "nowhere", ok=False
    )
    decode = make_decode_dir(
        tmp_path / "decode", {"a-1": choice(1, 1.0, 0.0), "a-2": choice(9, 1.0, 0.0)}, num_jobs=1
    )
    content = (decode / "lat.1.gz").read_bytes()
    (decode / "lat.1.gz").write_bytes(content[:-20])
    assert "truncated" in score(root / "dev", root / "lang", decode, ok=False)
    (decode / "lat.1.gz").unlink()
    assert "lat.1.gz: no such file; decode again" in score(root / "dev", root / "lang", decode, ok=False)


def test_words_of_other_lang_directory_are_refused(scored, tmp_path):
    root, _ = scored
    (tmp_path / "lang").mkdir()
    (tmp_path / "lang/words.txt").write_text("<eps> 0\nyes 1\n")
    decode = make_decode_dir(tmp_path / "decode", {"a-1": choice(1, 1.0, 0.0)}, num_jobs=1)
    assert "no word with id 2" in score(root / "dev", tmp_path / "lang", decode, ok=False)


def test_minimum_bayes_risk_words(scored, tmp_path):
    """Three paths with posteriors 0.4, 0.3, 0.3: 'yes yes' is the best one, but most have 'yes' first and
    'no' second."""
    root, _ = scored
    costs = -np.log([0.7, 0.3, 4 / 7, 3 / 7, 1.0])
    lattice = from_arcs(
        0,
        [0, 0, 1, 1, 2],
        [1, 2, 3, 3, 3],
        [1] * 5,
        [1, 3, 1, 2, 2],
        costs,
        np.zeros(5),
        [np.inf] * 3 + [0.0],
    )
    data = make_data(tmp_path / "data", {"a-1": "yes no"})
    decode = make_decode_dir(tmp_path / "decode", {"a-1": lattice}, num_jobs=1)
    run_here("score.py", data, root / "lang", decode)
    run_here("score.py", "--decode-mbr", "true", data, root / "lang", decode)
    assert (decode / "scoring/hyp/10_0.0.txt").read_text() == "a-1 yes yes\n"
    assert (decode / "scoring_mbr/hyp/10_0.0.txt").read_text() == "a-1 yes no\n"
    assert json.loads((decode / "scoring_mbr/summary.json").read_text())["chosen"]["errors"] == 0
    other = make_decode_dir(tmp_path / "other", {"a-1": lattice}, num_jobs=1)
    with pytest.raises(UserError, match="score that directory first with steps/score.py --decode-mbr true"):
        run_here("score.py", "--decode-mbr", "true", "--params-from", other, data, root / "lang", decode)
