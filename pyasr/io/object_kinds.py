"""The kind of a Kaldi object in an archive, detected from its first bytes, for error messages of readers that
expect another kind."""

from __future__ import annotations

import re
import struct
from pathlib import Path

from pyasr.base.errors import UserError

PEEK_BYTES = 1 << 16
MATRIX, COMPRESSED, VECTOR, INTEGERS = "a matrix", "a compressed matrix", "a vector", "a vector of integers"
SOME_INTEGERS, TEXT = "a list of integers", "text"
POSTERIORS, FST = "a list of posteriors or of integers", "a lattice or another transducer"
TRANSITIONS = "a transition model"
TREE = "a decision tree"
NETWORK = "a network of pyasr"
HTK = "a feature file of HTK"
_LONGEST_TOKEN, _OF_TENSORS = 80, b"/data.pkl"
_NEXT_KEY = re.compile(rb"[^\s\x00-\x1f\x7f]+[ \t]")
_KEYLESS_TEXT = re.compile(rb"\[\s|rows\s*=")
_OTHER_OBJECT = "an object that begins with "
_BINARY, _FST_MAGIC, _SIZE_OF_INT, _INT_BYTES = b"\0B", struct.pack("<i", 2125659606), 4, 5
# frames, period, bytes per frame, kind with qualifiers
_HTK, _HTK_KIND, _HTK_FEATURES = struct.Struct(">iihH"), 0x3F, range(1, 12)
_TYPES = {
    b"FM": MATRIX,
    b"DM": MATRIX,
    b"CM": COMPRESSED,
    b"CM2": COMPRESSED,
    b"CM3": COMPRESSED,
    b"FV": VECTOR,
    b"DV": VECTOR,
    b"SM": "a sparse matrix",
    b"SV": "a sparse vector",
    b"FP": "a packed matrix",
    b"DP": "a packed matrix",
}
_EXAMPLES = {
    b"<Nnet3Eg>": "an nnet3 example",
    b"<Nnet3ChainEg>": "an nnet3 chain example",
    b"<NnetExample>": "an nnet2 example",
    b"<Nnet3DiscriminativeEg>": "an nnet3 discriminative example",
}
_MODELS = {
    b"<TransitionModel>": TRANSITIONS,
    b"ContextDependency": TREE,
    b"<Nnet>": "an nnet1 network",
    b"<Nnet3>": "an nnet3 network",
}
_FILES = {
    b"RIFF": "a WAV file",
    b"RIFX": "a WAV file",
    b"RF64": "a WAV file",
    b"NIST_1A": "a SPHERE file",
    b"fLaC": "a FLAC file",
    b"OggS": "an Ogg file",
    b"FORM": "an AIFF file",
    b".snd": "an AU file",
    b"caff": "a CAF file",
    b"ID3": "an MP3 file",
    b"\x1f\x8b": "a gzipped file",
    b"BZh": "a file packed by bzip2",
    b"\xfd7zXZ": "a file packed by xz",
    b"\x93NUMPY": "a numpy file",
    b"PK\x03\x04": "a zip file",
    _FST_MAGIC: FST,
}
_TEXTS = [
    (re.compile(form), name)
    for form, name in (
        (rb"\s*rows\s*=", "a sparse matrix"),
        (rb"\s*dim\s*=", "a sparse vector"),
        (rb"[ \t]*\[[^\n\]]*\][ \t]*\[", POSTERIORS),
        (rb"[ \t]*\[[ \t]*\n", MATRIX),
        (rb"[ \t]*\[[-+.\w \t]*\][ \t]*(?:\r?\n|$)", VECTOR),
        (rb"[ \t]*\r?\n[ \t]*\d+[ \t]+\d+", FST),
        (rb"[ \t]*(?:-?\d+[ \t]+)*;", "a list of lists of integers"),
        (rb"[ \t]*(?:-?\d+[ \t]+)*-?\d+[ \t]*(?:\r?\n|$)", INTEGERS),
        (rb"[ \t]*[^\x00-\x1f\x7f]+(?:\r?\n|$)", TEXT),
    )
]
_WHOLE_FILES = {HTK, NETWORK, *_FILES.values(), *_MODELS.values()} - {FST}


def refuse_other(where: str, content: bytes, wanted: str, remedy: str, also: tuple[str, ...] = ()) -> None:
    """Raise UserError, from `where` to `remedy`, if `content` begins an object that is known to be of another
    kind than `wanted`.

    also  kinds that are accepted too, or cannot be distinguished with certainty
    """
    kind = kind_of(content)
    if kind and kind not in (wanted, *also):
        raise UserError(f"{where}: found {kind}, expected {wanted}; {remedy}")


def kind_of(content: bytes) -> str:
    """The kind of the object that begins with `content` (at most PEEK_BYTES bytes), as `a sparse matrix`; ''
    if unknown."""
    if content[:2] == _BINARY:
        return _binary_kind(content[2:])
    if is_network(content):
        return NETWORK
    if _is_htk(content):
        return HTK
    of_file = next((name for begin, name in _FILES.items() if content.startswith(begin)), "")
    of_file = of_file or _MODELS.get((content[:_LONGEST_TOKEN].split() or [b""])[0], "")
    of_text = next((name for form, name in _TEXTS if form.match(content)), "")
    return (
        of_file
        or of_text
        or (f"an archive, whose first entry is {key}" if (key := first_key(content)) else "")
    )


def is_network(content: bytes) -> bool:
    """Whether a file begins like a network of pyasr: a zip file written by torch."""
    return content.startswith(b"PK\3\4") and _OF_TENSORS in content[:_LONGEST_TOKEN]


def first_key(content: bytes) -> str:
    """The key of the binary archive entry that begins with `content`; '' if it is not an entry."""
    key = _NEXT_KEY.match(content)
    return (
        key[0].strip().decode("utf-8", "replace")
        if key and content[key.end() : key.end() + 2] == _BINARY
        else ""
    )


def refuse_keyless(path: Path, content: bytes, wanted: str) -> None:
    """Raise UserError if `content`, expected to be an archive of `wanted` ("matrices"), is one object without
    a key, or of another kind."""
    if _NEXT_KEY.match(content) and not _KEYLESS_TEXT.match(content):
        return
    kind = kind_of(content[:PEEK_BYTES])
    if is_entry(kind):
        raise UserError(
            f"{path}: {single(kind)}; give an archive, in which a key and a space precede each of the "
            f"{wanted}"
        )
    if kind not in ("", TEXT):
        raise UserError(f"{path}: found {kind}, expected an archive of {wanted}; give such an archive")


def is_entry(kind: str) -> bool:
    """Whether objects of this kind are stored in archives."""
    return kind not in ("", TEXT, *_WHOLE_FILES) and not kind.startswith(_OTHER_OBJECT)


def single(kind: str) -> str:
    """A clause for a message: `a single matrix without a key`."""
    return f"a single {kind.partition(' ')[2]} without a key"


def _is_htk(content: bytes) -> bool:
    """Whether `content` begins with an HTK header whose length matches that of the file, or is longer than
    the PEEK_BYTES known of it."""
    if len(content) < _HTK.size:
        return False
    num_frames, period, frame_bytes, kind = _HTK.unpack_from(content)
    size = _HTK.size + num_frames * frame_bytes
    is_known = min(num_frames, period, frame_bytes) > 0 and kind & _HTK_KIND in _HTK_FEATURES
    return is_known and (len(content) == size or len(content) == PEEK_BYTES < size)


def _binary_kind(content: bytes) -> str:
    word = content[:_LONGEST_TOKEN].partition(b" ")[0]
    if found := _TYPES.get(word) or _EXAMPLES.get(word) or _MODELS.get(word):
        return found
    if content[:1] == b"<" and b">" in word:
        token = word[: word.index(b">") + 1]
        return f"{_OTHER_OBJECT}{token.decode('ascii', 'replace')}"
    return (
        _kind_of_integers(content)
        if content[:1] == bytes([_SIZE_OF_INT]) and len(content) >= _INT_BYTES
        else ""
    )


def _kind_of_integers(content: bytes) -> str:
    """The kind of an object that begins with a 32-bit count, of integers or of lists. A size byte precedes
    every number."""
    end = _INT_BYTES * (1 + max(struct.unpack_from("<i", content, 1)[0], 0))
    if any(mark != _SIZE_OF_INT for mark in content[_INT_BYTES:end:_INT_BYTES]):
        return "a number"
    if _NEXT_KEY.match(content, end):
        return INTEGERS
    return POSTERIORS if content[end : end + 1] == bytes([_SIZE_OF_INT]) else SOME_INTEGERS
