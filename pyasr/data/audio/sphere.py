"""Headers of NIST's SPHERE files: ASCII lines `name -TYPE value`, padded to the size given in the second
line.

NIST_1A
   1024
sample_count -i 2400000
channel_count -i 2
sample_n_bytes -i 1
sample_rate -i 8000
sample_coding -s27 ulaw,embedded-shorten-v2.00
end_head
"""

from __future__ import annotations

import re

# bounds of the size of compressed audio: factor on the plain size, bytes in addition
_MAX_GROWTH, _MIN_BOUND = 4, 1 << 16


def is_sphere(head: bytes) -> bool:
    """Whether a file that begins with `head` is a SPHERE file."""
    return head[:7] == b"NIST_1A"


def head_bytes(content: bytes) -> int:
    """Size of the header, after which the audio begins; 0 if it is not given."""
    size = re.match(rb"NIST_1A\n *([0-9]{1,9})\n", content)
    return int(size[1]) if size else 0


def counts(content: bytes) -> tuple[int, int, int]:
    """(sample_count, channel_count, sample_n_bytes). Headers of the first release of Switchboard count the
    samples of all channels."""
    found = re.findall(rb"^(\w+) -i ([0-9]{1,18})\s", content[: head_bytes(content)], re.MULTILINE)
    numbers = {name: int(count) for name, count in found}
    return (
        numbers.get(b"sample_count", 0),
        numbers.get(b"channel_count", 1),
        numbers.get(b"sample_n_bytes", 1),
    )


def rate_hz(content: bytes) -> int:
    """sample_rate; 0 if it is missing."""
    found = re.search(
        rb"^sample_rate -[ir] ([0-9]{1,9})(?:\.0*)?\s", content[: head_bytes(content)], re.MULTILINE
    )
    return int(found[1]) if found else 0


def coding(content: bytes) -> str:
    """sample_coding without the compression: 'ulaw', 'pcm'; 'pcm' if it is missing."""
    return _sample_coding(content).partition(",")[0] or "pcm"


def is_shortened(content: bytes) -> bool:
    """Whether its audio is compressed by shorten, as in Fisher and WSJ."""
    return "embedded-shorten" in _sample_coding(content)


def most_shortened_bytes(head: bytes) -> int:
    """An upper bound of the bytes of a shortened file with this header."""
    count, num_channels, num_bytes = counts(head)
    return head_bytes(head) + _MAX_GROWTH * count * num_channels * num_bytes + _MIN_BOUND


def _sample_coding(content: bytes) -> str:
    found = re.search(rb"^sample_coding -s[0-9]+ (\S+)", content[: head_bytes(content)], re.MULTILINE)
    return found[1].decode("latin-1").lower() if found else ""
