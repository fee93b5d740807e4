"""Text is UTF-8 in any locale: a word that is not ASCII, from the text to its score."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
from lattices import choice, make_decode_dir

from pyasr.io.text_tables import read_lines, read_table, write_table

ROOT = Path(__file__).parents[1]
WORD = "naïveté"


def hostile_environment() -> dict[str, str]:
    """An environment without path.sh, in a locale for which Python uses ASCII."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "OMP_NUM_THREADS") if name in os.environ}
    return {**kept, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONPATH": str(ROOT)}


def run(program: str, *arguments, ok: bool = True) -> str:
    words = [sys.executable, ROOT / program, *map(str, arguments)]
    done = subprocess.run(words, env=hostile_environment(), capture_output=True)
    assert (done.returncode == 0) == ok, (done.stdout + done.stderr).decode()
    return (done.stdout + done.stderr).decode("utf-8")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Data and dictionary of two words, in a directory whose name is not ASCII."""
    root = tmp_path_factory.mktemp("é")
    for name in ("data", "dict"):
        (root / name).mkdir()
    texts = {"a-1": f"{WORD} no", "a-2": WORD, "zoë-1": "no"}
    write_table(root / "data/text", texts)
    write_table(root / "data/utt2spk", {utt: utt.split("-")[0] for utt in texts})
    write_table(root / "data/spk2utt", {"a": "a-1 a-2", "zoë": "zoë-1"})
    files = {
        "lexicon.txt": f"<unk> SPN\n{WORD} N IY\nno N OW\n",
        "nonsilence_phones.txt": "N\nIY\nOW\n",
        "silence_phones.txt": "SIL\nSPN\n",
        "optional_silence.txt": "SIL\n",
        "extra_questions.txt": "",
    }
    for name, content in files.items():
        (root / "dict" / name).write_text(content, encoding="utf-8")
    return root


def test_utf8_text_from_corpus_to_score(root):
    run("utils/prepare_lang.py", root / "dict", "<unk>", root / "lang")
    assert WORD in read_table(root / "lang/words.txt")
    output = run(
        "utils/train_lm.py",
        "--eval-text",
        root / "data/text",
        "--order",
        "2",
        root / "data/text",
        root / "dict/lexicon.txt",
        root / "lm",
    )
    assert f"{root}/data/text" in output
    run("utils/make_grammar.py", root / "lang", root / "lm/lm.arpa.gz", root / "lang_test")
    run("utils/validate_lang.py", root / "lang_test")
    right = int(read_table(root / "lang/words.txt")[WORD])
    lattices = {utt: choice(1, -1.0, 0.0) for utt in ("a-1", "a-2", "zoë-1")}
    for lattice in lattices.values():
        lattice.olabels[:] = right
    make_decode_dir(root / "decode", lattices)
    output = run("steps/score.py", root / "data", root / "lang_test", root / "decode")
    assert "%WER 50.00 [ 2 / 4, 0 ins, 1 del, 1 sub ]" in output
    per_utt = read_lines(root / "decode/scoring/per_utt")
    assert f"a-2 hyp {WORD}".split() in [line.split() for line in per_utt] and any(
        line.startswith("zoë-1 ") for line in per_utt
    )
    spec = ("JOB=1:1", root / "log/ö.JOB.log", "echo", WORD, ">", root / "œuf.JOB")
    run("utils/run.pl", *spec)
    assert (root / "œuf.1").read_text(encoding="utf-8") == f"{WORD}\n" and WORD in (
        root / "log/ö.1.log"
    ).read_text(encoding="utf-8")


def test_errors_are_printed_in_utf8(root):
    assert f"{root}/café: no such file" in run(
        "utils/train_lm.py", root / "café", root / "dict/lexicon.txt", root / "never", ok=False
    )
    (root / "latin1.conf").write_bytes("--order=3  # für\n".encode("latin-1"))
    output = run(
        "utils/train_lm.py",
        "--config",
        root / "latin1.conf",
        root / "data/text",
        root / "dict/lexicon.txt",
        root / "never",
        ok=False,
    )
    assert "latin1.conf:1: not UTF-8 text; convert the file with iconv -t utf-8" in output


def text_calls(tree: ast.AST) -> list[int]:
    """Lines of calls that open, read or write text without naming the encoding."""
    found = []
    for call in ast.walk(tree):
        name = ast.unparse(call.func) if isinstance(call, ast.Call) else ""
        if name.rpartition(".")[2] in ("open", "fdopen", "read_text", "write_text") and name not in (
            "os.open",
            "tarfile.open",
            "distribution(name).read_text",  # of importlib.metadata, which reads UTF-8
        ):
            constants = [
                node.value
                for node in (*call.args, *(word.value for word in call.keywords))
                if isinstance(node, ast.Constant)
            ]
            binary = any(isinstance(value, str) and "b" in value and len(value) < 4 for value in constants)
            if not binary and not any(word.arg == "encoding" for word in call.keywords):
                found.append(call.lineno)
    return found


def test_every_text_file_is_opened_with_encoding():
    assert text_calls(ast.parse("open(x)")) and not text_calls(ast.parse("x.open('rb')"))
    for folder in ("pyasr", "steps", "utils", "egs/toy/s5/local", "egs/amazon_queen/s5/local"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            lines = text_calls(ast.parse(path.read_text(encoding="utf-8")))
            assert not lines, f'{path}:{lines}: give encoding="utf-8"'
