"""The new kind of sources of docs/extending/corpus.md: its file, copied from the page."""

import json
import re

import pytest
from own_corpora import prepared, speakers_and_sentences, tone, write
from page_files import among_modules

from pyasr.base.errors import UserError
from pyasr.intake.own import sources
from pyasr.intake.own.sources.kinds import KINDS


@pytest.fixture(scope="module", autouse=True)
def kind(tmp_path_factory):
    """The file among the kinds."""
    before = list(KINDS)
    with among_modules("corpus.md", sources, tmp_path_factory.mktemp("kinds")):
        yield
    KINDS[:] = [kind for kind in KINDS if kind in before or "JSON" not in kind.name]


@pytest.fixture
def folder(tmp_path):
    for speaker, number, text in speakers_and_sentences():
        tone(tmp_path / "in" / f"{speaker}-{number}.wav")
        write(tmp_path / "in" / f"{speaker}-{number}.json", json.dumps({"text": text, "speaker": speaker}))
    return tmp_path / "in"


def utterances(corpus):
    return [one for part in corpus.split.parts.values() for one in part]


def words(text: str) -> list[str]:
    """Without punctuation, in one case, numbers in words."""
    return re.sub(r"[^a-z0-9' -]", "", text.lower().replace("&", "and").replace("5", "five")).split()


def test_utterances_equal_those_of_files(folder):
    found = {one.name: (one.speaker, words(one.text)) for one in utterances(prepared(folder))}
    assert sorted(found.values()) == sorted(
        (speaker, words(text)) for speaker, _, text in speakers_and_sentences()
    )


def test_unreadable_file_is_reported_or_skipped(folder):
    (folder / "spk00-0.json").write_text("{")
    with pytest.raises(
        UserError,
        match="JSON files that cannot be read: 1, .*spk00-0.json .*; correct or remove them, or skip them",
    ):
        prepared(folder)
    assert len(utterances(prepared(folder, skip_bad="true"))) == len(speakers_and_sentences()) - 1
