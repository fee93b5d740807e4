"""Convert tokens of Mississippi State's transcripts of Switchboard, with marks of laughter, fragments, slips
and asides, to words.

[laughter-story]            story
[it'n/isn't]                it'n        the spoken word, not the intended one
ab[solute]-  -[an]y         ab-  -y     fragments
{yuppiedom}                 yuppiedom   coinages
ammu[n]it-                  ammu-it-
them_1                      them        a mark of pronunciation
[noise] [laughter] [vocalized-noise]    stay
"""

from __future__ import annotations

import re

NOISES = ("[noise]", "[laughter]", "[vocalized-noise]")
_DROPPED = {"[silence]", "<b_aside>", "<e_aside>"}
_RULES = [
    (re.compile(pattern, re.IGNORECASE), replacement)
    for pattern, replacement in (
        (r"^(-?)\[laughter-(.+)\](-?)$", r"\1\2\3"),
        (r"^\[([^/]+)/.+\](-?)$", r"\1\2"),
        (r"^-?\[[^\]]+\](?=[\w'])", "-"),
        (r"^(.+)\[[^\]]+\]-*$", r"\1-"),
        (r"^([^\[]+)\[.+\]$", r"\1"),
        (r"^\{(.+)\}(-?)$", r"\1\2"),
        (r"([\w'])\[[^\]]+\](?=[\w'])", r"\1-"),
        (r"_\d", ""),
    )
]


def word_of(token: str) -> str:
    """The word of a token, in its case; '' for silence and marks of asides."""
    if token.lower() in _DROPPED:
        return ""
    if token.lower() in NOISES:
        return token.lower()
    token = token.replace("&amp;", "&")
    for pattern, replacement in _RULES:
        token = pattern.sub(replacement, token)
    return token


def words_of(text: str) -> list[str]:
    """Words of a segment's transcript, in their case; empty if it has only silence and marks of asides."""
    return [word for token in text.split() if (word := word_of(token))]
