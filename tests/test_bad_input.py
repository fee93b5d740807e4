"""Bad input to the real programs: one clear sentence, exit status 1, and at most a scratch directory is left
behind."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from data_dirs import make_data_dir
from gmm_corpus import write_corpus
from steps_here import run_here
from toy_language import random_ngrams, write_arpa_text

from pyasr.base.errors import UserError
from pyasr.io.ark import read_scp
from pyasr.io.int_vectors import read_int_vectors, write_int_vectors
from pyasr.io.text_tables import read_table, write_table

ROOT = Path(__file__).resolve().parents[1]
MFCC = ("make_mfcc.py", "--nj", 1, "--sample-frequency", 8000, "--use-energy", "false")
TRAINING = (
    "--nj",
    2,
    "--num-iters",
    2,
    "--num-gauss",
    50,
    "--max-iter-inc",
    1,
    "--deltas",
    0,
    "--beam",
    30,
    "--retry-beam",
    100,
)
GMM_INPUTS = {
    "train_mono.py": ("data", "lang"),
    "train_ivector_extractor.py": ("data",),
    **dict.fromkeys(
        ("train_deltas.py", "train_lda_mllt.py", "train_sat.py", "align_fmllr.py"), ("data", "lang", "mono")
    ),
}


def run(program, *words, **variables):
    """The finished process of a program of steps/ or utils/."""
    folder = "steps" if (ROOT / "steps" / program).exists() else "utils"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **variables}
    command = [sys.executable, ROOT / folder / program, *map(str, words)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)


def content(directory: Path) -> dict[Path, bytes]:
    """All files below a directory except those in scratch directories."""
    files = (path for path in directory.rglob("*") if path.is_file())
    return {path: path.read_bytes() for path in files if ".tmp" not in str(path.relative_to(directory))}


def assert_refused(directory: Path, sentence: str, program, *words, **variables) -> str:
    """Check that the program prints `sentence` once and leaves `directory` unchanged; its whole output."""
    before = content(directory)
    done = run(program, *words, **variables)
    errors = [line for line in done.stderr.splitlines() if line.startswith(f"{program}: error: ")]
    assert done.returncode == 1 and len(errors) == 1 and done.stderr.splitlines()[-1] == errors[0], (
        done.stdout + done.stderr
    )
    assert sentence in errors[0] and "Traceback" not in done.stderr, done.stderr
    assert content(directory) == before
    return done.stdout + done.stderr


def change_line(path: Path, number: int, change) -> None:
    """Replace a line (counted from 1) by `change(line)`, which may be several lines."""
    lines = path.read_text().splitlines()
    lines[number - 1] = change(lines[number - 1])
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture
def audio(tmp_path):
    """A valid data directory with audio."""
    return make_data_dir(tmp_path / "audio")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Data with features, a language directory, and a monophone system made by the step."""
    path = tmp_path_factory.mktemp("trained")
    data, lang = write_corpus(path)
    done = run("train_mono.py", *TRAINING, data, lang, path / "mono")
    assert done.returncode == 0, done.stderr
    return path


@pytest.fixture
def corpus(trained, tmp_path):
    """A copy of the data directory that a test may damage."""
    return Path(shutil.copytree(trained / "data", tmp_path / "data"))


def test_missing_audio(audio, tmp_path):
    (audio / "audio/bob-001.wav").unlink()
    sentence = (
        f"bob-001: {audio}/audio/bob-001.wav: no such file or directory; correct wav.scp or remove "
        "its utterances"
    )
    assert_refused(tmp_path, sentence, *MFCC, audio)
    said = assert_refused(tmp_path, "1 problem(s)", "validate_data_dir.py", audio)
    assert f"{audio}/wav.scp:6:" in said and f"fix: utils/fix_data_dir.py {audio}" in said


def test_truncated_audio(audio, tmp_path):
    wave = audio / "audio/cy-002.wav"
    wave.write_bytes(wave.read_bytes()[:1000])
    assert_refused(
        tmp_path,
        f"cy-002: {wave}: cut short, 956 of 3200 bytes of audio found; replace the file",
        *MFCC,
        audio,
    )


def test_empty_line_in_transcripts(audio, tmp_path):
    change_line(audio / "text", 3, lambda line: "")
    said = assert_refused(tmp_path, "3 problem(s)", "validate_data_dir.py", audio)
    assert f"{audio}/text:3: empty line; fix: utils/fix_data_dir.py {audio}" in said


@pytest.mark.parametrize("program", ["validate_data_dir.py", "validate_kaldi.py", "fix_data_dir.py"])
def test_control_characters(program, audio):
    """ESC [2J clears a terminal, CR returns to the beginning of the line."""
    change_line(audio / "utt2spk", 3, lambda line: f"{line} \x1b[2J\rsound")
    change_line(audio / "utt2dur", 3, lambda line: f"{line.split()[0]} \x1b[2J\r7")
    done = subprocess.run([sys.executable, ROOT / "utils" / program, audio], capture_output=True)
    said = (done.stdout + done.stderr).decode()
    assert r"\x1b[2J" in said and r"\r" in said and all(line.isprintable() for line in said.split("\n")), said
    assert done.returncode == (program != "fix_data_dir.py")


def test_only_empty_transcripts(trained, corpus, tmp_path):
    write_table(corpus / "text", dict.fromkeys(read_table(corpus / "text"), ""))
    assert_refused(
        tmp_path,
        "no utterance can be used",
        "train_mono.py",
        *TRAINING,
        corpus,
        trained / "lang",
        tmp_path / "mono",
    )


@pytest.mark.parametrize("program", ["make_mfcc.py", "compute_cmvn.py", "train_mono.py"])
def test_utt2spk_with_three_columns(program, audio, trained, corpus, tmp_path):
    data, words = {
        "make_mfcc.py": (audio, MFCC[1:]),
        "compute_cmvn.py": (corpus, ()),
        "train_mono.py": (corpus, TRAINING),
    }[program]
    change_line(data / "utt2spk", 3, lambda line: line + " female")
    further = [trained / "lang", tmp_path / "mono"] if program == "train_mono.py" else []
    utt, speaker, _ = (data / "utt2spk").read_text().splitlines()[2].split()
    sentence = (
        f"{data}/utt2spk:3: '{utt} {speaker} female': 3 column(s), expected 'UTTERANCE SPEAKER'; run "
        f"utils/fix_data_dir.py {data}"
    )
    assert_refused(tmp_path, sentence, program, *words, data, *further)


def test_duplicated_ids(corpus, tmp_path):
    change_line(corpus / "utt2spk", 5, lambda line: f"{line}\n{line}")
    utt = (corpus / "utt2spk").read_text().splitlines()[4].split()[0]
    assert_refused(
        tmp_path,
        f"{corpus}/utt2spk:6: duplicate key '{utt}'; keep one of the two lines",
        "compute_cmvn.py",
        corpus,
    )


def test_unsorted_ids(corpus, audio, tmp_path):
    """Kaldi's programs need sorted tables; pyasr's accept any order and write sorted ones."""
    for data in (corpus, audio):
        (data / "utt2spk").write_text("\n".join((data / "utt2spk").read_text().splitlines()[::-1]) + "\n")
    sentence = (
        f"{audio}/utt2spk:2: 'cy-002 cy': not sorted in C order, 'cy-002' comes after 'cy-003'; fix: "
        f"utils/fix_data_dir.py {audio}"
    )
    assert sentence in assert_refused(tmp_path, "1 problem(s)", "validate_data_dir.py", audio)
    assert run("compute_cmvn.py", corpus).returncode == 0 and list(read_scp(corpus / "cmvn.scp")) == [
        "s0",
        "s1",
        "s2",
        "s3",
    ]


def test_mismatched_alignment(trained, tmp_path):
    ali = Path(shutil.copytree(trained / "mono", tmp_path / "ali"))
    vectors = read_int_vectors(ali / "ali.1.gz")
    utt = next(iter(vectors))
    write_int_vectors(ali / "ali.1.gz", vectors | {utt: vectors[utt][:-1]})
    frames = len(vectors[utt])
    sentence = (
        f"{ali}: the alignment of {utt} has {frames - 1} frames, its features have {frames}; align "
        "this data directory again"
    )
    command = (
        "train_deltas.py",
        *TRAINING,
        "--num-leaves",
        20,
        trained / "data",
        trained / "lang",
        ali,
        tmp_path / "tri",
    )
    assert_refused(tmp_path, sentence, *command)
    (ali / "ali.1.gz").write_bytes((ali / "ali.1.gz").read_bytes()[:100])
    assert_refused(tmp_path, f"{ali}/ali.1.gz: damaged or truncated", *command)


def test_transcript_with_only_oov_words(trained, corpus, tmp_path):
    """Accepted in training, with a log line; a problem for the validator; an error if no transcript has a
    known word."""
    lang = trained / "lang"
    utt = (corpus / "text").read_text().split()[0]
    change_line(corpus / "text", 1, lambda line: f"{utt} STRANGE WORDS")
    sentence = f"{corpus}/text:1: '{utt} STRANGE WORDS': none of its words is in {lang}/words.txt"
    assert sentence in assert_refused(
        tmp_path, "1 problem(s)", "validate_data_dir.py", "--audio", "no", "--lang", lang, corpus
    )
    assert run("train_mono.py", *TRAINING, corpus, lang, tmp_path / "mono").returncode == 0
    assert f"1 utterance(s) have no word in it: {utt}" in (tmp_path / "mono/log/train.log").read_text()
    write_table(corpus / "text", dict.fromkeys(read_table(corpus / "text"), "STRANGE WORDS"))
    sentence = f"{corpus}/text: none of its words is in {lang}/words.txt"
    assert_refused(tmp_path, sentence, "train_mono.py", *TRAINING, corpus, lang, tmp_path / "other")


def test_arpa_with_invalid_header(trained, tmp_path):
    arpa = tmp_path / "lm.arpa"
    write_arpa_text(arpa, random_ngrams(0, [f"w{i}" for i in range(12)], (0, 20)))
    arpa.write_text(arpa.read_text().replace("ngram 2=20", "ngram 2=many"))
    sentence = f"{arpa}:3: expected 'ngram 2=COUNT' in the header, not 'ngram 2=many'; correct it"
    assert_refused(tmp_path, sentence, "make_grammar.py", trained / "lang", arpa, tmp_path / "lang_test")


@pytest.fixture
def small_disk(tmp_path):
    """A filesystem of 24 KB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", "size=24k", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mounting, capture_output=True).returncode:
        pytest.skip("a small filesystem cannot be mounted")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.parametrize(
    "program, kilobytes",
    [("make_grammar.py", 8), ("compute_cmvn.py", 24), ("train_mono.py", 24), ("train_mono.py", 48)],
)
def test_full_disk(program, kilobytes, trained, small_disk):
    """The disk fills up while writing a copy, a table, a log or a model. With more space, the same command
    succeeds."""
    subprocess.run(["mount", "-o", f"remount,size={kilobytes}k", small_disk], check=True)
    data, lang, out = trained / "data", trained / "lang", small_disk / "out"
    write_arpa_text(trained / "lm.arpa", random_ngrams(0, [f"w{i}" for i in range(12)], (0, 20)))
    words = (out,)
    if program == "make_grammar.py":
        words = (lang, trained / "lm.arpa", out)
    elif program == "train_mono.py":
        words = (*TRAINING, data, lang, out)
    else:
        out.mkdir()
        for name in ("utt2spk", "feats.scp"):
            shutil.copy(data / name, out)
        (small_disk / "filling").write_bytes(
            bytes(os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_bsize)
        )
    assert_refused(
        small_disk, "the disk is full; free some space and run the same command again", program, *words
    )
    subprocess.run(["mount", "-o", "remount,size=9M", small_disk], check=True)
    done = run(program, *words)
    assert done.returncode == 0, done.stderr


def test_more_parts_than_utterances(audio, tmp_path):
    sentence = f"NUM: 12 utterances of {audio} cannot be split into 13 parts; give fewer"
    assert_refused(tmp_path, sentence, "split_data_dir.py", audio, 13)


@pytest.mark.parametrize(
    "words",
    [
        ("copy_data_dir.py", "DATA", "OUT"),
        ("combine_data.py", "OUT", "DATA"),
        ("combine_data.py", "OUT", "SOUND", "DATA"),
    ],
)
def test_data_without_speakers(words, audio, tmp_path):
    damaged = shutil.copytree(audio, tmp_path / "damaged")
    (damaged / "utt2spk").unlink()
    where = {"DATA": damaged, "SOUND": audio, "OUT": tmp_path / "out"}
    output = assert_refused(
        tmp_path, f"{damaged}/utt2spk: no such file", *(where.get(word, word) for word in words)
    )
    assert "left out" not in output


@pytest.mark.parametrize(
    "words",
    [
        ("copy_data_dir.py", "DATA", "OUT"),
        ("combine_data.py", "OUT", "SOUND", "DATA"),
        ("perturb_data_dir.py", "DATA", "OUT"),
        ("compute_cmvn.py", "DATA"),
        MFCC + ("DATA",),
    ],
)
def test_data_without_utterances(words, audio, tmp_path):
    empty = shutil.copytree(audio, tmp_path / "empty")
    for name in ("utt2spk", "feats.scp"):
        (empty / name).write_text("")
    where = {"DATA": empty, "SOUND": audio, "OUT": tmp_path / "out"}
    assert_refused(
        tmp_path,
        f"{empty}/utt2spk: no utterances; create the directory again",
        *(where.get(word, word) for word in words),
    )


def test_normalisation_without_features(audio, tmp_path):
    (audio / "feats.scp").write_text("")
    assert_refused(
        tmp_path, f"{audio}/feats.scp: no features; run steps/make_mfcc.py {audio}", "compute_cmvn.py", audio
    )


def test_file_in_place_of_directory(audio, tmp_path):
    taken = tmp_path / "taken"
    taken.touch()
    sentence = f"--out-dir {taken}: a file of this name exists; give a directory"
    assert_refused(
        tmp_path,
        sentence,
        "transcribe.py",
        "--out-dir",
        taken,
        tmp_path / "model",
        audio / "audio/ann-000.wav",
    )


@pytest.mark.parametrize("program", ["decode.py", "train_mono.py", "score.py"])
def test_invalid_command_lines(program, tmp_path):
    for words, sentence in (
        (["--nj", "abc", "a"], "--nj: 'abc' is not a whole number"),
        (["a", "--nj"], "--nj: a value is missing after it"),
    ):
        assert assert_refused(tmp_path, sentence, program, *words) == f"{program}: error: {sentence}\n"


@pytest.mark.parametrize(
    "program, flags, sentence",
    [
        *(
            (program, ("--nj", 1000), "30 utterance(s) cannot be split into 1000 jobs; lower --nj")
            for program in GMM_INPUTS
        ),
        (
            "train_mono.py",
            ("--realign-iters", "1,2"),
            "--realign-iters: '1,2' is not a list of iterations such as '10 20 30'",
        ),
        ("train_deltas.py", ("--realign-iters", "a"), "--realign-iters: 'a' is not a list of iterations"),
        ("train_lda_mllt.py", ("--mllt-iters", "x"), "--mllt-iters: 'x' is not a list of iterations"),
        ("train_sat.py", ("--fmllr-iters", "2,4"), "--fmllr-iters: '2,4' is not a list of iterations"),
    ],
)
def test_invalid_options_are_found_before_ranks_start(program, flags, sentence, trained, tmp_path):
    with pytest.raises(UserError, match=re.escape(sentence)):
        run_here(program, *flags, *(trained / name for name in GMM_INPUTS[program]), tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_missing_mpiexec(trained, tmp_path):
    """tests/parallel/ranks/test_rank.py tests an environment without mpiexec."""
    sentence = (
        "PYASR_MPIEXEC=/nowhere/mpiexec: no such program; name an mpiexec by its absolute path, or "
        "unset the variable"
    )
    command = ("train_mono.py", trained / "data", trained / "lang", tmp_path / "mono")
    said = assert_refused(tmp_path, sentence, *command, PYASR_MPIEXEC="/nowhere/mpiexec")
    assert said == f"train_mono.py: error: {sentence}\n"


def test_one_crashing_rank(trained, corpus, tmp_path):
    """Only the rank that reads the damaged file fails; the other one, which waits for its statistics, is
    ended, too."""
    table = read_scp(corpus / "feats.scp")
    archive = corpus / "feats.ark"
    last = max(table, key=lambda utt: int(table[utt].rpartition(":")[2]))
    archive.write_bytes(archive.read_bytes()[:-50])
    write_table(
        corpus / "feats.scp",
        {utt: rx.replace(str(trained / "data"), str(corpus)) for utt, rx in table.items()},
    )
    command = ("train_mono.py", *TRAINING, corpus, trained / "lang", tmp_path / "mono")
    said = assert_refused(tmp_path, "truncated or damaged, create it again", *command)
    assert table[last].rpartition(":")[2] in said and said.splitlines()[-1].count("(rank ") == 1
