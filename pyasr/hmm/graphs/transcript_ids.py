"""The transcripts of a data directory as word ids of a language directory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from pyasr.base.cli.skipped_utterances import counted_reasons
from pyasr.base.errors import UserError
from pyasr.data.tables.datadir import DataDir
from pyasr.lang.lang_dirs.lang_dir import LangDir
from pyasr.lang.lexicons.dict_dir import RESERVED_WORDS
from pyasr.lang.ngrams.vocabulary import has_known_word, map_to_lang


def read_words(
    data: Path, lang: LangDir, utterances: Sequence[str], tables: Path | None = None
) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """({utterance: word ids}, {utterance: reason why it has none}). Words that are not in words.txt become
    the OOV word.

    tables  directory with the lines of these utterances; None: `data`

    Raises UserError if no transcript of the whole data directory contains a word of the language directory.
    """
    texts = DataDir(data, tables).text
    failed = {utt: reason for utt in utterances if (reason := _problem(texts, utt))}
    mapped = map_to_lang({utt: texts[utt] for utt in utterances if utt not in failed}, lang)
    if mapped.ids and len(mapped.oov_only) == len(mapped.ids):
        _check_known(data, DataDir(data).text, lang)
    return mapped.ids, failed


def check_transcripts(data: Path, lang: Path) -> None:
    """Raise UserError if no utterance has a usable transcript, or no transcript contains a word of the
    language directory."""
    directory = DataDir(data)
    reasons = {}
    for utterance in directory.utterances:
        if not (reason := _problem(directory.text, utterance)):
            return _check_known(data, directory.text, LangDir(lang))
        reasons[utterance] = reason
    raise UserError(
        f"{data}: no utterance can be used: {counted_reasons(reasons)}; run utils/validate_data_dir.py {data}"
    )


def _problem(texts: Mapping[str, str], utterance: str) -> str:
    """The reason why a transcript cannot be used; '' if it can be used."""
    if not (text := texts.get(utterance)):
        return "no line in text" if text is None else "its transcript is empty"
    symbol = next((word for word in text.split() if word in RESERVED_WORDS), "")
    return f"its transcript contains the symbol {symbol}, which is not a word" if symbol else ""


def _check_known(data: Path, texts: Mapping[str, str], lang: LangDir) -> None:
    if not has_known_word(texts.values(), lang):
        raise UserError(
            f"{data}/text: none of its words is in {lang.path}/words.txt (it begins with "
            f"'{next(iter(texts.values()))}'); use the language directory that was built for this text"
        )
