"""steps/get_ctm.py and steps/align_lattices.py on a small language: times against the phones of the paths,
confidences against sclite."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from sclite import SCLITE, sclite_ctm
from spoken_toys import SCALE, System, make_system
from steps_here import run_here

from pyasr.base.cli.options import save, to_json
from pyasr.base.errors import UserError
from pyasr.data.tables.datadir import write_data_dir
from pyasr.data.transcripts.ctm import CtmLine, sorted_lines
from pyasr.decode.lattice_jobs.lattice_dir import check_as_decoded, write_language_model
from pyasr.decode.lattices.compact_lattice import CompactLattice, empty_compact, state_times
from pyasr.decode.lattices.determinize import determinize
from pyasr.decode.lattices.lattice import best_path, prune
from pyasr.decode.lattices.lattice_io import read_compact_lattices, write_lattices
from pyasr.feats.options import OPTIONS_FILE, FbankOptions, FrameOptions, MfccOptions
from pyasr.feats.origin import ORIGIN_FILE, save_origins
from pyasr.hmm.model.model_file import SUBSAMPLING, write_subsampling
from pyasr.hmm.trees.phone_segments import split_to_phones
from pyasr.io.ark import ArkWriter
from pyasr.io.text_tables import read_table
from pyasr.lang.symbols import SymbolTable

UTTERANCES = {"a-1": ("call", 2.0), "a-2": ("call", 0.5), "b-1": ("reply", 0.25), "b-2": ("call", 9.0)}
RECORDINGS = {"call": ("tape-1", "A"), "reply": ("tape-1", "B")}
LMWT = round(1 / SCALE)


@pytest.fixture(scope="module")
def system(tmp_path_factory) -> System:
    return make_system(tmp_path_factory.mktemp("spoken"))


@pytest.fixture
def exp(system, tmp_path) -> Path:
    """Decoded utterances of two recordings, one without words; the transcript is the best path if the lattice
    is not empty."""
    lattices = {
        utt: determinize(system.lattice(seed), 5.0, SCALE)[0] for seed, utt in enumerate(list(UTTERANCES)[:3])
    }
    text = {utt: spell(system, best_path(lattice, SCALE).words) for utt, lattice in lattices.items()} | {
        "b-2": "w1"
    }
    (tmp_path / "data").mkdir()
    segments = {utt: f"{recording} {begin} {begin + 0.4}" for utt, (recording, begin) in UTTERANCES.items()}
    write_data_dir(
        tmp_path / "data",
        {
            "text": text,
            "utt2spk": {utt: utt[0] for utt in text},
            "segments": segments,
            "reco2file_and_channel": {key: " ".join(value) for key, value in RECORDINGS.items()},
        },
    )
    write_decode_dir(tmp_path / "decode", lattices | {"b-2": empty_compact()})
    return tmp_path


def write_decode_dir(path: Path, lattices: dict) -> None:
    path.mkdir(exist_ok=True)
    (path / "num_jobs").write_text("2\n")
    for job in (1, 2):
        write_lattices(path / f"lat.{job}.gz", sorted(lattices.items())[job - 1 :: 2])


def read_decode_dir(path: Path) -> dict[str, CompactLattice]:
    return {utt: lattice for job in (1, 2) for utt, lattice in read_compact_lattices(path / f"lat.{job}.gz")}


def spell(system: System, words) -> str:
    return " ".join(system.lang.words.symbol(word) for word in words)


def get_ctm(system: System, root: Path, *options, out: str = "ctm") -> list[CtmLine]:
    run_here(
        "get_ctm.py",
        "--nj",
        2,
        "--lmwt",
        LMWT,
        "--model-dir",
        system.lang.path.parent / "model",
        *options,
        root / "data",
        system.lang.path,
        root / "decode",
        root / out,
    )
    return [CtmLine.parse(line) for line in (root / out / "ctm").read_text().splitlines()]


def align(system: System, root: Path, phones: str) -> None:
    run_here(
        "align_lattices.py",
        "--nj",
        2,
        "--phones",
        phones,
        "--model-dir",
        system.lang.path.parent / "model",
        root / "data",
        system.lang.path,
        root / "decode",
        root / "aligned",
    )


def spoken_words(system: System, path) -> list[tuple[str, int, int]]:
    """(word, first frame, end) of a path, by the positions of its phones in their words."""
    segments = split_to_phones(system.trans, {"path": path.tids})
    kinds = [system.lang.word_boundary[phone] for phone in segments.phones.tolist()]
    edges = segments.starts.tolist()
    begins = [edges[i] for i, kind in enumerate(kinds) if kind in ("begin", "singleton")]
    ends = [edges[i + 1] for i, kind in enumerate(kinds) if kind in ("end", "singleton")]
    return list(zip(spell(system, path.words).split(), begins, ends, strict=True))


def test_single_path_words_have_times_of_their_phones(system, exp):
    """Includes <unk>, a word of one phone, and two utterances of one recording on different channels."""
    lattices = {utt: prune(lattice, 0.0, SCALE) for utt, lattice in read_decode_dir(exp / "decode").items()}
    write_decode_dir(exp / "decode", lattices)
    expected = []
    for utt, (recording, begin_s) in UTTERANCES.items():
        for word, begin, end in (
            spoken_words(system, best_path(lattices[utt], SCALE)) if not lattices[utt].empty else ()
        ):
            expected.append(
                CtmLine(*RECORDINGS[recording], begin_s + begin / 100, (end - begin) / 100, word, 1.0)
            )
    found = get_ctm(system, exp)
    assert [str(line) for line in found] == [str(line) for line in sorted_lines(expected)] and len(found) > 6
    assert [line.channel for line in found] == sorted(line.channel for line in found)


@pytest.mark.skipif(SCLITE is None, reason="sclite is not installed")
@pytest.mark.parametrize("decode_mbr", ["true", "false"])
def test_sclite_scores_the_ctm(system, exp, decode_mbr):
    """All words of one speaker are correct, all of the other are wrong; normalised cross entropy is compared
    with its formula."""
    lines = get_ctm(system, exp, "--decode-mbr", decode_mbr, "--posterior-scale", 1)
    text = read_table(exp / "data/text") | {"b-1": "w5 w5 w5"}
    rows = sorted((*RECORDINGS[recording], begin, utt) for utt, (recording, begin) in UTTERANCES.items())
    lines_of_stm = (
        f"{file} {channel} {utt[0]} {begin} {begin + 0.4} {text[utt]}\n" for file, channel, begin, utt in rows
    )
    (exp / "stm").write_text("".join(lines_of_stm))
    correct, sub, ins, dele, nce = sclite_ctm(exp / "stm", exp / "ctm/ctm")
    assert (correct, sub, ins, dele) == (5, 3, 0, 1) and len(lines) == 8
    right = np.array([line.channel == "A" for line in lines])
    confidences = np.clip([line.confidence for line in lines], None, 0.9999)
    prior = -5 * np.log2(5 / 8) - 3 * np.log2(3 / 8)
    assert nce == pytest.approx(
        1 + np.log2(np.where(right, confidences, 1 - confidences)).sum() / prior, abs=2e-3
    )


def test_smaller_posterior_scale_lowers_confidence(system, exp):
    def confidences(scale):
        return [
            line.confidence
            for line in get_ctm(
                system, exp, "--decode-mbr", "false", "--posterior-scale", scale, out=f"ctm_{scale}"
            )
        ]

    sure, unsure = confidences(1.0), confidences(0.1)
    assert len(sure) == len(unsure) and np.mean(sure) > np.mean(unsure) + 0.1


def test_times_are_relative_to_utterance_without_segments(system, exp):
    for name in ("segments", "reco2file_and_channel"):
        (exp / "data" / name).unlink()
    lines = get_ctm(system, exp, "--frame-shift-s", 0.03)
    assert {(line.file, line.channel) for line in lines} == {(utt, "1") for utt in list(UTTERANCES)[:3]}
    assert max(line.begin_s + line.duration_s for line in lines) == pytest.approx(1.2, abs=0.1)


@pytest.mark.parametrize("step", [("get_ctm.py", "--lmwt", LMWT), ("align_lattices.py",)])
def test_missing_model_error_gives_advice(system, exp, step):
    """For the default directory, a given directory, and a directory of a network without its transition
    model."""
    words, elsewhere = (exp / "data", system.lang.path, exp / "decode", exp / "out"), exp / "elsewhere"
    report = "no acoustic model, neither final.mdl nor a CTC network's units/units.txt"
    advice = "in the directory above the lattices; give the directory of their model as --model-dir"
    with pytest.raises(UserError, match=f"^{exp}: {report}, {advice}$"):
        run_here(*step, *words)
    with pytest.raises(
        UserError,
        match=f"^{elsewhere}: {report}; give the directory of the model of the lattices as --model-dir$",
    ):
        run_here(*step, "--model-dir", elsewhere, *words)
    elsewhere.mkdir()
    (elsewhere / "final.nnet").touch()
    with pytest.raises(
        UserError,
        match=f"^{elsewhere}: a network without final.mdl or, for CTC, units/units.txt; copy the file from",
    ):
        run_here(*step, "--model-dir", elsewhere, *words)


def test_times_account_for_frame_subsampling(system, exp):
    one = get_ctm(system, exp)
    model = system.lang.path.parent / "model"
    write_subsampling(model, 3)
    try:
        three = get_ctm(system, exp, out="three")
    finally:
        (model / SUBSAMPLING).unlink()
    starts_s = {
        RECORDINGS[recording]: [start for other, start in UTTERANCES.values() if other == recording]
        for recording in RECORDINGS
    }
    for slow, fast in zip(three, one, strict=True):
        start_s = max(start for start in starts_s[fast.file, fast.channel] if start <= fast.begin_s)
        assert (
            slow.begin_s - start_s == pytest.approx(3 * (fast.begin_s - start_s), abs=0.021)
            and slow.word == fast.word
        )
        assert slow.duration_s == pytest.approx(3 * fast.duration_s, abs=0.041)  # times are rounded to 0.01 s


def test_frame_shift_comes_from_features(system, exp):
    """The data directory takes precedence over the options of its features, and these over the options of the
    model's training data."""

    def last_s(shift_ms: int) -> float:
        return max(line.end_s for line in get_ctm(system, exp, out=f"ctm_{shift_ms}"))

    def origin(shift_ms: float) -> dict:
        return {
            "streams": [{"fmllr_of": to_json(MfccOptions(frame=FrameOptions(frame_shift=shift_ms)))}],
            "each": [{}],
        }

    for name in ("segments", "reco2file_and_channel"):
        (exp / "data" / name).unlink()
    model, message = system.lang.path.parent / "model", [(10, last_s(10))]
    save_origins(model, [origin(20.0)])
    try:
        message.append((20, last_s(20)))
        (exp / "feats").mkdir()
        save(exp / "feats" / OPTIONS_FILE, FbankOptions(frame=FrameOptions(frame_shift=30.0)))
        with ArkWriter(exp / "feats/a.ark", exp / "data/feats.scp") as writer:
            writer.write("a-1", np.zeros((3, 2), np.float32))
        message.append((30, last_s(30)))
        (exp / "data/frame_shift").write_text("0.04\n")
        message.append((40, last_s(40)))
    finally:
        (model / ORIGIN_FILE).unlink()
    assert [seconds for _, seconds in message] == pytest.approx(
        [message[0][1] * shift_ms / 10 for shift_ms, _ in message], abs=0.021
    )
    (exp / "data/frame_shift").write_text("10\n")
    sentence = (
        "data/frame_shift: '10' is not a number of seconds from 0 to 1; write 0.01 for a frame shift of 10 ms"
    )
    with pytest.raises(UserError, match=sentence):
        get_ctm(system, exp, out="none")


@pytest.mark.parametrize(
    "name, content, message",
    [
        (
            "reco2file_and_channel",
            "call tape-1 A\n",
            "reco2file_and_channel has no recording 'reply' of utterance 'b-1'; add a line",
        ),
        (
            "reco2file_and_channel",
            "call tape-1\nreply tape-1 B\n",
            "reco2file_and_channel: 'call tape-1' is not 'RECORDING FILE CHANNEL'",
        ),
        (
            "segments",
            "a-1 call 0 1\n",
            "segments has no utterance '..[12]'; repair it with utils/fix_data_dir.py",
        ),
        (
            "utt2spk",
            "a-1 a\n",
            "the utterance '.-.' is not in .*utt2spk; give the data directory that was decoded",
        ),
    ],
)
def test_data_not_matching_lattices_is_refused(system, exp, name, content, message):
    (exp / "data" / name).write_text(content)
    with pytest.raises(UserError, match=message):
        get_ctm(system, exp)
    assert not (exp / "ctm").exists()


@pytest.mark.parametrize(
    "name, message",
    [
        ("phones/align_lexicon.int", "align_lexicon.int: no such file"),
        ("words.txt", "words.txt: no such file"),
    ],
)
def test_incomplete_language_directory_is_refused(system, exp, name, message):
    path = system.lang.path / name
    content = path.read_text()
    path.unlink()
    try:
        with pytest.raises(UserError, match=message):
            get_ctm(system, exp)
    finally:
        path.write_text(content)
    assert not (exp / "ctm").exists()


def test_other_language_is_refused(system, exp):
    path = system.lang.path / "phones/align_lexicon.int"
    content = path.read_text()
    path.write_text("0 0 1\n1 1 2\n")
    try:
        with pytest.raises(
            UserError, match=r"lat.1.gz: a-1: its phones do not match its words; give the language directory"
        ):
            get_ctm(system, exp)
    finally:
        path.write_text(content)


@pytest.mark.parametrize(
    "tids, message",
    [
        (lambda tids, num: 1000 * tids, r"transition-id \d+ in frame 0, but the model has 1 to \d+"),
        (lambda tids, num: tids % num + 1, "not a path through the phones' HMMs around frame [0-9]+"),
    ],
)
def test_other_model_is_refused(system, exp, tids, message):
    """Including a model with the same number of transition-ids."""
    raw, num = read_decode_dir(exp / "decode"), system.trans.num_tids
    write_decode_dir(
        exp / "decode", {utt: replace(lattice, tids=tids(lattice.tids, num)) for utt, lattice in raw.items()}
    )
    output = f"lat.1.gz: a-1: {message}; give the model of the lattices as --model-dir"
    for run in (get_ctm, partial(align, phones="true"), partial(align, phones="false")):
        with pytest.raises(UserError, match=output):
            run(system, exp)
    assert not (exp / "ctm").exists() and not (exp / "aligned").exists()


def test_changed_word_ids_are_refused(system, exp):
    """A word was added to the language directory after the graph was created."""
    SymbolTable.of([word for word in system.lang.words.symbols if word != "w0"]).write(
        exp / "decode/words.txt"
    )
    report = (
        r"decode/words.txt: the word 'w0' does not have the same id as in .*lang/words.txt \(none and "
        r"\d+\); give the lang directory"
    )
    for run in (get_ctm, partial(align, phones="false")):
        with pytest.raises(UserError, match=report):
            run(system, exp)


def test_words_txt_of_lattices_is_an_input(system, exp, capsys):
    own = exp / "decode/words.txt"
    own.write_text((system.lang.path / "words.txt").read_text())
    align(system, exp, phones="false")
    own.write_text("".join(reversed(own.read_text().splitlines(True))))
    capsys.readouterr()
    align(system, exp, phones="false")
    assert f"{exp}/aligned is out of date: {own} changed" in capsys.readouterr().out
    assert (exp / "aligned/words.txt").read_text() == own.read_text()


def test_unscored_directory_requires_lm_weight(system, exp):
    with pytest.raises(UserError, match="score that directory first with steps/score.py, or give --lmwt"):
        run_here("get_ctm.py", exp / "data", system.lang.path, exp / "decode", exp / "ctm")


@pytest.mark.parametrize("phones", ["true", "false"])
def test_aligned_lattices_are_written(system, exp, phones):
    """Words or phones are on arcs with their frames; an empty lattice stays empty."""
    align(system, exp, phones)
    raw, aligned = read_decode_dir(exp / "decode"), read_decode_dir(exp / "aligned")
    assert aligned.keys() == raw.keys() and aligned["b-2"].empty
    assert (exp / "aligned/words.txt").exists() == (phones == "false")
    for utt, lattice in aligned.items():
        if lattice.empty:
            continue
        found, expected = best_path(lattice, SCALE), best_path(raw[utt], SCALE)
        assert np.array_equal(found.tids, expected.tids) and (lattice.lengths > 0).all()
        times, only = state_times(lattice), prune(lattice, 0.0, SCALE)
        assert np.array_equal(times[lattice.sources] + lattice.lengths, times[lattice.targets])
        segments = split_to_phones(system.trans, {utt: expected.tids})
        words, begins = (
            (segments.phones, segments.starts) if phones == "true" else (np.array(expected.words), None)
        )
        assert np.array_equal(only.words[only.words != 0], words)
        if begins is not None:
            assert np.array_equal(np.append(0, np.cumsum(only.lengths)), begins)


def test_aligned_lattices_record_source_of_costs(system, exp):
    write_language_model(exp / "decode", [Path("lm/fourgram.arpa"), Path("lm/lstm/lm.nnet")])
    align(system, exp, "false")
    with pytest.raises(
        UserError, match="by those of lm/fourgram.arpa and lm/lstm/lm.nnet; rescore the original"
    ):
        check_as_decoded(exp / "aligned")
