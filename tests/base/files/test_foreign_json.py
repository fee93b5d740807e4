"""JSON from untrusted sources: every reader reports invalid content in one sentence."""

import json

import pytest

from pyasr.base.cli.options import load
from pyasr.base.errors import UserError
from pyasr.base.files.foreign_json import parse_object, read_object
from pyasr.base.outputs.fingerprint import DONE, read_done
from pyasr.data.tables.distortion import Distortion
from pyasr.decode.lattices.determinize import DeterminizeOptions
from pyasr.decode.search.decode_options import DecodeOptions
from pyasr.intake.lhotse import entries_in
from pyasr.recognition.packed import ModelInfo, read_info, write_info
from pyasr.score.score_dir import read_summary

BAD = {
    "endless": "[" * 100_000,
    "deep": '{"a":' * 101 + "1" + "}" * 101,
    "list": "[1]",
    "none": "",
    "number": "9" * 5000,
}
READERS = {
    "model.json": (read_info, "damaged"),
    "manifest.jsonl": (lambda path: list(entries_in(path / "manifest.jsonl")), "is not a JSON object"),
    "scoring/summary.json": (read_summary, "damaged"),
    "options.json": (lambda path: load(path / "options.json"), "not a file of saved options"),
}


def test_json_objects_are_read(tmp_path):
    deep = json.loads('{"a":' * 100 + "1" + "}" * 100)
    (tmp_path / "a.json").write_text(json.dumps(deep))
    assert read_object(tmp_path / "a.json") == parse_object(json.dumps(deep)) == deep


@pytest.mark.parametrize("text", BAD.values(), ids=BAD)
def test_non_objects_are_refused(text, tmp_path):
    with pytest.raises(ValueError):
        parse_object(text)
    with pytest.raises(ValueError):
        Distortion.parse(text)
    (tmp_path / DONE).write_text(text)
    assert read_done(tmp_path) is None


@pytest.mark.parametrize(
    "text", [text for text in BAD.values() if text], ids=[name for name in BAD if BAD[name]]
)
@pytest.mark.parametrize("name", READERS)
def test_readers_report_invalid_json_in_one_sentence(name, text, tmp_path):
    read, sentence = READERS[name]
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    with pytest.raises(UserError, match=f"{path}.*{sentence}"):
        read(tmp_path)


def test_invalid_summary_is_reported_as_damaged(tmp_path):
    (tmp_path / "scoring").mkdir()
    (tmp_path / "scoring/summary.json").write_text(
        '{"data": "data/dev", "signature": "wer", "best": {"wer": 10}}'
    )
    with pytest.raises(UserError, match="scoring/summary.json: damaged; score .* again"):
        read_summary(tmp_path)


@pytest.mark.parametrize(
    "name, value, message",
    [
        ("lmwt", 0, "not the description"),
        ("lmwt", "ten", "lmwt: 'ten' is not a value of type int"),
        ("lmwt", 10**400, "is not a value of type int"),
        ("decode", {"beam": 1e400}, "--beam: 'inf' is not a value of type float"),
        ("decode", 3, "expected options"),
        ("source", None, "is not a value of type str"),
        ("files", ["graph/words.txt"], "expected options"),
        ("lattices", {"determinize_mb": 1e9}, "above the maximum"),
    ],
)
def test_model_descriptions_with_bad_values_are_refused(name, value, message, tmp_path):
    path = tmp_path / "model.json"
    write_info(tmp_path, ModelInfo("gmm", 10, 0.5, DecodeOptions(), DeterminizeOptions(), None, "exp/tri1"))
    assert read_info(tmp_path).lmwt == 10
    path.write_text(json.dumps(json.loads(path.read_text()) | {name: value}))
    with pytest.raises(UserError, match=f"{path}.*{message}"):
        read_info(tmp_path)
