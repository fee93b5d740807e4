"""Pronunciations and silences found in alignments, against a plain recount."""

import gzip
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from steps_here import run_here

from pyasr.base.errors import UserError
from pyasr.data.transcripts.ctm import read_ctm
from pyasr.hmm.align.prons import PronsSpec, WordFinder, count_prons, write_prons
from pyasr.hmm.model.model_file import read_transitions
from pyasr.io.int_vectors import read_int_vectors, read_job_archives, write_int_vectors
from pyasr.io.text_tables import read_table, write_table
from pyasr.lang.lang_dirs.lang_dir import LangDir
from pyasr.lang.lexicons.pron_counts import BIGRAM_COUNTS, SILENCE_COUNTS, read_pron_counts

ROOT = Path(__file__).resolve().parents[3]
KALDI = ROOT / "tests" / "fixtures" / "kaldi"
SYSTEM = KALDI / "exp/tri1"


def plain_phones(alignment, trans) -> list[tuple[int, int]]:
    """(phone, frames), frame by frame: a phone begins at an arc out of its first state that is not a
    self-loop."""
    found = []
    for tid in alignment.tolist():
        if trans.tid2hmm_state[tid] == 0 and not trans.is_self_loop[tid]:
            found.append([int(trans.tid2phone[tid]), 0])
        found[-1][1] += 1
    return [tuple(pair) for pair in found]


def plain_words(phones, words, lang):
    """(word, phones..., frames) from the word positions in the names of phones."""
    words, found, current = iter(words), [], []
    for phone, frames in phones:
        name = lang.phones.symbol(phone)
        if name == "SIL":
            found.append((("<eps>", "SIL"), frames))
            continue
        current.append((name, frames))
        if name.endswith(("_E", "_S")) or name == "SPN":
            found.append(
                ((next(words), *(name for name, _ in current)), sum(frames for _, frames in current))
            )
            current = []
    assert not current and next(words, None) is None
    return found


@pytest.fixture(scope="module")
def plain():
    """{utterance: [((word, phones...), frames)]}."""
    lang = LangDir(KALDI / "lang")
    trans = read_transitions(SYSTEM / "final.mdl")
    text = read_table(KALDI / "data/text")
    return {
        utt: plain_words(plain_phones(alignment, trans), text[utt].split(), lang)
        for utt, alignment in read_job_archives(SYSTEM).items()
    }


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    """The output of steps/get_prons.py."""
    out = tmp_path_factory.mktemp("prons") / "prons"
    done = subprocess.run(
        [sys.executable, ROOT / "steps/get_prons.py", KALDI / "data", KALDI / "lang", SYSTEM, out],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return out


def base(token):
    return (token[0], *(re.sub("_[BEIS]$", "", phone) for phone in token[1:]))


def test_words_are_found_with_their_frames(out, plain):
    lines = [
        line.split()
        for job in (1, 2)
        for line in gzip.decompress((out / f"prons.{job}.gz").read_bytes()).decode().splitlines()
    ]
    found = {}
    for utt, begin, length, *token in lines:
        assert int(begin) == sum(frames for _, frames in found.get(utt, []))
        found.setdefault(utt, []).append((tuple(token), int(length)))
    assert found == plain


def test_pronunciations_are_counted(out, plain):
    expected = Counter(token for tokens in plain.values() for token, _ in tokens)
    lines = [line.split() for line in (out / "pron_counts.txt").read_text().splitlines()]
    assert {tuple(token): int(count) for count, *token in lines} == expected
    assert [int(count) for count, *_ in lines] == sorted(expected.values(), reverse=True)


def test_silences_and_neighbours_are_counted(out, plain):
    """Every position between words is counted once with the item to its left and once with the item to its
    right."""
    around, bigrams = Counter(), Counter()
    for tokens in plain.values():
        sequence = [("<s>",), *(base(token) for token, _ in tokens), ("</s>",)]
        words = [token for token in sequence if token[0] != "<eps>"]
        bigrams.update(zip(words, words[1:]))
        for left, right in zip(sequence, sequence[1:]):
            if left[0] == "<eps>":
                around[right, 0] += 1
            elif right[0] == "<eps>":
                around[left, 2] += 1
            else:
                around[right, 1] += 1
                around[left, 3] += 1
    counts = read_pron_counts(out)
    assert counts.bigrams == bigrams
    assert {token: tuple(vars(found).values()) for token, found in counts.silences.items()} == {
        token: tuple(around[token, i] for i in range(4)) for token in {token for token, _ in around}
    }


@pytest.fixture(scope="module")
def finder():
    return WordFinder(LangDir(KALDI / "lang"))


def test_unaligned_words_are_not_found(finder):
    lang = LangDir(KALDI / "lang")
    rows = lang.lexicon.rows()
    ids = {
        word: (lang.words[word], tuple(lang.phones[phone] for phone in phones)) for word, _, phones in rows
    }
    (one, first), (two, second) = ids["w0"], ids["w5"]
    silence = lang.optional_silence
    assert finder.find((silence, *first, silence, *second), [one, two]) == [
        (0, 1),
        (one, len(first)),
        (0, 1),
        (two, len(second)),
    ]
    assert finder.find((*first, *second, silence), [one, two]) == [
        (one, len(first)),
        (two, len(second)),
        (0, 1),
    ]
    assert finder.find((*first, *second), [one]) is None and finder.find(first, [one, two]) is None
    assert (
        finder.find((silence, silence, *first), [one]) is None
        and finder.find((silence,), []) == [(0, 1)]
        and finder.find((), []) == []
    )
    assert finder.find((), [one]) is None


def test_alignments_of_other_transcripts_are_omitted_or_refused(tmp_path):
    shutil.copytree(KALDI / "data", tmp_path / "data")
    text = read_table(KALDI / "data/text")
    odd = next(utt for utt in read_int_vectors(SYSTEM / "ali.1.gz") if text[utt] != "w0")
    (tmp_path / "data/text").write_text(
        "".join(f"{utt} {'w0' if utt == odd else words}\n" for utt, words in text.items())
    )
    spec = PronsSpec(tmp_path / "data", KALDI / "lang", SYSTEM, tmp_path, 2)
    write_prons(spec, 1)
    counts = count_prons(tmp_path, 1)
    assert counts.bigrams.total() == sum(
        len(text[utt].split()) + 1 for utt in read_int_vectors(SYSTEM / "ali.1.gz") if utt != odd
    )
    (tmp_path / "data/text").write_text("".join(f"{utt} w0 w0 w0 w0 w0 w0\n" for utt in text))
    with pytest.raises(
        UserError, match="no alignment contains the words of .*data/text in the pronunciations of"
    ):
        run_here("get_prons.py", tmp_path / "data", KALDI / "lang", SYSTEM, tmp_path / "none")


def test_alignments_of_other_utterances_are_refused_with_reason(tmp_path, caplog):
    text, utts = read_table(KALDI / "data/text"), sorted(read_int_vectors(SYSTEM / "ali.1.gz"))
    (tmp_path / "data").mkdir()
    write_table(tmp_path / "data/text", {f"x{utt}": words for utt, words in text.items()})
    with pytest.raises(
        UserError,
        match=(
            f"no alignment contains .*: [0-9]+: no line in {tmp_path}/data/text .*; give the data and "
            "language"
        ),
    ):
        run_here("get_prons.py", tmp_path / "data", KALDI / "lang", SYSTEM, tmp_path / "none")
    write_table(tmp_path / "data/text", {utt: words for utt, words in text.items() if utt not in utts[:2]})
    caplog.clear()
    run_here("get_prons.py", tmp_path / "data", KALDI / "lang", SYSTEM, tmp_path / "prons")
    assert (
        f"2 utterances of {SYSTEM} skipped: no line in {tmp_path}/data/text: {' '.join(utts[:2])}"
        in caplog.text
    )
    assert not list((tmp_path / "prons").glob("skipped_utterances*"))


@pytest.mark.parametrize("empty", [True, False])
def test_archive_without_matching_alignment_is_ignored(empty, plain, tmp_path):
    """The data directory has other transcripts, or none."""
    data, ali = shutil.copytree(KALDI / "data", tmp_path / "data"), shutil.copytree(SYSTEM, tmp_path / "ali")
    first = read_int_vectors(ali / "ali.1.gz")
    write_int_vectors(ali / "ali.1.gz", {} if empty else first)
    write_table(data / "text", read_table(data / "text") | dict.fromkeys(first, "w0 w0 w0 w0 w0 w0"))
    run_here("get_prons.py", "--nj", 2, data, KALDI / "lang", ali, tmp_path / "prons")
    expected = Counter(token for utt, tokens in plain.items() if utt not in first for token, _ in tokens)
    lines = [line.split() for line in (tmp_path / "prons/pron_counts.txt").read_text().splitlines()]
    assert expected and {tuple(token): int(count) for count, *token in lines} == expected


@pytest.mark.parametrize(
    "name, line, message",
    [
        (
            SILENCE_COUNTS,
            "1 2 3 w0",
            r"sil_counts_nowb.txt:2: expected 4 count\(s\), a word and its phones, found '1 2 3 w0'",
        ),
        (SILENCE_COUNTS, "1 2 3 4 w0 P0", "'w0 P0' occurs twice"),
        (
            BIGRAM_COUNTS,
            "3 <s> w0",
            "pron_bigram_counts_nowb.txt:2: expected 'COUNT<tab>WORD PHONES<tab>WORD PHONES'",
        ),
    ],
)
def test_damaged_counts_are_refused(tmp_path, name, line, message):
    contents = {
        "pron_counts_nowb.txt": "4 w0 P0\n",
        SILENCE_COUNTS: "1 2 3 4 w0 P0\n",
        BIGRAM_COUNTS: "4\t<s>\tw0 P0\n",
    }
    for file, content in contents.items():
        (tmp_path / file).write_text(content + (line + "\n" if file == name else ""))
    with pytest.raises(UserError, match=message):
        read_pron_counts(tmp_path)


def test_ctm_of_transcripts(plain, tmp_path):
    """Words and their times in recordings. Utterances begin 100 s apart on side B of a tape."""
    data = shutil.copytree(KALDI / "data", tmp_path / "data")
    begins = {utt: 100.0 * i for i, utt in enumerate(sorted(plain))}
    write_table(data / "segments", {utt: f"rec {begin} {begin + 99}" for utt, begin in begins.items()})
    write_table(data / "reco2file_and_channel", {"rec": "tape B"})
    run_here("get_train_ctm.py", data, KALDI / "lang", SYSTEM, tmp_path / "ctm")
    text, expected = read_table(data / "text"), []
    for utt, tokens in plain.items():
        words, frame = iter(text[utt].split()), 0
        for (word, *_), frames in tokens:
            if word != "<eps>":
                expected.append(("tape", "B", begins[utt] + frame / 100, frames / 100, next(words)))
            frame += frames
    found = read_ctm(tmp_path / "ctm/ctm")
    assert [line.word for line in found] == [line[-1] for line in sorted(expected)] and {
        line.confidence for line in found
    } == {1.0}
    for line, (file, channel, begin_s, duration_s, _) in zip(found, sorted(expected), strict=True):
        assert (line.file, line.channel) == (file, channel)
        assert line.begin_s == pytest.approx(begin_s, abs=1e-6) and line.duration_s == pytest.approx(
            duration_s, abs=1e-6
        )


def test_ctm_requires_alignment_of_each_transcript(tmp_path, capsys):
    """Two alignments are missing. Two others are not in the data directory, and a third one has no words
    there."""
    data, ali = shutil.copytree(KALDI / "data", tmp_path / "data"), shutil.copytree(SYSTEM, tmp_path / "ali")
    first = read_int_vectors(ali / "ali.1.gz")
    gone, strange, silent = list(first)[:2], sorted(read_int_vectors(ali / "ali.2.gz"))[:2], list(first)[2]
    write_int_vectors(
        ali / "ali.1.gz", {utt: alignment for utt, alignment in first.items() if utt not in gone}
    )
    for name in ("text", "utt2spk"):
        write_table(
            data / name, {utt: value for utt, value in read_table(data / name).items() if utt not in strange}
        )
    wanted = len(read_table(data / "text")) - 1
    write_table(data / "text", read_table(data / "text") | {silent: ""})
    report = (
        f"ali: 2 of {wanted} utterances have to be left out: 2: no alignment in .*ali "
        f".{' '.join(sorted(gone))}.; give the data and language"
    )
    with pytest.raises(UserError, match=report):
        run_here(
            "get_train_ctm.py", "--max-missing", 1.9 / wanted, data, KALDI / "lang", ali, tmp_path / "ctm"
        )
    capsys.readouterr()
    run_here("get_train_ctm.py", "--max-missing", 2.1 / wanted, data, KALDI / "lang", ali, tmp_path / "ctm")
    out = capsys.readouterr().out
    assert (
        f"3 utterances of {ali} left out: no words in {data}/text: {' '.join(sorted([*strange, silent]))}"
        in out
    )
    assert f"2 utterances left out: no alignment in {ali}: {' '.join(sorted(gone))}" in out
    assert {line.file for line in read_ctm(tmp_path / "ctm/ctm")} == read_table(data / "text").keys() - {
        *gone,
        silent,
    }
    with (data / "utt2spk").open("a") as f:
        f.write("zzz zzz\n")
    run_here("get_train_ctm.py", "--max-missing", 2.1 / wanted, data, KALDI / "lang", ali, tmp_path / "ctm")
    assert f"is out of date: {data}/utt2spk changed" in capsys.readouterr().out


def test_utterances_with_reserved_symbols_are_omitted(tmp_path):
    """The alignments come from an aligner that treated the symbols as words."""
    data = shutil.copytree(KALDI / "data", tmp_path / "data")
    text = read_table(data / "text")
    utt = sorted(text)[0]
    write_table(data / "text", text | {utt: f"<s> {text[utt]} </s>"})
    run_here("get_train_ctm.py", data, KALDI / "lang", SYSTEM, tmp_path / "ctm")
    assert {line.file for line in read_ctm(tmp_path / "ctm/ctm")} == text.keys() - {utt}
    run_here("get_prons.py", data, KALDI / "lang", SYSTEM, tmp_path / "prons")
    lines = [line for path in (tmp_path / "prons").glob("prons.*.gz") for line in gzip.open(path, "rt")]
    assert {line.split()[0] for line in lines} == text.keys() - {utt}


@pytest.mark.parametrize(
    "name, message",
    [
        ("utt2spk", "data/text: no utterance of utt2spk has words; run utils/fix_data_dir.py"),
        ("both", "ali: 1 of 1 utterances have to be left out: 1: no alignment in .*of-elsewhere"),
    ],
)
def test_ctm_of_other_data_is_refused(tmp_path, name, message):
    data, ali = shutil.copytree(KALDI / "data", tmp_path / "data"), shutil.copytree(SYSTEM, tmp_path / "ali")
    write_table(data / "utt2spk", {"of-elsewhere": "of"})
    if name == "both":
        write_table(data / "text", {"of-elsewhere": "w0"})
    with pytest.raises(UserError, match=message):
        run_here("get_train_ctm.py", "--max-missing", 1, data, KALDI / "lang", ali, tmp_path / "ctm")
    assert not (tmp_path / "ctm").exists()


def test_fewer_jobs_than_archives_give_same_result(out, tmp_path):
    run_here("get_prons.py", "--nj", 1, KALDI / "data", KALDI / "lang", SYSTEM, tmp_path / "prons")
    for path in out.glob("*.gz"):
        assert (tmp_path / "prons" / path.name).read_bytes() == path.read_bytes()
    for num_jobs in (1, 2):
        run_here(
            "get_train_ctm.py",
            "--nj",
            num_jobs,
            KALDI / "data",
            KALDI / "lang",
            SYSTEM,
            tmp_path / f"ctm{num_jobs}",
        )
    assert read_ctm(tmp_path / "ctm1/ctm") == read_ctm(tmp_path / "ctm2/ctm")


def test_ctm_of_other_transcripts_is_refused(tmp_path):
    data = shutil.copytree(KALDI / "data", tmp_path / "data")
    text = read_table(data / "text")
    write_table(data / "text", dict(zip(text, [*text.values()][::-1])))
    with pytest.raises(
        UserError,
        match=(
            "its alignment does not contain the words of its transcript.*give the data and language directory"
        ),
    ):
        run_here("get_train_ctm.py", data, KALDI / "lang", SYSTEM, tmp_path / "ctm")
    assert not (tmp_path / "ctm").exists()
