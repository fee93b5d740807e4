"""Training, development and test sets of a user's corpus, sizes of models, sampling rates, speakers by names
of files."""

import random

import pytest
from own_corpora import prepared, tone, write

from pyasr.base.errors import UserError
from pyasr.intake.own.naming import name_speakers, name_utterances
from pyasr.intake.own.preparing import choose_rate
from pyasr.intake.own.reading.own_corpus import (
    PARTS,
    Corpus,
    OwnRecording,
    OwnUtterance,
    ReadingOptions,
    part_of,
)
from pyasr.intake.own.sizes import TABLE, fmllr_min_count, lm_order, sizes_for
from pyasr.intake.own.splitting import SplitOptions, split


def corpus(seconds_of: dict[str, list[float]], text=lambda speaker, i: f"{speaker} {i}") -> Corpus:
    """{speaker: seconds of the utterances}"""
    found = Corpus("toy")
    for speaker, durations in seconds_of.items():
        for i, seconds in enumerate(durations):
            found.recordings[f"{speaker}{i}"] = OwnRecording(f"/{speaker}/{i}.wav", seconds, 16000)
            found.utterances.append(
                OwnUtterance(f"{speaker}-{i}", f"{speaker}{i}", text(speaker, i), speaker)
            )
    return found


def shares(found: Corpus, parts: dict) -> list[float]:
    return [sum(map(found.duration_s, parts[part])) / (3600 * found.hours) for part in PARTS]


@pytest.mark.parametrize("seed", range(10))
def test_speakers_are_held_out_completely(seed):
    chance = random.Random(seed)
    found = corpus(
        {
            f"s{i}": [chance.uniform(1, 9) for _ in range(chance.randint(5, 30))]
            for i in range(chance.randint(20, 60))
        }
    )
    chosen = split(found, SplitOptions())
    names = [{one.speaker for one in chosen.parts[part]} for part in PARTS]
    assert (
        not names[0] & names[1]
        and not names[0] & names[2]
        and not names[1] & names[2]
        and "by speakers" in chosen.message
    )
    train, dev, test = shares(found, chosen.parts)
    assert (
        0.05 < dev < 0.13
        and 0.05 < test < 0.13
        and sum(map(len, chosen.parts.values())) == len(found.utterances)
    )
    assert chosen == split(found, SplitOptions())


@pytest.mark.parametrize("speakers", [{"a": [3.0] * 50}, {"a": [3.0] * 40, "b": [3.0] * 20}])
def test_few_speakers_are_split_by_disjoint_texts(speakers):
    found = corpus(speakers, lambda speaker, i: f"sentence {i % 15}")
    chosen = split(found, SplitOptions())
    texts = [{one.text for one in chosen.parts[part]} for part in PARTS]
    assert (
        not texts[0] & texts[1]
        and not texts[0] & texts[2]
        and not texts[1] & texts[2]
        and "by utterances" in chosen.message
    )


def test_single_repeated_sentence_is_split_anyway():
    found = corpus({"a": [3.0] * 30}, lambda speaker, i: "the same")
    assert all(split(found, SplitOptions()).parts[part] for part in PARTS)


def test_held_out_hours_are_limited():
    found = corpus({f"s{i}": [3600.0] for i in range(100)})
    train, dev, test = shares(found, split(found, SplitOptions(most_held_out=3.0)).parts)
    assert 0.01 < dev < 0.05 and 0.01 < test < 0.05


def test_too_few_speakers_are_refused_with_split_speakers():
    with pytest.raises(
        UserError, match=r"--split speakers: the 2 speaker\(s\) cannot be split into train, dev and test"
    ):
        split(corpus({"a": [3.0] * 9, "b": [1.0]}), SplitOptions(split="speakers"))


def test_model_sizes_grow_with_hours():
    for less, more in zip(TABLE, TABLE[1:]):
        assert (
            less.hours < more.hours
            and less.tri3 < more.tri3
            and less.units * less.layers < more.units * more.layers
        )
        assert less.tri1 <= less.tri2 <= less.tri3
    assert (
        sizes_for(0.57).units == 512
        and sizes_for(3.6).tri3 == (2000, 20000)
        and sizes_for(3000).tri3 == (11500, 200000)
    )
    assert (lm_order(500), lm_order(30000)) == (2, 3)
    assert (fmllr_min_count([3.0, 4.5, 5.0]), fmllr_min_count([3.0, 1.5, 5.0])) == (100, 500)


@pytest.mark.parametrize(
    "rates, wanted",
    [
        ({16000: 10}, 16000),
        ({8000: 10}, 8000),
        ({44100: 5, 48000: 5}, 16000),
        ({16000: 99, 8000: 1}, 16000),
        ({16000: 80, 8000: 20}, 8000),
        ({22050: 9, 11025: 1}, 11025),
    ],
)
def test_sampling_rate_is_chosen(rates, wanted):
    found = Corpus(
        "toy",
        recordings={
            f"{rate}-{i}": OwnRecording("", 1.0, rate) for rate, num in rates.items() for i in range(num)
        },
    )
    assert choose_rate(found) == wanted


@pytest.mark.parametrize(
    "paths, speakers",
    [
        (["a/1.wav", "a/2.wav", "b/1.wav", "b/2.wav"], ["a", "a", "b", "b"]),
        (["train/a/1.wav", "train/a/2.wav", "test/b/1.wav", "test/b/2.wav"], ["a", "a", "b", "b"]),
        (["p225_001.wav", "p225_002.wav", "p226_001.wav", "p226_002.wav"], ["p225", "p225", "p226", "p226"]),
        (["clip_1.wav", "clip_2.wav", "clip_3.wav"], ["clip_1", "clip_2", "clip_3"]),
        (["1.wav", "2.wav"], ["1", "2"]),
    ],
)
def test_speakers_are_derived_from_file_names(paths, speakers):
    found = Corpus("toy")
    for path in paths:
        found.recordings[path] = OwnRecording(f"/corpus/{path}", 1.0, 16000)
        found.utterances.append(OwnUtterance(path.rpartition("/")[2].removesuffix(".wav"), path, "yes"))
    name_speakers(found, ReadingOptions())
    assert [one.speaker for one in found.utterances] == speakers
    name_utterances(found)
    assert len({one.name for one in found.utterances}) == len(paths)


def test_speakers_with_colliding_names_are_refused():
    found = corpus({"Anna B": [1.0], "Anna_B": [1.0]})
    with pytest.raises(UserError, match="speakers 'Anna B' and 'Anna_B' would both be named Anna_B"):
        name_speakers(found, ReadingOptions())


def test_duplicates_are_dropped(tmp_path):
    for i in range(12):
        tone(tmp_path / f"{i}.wav")
    rows = "".join(f"{i}.wav\tthe cat {i}\n" for i in (*range(12), 3))
    found = prepared(write(tmp_path / "t.tsv", rows), tmp_path)
    assert len(found.corpus.utterances) == 12 and any(
        "further rows for the same audio and text: 1, 3" in note for note in found.corpus.notes
    )


@pytest.mark.parametrize(
    "name, part",
    [
        ("train.tsv", "train"),
        ("valid", "dev"),
        ("cuts_dev-clean-2.jsonl.gz", "dev"),
        ("all", ""),
        ("contest", ""),
        ("train_and_test", ""),
    ],
)
def test_parts_are_derived_from_names(name, part):
    assert part_of(name) == part
