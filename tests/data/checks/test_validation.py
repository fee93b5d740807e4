"""Every rule of the validator on a directory that violates it: file, line, text, a fix that repairs it; and
speed."""

import gzip
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile
from data_dirs import make_data_dir

from pyasr.base.errors import UserError
from pyasr.data.checks.repair import fix
from pyasr.data.checks.validation import NO_WORDS, validate
from pyasr.data.tables.datadir import write_data_dir
from pyasr.io.text_tables import read_table, write_table
from pyasr.lang.lexicons.dict_dir import RESERVED_WORDS

UTILS = Path(__file__).parents[3] / "utils"


def edit(path: Path, line: int, change) -> None:
    lines = path.read_text().splitlines()
    lines[line - 1] = change(lines[line - 1])
    path.write_text("".join(f"{text}\n" for text in lines if text is not None))


def swap(path: Path, line: int) -> None:
    lines = path.read_text().splitlines()
    lines[line - 1], lines[line] = lines[line], lines[line - 1]
    path.write_text("\n".join(lines) + "\n")


def rename_speaker(data: Path) -> None:
    """Rename the speaker 'ann' to 'zoe', whose utterances are first but who is the last speaker."""
    for name in ("utt2spk", "spk2utt"):
        lines = [
            re.sub(r"(^| )ann(?= |$)", r"\1zoe", line) for line in (data / name).read_text().splitlines()
        ]
        (data / name).write_text("\n".join(sorted(lines)) + "\n")


# name: (what breaks the directory, file, line, part of the offending text, part of the message)
BROKEN = {
    "three columns": (
        lambda d: edit(d / "utt2spk", 5, lambda s: s + " female"),
        "utt2spk",
        5,
        "bob-000 bob female",
        "three columns",
    ),
    "one column": (
        lambda d: edit(d / "utt2spk", 5, lambda s: "bob-000"),
        "utt2spk",
        5,
        "bob-000",
        "one column",
    ),
    "empty line": (lambda d: edit(d / "text", 3, lambda s: s + "\n"), "text", 4, "", "empty line"),
    "duplicated": (
        lambda d: edit(d / "text", 2, lambda s: s + "\n" + s),
        "text",
        3,
        "ann-001",
        "already in line 2",
    ),
    "unsorted": (lambda d: swap(d / "wav.scp", 2), "wav.scp", 3, "ann-001", "not sorted"),
    "not UTF-8": (
        lambda d: (d / "text").write_bytes((d / "text").read_bytes().replace(b"word3", b"na\xefve")),
        "text",
        4,
        "na",
        "UTF-8",
    ),
    "carriage returns": (
        lambda d: (d / "utt2spk").write_bytes((d / "utt2spk").read_bytes().replace(b"\n", b"\r\n")),
        "utt2spk",
        1,
        "ann-000 ann",
        "ends in a carriage return (12 such lines)",
    ),
    "carriage returns in wav.scp": (
        lambda d: (d / "wav.scp").write_bytes((d / "wav.scp").read_bytes().replace(b"\n", b"\r\n")),
        "wav.scp",
        1,
        "ann-000.wav",
        "ends in a carriage return (12 such lines)",
    ),
    "gzipped": (
        lambda d: (d / "text").write_bytes(gzip.compress((d / "text").read_bytes())),
        "text",
        0,
        "",
        "compressed by gzip",
    ),
    "no-break space": (
        lambda d: edit(d / "text", 3, lambda s: s.replace(" again", "\xa0again")),
        "text",
        3,
        "again",
        "the blank U+00A0",
    ),
    "ideographic space": (
        lambda d: edit(d / "utt2spk", 3, lambda s: s.replace(" ", "\u3000")),
        "utt2spk",
        3,
        "ann",
        "the blank U+3000",
    ),
    "vertical tab": (
        lambda d: edit(d / "text", 3, lambda s: s.replace(" again", "\x0bagain")),
        "text",
        3,
        "again",
        "the blank U+000B",
    ),
    "utterance unknown": (
        lambda d: edit(d / "text", 12, lambda s: s + "\ncy-900 hello"),
        "text",
        13,
        "cy-900",
        "not in utt2spk",
    ),
    "utterance lacking": (
        lambda d: edit(d / "text", 12, lambda s: None),
        "utt2spk",
        12,
        "cy-003 cy",
        "not in text",
    ),
    "no spk2utt": (lambda d: (d / "spk2utt").unlink(), "spk2utt", 0, "", "missing"),
    "empty spk2utt": (lambda d: (d / "spk2utt").write_text(""), "spk2utt", 0, "", "empty file"),
    "spk2utt disagrees": (
        lambda d: edit(d / "spk2utt", 1, lambda s: s.replace("ann-001", "cy-001")),
        "spk2utt",
        1,
        "cy-001",
        "assigns 'cy-001' to 'cy'",
    ),
    "spk2utt incomplete": (
        lambda d: edit(d / "spk2utt", 1, lambda s: s.replace(" ann-001", "")),
        "spk2utt",
        1,
        "ann",
        "missing",
    ),
    "speaker order": (rename_speaker, "utt2spk", 5, "bob-000 bob", "begin with their speaker"),
    "duration": (
        lambda d: edit(d / "utt2dur", 1, lambda s: "ann-000 long"),
        "utt2dur",
        1,
        "ann-000 long",
        "not a positive number",
    ),
    "missing audio": (
        lambda d: (d / "audio/bob-001.wav").unlink(),
        "wav.scp",
        6,
        "bob-001.wav",
        "no such audio file",
    ),
    "stale durations": (
        lambda d: edit(d / "utt2dur", 4, lambda s: None),
        "utt2spk",
        4,
        "ann-003",
        "not in utt2dur",
    ),
    "no archive": (
        lambda d: (d / "feats.scp").write_text(
            "".join(f"{u} {d}/x.ark:{i}\n" for i, u in enumerate(keys(d)))
        ),
        "feats.scp",
        1,
        "x.ark",
        "no such archive",
    ),
}


def keys(data: Path) -> list[str]:
    return [line.split()[0] for line in (data / "utt2spk").read_text().splitlines()]


def make_lang(path: Path, word: str) -> Path:
    path.mkdir()
    (path / "words.txt").write_text(f"<eps> 0\n<unk> 1\n{word} 2\n")
    (path / "oov.txt").write_text("<unk>\n")
    return path


def run_fix(command: str) -> None:
    program, *arguments = shlex.split(command)
    assert program.startswith("utils/")
    subprocess.run(
        [sys.executable, UTILS / program.removeprefix("utils/"), *arguments], check=True, capture_output=True
    )


@pytest.mark.parametrize("name", BROKEN)
def test_problem_is_found_and_its_fix_repairs(name, tmp_path):
    data = make_data_dir(tmp_path / "data")
    spoil, file, line, text, message = BROKEN[name]
    spoil(data)
    problems = validate(data)
    found = [
        p
        for p in problems
        if p.path == data / file and p.line == line and text in p.text and message in p.message
    ]
    assert found, [str(p) for p in problems]
    for command in dict.fromkeys(problem.fix for problem in problems):
        run_fix(command)
    assert validate(data) == []


def test_prefixed_names_are_unique_and_map_to_originals(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    write_data_dir(
        data,
        {
            "utt2spk": {"001": "joe", "002": "joe", "sp0.9-001": "sp0.9-joe"},
            "text": {"001": "one", "002": "two", "sp0.9-001": "one"},
            "utt2uniq": {"001": "001", "002": "elsewhere", "sp0.9-001": "001"},
        },
    )
    fix(data, prefix_speakers=True)
    first, second, copy = "joe-001", "joe-002", "sp0.9-joe-sp0.9-001"
    assert read_table(data / "utt2uniq") == {first: first, second: "elsewhere", copy: first}
    assert read_table(data / "text") == {first: "one", second: "two", copy: "one"}
    write_data_dir(data, {"utt2spk": {"001": "joe", first: "joe"}, "text": {"001": "one", first: "other"}})
    (data / "utt2uniq").unlink()
    before = {path.name: path.read_bytes() for path in data.iterdir() if path.is_file()}
    with pytest.raises(
        UserError, match="utt2spk: 001 and joe-001 would both be renamed to joe-001; nothing was changed"
    ):
        fix(data, prefix_speakers=True)
    assert before == {path.name: path.read_bytes() for path in data.iterdir() if path.is_file()}


@pytest.mark.parametrize("name", ["gzipped", "carriage returns", "carriage returns in wav.scp"])
def test_format_problems_lose_no_utterance(name, tmp_path):
    data = make_data_dir(tmp_path / "data")
    before = {p.name: p.read_bytes() for p in data.iterdir() if p.is_file()}
    BROKEN[name][0](data)
    fix(data)
    assert before == {p.name: p.read_bytes() for p in data.iterdir() if p.is_file()}


def test_byte_order_mark_is_reported_and_removed_by_fix(tmp_path, caplog):
    data = make_data_dir(tmp_path / "data")
    before = {p.name: p.read_bytes() for p in data.iterdir() if p.is_file()}
    for name in before:
        (data / name).write_bytes(b"\xef\xbb\xbf" + before[name])
    with caplog.at_level("INFO", "pyasr"):
        assert validate(data) == []
    assert (
        f"{data}/text: the byte order mark at its beginning is skipped, but Kaldi's programs take it as a "
        "part of the first key"
    ) in caplog.text
    said = fix(data)
    assert f"{data}/text: removed the byte order mark" in said
    assert before == {p.name: p.read_bytes() for p in data.iterdir() if p.is_file()}


def test_tables_in_another_encoding_are_refused(tmp_path):
    data = make_data_dir(tmp_path / "data")
    (data / "text").write_text((data / "text").read_text(), encoding="utf-16")
    for run in (validate, fix):
        with pytest.raises(
            UserError,
            match="data/text: UTF-16 text, not UTF-8; convert the file with iconv -f utf-16 -t utf-8",
        ):
            run(data)


def test_segments_are_validated(tmp_path):
    data = make_data_dir(tmp_path / "data", with_segments=True)
    assert validate(data, audio="read") == []
    edit(data / "segments", 2, lambda s: "ann-001 ann 0.5 0.4")
    edit(data / "segments", 3, lambda s: "ann-002 zoe 0.4 0.6")
    messages = [str(p) for p in validate(data)]
    assert any("segments:2: 'ann-001 ann 0.5 0.4': the end is not after the beginning" in m for m in messages)
    assert any("segments:3:" in m and "recording 'zoe' is not in wav.scp" in m for m in messages)
    fix(data)
    assert validate(data) == [] and len(keys(data)) == 10


# {line of segments: complaint}; recordings have 1 s
BAD_TIMES = {
    "ann-001 ann 0.2 1e400": "times are not numbers",
    "ann-001 ann inf inf": "times are not numbers",
    "ann-001 ann nan 0.4": "times are not numbers",
    "ann-001 ann 1.0 1.2": "begins after the end of the recording, which has 1 s",
    "ann-001 ann 0.2 1.6": "ends 0.60 s after the end of the recording, which has 1 s",
}


@pytest.mark.parametrize("known_by", ["reco2dur", "audio"])
def test_invalid_segment_times_are_repaired(known_by, tmp_path):
    """All problems are found in one pass; after their fixes, the next step accepts the directory."""
    data = make_data_dir(tmp_path / "data", with_segments=True)
    how = "read" if known_by == "audio" else "exists"
    if known_by == "reco2dur":
        (data / "reco2dur").write_text("ann 1.0\nbob 1.0\ncy 1.0\n")
    segments = (data / "segments").read_text().splitlines()
    kept = [*segments[:3], "ann-003 ann 0.6 1.4", "bob-000 bob 0.0 -1", *segments[5:]]
    bad = {
        f"bob-00{i}": line.replace("ann-001 ann", f"bob-00{i} bob")
        for i, line in enumerate(list(BAD_TIMES)[:3], 1)
    }
    bad |= {
        f"cy-00{i}": line.replace("ann-001 ann", f"cy-00{i} cy")
        for i, line in enumerate(list(BAD_TIMES)[3:], 2)
    }
    (data / "segments").write_text("".join(f"{bad.get(line.split()[0], line)}\n" for line in kept))
    problems = validate(data, audio=how)
    assert [(p.text, p.message) for p in problems] == list(zip(bad.values(), BAD_TIMES.values()))
    output = subprocess.run(
        [sys.executable, UTILS / "validate_kaldi.py", "--audio", how, data], capture_output=True, text=True
    )
    assert output.returncode == 1 and all(f"{p}\n" in output.stdout for p in problems)
    run_fix(problems[-1].fix)
    assert validate(data, audio="read") == [] and sorted(bad.keys() | set(keys(data))) == [
        line.split()[0] for line in kept
    ]
    assert (
        not bad.keys() & set(keys(data))
        and "ann-003 ann 0.6 1.4\nbob-000 bob 0.0 -1\n" in (data / "segments").read_text()
    )


def test_duration_accounts_for_speed(tmp_path):
    data = make_data_dir(tmp_path / "data", with_segments=True)
    (data / "reco2speed").write_text("ann 0.5\nbob 1\ncy 2\n")
    edit(data / "segments", 2, lambda s: "ann-001 ann 1.8 1.9")
    problems = validate(data, audio="read")
    assert [(p.text, p.message) for p in problems] == [
        ("cy-003 cy 0.6 0.8", "begins after the end of the recording, which has 0.5 s")
    ]


@pytest.mark.parametrize("how", ["exists", "read"])
def test_truncated_audio_is_found(how, tmp_path):
    data = make_data_dir(tmp_path / "data")
    wave = data / "audio/cy-002.wav"
    wave.write_bytes(wave.read_bytes()[:1000])
    (problem,) = validate(data, audio=how)
    assert (problem.line, problem.path.name) == (
        11,
        "wav.scp",
    ) and "cut short, 956 of 3200 bytes" in problem.message
    run_fix(problem.fix)
    assert validate(data, audio="read") == [] and "cy-002" not in keys(data)


def two_channels(wave: Path) -> str:
    soundfile.write(wave, np.zeros((1600, 2)), 8000)
    return str(wave)


# {entry of wav.scp: (complaint, what the user has to do)}
BY_HAND = {
    "refused command": (
        lambda wave: f"cat {wave} |",
        "commands are refused (--no-pipes, or PYASR_NO_PIPES in the environment)",
        "replace the command by a file",
    ),
    "no such program": (
        lambda wave: f"no-sph2pipe {wave} |",
        "no-sph2pipe: command not found)",
        "install its programs, or convert",
    ),
    "no such program before another": (
        lambda wave: f"no-sph2pipe {wave} | grep . |",
        "not found)",
        "install its programs, or convert",
    ),
    "no program": (lambda wave: f"{wave} |", "Permission denied)", "install its programs, or convert"),
    "two channels": (
        two_channels,
        "2 channels, expected 1",
        "choose one with --channel 0 or 1 of the feature extraction step",
    ),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_recordings_that_may_be_intact_are_kept(name, tmp_path, monkeypatch):
    data = make_data_dir(tmp_path / "data")
    make, message, advice = BY_HAND[name]
    edit(data / "wav.scp", 6, lambda s: f"bob-001 {make(data / 'audio/bob-001.wav')}")
    if name == "refused command":
        monkeypatch.setenv("PYASR_NO_PIPES", "1")
    before = {p.name: p.read_bytes() for p in data.iterdir() if p.is_file()}
    (problem,) = validate(data, audio="read")
    assert (
        (problem.line, problem.path.name) == (6, "wav.scp")
        and message in problem.message
        and problem.fix.startswith(advice)
    )
    (said,) = fix(data, audio="read")
    assert said == f"kept recording bob-001: {problem.message}; {problem.fix}"
    assert before == {p.name: p.read_bytes() for p in data.iterdir() if p.is_file()}


def test_deviating_sampling_rates_are_reported(tmp_path):
    """One of twelve recordings has twice the rate."""
    data = make_data_dir(tmp_path / "data")
    soundfile.write(data / "audio/bob-001.wav", np.zeros(3200), 16000)
    (problem,) = validate(data, audio="read")
    assert (problem.line, problem.path.name) == (
        6,
        "wav.scp",
    ) and problem.message == "audio of 16000 Hz, most recordings have 8000 Hz"
    assert problem.fix == "give --allow-downsample true to the feature extraction step, or resample it"
    assert validate(data, audio="exists") == []


# name: (table, its lines, text and message of the problem, what the user has to do)
NOT_MADE_AGAIN = {
    "spk2gender value": (
        "spk2gender",
        "ann f\nbob m\ncy male\n",
        "cy male",
        "neither m nor f",
        "correct the line",
    ),
    "spk2gender": (
        "spk2gender",
        "ann f\ncy m\n",
        "bob",
        "speaker 'bob' is not in spk2gender",
        "add the line to {}",
    ),
    "utt2lang": (
        "utt2lang",
        "".join(
            f"{name}-00{i} en\n" for name in ("ann", "bob", "cy") for i in range(4) if name + str(i) != "bob0"
        ),
        "bob-000 bob",
        "utterance 'bob-000' is not in utt2lang",
        "add the line to {}",
    ),
    "reco2file_and_channel": (
        "reco2file_and_channel",
        "ann a 1\ncy c 1\n",
        "bob",
        "recording 'bob' is not in reco2file_and_channel",
        "add the line to {}",
    ),
    "segments": (
        "segments",
        "".join(
            f"{name}-00{i} {name} 0.{i} 0.{i + 1}{' 0' * (name + str(i) == 'bob0')}\n"
            for name in ("ann", "bob", "cy")
            for i in range(4)
        ),
        "bob-000 bob 0.0 0.1 0",
        "five columns, expected 'UTTERANCE RECORDING BEGIN END'",
        (
            "make each channel a separate recording, list it in reco2file_and_channel, and remove the fifth "
            "column"
        ),
    ),
}


@pytest.mark.parametrize("name", NOT_MADE_AGAIN)
def test_unrecoverable_content_is_kept(name, tmp_path):
    data = make_data_dir(tmp_path / "data", with_segments=True)
    table, lines, text, message, advice = NOT_MADE_AGAIN[name]
    (data / table).write_text(lines)
    (problem,) = validate(data)
    assert text in problem.text and problem.message == message and problem.fix == advice.format(data / table)
    (said,) = fix(data)
    assert f"kept {table}: it lacks" in said or ": kept the invalid line '" in said
    assert (data / table).read_text() == lines and len(keys(data)) == 12


def test_recordings_whose_command_fails_are_removed(tmp_path):
    data = make_data_dir(tmp_path / "data")
    edit(data / "wav.scp", 6, lambda s: "bob-001 echo damaged >&2; exit 1 |")
    (problem,) = validate(data, audio="read")
    assert "failed with status 1 (damaged)" in problem.message
    run_fix(problem.fix)
    assert validate(data, audio="read") == [] and "bob-001" not in keys(data)


def test_transcripts_of_only_oov_words_are_reported(tmp_path):
    data, lang = make_data_dir(tmp_path / "data"), make_lang(tmp_path / "lang", "again")
    assert validate(data, lang=lang) == []
    edit(data / "text", 3, lambda s: s.split()[0] + " <unk> AGAIN")
    assert validate(data) == []
    (problem,) = validate(data, lang=lang)
    assert str(problem) == (
        f"{data}/text:3: 'ann-002 <unk> AGAIN': none of its words is in {lang}/words.txt; "
        "fix: correct it, or add its words to the dictionary"
    )


@pytest.mark.parametrize("symbol", NO_WORDS)
def test_reserved_symbols_in_transcripts_are_reported(symbol, tmp_path):
    data = make_data_dir(tmp_path / "data")
    edit(data / "text", 3, lambda s: f"{s} {symbol} x{symbol} again")
    (problem,) = validate(data)
    assert str(problem) == (
        f"{data}/text:3: 'ann-002 word2 again {symbol} x{symbol} again': contains the symbol {symbol}, which "
        "is not a word, and training skips the utterance; fix: remove the symbol, or replace it by the "
        "spoken words"
    )
    before = (data / "text").read_bytes()
    assert fix(data) == [] and (data / "text").read_bytes() == before


def test_reserved_symbols_equal_those_of_dictionaries():
    assert NO_WORDS == RESERVED_WORDS


def test_program_lists_all_problems_and_fails(tmp_path):
    data = make_data_dir(tmp_path / "data")
    edit(data / "utt2spk", 5, lambda s: s + " female")
    edit(data / "wav.scp", 3, lambda s: s.split()[0])
    run = subprocess.run(
        [sys.executable, UTILS / "validate_data_dir.py", data], capture_output=True, text=True
    )
    assert run.returncode == 1 and len(run.stdout.splitlines()) == 2
    assert (
        f"{data}/utt2spk:5: 'bob-000 bob female': three columns, expected 'UTTERANCE SPEAKER'; "
        f"fix: utils/fix_data_dir.py {data}"
    ) in run.stdout
    assert "2 problem(s)" in run.stderr


def test_empty_transcripts_are_kept(tmp_path):
    """As in Kaldi: words recognised in a segment of noise or silence are insertions."""
    data = make_data_dir(tmp_path / "data", with_segments=True)
    edit(data / "text", 3, lambda s: s.split()[0])
    edit(data / "text", 4, lambda s: s.split()[0] + " ")
    assert validate(data, lang=make_lang(tmp_path / "lang", "again")) == []
    output = subprocess.run(
        [sys.executable, UTILS / "validate_data_dir.py", data], capture_output=True, text=True, check=True
    )
    assert f"{data}/text: 2 transcripts are empty" in output.stdout + output.stderr
    edit(data / "text", 12, lambda s: None)
    for command in {problem.fix for problem in validate(data)}:
        run_fix(command)
    assert validate(data) == [] and len(keys(data)) == 11
    assert read_table(data / "text")["ann-002"] == read_table(data / "text")["ann-003"] == ""


def test_fix_that_would_remove_everything_is_refused(tmp_path):
    data = make_data_dir(tmp_path / "data")
    (data / "text").write_text("someone else\n")
    before = {p.name: p.read_bytes() for p in data.iterdir() if p.is_file()}
    with pytest.raises(UserError, match="no utterance is in all of"):
        fix(data)
    assert {p.name: p.read_bytes() for p in data.iterdir() if p.is_file()} == before


def test_fix_backs_up_replaced_files(tmp_path):
    data = make_data_dir(tmp_path / "data")
    edit(data / "text", 3, lambda s: None)
    before = (data / "utt2spk").read_bytes()
    fix(data)
    assert (data / ".backup/utt2spk").read_bytes() == before != (data / "utt2spk").read_bytes()


def test_fix_keeps_earlier_backups(tmp_path):
    """For example if some audio is unreachable at one time, and other audio later."""
    data = make_data_dir(tmp_path / "data")
    tables = []
    for utt, kept in (("ann-002", "text"), ("bob-001", "text.2")):
        tables.append((data / "text").read_bytes())
        wav = read_table(data / "wav.scp")
        del wav[utt]
        write_table(data / "wav.scp", wav)
        assert f"saved the previous {data}/text as {data}/.backup/{kept}" in fix(data)
    fix(data)
    assert [path.read_bytes() for path in sorted((data / ".backup").glob("text*"))] == tables


def make_large(directory, num_speakers: int, per_speaker: int) -> None:
    """A directory with all tables, whose audio comes from commands."""
    speakers = [f"speaker{s:04d}" for s in range(num_speakers)]
    utterances = [f"{speaker}-utt{i:05d}" for speaker in speakers for i in range(per_speaker)]
    directory.mkdir()
    ark = directory / "raw.ark"
    ark.touch()
    lines = {
        "utt2spk": (f"{u} {u[:11]}" for u in utterances),
        "spk2utt": (
            f"{s} {' '.join(utterances[i * per_speaker : (i + 1) * per_speaker])}"
            for i, s in enumerate(speakers)
        ),
        "text": (f"{u} some words that were said here" for u in utterances),
        "segments": (f"{u} {u[:11]} {i % 500}.25 {i % 500 + 2}.75" for i, u in enumerate(utterances)),
        "wav.scp": (f"{s} sph2pipe -f wav {s}.sph |" for s in speakers),
        "feats.scp": (f"{u} {ark}:{i * 1000}" for i, u in enumerate(utterances)),
        "utt2num_frames": (f"{u} 250" for u in utterances),
    }
    for name, content in lines.items():
        (directory / name).write_text("\n".join(content) + "\n")


def work_of(function) -> tuple[int, int]:
    """(calls of Python and C functions, opened files) of a function."""
    calls, opened = 0, 0

    def count(frame, event, argument):
        nonlocal calls, opened
        calls += event in ("call", "c_call")
        opened += event == "c_call" and argument is open

    sys.setprofile(count)
    try:
        function()
    finally:
        sys.setprofile(None)
    return calls, opened


def test_validation_time_is_linear_in_utterances(tmp_path):
    """With eight times the utterances and twice the speakers, no file is opened more often, and work per
    utterance is constant."""
    found = []
    for num_speakers, per_speaker in ((8, 25), (16, 100)):
        directory = tmp_path / str(per_speaker)
        make_large(directory, num_speakers, per_speaker)
        found.append(work_of(lambda: validate(directory)))
        assert validate(directory) == []
    (calls, opened), (more_calls, opened_again) = found
    assert opened_again == opened > 0 and more_calls < 8 * 1.2 * calls
