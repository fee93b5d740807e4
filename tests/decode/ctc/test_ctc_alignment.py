"""CTC units in place of phones, against enumeration."""

import itertools
import re

from pyasr.decode.align.align_lexicon import align_lexicon, has_pair, step
from pyasr.decode.ctc.ctc_alignment import UnitRuns, with_blanks

BLANK = 1
WORDS = {1: [(2, 3), (4,)], 2: [(2, 2, 3)], 3: [(2,)]}


def test_blanks_separate_units_of_a_word():
    """All sequences of up to five labels against regular expressions: at most one blank between units, none
    at the ends; silence."""
    lexicon = with_blanks(
        align_lexicon(
            [
                (0, (BLANK,)),
                *((word, spelling) for word, spellings in WORDS.items() for spelling in spellings),
            ]
        ),
        BLANK,
    )
    patterns = {
        word: [re.compile(f"{BLANK}?".join(map(str, spelling))) for spelling in spellings]
        for word, spellings in WORDS.items()
    }
    patterns[0] = [re.compile(str(BLANK))]
    for length in range(1, 6):
        for labels in itertools.product(range(1, 5), repeat=length):
            node = 0
            for label in labels:
                node = step(lexicon, node, label) if node >= 0 else -1
            text = "".join(map(str, labels))
            for word, ways in patterns.items():
                assert (node >= 0 and has_pair(lexicon.ends, node, word)) == any(
                    way.fullmatch(text) is not None for way in ways
                )
                continues = any(
                    way.fullmatch(text + rest)
                    for way in ways
                    for rest in ("3", "4", "13", "23", "123", "213", "1213", "2", "12")
                )
                if node >= 0 and not has_pair(lexicon.ends, node, word):
                    assert has_pair(lexicon.prefixes, node, word) == continues


def test_units_are_numbered_from_one():
    runs = UnitRuns.of(5)
    assert (
        runs.num_tids == 5
        and runs.tid2phone.tolist() == [0, 1, 2, 3, 4, 5]
        and runs.is_self_loop.all()
        and runs.is_final.all()
    )
