"""A lang directory whose phones are the units of a CTC network. Grammars, LG and rescoring work as with
phones.

phones.txt        <eps> 0, then the units, each with its id + 1: <blk> 1, <unk> 2, ...; then #0, #1, ...
words.txt         <eps>, the words in C order, #0, <s>, </s>
lexiconp.txt      each word with its spellings in units, of probability 1: an alternative spelling costs
                  nothing
L.fst, L_disambig.fst, phones/{disambig,wdisambig,align_lexicon,...}
                  as in any lang directory, with the blank in place of silence
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pyasr.base.errors import UserError
from pyasr.io.openfst import Fst, write_fst
from pyasr.lang.lang_dirs.align_lexicon_files import write_align_lexicon
from pyasr.lang.lang_dirs.subwords import BLANK, Subwords
from pyasr.lang.lexicons.lexicon import Lexicon
from pyasr.lang.lexicons.lexicon_fst import OptionalSilence, Pronunciations, add_disambig, lexicon_fst
from pyasr.lang.symbols import EPSILON, SymbolTable, write_lines


def spell(vocabulary: Iterable[str], subwords: Subwords, num_spellings: int) -> tuple[Lexicon, list[str]]:
    """(lexicon with up to `num_spellings` segmentations of each word, words without one)."""
    lexicon, unspelled = Lexicon(), []
    for word in dict.fromkeys(vocabulary):
        found = subwords.spellings(word, num_spellings)
        for units in found:
            lexicon.add(word, tuple(subwords.units[unit] for unit in units))
        if not found:
            unspelled.append(word)
    return lexicon, unspelled


def write_subword_lang(lexicon: Lexicon, units: list[str], out: Path) -> None:
    """Fill the existing directory `out`. Raises UserError for an empty lexicon and for units that look like
    #0, #1, ..."""
    if not lexicon.entries:
        raise UserError(
            "none of the words can be spelled in the units; give the words of a text like the one the units "
            "were trained on"
        )
    rows = lexicon.rows()
    marked, num_disambig = add_disambig([spelling for _, _, spelling in rows])
    disambig = [f"#{n}" for n in range(num_disambig + 1)]
    clash = set(disambig) & set(units)
    if clash:
        raise UserError(
            f"units.txt has the unit '{min(clash)}', which is a disambiguation symbol; remove '#' from the "
            "training text"
        )
    phones = SymbolTable.of([EPSILON, *units, *disambig])
    words = SymbolTable.of(
        [EPSILON, *(word for word in sorted(lexicon.entries, key=str.encode)), "#0", "<s>", "</s>"]
    )
    phones.write(out / "phones.txt")
    words.write(out / "words.txt")
    lexicon.write(out)
    _write_lists(out, phones, words, disambig)
    spelled = ((word, tuple(spelling)) for word, _, spelling in rows)
    write_align_lexicon([(EPSILON, (BLANK,)), *spelled], words, phones, out)
    word_ids = [words[word] for word, _, _ in rows]
    write_fst(out / "L.fst", _transducer(word_ids, [spelling for _, _, spelling in rows], phones, None))
    write_fst(out / "L_disambig.fst", _transducer(word_ids, marked, phones, (phones["#0"], words["#0"])))


def _write_lists(out: Path, phones: SymbolTable, words: SymbolTable, disambig: list[str]) -> None:
    (out / "phones").mkdir()
    write_lines(out / "phones/disambig.txt", disambig)
    write_lines(out / "phones/disambig.int", (phones[symbol] for symbol in disambig))
    write_lines(out / "phones/wdisambig.txt", ["#0"])
    write_lines(out / "phones/wdisambig_phones.int", [phones["#0"]])
    write_lines(out / "phones/wdisambig_words.int", [words["#0"]])


def _transducer(
    word_ids: list[int],
    spellings: list[tuple[str, ...]],
    phones: SymbolTable,
    self_loop: tuple[int, int] | None,
) -> Fst:
    chains = [tuple(phones[unit] for unit in spelling) for spelling in spellings]
    return lexicon_fst(
        Pronunciations(word_ids, [0.0] * len(chains), chains), OptionalSilence(0.0, 0), self_loop
    )
