from collections import Counter

import pytest

from pyasr.base.cli.seeds import generator
from pyasr.base.errors import UserError
from pyasr.lang.lexicons.lexicon import Lexicon, read_cmudict, without_stress
from pyasr.lang.pronouncing.graphones import JointModel
from pyasr.lang.pronouncing.letter_to_sound import Guess, LetterToSound


@pytest.fixture(scope="module")
def held_out():
    """(converter trained without them, 1,000 words of the CMU dictionary with all their pronunciations)."""
    lexicon = read_cmudict(stress=True)
    words = [word for word in lexicon.entries if word.isalpha()]
    chosen = {words[i] for i in generator(0, "held out words").choice(len(words), 1000, replace=False)}
    rest = Lexicon({word: variants for word, variants in lexicon.entries.items() if word not in chosen})
    converter = LetterToSound.train(rest, Counter({"so": 10, "beautiful": 1}))
    return converter, {word: [without_stress(phones) for phones in lexicon.entries[word]] for word in chosen}


def edits(a, b):
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        corner, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            corner, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, corner + (x != y))
    return row[-1]


def test_held_out_cmudict_words_have_few_errors(held_out):
    converter, words = held_out
    num_errors = num_phones = num_right = 0
    for word, references in words.items():
        guess = without_stress(converter.pronounce(word).phones)
        errors, length = min((edits(guess, phones), len(phones)) for phones in references)
        num_errors = num_errors + errors
        num_phones = num_phones + length
        num_right = num_right + (errors == 0)
    assert num_errors / num_phones < 0.075
    assert num_right / len(words) > 0.70


@pytest.mark.parametrize(
    ("word", "phones", "method"),
    [
        ("hat's", "HH AE T S", None),
        ("xqueen's", None, "possessive"),
        ("duke's'", None, "possessive"),
        ("glimmerin'", None, "dropped g"),
        ("why've", "W AY AH V", "contraction"),
        ("hmmmmm", "HH AH M", "interjection"),
        ("beeeeautiful", "B Y UW T AH F AH L", "stretched"),
        ("soooo", "S OW", "stretched"),
        ("frrblt", "F ER B L T", "no vowels"),
        ("fx", "EH F EH K S", "no vowels"),
        ("moo-cow", "M UW K AW", "parts"),
        ("'cause'", "K AA Z", "parts"),
        ("hat\u2764\ufe0f", "HH AE T", "parts"),
        ("hät", "HH AE T", "accents"),
        ("ha\u0308t-cow", "HH AE T K AW", "parts"),
        ("f\u00e9x", None, "accents"),
    ],
)
def test_rules_for_special_words(held_out, word, phones, method):
    guess = held_out[0].pronounce(word)
    assert method is None or guess.method == method
    assert phones is None or without_stress(guess.phones) == tuple(phones.split())


def test_unpronounceable_words_have_no_guess(held_out):
    converter, _ = held_out
    assert converter.pronounce("1234") is None
    assert converter.pronounce("'") is None
    assert converter.pronounce("") is None
    assert converter.pronounce("Привет") is None
    assert converter.pronounce("été").phones == converter.pronounce("ete").phones
    assert converter.pronounce("bøtter") == Guess(converter.pronounce("btter").phones, "known letters")


def test_guesses_follow_stress_convention_of_lexicon(held_out):
    assert held_out[0].pronounce("hmmmmm").phones == ("HH", "AH1", "M")
    plain = LetterToSound.train(
        Lexicon(
            {
                word: {without_stress(p): 1.0 for p in v}
                for word, v in list(held_out[0].lexicon.entries.items())[:2000]
            }
        )
    )
    assert plain.pronounce("hmmmmm").phones == ("HH", "AH", "M")
    assert not any(phone[-1].isdigit() for phone in plain.pronounce("abandoner").phones)


def test_joint_model_learns_substitution_cipher():
    """Letters a, b, c are pronounced A, B and nothing, x is K S. The model must learn this from words
    only."""
    sounds = {"a": ("A",), "b": ("B",), "c": (), "x": ("K", "S")}
    rng = generator(1, "cipher")
    words = ["".join(rng.choice(list("abcx"), rng.integers(2, 7))) for _ in range(300)]
    spoken = [(word, tuple(phone for letter in word for phone in sounds[letter])) for word in words]
    model = JointModel.train([pair for pair in spoken if pair[1]], order=3)
    for word in ("abacx", "xxab", "cacbc"):
        best, score = model.pronounce(word, num_best=2)[0]
        assert best == tuple(phone for letter in word for phone in sounds[letter])
        assert score < 0
    assert model.pronounce("abz") == []


def test_upper_case_and_other_alphabets():
    lexicon = Lexicon()
    for word, phones in (
        ("БАБА", "b a b a"),
        ("БАЗА", "b a z a"),
        ("ЗАБАБА", "z a b a b a"),
        ("аба", "a b a"),
    ):
        lexicon.add(word, tuple(phones.split()))
    converter = LetterToSound.train(lexicon, order=2)
    assert converter.pronounce("Забаза").phones == tuple("z a b a z a".split())
    assert converter.pronounce("hmmm") is None  # a rule with ARPAbet phones does not apply


def spelt_as_spoken(sounds, count=300):
    """A lexicon of random words in which each letter has its own phone."""
    rng = generator(2, "letters")
    words = {"".join(rng.choice(list(sounds), rng.integers(2, 7))) for _ in range(count)}
    return Lexicon({word: {tuple(sounds[letter] for letter in word): 1.0} for word in sorted(words)})


def test_letters_outside_a_to_z_are_pronounced():
    """ö and ß of a dictionary with other phones; vowel signs of another alphabet, which are not letters for
    str.isalpha."""
    sounds = {"b": "b", "e": "@", "g": "g", "l": "l", "o": "o", "ö": "oe", "r": "r", "ß": "s"}
    converter = LetterToSound.train(spelt_as_spoken(sounds), order=3)
    assert converter.pronounce("größöler") == Guess(tuple("g r oe s oe l @ r".split()), "model")
    assert converter.pronounce("gro\u0308ßolber-böllgeß") == Guess(
        tuple("g r oe s o l b @ r b oe l l g @ s".split()), "parts"
    )
    assert converter.pronounce("grölére") == Guess(tuple("g r oe l @ r @".split()), "accents")
    hindi = LetterToSound.train(
        spelt_as_spoken({"क": "k", "म": "m", "ल": "l", "\u093e": "aa", "\u093f": "i", "\u0947": "e"}), order=3
    )
    assert hindi.pronounce("कमल\u093eम\u093fल\u0947क").phones == tuple("k m l aa m i l e k".split())


def test_unalignable_dictionary_is_refused():
    lexicon = Lexicon({"w": {tuple("D AH B AH L Y UW".split()): 1.0}})
    with pytest.raises(UserError, match="no word of the dictionary can be aligned"):
        LetterToSound.train(lexicon)
