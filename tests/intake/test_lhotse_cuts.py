"""Manifests of cuts written by lhotse, compared with its trim_to_supervisions; an error message for each
unsupported kind."""

import gzip
import json
import subprocess
from pathlib import Path

import pytest

from pyasr.base.errors import UserError
from pyasr.data.checks.validation import validate
from pyasr.intake.lhotse import read_cuts, save_data_dir

CUTS = Path(__file__).parents[1] / "fixtures/lhotse_cuts.jsonl"  # `cuts_of_lhotse`, written by lhotse 1.33
SAMPLE_S = 1 / 8000
EXPECTED = {  # name: recording, begin, end, text
    "ann-t1": ("talk", 0.25, 1.75, "hello there"),
    "bob-t2": ("talk", 1.0, 2.2, "you"),
    "ann-t3": ("talk", 3.5, 4.0, ""),
    "x-c1": ("call_0", 0.5, 1.5, "yes"),
    "y-c2": ("call_1", 1.0, 3.0, "no"),
    "z-c3-0": ("call_0", 3.0, 3.5, "both"),
    "z-c3-1": ("call_1", 3.0, 3.5, "both"),
    "y-m1": ("call_1", 1.5, 2.5, "mono"),
}


@pytest.fixture
def lhotse():
    return pytest.importorskip("lhotse")


def cuts_of_lhotse(lhotse):
    """Cuts that begin within their recordings, supervisions that end after them, channels of a call, a cut
    without speech."""
    from lhotse.audio import AudioSource

    talk, call = (
        lhotse.Recording(name, [AudioSource("file", list(range(num)), f"{name}.wav")], 8000, 32000, 4.0)
        for name, num in (("talk", 1), ("call", 2))
    )

    def supervision(name, recording, start, duration, channel=0, **more):
        return lhotse.SupervisionSegment(name, recording.id, start, duration, channel, **more)

    whole = talk.to_cut()
    whole.supervisions = [
        supervision("t1", talk, 0.25, 1.5, text="hello  there", speaker="ann"),
        supervision("t2", talk, 1.0, 1.5, text="you", speaker="bob", language="en"),
    ]
    late = lhotse.MonoCut(
        "late", 3.25, 0.75, 0, [supervision("t3", talk, 0.25, 0.5, text="", speaker="ann")], recording=talk
    )
    both = call.to_cut()
    both.supervisions = [
        supervision("c1", call, 0.5, 1.0, [0], text="yes", speaker="x"),
        supervision("c2", call, 1.0, 2.0, 1, text="no", speaker="y"),
        supervision("c3", call, 3.0, 0.5, [0, 1], text="both", speaker="z"),
    ]
    mono = lhotse.MonoCut(
        "mono", 1.0, 2.5, 1, [supervision("m1", call, 0.5, 1.0, 1, text="mono", speaker="y")], recording=call
    )
    part = whole.truncate(offset=0.2, duration=2.0, preserve_id=True)
    return lhotse.CutSet.from_cuts(
        [part, late, both, mono, lhotse.MonoCut("silent", 0.0, 1.0, 0, [], recording=talk)]
    )


def entries() -> list[dict]:
    return [json.loads(line) for line in CUTS.read_text().splitlines()]


def written(path: Path, cuts: list[dict]) -> Path:
    path.write_text("".join(json.dumps(cut) + "\n" for cut in cuts))
    return path


def test_cuts_become_data_directory(tmp_path):
    found = read_cuts(CUTS)
    assert {one.name: (one.recording, one.begin, one.end, one.text) for one in found.utterances} == EXPECTED
    assert not found.problems and found.seconds == {"talk": 4.0, "call_0": 4.0, "call_1": 4.0}
    save_data_dir(found, tmp_path)
    assert not validate(tmp_path, audio="no")
    assert "ann-t3\n" in (tmp_path / "text").read_text()
    assert found.notes == [
        "of the cuts 1, such as silent, have no supervision and are skipped",
        "of the supervisions 1, such as t2, end after their cut and are clipped to it, as in lhotse",
    ]


def test_cuts_by_lhotse_give_its_trim_to_supervisions(lhotse, tmp_path):
    cuts = cuts_of_lhotse(lhotse)
    assert [cut.to_dict() for cut in cuts] == entries()
    ours = {}
    for one in read_cuts(CUTS, prefix_speakers=False).utterances:
        recording, _, channel = one.recording.partition("_")
        begin, end, channels = ours.get(one.name.split("-")[0], (one.begin, one.end, []))
        assert recording in ("talk", "call") and (begin, end) == (one.begin, one.end)
        ours[one.name.split("-")[0]] = (begin, end, [*channels, int(channel or 0)])
    theirs = [
        cut
        for one in cuts
        if one.supervisions
        for cut in one.trim_to_supervisions(keep_overlapping=False, keep_all_channels=True)
    ]
    names = [supervision.id for one in cuts for supervision in one.supervisions]
    assert len(theirs) == len(names) == len(ours)
    for name, cut in zip(names, theirs):
        begin, end, channels = ours[name]
        assert begin == pytest.approx(cut.start, abs=SAMPLE_S) and end == pytest.approx(
            cut.end, abs=SAMPLE_S
        ), name
        said = next(s for one in cuts for s in one.supervisions if s.id == name)
        assert channels == (said.channel if isinstance(said.channel, list) else [said.channel])


@pytest.mark.parametrize("name", ["cuts.jsonl.gz", "cuts.json", "cuts.json.gz", "cuts.jsonl"])
def test_file_formats_give_same_data(name, lhotse, tmp_path):
    cuts_of_lhotse(lhotse).to_file(tmp_path / name)
    content = (tmp_path / name).read_bytes()
    begin = (gzip.decompress(content) if name.endswith(".gz") else content)[:1]
    assert begin == (b"{" if "jsonl" in name else b"[")
    assert read_cuts(tmp_path / name) == read_cuts(CUTS)


def test_unsupported_cuts_are_reported_by_kind(lhotse, tmp_path):
    """And what is printed for those that one line each has leaves the others."""
    part, _, call, mono, _ = cuts_of_lhotse(lhotse)
    features = lhotse.MonoCut("no-audio", 0.0, 1.0, 0, part.supervisions)
    padding = lhotse.cut.PaddingCut("pad", 1.0, 8000, -23.0, num_samples=8000)
    faster = [cut.perturb_speed(0.9) for cut in (part, call)]
    cuts = [mono, part.pad(5.0), padding, features, *faster, part.mix(mono, snr=10)]
    path = written(tmp_path / "cuts.jsonl", [cut.to_dict() for cut in cuts])
    mixed, padded, changed, silent = read_cuts(path).problems
    assert mixed.startswith(f"{path}: of its cuts 2, such as ")
    assert "are mixed or padded (MixedCut); fix: give the cuts from which they were mixed" in mixed
    assert padded == (
        f"{path}: of its cuts 1, such as pad, are padding without a recording (PaddingCut); "
        "fix: remove their lines with zgrep -v '\"PaddingCut\"'"
    )
    assert (
        f"of its cuts 2, such as {part.id}_sp0.9, have recordings that lhotse transforms when it reads them "
        "(transforms)"
    ) in changed
    assert (
        "utils/perturb_data_dir.py" in changed
        and "of its cuts 1, such as no-audio, have no recording; fix: create" in silent
    )
    for problem in (mixed, changed, padded):
        pattern = problem.partition("zgrep -v '")[2].partition("'")[0]
        left = subprocess.run(
            ["zgrep", "-v", pattern, path], capture_output=True, text=True, check=True
        ).stdout
        path.write_text(left)
    assert read_cuts(path).problems == [silent] and [one.name for one in read_cuts(path).utterances] == [
        "y-m1"
    ]


@pytest.mark.parametrize("change, message, fix", [
    (lambda c: c[0].pop("start"), "cut talk-0: its start is None", "correct the entry"),
    (lambda c: c[0].update(recording=7), "cut talk-0: its recording is 7", "correct the entry"),
    (lambda c: c[0]["recording"].pop("id"), "cut talk-0: recording: its id is None", "correct the entry"),
    (lambda c: c[0].update(supervisions={"a": 1}), "cut talk-0: its supervisions is {'a': 1}",
     "correct the entry"),
    (lambda c: c[0]["supervisions"].append(3), "cut talk-0: supervision: its id is None",
     "correct the entry"),
    (lambda c: c[0]["supervisions"][0].update(start="x"), "supervision t1: its start is x",
     "correct the entry"),
    (lambda c: c[0]["supervisions"][0].update(start=-0.3), "supervision t1: it begins 0.3 s before its cut",
     "give cuts that contain"),
    (lambda c: c[0]["supervisions"][0].update(channel=1), "recording talk: it has no channel 1",
     "correct its sources, or the channel"),
    (lambda c: c[1].update(duration=3.0) or c[1]["supervisions"][0].update(duration=2),
     "supervision t3: it lasts from 3.5 to 5.5 s in a recording of 4 s",
     "create the cuts again from manifests repaired by 'lhotse fix'"),
    (lambda c: c[0]["supervisions"].append(c[0]["supervisions"][0]), "there are two utterances ann-t1",
     "give cuts that share no supervisions"),
    (lambda c: c[1]["recording"].update(duration=5.0), "there are two recordings talk",
     "give each recording a unique id"),
    (lambda c: c[0].update(type=["x"]), "of its cuts 1, such as talk-0, are not cuts",
     "give a manifest of cuts, or manifests of"),
    (lambda c: c[0]["recording"]["sources"][0].update(type="memory"), "its audio is of the type memory",
     "save it in files with lhotse"),
])  # fmt: skip
def test_every_problem_is_reported(tmp_path, change, message, fix):
    cuts = entries()
    cuts[0]["id"] = "talk-0"
    change(cuts)
    problems = read_cuts(written(tmp_path / "cuts.jsonl", cuts)).problems
    assert [problem for problem in problems if message in problem and f"; fix: {fix}" in problem], problems
    assert all(
        problem.startswith(f"{tmp_path}/cuts.jsonl: ") and problem.count("; fix: ") == 1
        for problem in problems
    )


def test_unprintable_names_are_reported(tmp_path):
    cuts = entries()
    cuts[4].update(id="a\n\x1b[2J", type="PaddingCut")
    cuts[0]["supervisions"][0].update(id="b\n\x1b[2J", start="x")
    found = read_cuts(written(tmp_path / "cuts.jsonl", cuts))
    assert len(found.problems) == 2 and all(
        line.isprintable() and r"\n\x1b[2J" in line for line in found.problems
    )


def test_step_writes_data_directory(tmp_path, root):
    def run(*words):
        return subprocess.run(["utils/import_lhotse.py", *words], cwd=root, capture_output=True, text=True)

    done = run(CUTS, tmp_path / "data")
    assert done.returncode == 0 and "8 utterances, 0 without a text" in done.stdout, done
    assert "such as t2, end after their cut" in done.stdout
    assert not validate(tmp_path / "data", audio="no")
    done = run(tmp_path / "data")
    assert (
        done.returncode == 1
        and "1 path(s) given; give RECORDINGS SUPERVISIONS OUT, or CUTS OUT" in done.stderr
    )


@pytest.mark.parametrize(
    "text, message",
    [
        ("[1]", "entry 1: '1' is not a JSON object"),
        ("[{}, [", "'[{}, [' is not a JSON object"),
        ("[" * 9999, "is not a JSON object"),
        ('[{"a": "\\ud83d"}]', "it contains half a character"),
        ("[{}]\n{}", "is not a JSON object"),
        ('[{"a":' + '{"a":' * 101 + "1" + "}" * 102 + "]", "is not a JSON object"),
    ],
    ids=["numbers", "cut off", "endless", "half a character", "array and line", "deep"],
)
def test_invalid_arrays_are_refused(text, message, tmp_path):
    (tmp_path / "cuts.json").write_text(text)
    with pytest.raises(UserError) as error:
        read_cuts(tmp_path / "cuts.json")
    assert str(error.value).startswith(f"{tmp_path}/cuts.json") and message in str(error.value)
