"""Held-out parts of telephone corpora are scored by the rules of the evaluation sets."""

from pathlib import Path

import pytest
from recorded_calls import ROOT, calls, recorded_recipe
from steps_here import run_here

from pyasr.base.errors import UserError
from pyasr.corpora.held_out import stm_text
from pyasr.data.tables.datadir import DataDir, write_data_dir
from pyasr.data.transcripts.ctm import CtmLine
from pyasr.data.transcripts.glm import read_glm
from pyasr.data.transcripts.stm import read_stm
from pyasr.score.filters import TextFilter
from pyasr.score.hub5.ctm_elements import ctm_entries
from pyasr.score.hub5.scored_words import scored_lines
from pyasr.score.hub5.scorer import StmScorer
from pyasr.score.text_scorer import TextScorer

GLM = Path(__file__).parents[1] / "fixtures/hub5/rules.glm"
LOCAL = "egs/swbd/s5/local"
TEXTS = {
    "sw02001-A_000098-000156": "um yeah i wen- to i._b._m.",
    "sw02001-A_000156-000300": "[noise]",
    "sw02001-B_000010-000090": "uh-huh [laughter]",
}


@pytest.fixture
def data(tmp_path) -> DataDir:
    segments = {name: f"{name[:9]} {int(name[10:16]) / 100} {int(name[17:]) / 100}" for name in TEXTS}
    (tmp_path / "dev").mkdir()
    write_data_dir(
        tmp_path / "dev",
        {
            "wav.scp": {"sw02001-A": "/x.sph", "sw02001-B": "/x.sph"},
            "segments": segments,
            "utt2spk": {name: name[:9] for name in TEXTS},
            "reco2file_and_channel": {"sw02001-A": "sw02001 A", "sw02001-B": "sw02001 B"},
            "text": TEXTS,
        },
    )
    return DataDir(tmp_path / "dev")


def hypothesis(*words: str) -> list[CtmLine]:
    """Words of side A, 0.05 s each, from 1 s on, and the words of side B."""
    side_a = [CtmLine("sw02001", "A", 1 + i / 20, 0.05, word, 1.0) for i, word in enumerate(words)]
    return [*side_a, CtmLine("sw02001", "B", 0.2, 0.1, "uh-huh", 1.0)]


def test_stm_of_data_directory(data, capsys):
    run_here("make_stm.py", "--glm", GLM, data.path, folder=LOCAL)
    assert (data.path / "stm").read_text().splitlines() == [
        "sw02001 A sw02001-A 0.98 1.56  (um) yeah i (wen-) to i b m",
        "sw02001 A sw02001-A 1.56 3.00",
        "sw02001 B sw02001-B 0.10 0.90  uh-huh",
    ]
    assert (data.path / "glm").read_bytes() == GLM.read_bytes()
    run_here("make_stm.py", "--glm", GLM, data.path, folder=LOCAL)
    assert "stm written" in (report := capsys.readouterr().out) and report.endswith("stm is up to date\n")
    (data.path / "segments").unlink()
    with pytest.raises(UserError, match="dev: no segments, which an stm needs for its times"):
        run_here("make_stm.py", data.path, folder=LOCAL)


def test_malformed_glm_is_not_copied(data, tmp_path):
    rules = tmp_path / "bad.glm"
    rules.write_text(GLM.read_text() + "UHM  %HESITATION / [ ] __ [ ]\n")
    with pytest.raises(UserError, match=f"^{rules}:[0-9]+: .* has no '=>'"):
        run_here("make_stm.py", "--glm", rules, data.path, folder=LOCAL)
    assert not (data.path / "glm").exists() and not (data.path / "stm").exists()


def test_noises_and_hesitations_are_not_scored(data):
    """Otherwise they would influence the LM weight, although no test set scores them."""
    run_here("make_stm.py", "--glm", GLM, data.path, folder=LOCAL)
    scorer = StmScorer(read_stm(data.path / "stm"), read_glm(GLM))
    for words in (
        ("yeah", "i", "to", "i._b._m."),
        ("um", "[noise]", "yeah", "i", "we-", "uh", "to", "i._b._m.", "[laughter]"),
    ):
        assert scorer.score(ctm_entries(scored_lines(hypothesis(*words)))).total.errors == 0
    assert scorer.score(ctm_entries(scored_lines(hypothesis("yeah", "to", "i._b._m.")))).total.dele == 1
    plain = TextScorer(data, TextFilter()).score(
        {name: text.replace("[noise]", "") for name, text in TEXTS.items()}
    )
    assert plain.total.errors == 1


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("uh i- [noise] t._v.s <unk> hmm", "(uh) (i-) t v's hmm"),
        ("[laughter]", ""),
        ("", ""),
        ("UM Huh well", "(UM) (Huh) well"),
    ],
)
def test_stm_texts(words, text):
    assert stm_text(words) == text


@pytest.mark.parametrize("name", ["swbd", "fisher_swbd"])
def test_recipes_score_heldout_part_with_rules_of_first_test_set(name, tmp_path):
    recipe = recorded_recipe(tmp_path / "s5", ROOT / "egs" / name / "s5")
    commands = calls(recipe, "run.sh", "--rt03", "/r", "--stop-stage", "4")
    assert ["local/make_stm.py", "--glm", "./data/rt03/glm", "./data/train_dev"] in commands
