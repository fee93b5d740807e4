"""Utterances without alignment in an alignment or GMM training: many end the step, few are logged, and none
changes other alignments."""

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from gmm_corpus import write_corpus
from steps_here import run_here

from pyasr.base.cli.skipped_utterances import SkippedOptions
from pyasr.base.errors import UserError
from pyasr.data.checks.validation import validate
from pyasr.data.tables.datadir import split
from pyasr.hmm.align.align_report import FAILED_FILE, AlignReport
from pyasr.io.int_vectors import read_job_archives
from pyasr.io.text_tables import read_table, write_table
from pyasr.lang.lexicons.dict_dir import RESERVED_WORDS

SHORT = (
    "--nj",
    1,
    "--num-iters",
    4,
    "--max-iter-inc",
    2,
    "--num-gauss",
    50,
    "--realign-iters",
    "1 3",
    "--beam",
    30,
    "--retry-beam",
    100,
)
TREE = ("--num-leaves", 30, "--cluster-thresh", 0)
ALIGN = ("--nj", 1, "--beam", 30, "--retry-beam", 100)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("corpus"), num_utterances=40)


@pytest.fixture(scope="module")
def mono(corpus, tmp_path_factory):
    """Monophones, their alignment and a SAT system."""
    path = tmp_path_factory.mktemp("mono")
    run_here("train_mono.py", *SHORT, "--deltas", 0, *corpus, path / "mono", threads=True)
    run_here(
        "train_sat.py",
        *SHORT,
        *TREE,
        "--fmllr-min-count",
        100,
        *corpus,
        path / "mono",
        path / "sat",
        threads=True,
    )
    return path


@pytest.fixture
def data(corpus, tmp_path) -> Path:
    return Path(shutil.copytree(corpus[0], tmp_path / "data"))


def keep_features(data: Path, num: int) -> None:
    """Keep only the first `num` lines of feats.scp."""
    lines = (data / "feats.scp").read_text().splitlines(keepends=True)
    (data / "feats.scp").write_text("".join(lines[:num]))


def programs(lang: Path, mono: Path, out: Path) -> dict[str, tuple]:
    """{step: its arguments except for the data directory}"""
    return {
        "align_si.py": (ALIGN, (lang, mono / "mono", out)),
        "align_fmllr.py": (ALIGN, (lang, mono / "sat", out)),
        "train_mono.py": ((*SHORT, "--deltas", 0), (lang, out)),
        "train_deltas.py": ((*SHORT, *TREE), (lang, mono / "mono", out)),
        "train_lda_mllt.py": ((*SHORT, *TREE, "--dim", 4, "--mllt-iters", "2"), (lang, mono / "mono", out)),
        "train_sat.py": ((*SHORT, *TREE), (lang, mono / "mono", out)),
    }


@pytest.mark.parametrize("program", programs(Path(), Path(), Path()))
def test_many_lost_utterances_end_step_before_output(program, corpus, mono, data, tmp_path, capfd):
    keep_features(data, 30)
    flags, places = programs(corpus[1], mono, tmp_path / "out")[program]
    lost = re.escape(
        f"{data}: 10 of 40 utterances have no alignment: 10: no features in feats.scp (s3-003 s3-007 s3-011 "
        "...); check that "
    )
    with pytest.raises(UserError, match=lost + ".*, or raise --max-missing"):
        run_here(program, *flags, data, *places, threads=True)
    assert not (tmp_path / "out").exists()
    run_here(program, "--max-missing", 0.25, *flags, data, *places, threads=True)
    assert len(read_job_archives(tmp_path / "out")) == 30
    assert "10 of 40 utterances have no alignment" in capfd.readouterr().out or program == "align_si.py"


@pytest.mark.parametrize("program", programs(Path(), Path(), Path()))
def test_missing_usable_transcripts_end_step_before_job(program, corpus, mono, data, tmp_path):
    flags, places = programs(corpus[1], mono, tmp_path / "out")[program]
    utterances = read_table(data / "text")
    for texts, message in (
        (
            dict.fromkeys(utterances, ""),
            (
                f"{data}: no utterance can be used: 40: its transcript is empty \\(s0-000 .*; run "
                "utils/validate_data_dir.py"
            ),
        ),
        ({"other": "w1"}, f"{data}: no utterance can be used: 40: no line in text \\("),
        (
            dict.fromkeys(utterances, "<s> w1"),
            (
                f"{data}: no utterance can be used: 40: its transcript contains the symbol <s>, which is not "
                "a word"
            ),
        ),
        (
            dict.fromkeys(utterances, "zebra"),
            f"{data}/text: none of its words is in {corpus[1]}/words.txt .it begins with 'zebra'",
        ),
    ):
        write_table(data / "text", texts)
        with pytest.raises(UserError, match=f"^{message}"):
            run_here(program, *flags, data, *places, threads=True)
        assert not (tmp_path / "out.tmp").exists()


@pytest.mark.parametrize("program", programs(Path(), Path(), Path()))
def test_job_without_usable_utterances_does_not_change_result(program, corpus, mono, data, tmp_path, capfd):
    """The result equals that of one job with the same utterances."""
    usable = split(data, 2)[0]
    features = read_table(data / "feats.scp")
    write_table(data / "feats.scp", {utt: features[utt] for utt in usable})
    for nj in (1, 2):
        flags, places = programs(corpus[1], mono, tmp_path / f"out{nj}")[program]
        run_here(program, "--nj", nj, "--max-missing", 0.6, *flags[2:], data, *places, threads=True)
    assert (
        f"{data}: no utterance of shard 2 of 2 can be used: 20: no features in feats.scp ("
        in capfd.readouterr().out
    )
    one, two = (read_job_archives(tmp_path / f"out{nj}") for nj in (1, 2))
    assert one.keys() == two.keys() == set(usable) and all(np.array_equal(one[utt], two[utt]) for utt in one)
    assert (tmp_path / "out1" / FAILED_FILE).read_text() == (tmp_path / "out2" / FAILED_FILE).read_text()


def shift(data: Path) -> None:
    """Give every utterance the transcript of the next one."""
    texts = read_table(data / "text")
    write_table(data / "text", dict(zip(texts, [*texts.values()][1:] + [*texts.values()][:1])))


def test_shifted_transcripts_are_detected(corpus, mono, data, tmp_path):
    shift(data)
    narrow = ("--nj", 1, "--beam", 5, "--retry-beam", 8)
    with pytest.raises(
        UserError,
        match=r"data: \d+ of 40 utterances have no alignment: \d+: no path within the beams .*; check that",
    ):
        run_here("align_si.py", *narrow, data, corpus[1], mono / "mono", tmp_path / "ali")
    assert not (tmp_path / "ali").exists()


def test_training_stops_at_last_alignment_and_resumes_with_higher_limit(corpus, mono, data, tmp_path, capfd):
    shift(data)
    words = ("--nj", 1, *TREE, "--num-iters", 6, "--max-iter-inc", 2, "--num-gauss", 50,
             "--realign-iters", "2 4", "--beam", 3, "--retry-beam", 5)  # fmt: skip
    places = (data, corpus[1], mono / "mono", tmp_path / "tri")
    with pytest.raises(UserError, match=r"data: \d+ of 40 utterances have no alignment"):
        run_here("train_deltas.py", *words, *places, threads=True)
    assert (tmp_path / "tri.tmp" / "4.mdl").exists() and not (tmp_path / "tri").exists()
    capfd.readouterr()
    run_here("train_deltas.py", "--max-missing", 0.99, *words, *places, threads=True)
    output = capfd.readouterr().out
    assert (
        "resuming" in output
        and "resuming at iteration 4" in output
        and len(read_table(tmp_path / "tri" / "failed_utterances")) > 4
    )


def test_few_losses_are_logged_in_one_line(corpus, data, tmp_path, caplog):
    keep_features(data, 39)
    with caplog.at_level("INFO", "pyasr"):
        run_here("train_mono.py", *SHORT, "--deltas", 0, data, corpus[1], tmp_path / "mono")
    (lost,) = set(read_table(data / "text")) - set(read_table(data / "feats.scp"))
    report = (
        f"1 of 40 utterances have no alignment: 1: no features in feats.scp ({lost}); failed_utterances "
        "lists all"
    )
    assert report in [record.message for record in caplog.records]


def test_most_frequent_reasons_are_reported_if_nothing_is_aligned(corpus, mono, data, tmp_path):
    """The transcript of the first utterance is wrong."""
    text = read_table(data / "text")
    first, *others = text
    write_table(
        data / "text", dict.fromkeys(others, " ".join([*text.values()][0].split() * 60)) | {first: ""}
    )
    for program in ("align_si.py", "align_fmllr.py"):
        flags, places = programs(corpus[1], mono, tmp_path / "ali")[program]
        with pytest.raises(
            UserError,
            match=r"none of 40 .* aligned .*: 39: no path within the beams .*, 1: its transcript is empty",
        ):
            run_here(program, *flags, data, *places, threads=True)


def test_reasons_are_counted_and_rare_ones_omitted():
    failed = {f"u{i}": reason for i, reason in enumerate("aaaabbbccd")}
    report = AlignReport(90, failed=failed)
    assert report.summary() == (
        "10 of 100 utterances have no alignment: 4: a (u0 u1 u2 ...), 3: b (u4 u5 u6), 2: c (u7 u8), 1 "
        "other reasons"
    )
    report.check_missing("data", SkippedOptions(0.1))
    with pytest.raises(UserError, match="data: 10 of 100 .*, or raise --max-missing"):
        report.check_missing("data", SkippedOptions(0.09))
    assert AlignReport(3).summary() == "all 3 utterances have an alignment"


@pytest.mark.parametrize("symbol", RESERVED_WORDS)
def test_reserved_symbol_in_transcript_loses_only_its_utterance(symbol, corpus, mono, data, tmp_path):
    run_here("align_si.py", *ALIGN, *corpus, mono / "mono", tmp_path / "sound")
    texts = read_table(data / "text")
    utt = sorted(texts)[7]
    write_table(data / "text", texts | {utt: f"{texts[utt]} {symbol}"})
    run_here("align_si.py", *ALIGN, data, corpus[1], mono / "mono", tmp_path / "ali")
    assert read_table(tmp_path / "ali" / "failed_utterances") == {
        utt: f"its transcript contains the symbol {symbol}, which is not a word"
    }
    sound, found = read_job_archives(tmp_path / "sound"), read_job_archives(tmp_path / "ali")
    assert sound.keys() - found.keys() == {utt} and all(
        np.array_equal(found[key], sound[key]) for key in found
    )
    (problem,) = validate(data)
    assert (problem.path, problem.line) == (
        data / "text",
        8,
    ) and f"contains the symbol {symbol}, which is not a word" in problem.message
    assert problem.fix.startswith("remove the symbol")


def test_word_without_pronunciation_is_named(corpus, mono, data, tmp_path):
    lang = Path(shutil.copytree(corpus[1], tmp_path / "lang"))
    with (lang / "words.txt").open("a") as f:
        f.write(f"silent {len(read_table(lang / 'words.txt'))}\n")
    texts = read_table(data / "text")
    utt = sorted(texts)[7]
    write_table(data / "text", texts | {utt: f"{texts[utt]} silent"})
    run_here("align_si.py", *ALIGN, data, lang, mono / "mono", tmp_path / "ali")
    assert read_table(tmp_path / "ali" / "failed_utterances") == {
        utt: "word 'silent' has no pronunciation in the lexicon"
    }
