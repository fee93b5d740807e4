"""Sources of a user's corpus: all kinds give the same utterances, and every mistake is reported in one
sentence."""

import gzip
import json
import re
import shutil
from pathlib import Path

import pytest
from own_corpora import RATE, prepared, speakers_and_sentences, textgrid, tone, write

from pyasr.base.errors import UserError
from pyasr.data.checks.validation import validate
from pyasr.data.tables.datadir import write_data_dir
from pyasr.intake.own.findings import choices, has_several_channels
from pyasr.intake.own.preparing import tables_of
from pyasr.intake.own.reading.audio_files import recording_of
from pyasr.intake.own.reading.own_corpus import PARTS, Faults
from pyasr.intake.own.reading.table_files import read_rows

CORPUS = speakers_and_sentences()


def files(folder: Path) -> dict[tuple[str, int], Path]:
    """The audio of the corpus, one folder for each speaker."""
    return {
        (speaker, number): tone(folder / speaker / f"{number:03d}.wav", 1.0) for speaker, number, _ in CORPUS
    }


def table(folder: Path, name: str, rows: list[list[str]], delimiter: str, **how) -> Path:
    return write(folder / name, "\n".join(delimiter.join(row) for row in rows) + "\n", **how)


def named_rows(folder: Path) -> list[list[str]]:
    return [
        [str(path.relative_to(folder / "clips")), text, speaker]
        for (speaker, _), path, text in zip(
            files(folder / "clips"), files(folder / "clips").values(), (text for _, _, text in CORPUS)
        )
    ]


def common_voice(folder):
    rows = [[speaker * 20, path, text, "2", "0"] for path, text, speaker in named_rows(folder)]
    table(folder, "validated.tsv", [["client_id", "path", "sentence", "up_votes", "down_votes"], *rows], "\t")
    table(
        folder,
        "invalidated.tsv",
        [["client_id", "path", "sentence", "up_votes", "down_votes"], *rows[:1]],
        "\t",
    )


def lj_speech(folder):
    rows = [[path.removesuffix(".wav"), "RAW 1", text] for path, text, _ in named_rows(folder)]
    table(folder, "metadata.csv", rows, "|")


def spreadsheet(folder):
    quoted = [
        [path, '"' + text.replace('"', '""') + '"', speaker] for path, text, speaker in named_rows(folder)
    ]
    text = "\r\n".join(",".join(row) for row in [["File Name", "Transcript", "Speaker ID"], *quoted]) + "\r\n"
    write(folder / "table.csv", text, "utf-8-sig")


def utf16_table(folder):
    table(folder, "table.tsv", [["file", "text", "speaker"], *named_rows(folder)], "\t", encoding="utf-16")


def headless(folder):
    table(
        folder,
        "list.txt",
        [[f"DUMMY/clips/{path}", speaker, text] for path, text, speaker in named_rows(folder)],
        "|",
    )


def ids_and_words(folder):
    for speaker, number, _ in CORPUS:
        tone(folder / "wav" / f"{speaker}-{number:03d}.flac")
    write(
        folder / "transcripts.txt",
        "".join(f"{speaker}-{number:03d} {text}\n" for speaker, number, text in CORPUS),
    )


def pairs_of_text(folder):
    for (speaker, number), path in files(folder).items():
        write(
            path.with_suffix(".txt"),
            CORPUS[[one[:2] for one in CORPUS].index((speaker, number))][2] + "\r\n",
            "utf-8-sig",
        )
    write(folder / "README.txt", "Audio of ten speakers")


def parallel_trees(folder):
    for speaker, number, text in CORPUS:
        tone(folder / "wav48" / speaker / f"{speaker}_{number:03d}.wav")
        write(folder / "txt" / speaker / f"{speaker}_{number:03d}.lab", text)


def textgrids(folder):
    for i, (speaker, number, text) in enumerate(CORPUS):
        path = tone(folder / speaker / f"{number:03d}.wav", 3.0)
        grid = textgrid(
            {"phones": [(0, 3.0, "x")], "utterance": [(0, 1.0, ""), (1.0, 2.0, text), (2.0, 3.0, "")]},
            3.0,
            short=i % 2 == 0,
        )
        write(path.with_suffix(".TextGrid"), grid, "utf-16" if i % 3 == 0 else "utf-8")


def speakers_tiers(folder):
    for j in range(4):
        tiers = {
            speaker: [(2.0 * i, 2.0 * i + 1.0, text)]
            for i, (speaker, number, text) in enumerate(CORPUS)
            if number == j
        }
        write(tone(folder / f"talk{j}.wav", 100.0).with_suffix(".textgrid"), textgrid(tiers, 100.0))


def kaldi(folder):
    """A table to be split, with paths relative to the parent directory."""
    path = folder / "data" / "all"
    path.mkdir(parents=True)
    audio = files(folder / "data")
    texts = {(speaker, number): text for speaker, number, text in CORPUS}
    write_data_dir(
        path,
        {
            "wav.scp": {f"{s}-{n}": place.relative_to(folder) for (s, n), place in audio.items()},
            "text": {f"{s}-{n}": text for (s, n), text in texts.items()},
            "utt2spk": {f"{s}-{n}": s for s, n in texts},
        },
    )


def lhotse(folder):
    audio = files(folder)
    sources = [
        {
            "id": f"{s}-{n}",
            "sources": [{"type": "file", "channels": [0], "source": str(path)}],
            "duration": 1.0,
            "sampling_rate": RATE,
            "num_samples": RATE,
        }
        for (s, n), path in audio.items()
    ]
    spoken = [
        {
            "id": f"{s}-{n}",
            "recording_id": f"{s}-{n}",
            "start": 0.0,
            "duration": 1.0,
            "channel": 0,
            "text": text,
            "speaker": s,
        }
        for s, n, text in CORPUS
    ]
    (folder / "my_recordings_all.jsonl.gz").write_bytes(
        gzip.compress("\n".join(map(json.dumps, sources)).encode())
    )
    (folder / "my_supervisions_all.jsonl.gz").write_bytes(
        gzip.compress("\n".join(map(json.dumps, spoken)).encode())
    )


KINDS = {make.__name__: make for make in (common_voice, spreadsheet, utf16_table, headless, ids_and_words,
                                          pairs_of_text, parallel_trees, textgrids, speakers_tiers, kaldi,
                                          lhotse, lj_speech)}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_every_source_kind_gives_same_utterances(kind, tmp_path, monkeypatch):
    """Speakers, words and seconds equal those of the corpus; data directories are valid."""
    folder = tmp_path / "my corpus"
    folder.mkdir()
    KINDS[kind](folder)
    monkeypatch.chdir(tmp_path)
    found = prepared(folder / "data" if kind == "kaldi" else folder)
    reference = {(speaker, text_of(text)) for speaker, _, text in CORPUS}
    said = {
        (one.speaker if kind != "common_voice" else one.speaker[:5], one.text)
        for one in found.corpus.utterances
    }
    assert said == reference and len(found.corpus.utterances) == len(CORPUS)
    assert abs(found.corpus.hours * 3600 - len(CORPUS)) < 0.1
    for part in PARTS:
        out = tmp_path / part
        out.mkdir()
        write_data_dir(out, tables_of(found.corpus, found.split.parts[part]))
        assert not validate(out)
    speakers = [{one.speaker for one in found.split.parts[part]} for part in PARTS]
    assert all(speakers) and not (
        speakers[0] & speakers[1] or speakers[1] & speakers[2] or speakers[0] & speakers[2]
    )


def text_of(text: str) -> str:
    """The words of the corpus's sentences."""
    plain = text.replace(" & ", " and ").replace(" 5 ", " five ").replace("Good-bye", "good-bye")
    return "".join(c for c in plain.lower() if c.isalpha() or c in " '-").strip()


@pytest.mark.parametrize(
    "text, rows",
    [
        (
            'a\t"""Ah,"" he said."\nb\t"Yes" and "no"\nc\t5" nails\n',
            ['"Ah," he said.', '"Yes" and "no"', '5" nails'],
        ),
        ('a,"one, ""two"""\nb,"line\nbreak"\n', ['one, "two"', "line break"]),
        ("a;eins, zwei\n\nb;drei\n", ["eins, zwei", "drei"]),
        ('a|raw "x|x\nb|y|y\n', ["x", "y"]),
        ("a one two\nb three\n", ["one two", "three"]),
        ("a\tone\t\t\nb\ttwo\t\t\n", [""] * 2),
    ],
)
def test_quotation_marks_and_delimiters_are_parsed(text, rows, tmp_path):
    assert [row.fields[-1] for row in read_rows(write(tmp_path / "t.csv", text))] == rows


def test_lists_in_subfolders_and_absolute_paths(tmp_path):
    """Lists of ids and words in several folders, as in LibriSpeech; a single table with absolute paths."""
    for i in range(3):
        names = [tone(tmp_path / "corpus" / f"{i}" / f"{i}-{j}.flac").stem for j in range(4)]
        write(
            tmp_path / "corpus" / f"{i}" / f"{i}.trans.txt",
            "".join(f"{name} THE CAT {name[0]}\n" for name in names),
        )
    found = prepared(tmp_path / "corpus", normalise="false")
    assert len(found.corpus.utterances) == 12 and all(
        one.text == f"THE CAT {one.speaker}" for one in found.corpus.utterances
    )
    rows = "".join(f"{path}\tthe cat\n" for path in sorted((tmp_path / "corpus").rglob("*.flac")))
    assert len(prepared(write(tmp_path / "lists/table.tsv", rows)).corpus.utterances) == 12


@pytest.mark.parametrize("suffix", ["wav", "flac", "mp3", "ogg", "aiff", "au", "w64", "caf"])
def test_lengths_rates_and_channels_of_all_formats(suffix, tmp_path):
    found = recording_of(str(tone(tmp_path / f"a.{suffix}", 1.5, 16000, 2)), "a", Faults(False))
    assert (found.rate, found.channels) == (16000, 2) and abs(found.seconds - 1.5) < 0.08


def test_lhotse_channels_are_read_without_a_command(tmp_path):
    tone(tmp_path / "call.wav", 8.0, channels=2)
    recording = {
        "id": "call",
        "sources": [{"type": "file", "channels": [0, 1], "source": "call.wav"}],
        "duration": 8.0,
    }
    spoken = [
        {
            "id": f"u{i}",
            "recording_id": "call",
            "start": float(i),
            "duration": 1.0,
            "channel": i % 2,
            "text": f"the cat {i}",
            "speaker": "AB"[i % 2],
        }
        for i in range(8)
    ]
    paths = [
        write(tmp_path / name, "\n".join(map(json.dumps, rows)))
        for name, rows in (("recordings.jsonl", [recording]), ("supervisions.jsonl", spoken))
    ]
    found = prepared(*paths)
    tables = tables_of(found.corpus, found.corpus.utterances)
    assert set(tables["wav.scp"].values()) == {str(tmp_path / "call.wav")}
    assert set(tables["reco2file_and_channel"].values()) == {"call 1", "call 2"} and not has_several_channels(
        found
    )


def test_one_microphone_of_vctk_is_selected(tmp_path):
    for i in range(4):
        for microphone in (1, 2):
            tone(tmp_path / "wav48" / "p225" / f"p225_{i:03d}_mic{microphone}.flac")
        write(tmp_path / "txt" / "p225" / f"p225_{i:03d}.txt", f"the cat {'sat ' * i}")
    found = prepared(tmp_path)
    assert len(found.corpus.utterances) == 4 and all(
        "_mic1" in recording.entry for recording in found.corpus.recordings.values()
    )


def test_kaldi_commands_run_once_for_their_rate(tmp_path):
    """Lengths are known, so only one command is run."""
    path = tmp_path / "data"
    path.mkdir()
    tone(tmp_path / "a.wav")
    commands = {f"r{i}": f"echo {i} >>{tmp_path}/ran; cat {tmp_path}/a.wav |" for i in range(9)}
    write_data_dir(
        path,
        {
            "wav.scp": commands,
            "text": dict.fromkeys(commands, "the cat"),
            "utt2spk": {name: name for name in commands},
            "utt2dur": dict.fromkeys(commands, 1.0),
        },
    )
    assert {recording.rate for recording in prepared(path).corpus.recordings.values()} == {RATE}
    assert (tmp_path / "ran").read_text().count("\n") == 1


def test_long_utterances_are_reported(tmp_path):
    table(tmp_path, "t.tsv", [*rows_of(tmp_path), [tone(tmp_path / "long.wav", 50.0).name, "the dog"]], "\t")
    assert any(
        "1 utterances are longer than 40 s, such as long-long with 50 s" in sentence
        for sentence in choices(prepared(tmp_path))
    )


def test_parts_of_source_are_kept(tmp_path):
    names = list(files(tmp_path / "clips").values())
    for part, chosen in (("train", names[:30]), ("dev", names[30:33]), ("test", names[33:])):
        table(
            tmp_path,
            f"{part}.tsv",
            [
                ["path", "sentence"],
                *([path.name and str(path.relative_to(tmp_path / "clips")), "the cat"] for path in chosen),
            ],
            "\t",
        )
    found = prepared(tmp_path)
    assert {part: len(found.split.parts[part]) for part in PARTS} == {
        "train": 30,
        "dev": 3,
        "test": 7,
    } and "source" in found.split.message


def test_folders_named_like_parts_are_parts(tmp_path):
    for part, num in (("train", 6), ("dev", 2), ("test", 3)):
        for i in range(num):
            write(tone(tmp_path / part / f"{part}{i}.wav").with_suffix(".txt"), f"sentence number {i}")
    assert {part: len(found) for part, found in prepared(tmp_path).split.parts.items()} == {
        "train": 6,
        "dev": 2,
        "test": 3,
    }


@pytest.mark.parametrize("column, end", [("end", lambda i: i + 0.5), ("duration", lambda i: 0.5)])
def test_times_in_table_become_segments(column, end, tmp_path):
    tone(tmp_path / "talk.wav", 10.0)
    rows = [
        ["audio", "start", column, "text"],
        *([["talk.wav", f"{i}", f"{end(i)}", f"the cat {'sat ' * i}"] for i in range(10)]),
    ]
    found = prepared(table(tmp_path, "talk.csv", rows, ","), tmp_path)
    tables = tables_of(found.corpus, found.split.parts["train"])
    assert set(tables["segments"].values()) <= {f"talk {i}.000 {i}.500" for i in range(10)} and tables[
        "wav.scp"
    ] == {"talk": str(tmp_path / "talk.wav")}
    assert len(found.corpus.utterances) == 10 and abs(3600 * found.corpus.hours - 5) < 1e-6


def test_columns_are_selected_by_name(tmp_path):
    audio = [tone(tmp_path / f"{i}.wav") for i in range(9)]
    rows = [[path.name, "x", "yes" if i % 2 else f"no {i}", "s"] for i, path in enumerate(audio)]
    found = prepared(
        table(tmp_path, "t.tsv", rows, "\t"),
        tmp_path,
        columns="file,-,text,-",
        language="letters",
        normalise="false",
    )
    assert sorted(one.text for one in found.corpus.utterances) == sorted(row[2] for row in rows)


@pytest.mark.parametrize(
    "header, flags",
    [
        (["Aufnahme", "Satz", "Wer"], {}),
        (["FICHIER", "TEXTE", "LOCUTEUR"], {}),
        (["a", "b", "c"], {"columns": "file,text,speaker"}),
    ],
)
@pytest.mark.parametrize("ending", [".wav", ""])
def test_alternative_header_words_are_recognised(header, flags, ending, tmp_path):
    """With names of files or their stems below, of which one or two are missing."""
    rows = [[f"a{i}{ending}", f"the cat {'sat ' * (i % 3)}", f"s{i % 3}"] for i in range(12)]
    for row in rows:
        tone(tmp_path / f"{row[0].removesuffix(ending)}.wav")
    found = prepared(table(tmp_path, "t.csv", [header, *rows], ";"), tmp_path, **flags)
    assert {one.speaker for one in found.corpus.utterances} == {"s0", "s1", "s2"} and len(
        found.corpus.utterances
    ) == 12
    assert (
        f"columns of t.csv: file 1 ({header[0]}), text 2 ({header[1]}), speaker 3 ({header[2]})"
        in found.corpus.notes
    )
    (tmp_path / "a0.wav").unlink()
    with pytest.raises(UserError, match=rf"rows with missing audio files: 1, a0{ending} \(line 2\)"):
        prepared(table(tmp_path, "t.csv", [header, *rows], ";"), tmp_path, **flags)
    with pytest.raises(UserError, match=rf"rows with missing audio files: 1, a0{ending} \(line 1\)"):
        prepared(table(tmp_path, "t.csv", rows, ";"), tmp_path, columns="file,text,speaker")


def test_system_files_next_to_corpus_are_ignored(tmp_path):
    rows = rows_of(tmp_path)
    table(tmp_path / "lists", "t.csv", rows, ",")
    table(tmp_path / "lists/.ipynb_checkpoints", "t-checkpoint.csv", rows, ",")
    write(tmp_path / "lists/md5sums.txt", "".join(f"d41d8cd9  {name}\n" for name, _ in rows[1:]))
    assert len(prepared(tmp_path).corpus.utterances) == 12


def rows_of(folder: Path, num: int = 12) -> list[list[str]]:
    """A valid table of `num` files."""
    return [["file", "text"], *([tone(folder / f"a{i}.wav").name, f"the cat {i % 5}"] for i in range(num))]


def missing_files(folder):
    rows = rows_of(folder)
    table(folder, "t.tsv", rows, "\t")
    for i in (2, 3, 4, 5):
        (folder / f"a{i}.wav").unlink()
    return (
        [folder],
        (
            "rows with missing audio files: 4, such as a2.wav (line 4), a3.wav (line 5), a4.wav (line 6); "
            "add the files, or remove"
        ),
    )


def wrong_number_of_columns(folder):
    rows = rows_of(folder)
    rows[5].append("more")
    return [
        table(folder, "t.tsv", rows, "\t"),
        folder,
    ], "t.tsv:6: 3 column(s), but 2 in line 1 (file, text); correct the line"


def comma_without_quotation(folder):
    rows = rows_of(folder)
    report = "; correct the line, or put fields that contain ',' in quotation"
    return [table(folder, "t.csv", [*rows, ["a1.wav", "yes, no"]], ","), folder], report


def open_quotation(folder):
    return [
        write(folder / "t.csv", f'file,text\n{tone(folder / "a.wav").name},"the cat\n'),
        folder,
    ], "t.csv:2: "


def latin_1(folder):
    rows_of(folder)
    return [
        write(folder / "t.tsv", "file\ttext\na0.wav\tété\n", "latin-1"),
        folder,
    ], "t.tsv:2: not UTF-8 text; convert the file"


def two_tables(folder):
    rows = rows_of(folder)
    table(folder, "one.tsv", rows, "\t")
    table(folder, "two.tsv", rows, "\t")
    return [folder], "several tables: 2, one.tsv, two.tsv; give the one to read"


def no_text_column(folder):
    report = "the column of the text is not recognised (file, colour); name"
    return [table(folder, "t.tsv", [["file", "colour"], *rows_of(folder)[1:]], "\t"), folder], report


def audio_alone(folder):
    rows_of(folder)
    return (
        [folder],
        (
            "12 audio files without transcripts; give one of: Kaldi's data directories, lhotse's manifests, "
            "a folder of audio with a table"
        ),
    )


def text_without_audio(folder):
    for i in range(4):
        write(tone(folder / f"a{i}.wav").with_suffix(".txt"), "the cat")
    (folder / "a2.wav").unlink()
    return [folder], "transcripts without an audio file of the same name: 1, " + str(folder / "a2.txt")


def damaged_audio(folder):
    rows = rows_of(folder)
    table(folder, "t.tsv", [*rows, rows[2]], "\t")
    (folder / "a1.wav").write_bytes((folder / "a1.wav").read_bytes()[:500])
    return [folder], "unreadable audio: 1, a1.wav in line 3 (cut short, "


def foreign_format(folder):
    for i in range(3):
        write(folder / f"a{i}.m4a", "x")
    report = "audio only in unsupported formats (.m4a); convert the files to WAV"
    return [table(folder, "t.tsv", [["file", "text"], ["a0.m4a", "the cat"]], "\t"), folder], report


def ambiguous_name(folder):
    tone(folder / "x" / "a.wav")
    tone(folder / "y" / "a.wav")
    return [table(folder, "t.tsv", [["file", "text"], ["a.wav", "the cat"]], "\t"), folder], "'a.wav' may be "


def times_outside(folder):
    tone(folder / "talk.wav", 2.0)
    rows = [
        ["file", "start", "end", "text"],
        ["talk.wav", "0", "1", "the cat"],
        ["talk.wav", "1", "9.5", "the dog"],
    ]
    return [
        table(folder, "t.tsv", rows, "\t"),
        folder,
    ], "utterances outside their recordings or shorter than 0.1 s: 1, talk from 1 to 9.5"


def no_number(folder):
    tone(folder / "talk.wav", 2.0)
    rows = [["file", "start", "end", "text"], ["talk.wav", "0", "soon", "the cat"]]
    return [
        table(folder, "t.tsv", rows, "\t"),
        folder,
    ], "t.tsv:2: 'soon', the end of an utterance, is not a number of seconds"


def too_few(folder):
    return [table(folder, "t.tsv", rows_of(folder, 2), "\t"), folder], "2 utterances are too few for a split"


def nothing_there(folder):
    return [folder / "nowhere"], "nowhere: no such file or directory; give the files or folders of the corpus"


def kaldi_without_text(folder):
    kaldi(folder)
    (folder / "data/all/text").unlink()
    return [folder / "data/all"], "data/all: no table 'text'; add the transcripts"


def recordings_alone(folder):
    lhotse(folder)
    (folder / "my_supervisions_all.jsonl.gz").unlink()
    return [folder], "the manifest of supervisions that belongs to it is missing"


def workbook(folder):
    rows_of(folder)
    return [folder], f"; {write(folder / 'list.xlsx', 'x')} is a spreadsheet: save it as CSV in UTF-8"


def yaml_manifests(folder):
    sources = [write(folder / f"{name}.yaml", "- id: a\n") for name in ("recordings", "supervisions")]
    return (
        sources,
        (
            f"; {sources[0]} is YAML: if it is a manifest of lhotse, write it as JSON lines by 'lhotse copy "
            "FILE.yaml FILE.jsonl.gz'"
        ),
    )


def packed(folder):
    return [folder], f"; {write(folder / 'corpus.tar.gz', 'x')} is an archive: unpack it first"


def foreign_audio_alone(folder):
    return [
        folder
    ], f"; {write(folder / 'a.m4a', 'x')} is audio in an unsupported format: convert it to WAV or FLAC"


def kaldi_without_utt2spk(folder):
    kaldi(folder)
    (folder / "data/all/utt2spk").unlink()
    return [
        folder / "data/all"
    ], "data/all/wav.scp is a table of a data directory of Kaldi, which needs wav.scp, text and utt2spk"


def channel_that_is_missing(folder):
    kaldi(folder)
    path = folder / "data/all"
    name, audio = (path / "wav.scp").read_text().splitlines()[0].split()
    tone(folder / audio, channels=2)
    write(path / "reco2file_and_channel", f"{name} call C\n")
    return (
        [path],
        (
            f"channels of reco2file_and_channel that their files lack: 1, C of {name} of {path}, whose file "
            "has 2; correct the table"
        ),
    )


def program_that_is_missing(folder):
    kaldi(folder)
    table = folder / "data/all/wav.scp"
    write(table, re.sub(r"(?m) .*/", " no-such-program ", table.read_text()).replace("\n", " |\n"))
    return [
        folder / "data/all"
    ], "; install the programs, or list the files themselves (SPHERE, FLAC, MP3 and others are read without"


def two_files_of_a_stem(folder):
    for name in ("a.wav", "a.flac"):
        tone(folder / name)
    write(folder / "a.txt", "the cat")
    return [folder], "a.wav; give its folder and suffix, or remove one of them"


def bad_manifest(folder):
    lhotse(folder)
    write(
        folder / "my_supervisions_all.jsonl.gz",
        json.dumps({"id": "u", "recording_id": "nobody", "start": 0, "duration": 1, "text": "x"}),
    )
    return [folder], "1 problem(s) in the manifests; the first: "


def bad_textgrid(folder):
    write(tone(folder / "a.wav").with_suffix(".TextGrid"), textgrid({"words": [(0, 1, "x")]}, 1.0)[:150])
    return [folder], "a.TextGrid: cut short; save it again"


BAD = {make.__name__: make for make in (missing_files, wrong_number_of_columns, open_quotation, latin_1,
                                        two_tables, no_text_column, audio_alone, text_without_audio,
                                        damaged_audio, foreign_format, ambiguous_name, times_outside,
                                        no_number, too_few, nothing_there, kaldi_without_text,
                                        recordings_alone, bad_manifest, bad_textgrid, comma_without_quotation,
                                        workbook, yaml_manifests, packed, foreign_audio_alone,
                                        kaldi_without_utt2spk, channel_that_is_missing,
                                        program_that_is_missing, two_files_of_a_stem)}  # fmt: skip


@pytest.mark.parametrize("mistake", BAD)
def test_every_invalid_source_gives_one_sentence(mistake, tmp_path):
    sources, sentence = BAD[mistake](tmp_path)
    with pytest.raises(UserError) as error:
        prepared(*sources)
    assert sentence in str(error.value), error.value


@pytest.mark.parametrize("mistake", ["missing_files", "damaged_audio", "text_without_audio"])
def test_invalid_utterances_are_skipped_on_request(mistake, tmp_path):
    sources, _ = BAD[mistake](tmp_path)
    found = prepared(*sources, skip_bad="true", split="utterances")
    assert any(note.startswith("left out: ") for note in found.corpus.notes) and found.corpus.utterances


def test_audio_without_transcript_is_reported(tmp_path):
    table(tmp_path, "t.tsv", rows_of(tmp_path), "\t")
    tone(tmp_path / "alone.wav")
    assert any(
        "audio files that are in no table: 1, alone.wav" in note for note in prepared(tmp_path).corpus.notes
    )


def test_missing_file_is_not_replaced_by_namesake(tmp_path):
    """If names occur in several folders, the folder must match."""
    audio = files(tmp_path)
    for path in audio.values():
        write(path.with_suffix(".txt"), f"words of {path.parent.name}")
    lost = audio["spk03", 1]
    lost.unlink()
    shutil.rmtree(tmp_path / "spk05")
    found = prepared(tmp_path, skip_bad="true", normalise="false")
    assert (
        all(one.text == f"words of {one.speaker}" for one in found.corpus.utterances)
        and len(found.corpus.utterances) == len(CORPUS) - 5
    )
