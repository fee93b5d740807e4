"""utils/recipe_decoding.sh: commands by which recipes decode, score and rescore their sets."""

import pytest
from recorded_calls import calls, with_recorded_programs

HEAD = """#!/usr/bin/env bash
. utils/recipe.sh
. utils/recipe_decoding.sh
nj=4    # jobs
parse_recipe_options "$@"
. ./path.sh
. ./cmd.sh
"""
JOBS = ["--nj", "4", "--cmd", "run.pl"]


@pytest.fixture
def commands(tmp_path):
    """Function that returns the commands of a recipe with this text."""
    with_recorded_programs(tmp_path)

    def run(text):
        (tmp_path / "run.sh").write_text(HEAD + text)
        return calls(tmp_path, "run.sh")

    return run


def test_set_uses_parameters_of_named_set(commands):
    text = """
decode_sets="clean other test:clean far:other"
decode decode exp/m exp/m/graph _hires --beam 9
"""
    options = ["--beam", "9", "--model-dir", "exp/m"]
    decoded = [
        ["steps/decode.py", *JOBS, *options, "exp/m/graph", f"data/{name}_hires", f"exp/m/decode_{name}"]
        for name in ("clean", "other", "test", "far")
    ]
    sources = {
        "clean": [],
        "other": [],
        "test": ["--params-from", "exp/m/decode_clean"],
        "far": ["--params-from", "exp/m/decode_other"],
    }
    scored = [
        ["steps/score.py", *JOBS, *chosen, f"data/{name}_hires", "data/lang_test", f"exp/m/decode_{name}"]
        for name, chosen in sources.items()
    ]
    assert commands(text) == decoded + scored


def test_recipe_variables_change_commands(commands):
    text = """
data=d decode_nj=1 decode_opts="--beam 11 --max-active 500" score_lang=d/words score_opts="--max-lmwt 30"
make_lattices decode_fmllr exp/m exp/g ""
score exp/m "" .si --decode-mbr true
"""
    jobs = ["--nj", "1", "--cmd", "run.pl"]
    options = ["--beam", "11", "--max-active", "500", "--model-dir", "exp/m"]
    lattices = [
        ["steps/decode_fmllr.py", *jobs, *options, "exp/g", f"d/{name}", f"exp/m/decode_{name}"]
        for name in ("dev", "test")
    ]
    scores = ["--max-lmwt", "30", "--decode-mbr", "true"]
    assert commands(text) == [
        *lattices,
        ["steps/score.py", *jobs, *scores, "d/dev", "d/words", "exp/m/decode_dev.si"],
        [
            "steps/score.py",
            *jobs,
            *scores,
            "--params-from",
            "exp/m/decode_dev.si",
            "d/test",
            "d/words",
            "exp/m/decode_test.si",
        ],
    ]


def test_rescored_lattices_have_own_parameters(commands):
    text = """
decode_sets="dev test:dev"
rescore lm_rescore exp/m data/lang_small data/lm/large _fmllr _large
"""
    rescored = [
        [
            "steps/lm_rescore.py",
            *JOBS,
            "data/lang_small",
            "data/lm/large",
            f"data/{name}_fmllr",
            f"exp/m/decode_{name}",
            f"exp/m/decode_{name}_large",
        ]
        for name in ("dev", "test")
    ]
    chosen = ["--params-from", "exp/m/decode_dev_large"]
    assert commands(text) == [
        *rescored,
        ["steps/score.py", *JOBS, "data/dev_fmllr", "data/lang_test", "exp/m/decode_dev_large"],
        ["steps/score.py", *JOBS, *chosen, "data/test_fmllr", "data/lang_test", "exp/m/decode_test_large"],
    ]


def test_single_set_uses_its_own_parameters(commands):
    assert commands("decode_sets=dev_clean_2\nscore exp/m ''\n") == [
        ["steps/score.py", *JOBS, "data/dev_clean_2", "data/lang_test", "exp/m/decode_dev_clean_2"]
    ]
