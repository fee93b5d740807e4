"""utils/new_recipe.py: the directory it makes, and a recipe of a small corpus from its audio to word error
rates."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from own_corpora import tone, toy_speech, write
from steps_here import run_here

from pyasr.io.text_tables import read_table

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "utils/new_recipe.py"


def new_recipe(*words, cwd: Path | None = None) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, PROGRAM, *map(str, words)], cwd=cwd, capture_output=True, text=True, timeout=120
    )


def folder_and_table(folder: Path, made: list[tuple[Path, str, str]]) -> Path:
    return write(
        folder / "table.tsv",
        "path\tsentence\tclient_id\n"
        + "".join(f"{path.name}\t{text.title()}.\t{who}\n" for path, text, who in made),
    ).parent


@pytest.fixture(scope="module")
def own_recipe(tmp_path_factory) -> tuple[Path, str]:
    """(recipe of a toy corpus, output of the program); it is made outside the toolkit with relative paths."""
    folder = tmp_path_factory.mktemp("own")
    folder_and_table(folder / "my corpus", toy_speech(folder / "my corpus/clips", 10, 9))
    before = set(folder.rglob("*"))
    done = new_recipe("my recipe", "my corpus", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert {path.parts[len(folder.parts)] for path in set(folder.rglob("*")) - before} == {"my recipe"}
    return folder / "my recipe", done.stdout


def test_findings_and_choices_are_printed(own_recipe):
    report = own_recipe[1]
    for sentence in (
        "found a table of audio files (1, table.tsv)",
        "90 utterances of 90 recordings",
        "10 speaker(s); speakers are of the source",
        "sampling rates: 8000 Hz (90); channels: 1 (90)",
        "words without pronunciation: 1 of 29",
        "English: CMUdict has 9",
        "by speakers, ",
        "features at 8000 Hz",
        "models for up to 0.25 h",
        "a language model of order 2",
        "created ",
        "; run ",
    ):
        assert sentence in report, (sentence, report)
    assert re.search(r"found .*\n.*\d+\.\d min of speech in 90", report)


def test_recipe_runs_from_audio_to_word_error_rates(own_recipe, tmp_path):
    folder, _ = own_recipe
    words = ["./run.sh", "--decoded", "", "--nj", "1", "--num-ranks", "1"]
    done = subprocess.run(
        words, cwd=folder, capture_output=True, text=True, timeout=1500, env={**os.environ, "CDPATH": "/"}
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    rows = re.findall(
        r"^\| (tri3|dnn) +\| ([\d.]+) +\| [*]*([\d.]+)", (folder / "exp/RESULTS.md").read_text(), re.M
    )
    assert [name for name, _, _ in rows][:2] == ["tri3", "dnn"] and all(
        float(wer) < 40 for _, _, wer in rows[:2]
    ), rows
    again = subprocess.run(
        [*words, "--stage", "2", "--stop-stage", "2"], cwd=folder, capture_output=True, text=True, timeout=100
    )
    assert again.returncode == 0 and again.stdout.count("is up to date") == 4, again.stdout


def test_repeated_call_replaces_only_own_files(own_recipe, tmp_path):
    folder = tmp_path / "recipe"
    corpus = own_recipe[0].parent / "my corpus"
    assert new_recipe(folder, corpus).returncode == 0
    assert (
        new_recipe("--held-out", 0.2, folder, corpus).returncode == 0
        and "--held-out=0.2" in (folder / "conf/corpus.conf").read_text()
    )
    (folder / "run.sh").write_text("# mine\n")
    done = new_recipe(folder, corpus)
    assert (
        done.returncode == 1
        and f"{folder}/run.sh was changed after it was written; give another directory, or --force"
        in done.stderr
    )
    assert (folder / "run.sh").read_text() == "# mine\n"
    assert (
        new_recipe("--force", folder, corpus).returncode == 0
        and "mine" not in (folder / "run.sh").read_text()
    )


def test_existing_other_folder_is_refused(tmp_path):
    write(tmp_path / "mine" / "note", "x")
    tone(tmp_path / "corpus" / "a.wav")
    done = new_recipe(tmp_path / "mine", tmp_path / "corpus")
    assert done.returncode == 1 and f"{tmp_path}/mine exists and was not written by this tool" in done.stderr
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["note"]


def test_corpus_with_error_gives_no_output(tmp_path):
    tone(tmp_path / "corpus" / "a.wav")
    done = new_recipe(tmp_path / "recipe", tmp_path / "corpus")
    assert (
        done.returncode == 1
        and done.stderr.count("\n") == 1
        and "1 audio files without transcripts" in done.stderr
    )
    assert not (tmp_path / "recipe").exists()
    assert (
        "give DIR, which is created, and the sources of the corpus" in new_recipe(tmp_path / "recipe").stderr
    )


def test_choices_become_recipe_options(own_recipe):
    done = subprocess.run(
        ["./run.sh", "--help"], cwd=own_recipe[0], capture_output=True, text=True, timeout=60
    )
    for option in ("--nj", "--num-ranks", "--lm-order", "--tri3-leaves", "--decoded", "--dictionary"):
        assert option in done.stdout


def test_rates_channels_and_language_are_in_configuration(tmp_path):
    for i in range(20):
        tone(tmp_path / "corpus" / f"{i:02d}.wav", 1.0, 48000 if i else 8000, 2)
        write(tmp_path / "corpus" / f"{i:02d}.txt", f"Straße Nummer {chr(97 + i)}, schöne Grüße")
    assert new_recipe(tmp_path / "recipe", tmp_path / "corpus").returncode == 0
    mfcc = (tmp_path / "recipe/conf/mfcc.conf").read_text()
    assert all(
        line in mfcc
        for line in (
            "--sample-frequency=16000",
            "--allow-downsample=true",
            "--allow-upsample=true",
            "--channel=0",
        )
    )
    run_sh = (tmp_path / "recipe/run.sh").read_text()
    assert "dictionary=letters" in run_sh and "fmllr_min_count=100 " in run_sh
    data = tmp_path / "recipe/data"
    run_here(
        "prepare_own_data.py",
        "--config",
        tmp_path / "recipe/conf/corpus.conf",
        tmp_path / "corpus",
        data,
        folder="utils",
    )
    run_here(
        "prepare_dict.py", "--dictionary", "letters", data / "train/text", data / "local/dict", folder="utils"
    )
    run_here("make_mfcc.py", "--nj", 1, "--config", tmp_path / "recipe/conf/mfcc.conf", data / "train")
    assert "straße s t r a ß e" in (data / "local/dict/lexicon.txt").read_text()
    assert set(read_table(data / "train/utt2num_frames").values()) == {"98"}  # of a second


def test_links_within_toolkit_are_relative(tmp_path):
    """In a copy of the toolkit's folders."""
    from pyasr.intake.own import recipe as module

    shutil.copytree(ROOT / "utils", tmp_path / "toolkit/utils", symlinks=True)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, "ROOT", tmp_path / "toolkit")
        for place in (tmp_path / "toolkit/egs/mine", tmp_path / "elsewhere"):
            place.mkdir(parents=True)
            module._link(place / "utils", tmp_path / "toolkit/utils")
            assert (place / "utils/recipe.sh").exists()
    assert os.readlink(tmp_path / "toolkit/egs/mine/utils") == "../../utils"
    assert os.readlink(tmp_path / "elsewhere/utils") == str(tmp_path / "toolkit/utils")
