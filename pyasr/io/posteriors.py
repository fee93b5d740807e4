"""Archives of posteriors, one per utterance: Kaldi's `post.*.gz` (binary or text, plain or compressed).

An entry is `KEY␣`, followed in binary by `\\0B`, the number of frames, for each frame the number of its
pairs, and for each pair an integer (transition-id, pdf or phone) and its weight; a size byte precedes every
number. In text each frame is `[ ID WEIGHT ID WEIGHT ] `.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pyasr.base.compiled.kernels import njit
from pyasr.base.errors import UserError
from pyasr.base.outputs.output import atomic_write
from pyasr.io.archive import damaged, read_key, write_content
from pyasr.io.content import read_content
from pyasr.io.object_kinds import PEEK_BYTES, POSTERIORS, SOME_INTEGERS, TEXT, VECTOR, refuse_other

_BINARY = b"\0B"
_KIND = "posteriors"
_PAIR = np.dtype([("id_size", "i1"), ("id", "<i4"), ("weight_size", "i1"), ("weight", "<f4")])
_COUNT_BYTES, _PAIR_BYTES = 5, 10


@dataclass(frozen=True)
class Posteriors:
    """Weighted ids of the frames of an utterance; the pairs of frame t are `offsets[t]:offsets[t + 1]`.

    offsets  int64 (num_frames + 1)
    ids      int32 (num_pairs)
    weights  float32 (num_pairs)
    """

    offsets: np.ndarray
    ids: np.ndarray
    weights: np.ndarray

    @property
    def num_frames(self) -> int:
        return len(self.offsets) - 1

    @staticmethod
    def of(frames: list[list[tuple[int, float]]]) -> Posteriors:
        """Posteriors from a list of (id, weight) for each frame."""
        pairs = [pair for frame in frames for pair in frame]
        offsets = np.cumsum([0, *(len(frame) for frame in frames)]).astype(np.int64)
        return Posteriors(
            offsets, np.array([i for i, _ in pairs], np.int32), np.array([w for _, w in pairs], np.float32)
        )

    @staticmethod
    def of_alignment(ids: np.ndarray) -> Posteriors:
        """Posteriors with one id per frame and weight 1 (ali-to-post)."""
        ids = np.asarray(ids, np.int32)
        return Posteriors(np.arange(len(ids) + 1), ids, np.ones(len(ids), np.float32))

    def frame(self, t: int) -> list[tuple[int, float]]:
        """The pairs of one frame."""
        span = slice(self.offsets[t], self.offsets[t + 1])
        return list(zip(self.ids[span].tolist(), self.weights[span].tolist()))


def read_posteriors(path: Path) -> dict[str, Posteriors]:
    """{key: posteriors} in the order of the file. Raises UserError with file and byte if it is missing,
    truncated or something else."""
    data = read_content(Path(path))
    found: dict[str, Posteriors] = {}
    position = 0
    while position < len(data):
        key = read_key(data, position, path, _KIND, found)
        begin = position + len(key.encode()) + 1
        read = _read_binary if data[begin : begin + 2] == _BINARY else _read_text
        try:
            found[key], position = read(data, begin, path, key)
        except UserError:
            there, similar = data[begin : begin + PEEK_BYTES], (SOME_INTEGERS, VECTOR, TEXT)
            refuse_other(
                f"{path}: {key} at byte {begin}", there, POSTERIORS, "give an archive of posteriors", similar
            )
            raise
    return found


def write_posteriors(path: Path, posteriors: dict[str, Posteriors], binary: bool = True) -> None:
    """Write {key: posteriors} atomically; gzipped if the name ends in `.gz`."""
    entry = _binary_entry if binary else _text_entry
    with atomic_write(path, "wb") as f:
        write_content(
            f, path, b"".join(key.encode() + b" " + entry(value) for key, value in posteriors.items())
        )


def _read_binary(data: bytes, begin: int, path: Path, key: str) -> tuple[Posteriors, int]:
    raw = np.frombuffer(data, np.uint8)
    offsets, position = _walk(raw, begin + 2)
    if len(offsets) == 0:
        raise damaged(path, position, _KIND, f"the frames of {key} are incomplete")
    num_pairs = np.diff(offsets)
    first_bytes = begin + 2 + _COUNT_BYTES * (2 + np.arange(len(num_pairs))) + _PAIR_BYTES * offsets[:-1]
    starts = np.repeat(first_bytes - _PAIR_BYTES * offsets[:-1], num_pairs) + _PAIR_BYTES * np.arange(
        offsets[-1]
    )
    pairs = raw[starts[:, None] + np.arange(_PAIR_BYTES)].reshape(-1).view(_PAIR)
    wrong = np.flatnonzero((pairs["id_size"] != 4) | (pairs["weight_size"] != 4))
    if len(wrong):
        raise damaged(
            path, int(starts[wrong[0]]), _KIND, f"{key} has a pair that is not an int32 and a float"
        )
    return Posteriors(offsets, pairs["id"].astype(np.int32), pairs["weight"].astype(np.float32)), position


@njit(nogil=True, cache=True)
def _walk(raw, position):
    """(offsets of the pairs of the frames, the byte after the entry); if the entry is truncated, no offsets,
    and the byte of the error."""
    num_frames = _count(raw, position)
    if num_frames < 0 or num_frames > (len(raw) - position) // 5:
        return np.zeros(0, np.int64), position
    offsets = np.zeros(num_frames + 1, np.int64)
    position += 5
    for t in range(num_frames):
        num_pairs = _count(raw, position)
        if num_pairs < 0 or num_pairs > (len(raw) - position - 5) // 10:
            return np.zeros(0, np.int64), position
        offsets[t + 1] = offsets[t] + num_pairs
        position += 5 + 10 * num_pairs
    return offsets, position


@njit(inline="always")
def _count(raw, position):
    """The int32 after its size byte; -1 if there is no such number."""
    if position + 5 > len(raw) or raw[position] != 4 or raw[position + 4] > 127:
        return -1
    return (
        raw[position + 1]
        + (raw[position + 2] << 8)
        + (raw[position + 3] << 16)
        + (np.int64(raw[position + 4]) << 24)
    )


def _read_text(data: bytes, begin: int, path: Path, key: str) -> tuple[Posteriors, int]:
    end = data.find(b"\n", begin)
    end = len(data) if end < 0 else end
    frames = data[begin:end].split(b"]")
    try:
        if frames.pop().strip() or not all(frame.split()[:1] == [b"["] for frame in frames):
            raise ValueError
        words = [frame.split()[1:] for frame in frames]
        return Posteriors.of(
            [[(int(i), float(w)) for i, w in zip(row[::2], row[1::2], strict=True)] for row in words]
        ), end + 1
    except (ValueError, OverflowError):
        raise damaged(path, begin, _KIND, f"{key} is not '[ ID WEIGHT ... ]' for each frame") from None


def _binary_entry(value: Posteriors) -> bytes:
    num_pairs = np.diff(value.offsets)
    sizes = _COUNT_BYTES + _PAIR_BYTES * num_pairs
    firsts = np.cumsum(sizes) - sizes
    raw = np.empty(int(sizes.sum()), np.uint8)
    raw[firsts[:, None] + np.arange(_COUNT_BYTES)] = _sized(num_pairs)
    pairs = np.empty(len(value.ids), _PAIR)
    pairs["id_size"] = pairs["weight_size"] = 4
    pairs["id"], pairs["weight"] = value.ids, value.weights
    starts = np.repeat(
        firsts + _COUNT_BYTES - _PAIR_BYTES * value.offsets[:-1], num_pairs
    ) + _PAIR_BYTES * np.arange(len(pairs))
    raw[starts[:, None] + np.arange(_PAIR_BYTES)] = pairs.view(np.uint8).reshape(-1, _PAIR_BYTES)
    return _BINARY + _sized(np.array([value.num_frames])).tobytes() + raw.tobytes()


def _sized(counts: np.ndarray) -> np.ndarray:
    """The numbers as int32, each after its size byte: uint8 (n, 5)."""
    table = np.empty(len(counts), np.dtype([("size", "i1"), ("value", "<i4")]))
    table["size"], table["value"] = 4, counts
    return table.view(np.uint8).reshape(-1, _COUNT_BYTES)


def _text_entry(value: Posteriors) -> bytes:
    frames = (" ".join(f"{i} {w:.9g}" for i, w in value.frame(t)) for t in range(value.num_frames))
    return ("".join(f"[ {frame} ] " if frame else "[ ] " for frame in frames) + "\n").encode()
