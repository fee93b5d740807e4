#!/usr/bin/env python3
"""Create a language directory in Kaldi's layout from a dictionary directory.

Reads   DICT_DIR/{lexicon,lexiconp,lexiconp_silprob,silprob,silence_phones,nonsilence_phones}.txt,
        DICT_DIR/{optional_silence,extra_questions}.txt
Writes  LANG_DIR: phones.txt words.txt oov.{txt,int} topo L.fst L_disambig.fst phones/*.{txt,int,csl};
        oov.txt contains OOV_WORD

  utils/prepare_lang.py data/local/dict "<unk>" data/lang
"""

from dataclasses import dataclass
from pathlib import Path

from pyasr.base import log
from pyasr.base.cli.options import argument, group
from pyasr.base.cli.step import output_of, run_step
from pyasr.lang.lang_dirs.prepare_lang import LangOptions, write_lang
from pyasr.lang.lexicons.dict_dir import read_dict_dir


@dataclass(frozen=True)
class PrepareLang:
    dict_dir: Path = argument(
        "dictionary directory, from utils/prepare_dict.py or in the form of Kaldi's local/dict"
    )
    oov_word: str = argument("word of the lexicon that replaces out-of-vocabulary words, such as <unk>")
    lang_dir: Path = argument("language directory to write")
    lang: LangOptions = group(LangOptions)


def main(options: PrepareLang) -> None:
    names = (
        "lexiconp_silprob",
        "silprob",
        "lexiconp",
        "lexicon",
        "silence_phones",
        "nonsilence_phones",
        "optional_silence",
        "extra_questions",
    )
    found = [path for path in (options.dict_dir / f"{name}.txt" for name in names) if path.exists()]
    with output_of(options, options.lang_dir, found or [options.dict_dir / "lexicon.txt"]) as out:
        content = read_dict_dir(options.dict_dir)
        write_lang(content, options.oov_word, options.lang, out)
    log.info(
        f"{options.lang_dir}: {len(content.lexicon)} words, {len(content.lexicon.rows())} pronunciations"
    )


if __name__ == "__main__":
    run_step(PrepareLang, main, __doc__)
