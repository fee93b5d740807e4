#!/usr/bin/env python3
"""Convert Fisher's transcripts to a text in Switchboard's spelling, for a language model that is mixed with
Switchboard's.

Reads   --fisher: directories of the transcripts (LDC2004T19, LDC2005T19), of one part or both
Writes  OUT/text, a line per utterance; uncertain words `(( ))` are included

    local/prepare_lm_text.py --fisher /corpora/LDC2004T19:/corpora/LDC2005T19 data/local/fisher_text
"""

from dataclasses import dataclass
from pathlib import Path

from pyasr.base import log
from pyasr.base.cli.options import argument, option
from pyasr.base.cli.step import output_of, run_step
from pyasr.corpora.conversations import SkippedItems
from pyasr.corpora.discs import places_in
from pyasr.corpora.fisher.fisher_calls import Calls, find_transcripts
from pyasr.corpora.fisher.fisher_text import lm_words
from pyasr.corpora.fisher.fisher_transcripts import read_transcript
from pyasr.io.text_tables import write_table


@dataclass(frozen=True)
class PrepareLmText:
    out: Path = argument("directory to create")
    fisher: str = option("", "directories of the discs, separated by colons")


def main(options: PrepareLmText) -> None:
    calls = find_transcripts(places_in(options.fisher))
    with output_of(options, options.out, list(calls.transcripts.values())) as out:
        text = text_of(calls)
        write_table(out / "text", text)
    num_words = sum(len(words.split()) for words in text.values())
    log.info(f"{options.out}/text: {len(calls.transcripts)} calls, {len(text)} utterances, {num_words} words")


def text_of(calls: Calls) -> dict[str, str]:
    """{utterance: words} of all lines with words."""
    text: dict[str, str] = {}
    skipped = SkippedItems()
    for call in sorted(calls.transcripts):
        for line in read_transcript(call, calls.transcripts[call], skipped):
            if words := lm_words(line.text):
                text.setdefault(line.name, words)
    skipped.log("lines")
    return text


if __name__ == "__main__":
    run_step(PrepareLmText, main, __doc__)
