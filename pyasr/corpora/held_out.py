"""The stm file of a held-out part of a telephone corpus, for scoring as on NIST's evaluation sets.

    sw02001 A sw02001-A 0.98 11.56  (um) yeah i (wen-) to i b m

Noises are removed, hesitations and fragments are optional, acronyms are spelled as letters
(`pyasr.data.transcripts.spoken`).
"""

from __future__ import annotations

from pathlib import Path

from pyasr.base.errors import UserError
from pyasr.base.outputs.output import adopt, atomic_write
from pyasr.data.tables.datadir import DataDir
from pyasr.data.transcripts.ctm import Recordings
from pyasr.data.transcripts.glm import read_glm
from pyasr.data.transcripts.spoken import is_optional, is_unscored, letters_of
from pyasr.data.transcripts.stm import StmSegment
from pyasr.io.content import read_content


def stm_text(words: str) -> str:
    """The words of an utterance as the text of an stm segment."""
    scored = [word for word in words.split() if not is_unscored(word)]
    return " ".join(f"({word})" if is_optional(word) else " ".join(letters_of(word)) for word in scored)


def segments_of(data: DataDir) -> list[StmSegment]:
    """One stm segment per utterance. Raises UserError if `data` has no segments."""
    if not data.has("segments"):
        raise UserError(
            f"{data.path}: no segments, which an stm needs for its times; give a data directory of calls"
        )
    recordings, found = Recordings(data), []
    for name, segment in data.segments.items():
        file, channel, _ = recordings.locate(name)
        times = f"{segment.begin_s:.2f}", f"{segment.end_s:.2f}"
        found.append(
            StmSegment(file, channel, data.utt2spk[name], *times, (), stm_text(data.text.get(name, "")))
        )
    return found


def add_stm(data: DataDir, glm: Path | None = None) -> bool:
    """Write DATA/stm and, from `glm`, DATA/glm. Returns False if both already exist with the same content.

    Raises UserError for a malformed glm.
    """
    contents = {"stm": "".join(f"{segment}\n" for segment in segments_of(data)).encode()}
    if glm:
        read_glm(glm)
        contents["glm"] = read_content(glm)
    outdated = {name: content for name, content in contents.items() if _content(data.path / name) != content}
    for name, content in outdated.items():
        with atomic_write(data.path / name, "wb") as f:
            f.write(content)
    adopt(data.path)
    return bool(outdated)


def _content(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None
