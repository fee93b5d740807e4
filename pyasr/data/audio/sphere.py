"""Headers of NIST's SPHERE files: lines `name -TYPE value` of ASCII, padded to the size that the second line tells.

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

_MOST_GROWTH, _LEAST_BOUND = 4, 1 << 16  # of compressed audio against plain


def is_sphere(head: bytes) -> bool:
    """Whether a file that begins with `head` is a SPHERE file."""
    return head[:7] == b"NIST_1A"


def head_bytes(content: bytes) -> int:
    """Size of the header, behind which the audio begins; 0 where it is not told."""
    size = re.match(rb"NIST_1A\n *([0-9]{1,9})\n", content)
    return int(size[1]) if size else 0


def counts(content: bytes) -> tuple[int, int, int]:
    """(sample_count, channel_count, sample_n_bytes). A header of Switchboard's first release counts the samples of all channels."""
    found = re.findall(rb"^(\w+) -i ([0-9]{1,18})\s", content[:head_bytes(content)], re.MULTILINE)
    numbers = {name: int(count) for name, count in found}
    return numbers.get(b"sample_count", 0), numbers.get(b"channel_count", 1), numbers.get(b"sample_n_bytes", 1)


def rate_hz(content: bytes) -> int:
    """sample_rate; 0 where it is missing."""
    found = re.search(rb"^sample_rate -[ir] ([0-9]{1,9})(?:\.0*)?\s", content[:head_bytes(content)], re.MULTILINE)
    return int(found[1]) if found else 0


def coding(content: bytes) -> str:
    """sample_coding without what it says of compression: 'ulaw', 'pcm'; 'pcm' where it is missing."""
    return _sample_coding(content).partition(",")[0] or "pcm"


def is_shortened(content: bytes) -> bool:
    """Whether its audio is compressed by shorten, as that of Fisher and WSJ."""
    return "embedded-shorten" in _sample_coding(content)


def most_shortened_bytes(head: bytes) -> int:
    """More bytes than a shortened file with this header has."""
    count, num_channels, num_bytes = counts(head)
    return head_bytes(head) + _MOST_GROWTH * count * num_channels * num_bytes + _LEAST_BOUND


def _sample_coding(content: bytes) -> str:
    found = re.search(rb"^sample_coding -s[0-9]+ (\S+)", content[:head_bytes(content)], re.MULTILINE)
    return found[1].decode("latin-1").lower() if found else ""
