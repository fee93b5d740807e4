"""Steps whose output would replace their input are refused before any change, even with --force."""

from pathlib import Path

import pytest
from gmm_corpus import write_corpus
from steps_here import run_here
from toy_language import random_ngrams, write_arpa_text

from pyasr.base.cli import step
from pyasr.base.errors import UserError
from pyasr.base.outputs.fingerprint import DONE
from pyasr.base.outputs.output import stage_output

TRAINING = (
    "--nj",
    1,
    "--num-iters",
    1,
    "--num-gauss",
    20,
    "--max-iter-inc",
    1,
    "--deltas",
    0,
    "--beam",
    50,
    "--retry-beam",
    200,
)
DICT = {
    "lexicon.txt": "<unk> SPN\nw1 A\n",
    "silence_phones.txt": "SIL\nSPN\n",
    "nonsilence_phones.txt": "A\n",
    "optional_silence.txt": "SIL\n",
}

# program, words before the directories, names of the directories (OUT is the last one)
PROGRAMS = [
    ("steps/train_mono.py", (), ("data", "lang")),
    ("steps/train_deltas.py", (), ("data", "lang", "ali")),
    ("steps/train_lda_mllt.py", (), ("data", "lang", "ali")),
    ("steps/align_si.py", (), ("data", "lang", "mono")),
    ("steps/build_chain_tree.py", (), ("data", "lang", "ali")),
    ("steps/get_train_ctm.py", (), ("data", "lang", "ali")),
    ("steps/get_prons.py", (), ("data", "lang", "ali")),
    ("steps/find_bad_utts.py", (), ("data", "lang", "mono")),
    ("steps/train_ivector_extractor.py", (), ("data",)),
    ("utils/make_graph.py", (), ("lang", "mono")),
    ("utils/make_grammar.py", (), ("lang", "lm/lm.arpa")),
    ("utils/prepare_lang.py", (), ("dict", "<unk>")),
    ("utils/copy_data_dir.py", (), ("data",)),
    ("utils/subset_data_dir.py", ("--first", 2), ("data",)),
    ("utils/train_lm.py", (), ("data/text", "dict/lexicon.txt")),
]
TABLE = [
    (program, flags, inputs, place)
    for program, flags, inputs in PROGRAMS
    for place in inputs
    if place != "<unk>"
]


@pytest.fixture(scope="module")
def exp(tmp_path_factory) -> Path:
    """Inputs of all kinds with done-files, so that --force would replace them."""
    folder = tmp_path_factory.mktemp("exp")
    data, lang = write_corpus(folder, num_utterances=8)
    run_here("train_mono.py", *TRAINING, data, lang, folder / "mono", threads=True)
    run_here(
        "align_si.py",
        "--nj",
        1,
        "--beam",
        50,
        "--retry-beam",
        200,
        data,
        lang,
        folder / "mono",
        folder / "ali",
    )
    (folder / "dict").mkdir()
    for name, content in DICT.items():
        (folder / "dict" / name).write_text(content)
    (folder / "lm").mkdir()
    write_arpa_text(folder / "lm" / "lm.arpa", random_ngrams(0, ["w1", "w2"]))
    for name in ("data", "lang", "dict", "lm"):
        (folder / name / DONE).write_text('{"options": {}, "inputs": {}}')
    return folder


def state(folder: Path) -> dict[str, tuple]:
    found = {path: path.stat() for path in folder.rglob("*")}
    return {str(path): (at.st_ino, at.st_mtime_ns, at.st_size) for path, at in found.items()}


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("program, flags, inputs, place", TABLE, ids=[f"{row[0]} {row[3]}" for row in TABLE])
def test_step_does_not_replace_its_input(program, flags, inputs, place, force, exp, monkeypatch):
    monkeypatch.setitem(step._state, "force", force)
    folder, name = program.split("/")
    out = exp / place if (exp / place).is_dir() else (exp / place).parent
    before = state(exp)
    with pytest.raises(
        UserError,
        match=f"^{exp}/.* is an input and would be replaced by the output {out}; give another output name$",
    ):
        run_here(
            name, *flags, *(word if word == "<unk>" else exp / word for word in inputs), out, folder=folder
        )
    assert state(exp) == before


@pytest.mark.parametrize(
    "kind", ["link to it", "folder in it", "link in it", "another way to it", "scratch directory"]
)
def test_input_equal_to_output_by_other_name_is_refused(kind, tmp_path):
    with stage_output(tmp_path / "out", {}, []) as out:
        (out / "text").write_text("one")
        (out / "sub").mkdir()
        (out / "sub" / "text").write_text("two")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "text").write_text("three")
    places = {
        "link to it": "link",
        "folder in it": "out/sub",
        "link in it": "out/other",
        "another way to it": "other/../out",
        "scratch directory": "out.tmp",
    }
    given = tmp_path / places[kind]
    if kind == "scratch directory":
        (tmp_path / "out").rename(given)
    if not given.exists():
        given.symlink_to(tmp_path / ("out" if kind == "link to it" else "other"))
    before = state(tmp_path)
    with pytest.raises(UserError, match="would be replaced by the output"):
        with stage_output(tmp_path / "out", {"a": 1}, [given / "text"], force=True):
            pass
    with pytest.raises(UserError, match="would be replaced by the output"):
        with stage_output(given, {"a": 1}, [given / "text"], force=True):
            pass
    assert state(tmp_path) == before


def test_output_inside_its_input_is_accepted(exp, tmp_path):
    """For example a graph in the directory of its model."""
    with stage_output(exp / "mono" / "graph", {}, [exp / "mono" / "final.mdl", exp / "mono"]) as out:
        (out / "HCLG.fst").write_text("")
