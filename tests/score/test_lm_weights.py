"""Ranges of LM weights grow until the best one is inside, on lattices whose best words at each weight are
known."""

import json
import shutil

import pytest
from lattices import choice, make_data, make_decode_dir, make_lang
from steps_here import run_here

from pyasr.base.errors import UserError
from pyasr.score.lm_weights import LmWeights, first_range

UP_TO = -1  # sign of the acoustic cost: 'yes' wins below the weight, 'no' above


def right_from(weight: int):
    """(text, lattice) of an utterance whose words are correct at LM weights of at least `weight`."""
    return "no", choice(1, 1.0, UP_TO * (weight - 0.5))


def right_to(weight: int):
    """(text, lattice) of an utterance whose words are correct at LM weights of at most `weight`."""
    return "yes", choice(1, 1.0, UP_TO * (weight + 0.5))


WRONG = ("well", choice(1, 1.0, -10.0))


class Corpus:
    """A data directory, its lang and decode directories."""

    def __init__(self, root, *utterances, jobs=2):
        root.mkdir(parents=True)
        named = {f"a-{i}": utterance for i, utterance in enumerate(utterances)}
        self.lang = make_lang(root / "lang")
        self.data = make_data(root / "data", {utt: text for utt, (text, _) in named.items()})
        self.decode = make_decode_dir(
            root / "decode", {utt: lattice for utt, (_, lattice) in named.items()}, num_jobs=jobs
        )

    def score(self, *words) -> dict:
        """The summary; `weights` are those of the files."""
        run_here("score.py", "--nj", 2, *words, self.data, self.lang, self.decode)
        found = json.loads((self.decode / "scoring/summary.json").read_text())
        weights = sorted({int(path.name.split("_")[1]) for path in self.decode.glob("wer_*")})
        assert weights == list(range(weights[0], weights[-1] + 1))
        assert (
            len(list(self.decode.glob("wer_*")))
            == len(list((self.decode / "scoring/hyp").iterdir()))
            == 3 * len(weights)
        )
        return {**found, "weights": (weights[0], weights[-1])}


@pytest.mark.parametrize(
    "first, last, weights, chosen",
    [
        (9, 12, (7, 17), 9),  # inside: unchanged
        (20, 24, (7, 30), 20),  # typical for networks
        (38, 44, (7, 50), 38),
        (60, 70, (7, 100), 60),
        (2, 4, (1, 17), 2),
    ],
)
def test_range_grows_until_best_weight_is_inside(tmp_path, caplog, first, last, weights, chosen):
    """The number of errors grows with the distance from the best weights. A given wide range finds the
    same."""
    steps = [right_from(weight) for weight in range(1, first + 1)] + [
        right_to(weight) for weight in range(last, 101)
    ]
    corpus = Corpus(tmp_path / "own", WRONG, *steps)
    with caplog.at_level("INFO", "pyasr"):
        found = corpus.score()
    assert (
        found["chosen"]["point"] == [chosen, 0.0]
        and found["chosen"]["errors"] == 1
        and found["weights"] == weights
    )
    assert ("trying more" in caplog.text) == (
        weights != (7, 17)
    ) and "at the end of the range;" not in caplog.text
    wide = ["--min-lmwt", 1, "--max-lmwt", min(weights[1] + 13, 100)]
    by_hand = Corpus(tmp_path / "wide", WRONG, *steps).score(*wide)
    assert by_hand["chosen"] == found["chosen"]


def test_minimum_one_step_beyond_range_is_found(tmp_path):
    """All weights of the first range have the same number of errors."""
    assert Corpus(tmp_path / "a", WRONG, right_from(26)).score()["chosen"]["point"] == [26, 0.0]


def test_equal_errors_keep_lowest_weight(tmp_path, caplog):
    found = Corpus(tmp_path / "a", WRONG).score()
    assert found["chosen"]["point"] == [7, 0.0] and found["weights"] == (1, 30)
    assert Corpus(tmp_path / "b", right_to(40)).score()["weights"] == (
        7,
        17,
    )  # no errors: no improvement is possible
    assert "at the end of the range;" not in caplog.text


def test_given_ends_are_fixed(tmp_path, caplog):
    utterances = [WRONG, *(right_from(weight) for weight in range(1, 24))]
    found = Corpus(tmp_path / "a", *utterances).score("--max-lmwt", 20)
    assert found["weights"] == (7, 20) and found["chosen"]["point"] == [20, 0.0]
    assert "the best LM weight 20 is at the end of the range; raise --max-lmwt, or omit it" in caplog.text
    assert Corpus(tmp_path / "b", *utterances).score("--min-lmwt", 9)["weights"] == (9, 50)
    assert Corpus(tmp_path / "c", *utterances).score("--min-lmwt", 21)["chosen"]["point"] == [23, 0.0]
    caplog.clear()
    low = [WRONG, *(right_to(weight) for weight in range(4, 20))]
    assert Corpus(tmp_path / "d", *low).score("--min-lmwt", 5, "--max-lmwt", 9)["weights"] == (5, 9)
    assert "the best LM weight 5 is at the end of the range; lower --min-lmwt, or omit it" in caplog.text


def test_limit_of_range_gives_warning(tmp_path, caplog):
    found = Corpus(tmp_path / "a", WRONG, *(right_from(weight) for weight in range(1, 120))).score()
    assert found["weights"] == (7, 100) and found["chosen"]["point"] == [100, 0.0]
    assert "the best LM weight 100 is at the end of the range; raise --max-lmwt" in caplog.text


def test_weight_of_other_set_is_applied_outside_first_range(tmp_path):
    """The best weight of the other set is 12."""
    dev = Corpus(
        tmp_path / "dev",
        WRONG,
        *(right_from(weight) for weight in range(1, 27)),
        *(right_to(weight) for weight in range(26, 60)),
    )
    test = Corpus(
        tmp_path / "test",
        WRONG,
        *(right_from(weight) for weight in range(1, 13)),
        *(right_to(weight) for weight in range(12, 60)),
    )
    assert dev.score()["chosen"]["point"] == [26, 0.0]
    found = test.score("--params-from", dev.decode)
    assert (
        found["chosen"]["point"] == [26, 0.0]
        and found["best"]["point"] == [12, 0.0]
        and found["weights"] == (7, 26)
    )
    test.decode.rename(tmp_path / "test/again")
    shutil.rmtree(tmp_path / "test/again/scoring")
    test.decode = tmp_path / "test/again"
    with pytest.raises(
        UserError,
        match="LM weight 26 and penalty 0.0 of .* are not in the sweep; widen --min-lmwt, --max-lmwt",
    ):
        test.score("--params-from", dev.decode, "--max-lmwt", 17)


def test_scores_of_earlier_version_are_up_to_date(tmp_path, capsys):
    """Their done-file has numbers for both ends."""
    corpus = Corpus(tmp_path / "a", WRONG, right_from(12), right_to(12))
    corpus.score()
    options = json.loads((corpus.decode / "scoring/.done.json").read_text())["options"]
    assert (options["min_lmwt"], options["max_lmwt"]) == (7, 17)
    corpus.score("--min-lmwt", 7, "--max-lmwt", 17)
    assert "up to date" in capsys.readouterr().out


def test_given_range_overrides_grown_range(tmp_path, capsys):
    """Also in the other order: a fixed range grows if the best weight is at its end."""
    steps = [right_from(weight) for weight in range(15, 24)] + [right_to(weight) for weight in range(23, 28)]
    corpus = Corpus(tmp_path / "a", WRONG, *steps)
    assert corpus.score()["weights"] == (7, 30)
    fixed = "--min-lmwt", 7, "--max-lmwt", 17
    found = corpus.score(*fixed)
    assert found["weights"] == (7, 17) and found["chosen"]["point"] == [17, 0.0]
    assert (
        f"{corpus.decode}/scoring is out of date: it has scores of LM weights 7 to 30; computing it again"
        in capsys.readouterr().out
    )
    corpus.score(*fixed)
    assert "up to date" in capsys.readouterr().out
    assert corpus.score()["chosen"]["point"] == [23, 0.0]
    assert (
        "scoring is out of date: its best LM weight 17 is at a fixed end of its range; computing it again"
        in capsys.readouterr().out
    )
    assert corpus.score("--min-lmwt", 7)["weights"] == (7, 30)
    assert "up to date" in capsys.readouterr().out
    assert corpus.score("--max-lmwt", 17)["weights"] == (7, 17)


def test_ranges_with_best_weight_inside_are_interchangeable(tmp_path, capsys):
    corpus = Corpus(tmp_path / "a", WRONG, right_from(12), right_to(12))
    for words in (("--min-lmwt", 7, "--max-lmwt", 17), (), ("--max-lmwt", 17)):
        corpus.score(*words)
        assert ("up to date" in capsys.readouterr().out) == (words != ("--min-lmwt", 7, "--max-lmwt", 17))


def test_minimum_bayes_risk_range_grows(tmp_path):
    """Minimum Bayes risk scores have their own range."""
    steps = [right_from(weight) for weight in range(1, 22)] + [right_to(weight) for weight in range(21, 40)]
    corpus = Corpus(tmp_path / "a", WRONG, *steps)
    run_here("score.py", "--nj", 1, "--decode-mbr", "true", corpus.data, corpus.lang, corpus.decode)
    assert json.loads((corpus.decode / "scoring_mbr/summary.json").read_text())["chosen"]["point"] == [
        21,
        0.0,
    ]


def test_initial_ranges():
    assert [
        first_range(*given) for given in ((None, None), (3, None), (None, 30), (None, 5), (20, None), (9, 11))
    ] == [(7, 17), (3, 17), (7, 30), (5, 5), (20, 20), (9, 11)]
    assert list(LmWeights(None, None, 25).first) == list(range(7, 26)) and list(
        LmWeights(None, None, 3).first
    ) == list(range(3, 18))
    with pytest.raises(
        UserError, match="--min-lmwt 12 is greater than --max-lmwt 9; lower the first or raise the second"
    ):
        first_range(12, 9)
