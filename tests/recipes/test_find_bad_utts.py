"""Corrupted transcripts of a toy corpus are found by the real step with the model of fixtures/kaldi; output
files."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from gmm_corpus import write_corpus
from steps_here import run_here

from pyasr.base.errors import UserError
from pyasr.decode.decoding.biased import groups_of, top_words
from pyasr.io.text_tables import read_table, write_table
from pyasr.score.bad_utts import BadUttOptions, compare, write_report

ROOT = Path(__file__).resolve().parents[2]
SYSTEM = ROOT / "tests" / "fixtures" / "kaldi" / "exp/tri1"
NUM, SHARE = 200, 0.05


def corrupt(path: Path) -> dict[str, str]:
    """Exchange, cut and lengthen 5 % of the transcripts in a `text`; returns {utterance: kind of change}."""
    rng, text = np.random.default_rng(1), {utt: words.split() for utt, words in read_table(path).items()}
    words = sorted({word for said in text.values() for word in said})
    long_enough = [utt for utt, said in text.items() if len(said) >= 3]
    done = {
        utt: ("other", "cut", "added")[i % 3]
        for i, utt in enumerate(rng.choice(long_enough, int(SHARE * NUM), replace=False))
    }
    for utt, kind in done.items():
        said, others = text[utt], list(rng.choice(words, len(text[utt])))
        text[utt] = {"other": others, "cut": said[:1], "added": [*said, *others[:2]]}[kind]
    write_table(path, {utt: " ".join(said) for utt, said in text.items()})
    return done


def run(*words: object) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, *map(str, words)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"},
    )


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    root = tmp_path_factory.mktemp("bad")
    data, lang = write_corpus(root, num_utterances=NUM, seed=5, coarticulation=0.7)
    return root, data, lang, corrupt(data / "text")


@pytest.fixture(scope="module")
def found(corpus):
    root, data, lang, _ = corpus
    done = run(
        "steps/find_bad_utts.py",
        "--nj",
        1,
        "--top-words",
        5,
        "--acoustic-scale",
        0.3,
        data,
        lang,
        SYSTEM,
        root / "out",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return root / "out"


def test_corrupted_transcripts_are_found(corpus, found):
    """Precision and recall. Two words with the same sound and words missing in a model keep both below 1."""
    truth, bad = set(corpus[-1]), set(read_table(found / "bad_utts"))
    precision, recall = len(truth & bad) / len(bad), len(truth & bad) / len(truth)
    print(f"precision {precision:.2f}, recall {recall:.2f}")
    assert precision >= 0.6 and recall >= 0.8


def test_lists_are_complete_and_sorted(corpus, found):
    rows = [line.split("\t") for line in (found / "all_info.sorted.txt").read_text().splitlines()]
    text = read_table(corpus[1] / "text")
    good = read_table(found / "good_utts")
    bad = read_table(found / "bad_utts")
    errors = [int(row[1]) for row in rows]
    assert {utt: said for utt, _, _, _, said in rows} == text and errors == sorted(errors, reverse=True)
    assert all(len(said.split()) == int(length) for _, _, length, _, said in rows)
    assert good.keys() | bad.keys() == text.keys() and not good.keys() & bad.keys()
    details = (found / "per_utt").read_text()
    for utt, errors, *_ in rows[:10]:
        line = next(line for line in details.splitlines() if line.startswith(f"{utt} #csid "))
        assert sum(map(int, line.split()[3:])) == int(errors)


def test_data_directory_without_bad_utterances(corpus, found, tmp_path):
    assert (
        run(
            "utils/subset_data_dir.py", "--utt-list", found / "good_utts", corpus[1], tmp_path / "clean"
        ).returncode
        == 0
    )
    assert read_table(tmp_path / "clean/text").keys() == read_table(found / "good_utts").keys()


def test_groups_have_enough_words_and_lose_none():
    texts = {f"utt{i:02d}": np.arange(1 + i % 5) for i in range(23)}
    groups = list(groups_of(texts, 12))
    assert [utt for group in groups for utt in group] == list(texts)
    assert all(sum(map(len, group.values())) >= 12 for group in groups) and len(groups) == 4
    assert list(groups_of({}, 5)) == [] and list(groups_of({"a": np.arange(2)}, 5)) == [
        {"a": pytest.approx(np.arange(2))}
    ]


def test_most_frequent_words():
    texts = {"a": np.array([5, 2, 5, 9]), "b": np.array([9, 5, 1])}
    assert top_words(texts, 3).tolist() == [5, 9, 1] and top_words({}, 3).tolist() == []


def test_comparison_equals_hand_calculation():
    transcripts = {"a": "x y z".split(), "b": "x".split(), "c": "x y z w".split()}
    found = compare(transcripts, {"a": "x z", "b": "v w", "c": "x y z w"})
    assert {
        utt: (comparison.counts.errors, round(comparison.share, 2)) for utt, comparison in found.items()
    } == {"b": (2, 2.0), "a": (1, 0.33), "c": (0, 0.0)}
    assert list(found) == ["b", "a", "c"]
    assert [BadUttOptions().is_bad(found[utt]) for utt in "abc"] == [False, True, False]
    assert BadUttOptions(max_errors=0).is_bad(found["a"]) and not BadUttOptions(max_error_share=2.0).is_bad(
        found["b"]
    )


@pytest.mark.parametrize(
    "decoded, failed, message",
    [
        (
            "",
            '{"a": "no features in feats.scp"}',
            "no utterance was decoded: 1: no features in feats.scp .a.; check",
        ),
        ("a y y y\n", "{}", "all of 1 utterances are bad; check"),
    ],
)
def test_mismatched_data_are_refused(tmp_path, decoded, failed, message):
    (tmp_path / "decoded.1.txt").write_text(decoded)
    (tmp_path / "failed.1.json").write_text(failed)
    with pytest.raises(UserError, match=message):
        write_report(tmp_path, {"a": "x"}, {"x", "y"}, "<unk>", 1, BadUttOptions())


def test_disambiguation_symbols_are_an_input(corpus, tmp_path, monkeypatch, capsys):
    root, data, lang, _ = corpus
    for function in ("decode.decoding.biased.decode_shard", "score.bad_utts.write_report"):
        monkeypatch.setattr(f"pyasr.{function}", lambda *arguments: None)
    numbers = lang / "phones/disambig.int"
    content = numbers.read_text()
    try:
        for message in ("", f"is out of date: {numbers} changed"):
            capsys.readouterr()
            run_here("find_bad_utts.py", "--nj", 1, data, lang, SYSTEM, tmp_path / "out")
            assert message in capsys.readouterr().out
            numbers.write_text(content + "\n")
    finally:
        numbers.write_text(content)


def test_utterances_without_features_are_named(corpus, tmp_path):
    root, data, lang, _ = corpus
    (tmp_path / "data").mkdir()
    utts = list(read_table(data / "text"))[:12]
    for name in ("text", "utt2spk", "feats.scp", "cmvn.scp"):
        table = read_table(data / name)
        write_table(
            tmp_path / "data" / name,
            {key: table[key] for key in table if key in utts[name == "feats.scp" :] or name == "cmvn.scp"},
        )
    done = run("steps/find_bad_utts.py", "--nj", 1, tmp_path / "data", lang, SYSTEM, tmp_path / "out")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "out/failed_utts").read_text() == f"{utts[0]} no features in feats.scp\n"
    assert utts[0] in read_table(tmp_path / "out/bad_utts") and "1 utterances not decoded" in done.stdout
