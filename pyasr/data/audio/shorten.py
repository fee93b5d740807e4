r"""Decoder of shorten, versions 1 and 2, the compression of the SPHERE files of Fisher and WSJ.

T. Robinson, "SHORTEN: simple lossless and near-lossless waveform compression", CUED/F-INFENG/TR.156, 1994.

A stream has `ajkg`, a byte with the version, then bits, the highest of each byte first, of numbers u in Rice
code:

    unsigned(n)   u div 2^n zeros, a one, u mod 2^n in n bits
    signed(n)     unsigned(n + 1) of 2 x for x >= 0, of -2 x - 1 for x < 0
    number()      unsigned(2) is n, then unsigned(n)

The header has six numbers: sample type, channels, block size, maximum order of prediction, number of means,
bytes to skip. Commands follow, each unsigned(2). Commands 0 to 3, 7 and 8 are a block of the next channel,
with the number `low` and a residual r = signed(low) for each sample x[t]:

    0         x[t] = r + m            m: rounded mean of the means of the last blocks of the channel
    1, 2, 3   x[t] = r + the polynomial of degree 0, 1, 2 through the previous samples
    7         x[t] = r + (32 + sum_j w[j] (x[t - 1 - j] - m)) / 32 + m         32 weights w as integers
    8         x[t] = 0, without residuals

Command 5 sets the size of the following blocks, 6 the number of low bits that were dropped from the following
samples, and 4 is the end. Samples of mu-law are indices into an order of its codes, which depends on the
dropped bits (`_codes`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from pyasr.base.compiled.kernels import njit

_MAGIC, _HEAD_BYTES = b"ajkg", 5
_VERSIONS = (1, 2)
_LPC, _ZERO, _END, _SIZE, _SHIFT = 7, 8, 4, 5, 6
# sample types; PCM types are named after the byte order before compression
_MU_LAW, _BIG_ENDIAN, _LITTLE_ENDIAN = 8, 3, 5
# sample types for each sample_coding of SPHERE
_CODINGS = {"ulaw": (_MU_LAW,), "mu-law": (_MU_LAW,), "pcm": (_BIG_ENDIAN, _LITTLE_ENDIAN)}
_MIN_PADDING = 4  # minimum padding in bits of a stream that is accepted as complete without decoding
_MU_LAW_SHIFTS, _NEGATIVE_ZERO, _BIAS = 13, 0x7F, 132
_MAX_BLOCK, _MAX_ORDER, _MAX_MEANS, _MAX_BITS = 1 << 16, 256, 256, 32
_WHOLE, _CUT, _FULL, _DAMAGED = range(4)
_DIFFERENCES = np.array([[0, 0, 0], [1, 0, 0], [2, -1, 0], [3, -3, 1]])  # weights of the previous samples


@dataclass(frozen=True)
class DecodedAudio:
    """int16 `samples` (num_samples, num_channels) at linear scale, whether the end of the stream was found,
    and its size in bytes."""

    samples: np.ndarray
    is_whole: bool
    num_bytes: int


def is_stream(content: bytes) -> bool:
    """Whether `content` begins like a stream that `decode` reads."""
    return content[:4] == _MAGIC and len(content) > 4 and content[4] in _VERSIONS


def seems_complete(tail: bytes, num_bytes: int) -> bool:
    """Whether a stream of `num_bytes` whose last 8 bytes are `tail` is accepted as complete without decoding:
    it has a multiple of 4 bytes after its head and ends with the end command, bits 0100, and 4 to 31 zero
    bits of padding.

    The result is False for an eighth of the complete streams, which have less padding and must be decoded. It
    is True for about 4 in 1,000 streams of speech that were cut at a random byte, and for none whose SPHERE
    file was cut at a multiple of 512 bytes.
    """
    bits = int.from_bytes(tail, "big")
    num_zeros = (bits & -bits).bit_length() - 1
    is_end = 2 + _MIN_PADDING <= num_zeros <= 2 + 31 and not bits >> (num_zeros + 1) & 1
    return is_end and (num_bytes - _HEAD_BYTES) % 4 == 0


def decode(content: bytes, num_channels: int, coding: str, most: int) -> DecodedAudio:
    """Decode a stream up to its end, or to the end of `content`.

    num_channels, coding  from the header of the SPHERE file
    most                  maximum number of samples per channel

    Raises ValueError, with a clause for an error message, for a stream of another kind, a damaged stream, and
    one with more samples.
    """
    if len(content) < _HEAD_BYTES:
        return DecodedAudio(np.zeros((0, num_channels), np.int16), False, len(content))
    if not is_stream(content):
        raise ValueError("its audio does not begin like a shorten stream of version 1 or 2")
    data = np.frombuffer(content, np.uint8, offset=_HEAD_BYTES)
    kind, channels, size, order, num_means, begin = _head(data)
    if begin > 8 * len(data):
        return DecodedAudio(np.zeros((0, num_channels), np.int16), False, len(content))
    if kind not in _CODINGS.get(coding, ()):
        raise ValueError(f"shorten samples of type {kind} do not match the coding {coding} of its header")
    if channels != num_channels or channels < 1:
        raise ValueError(f"{channels} channels, but the header gives {num_channels}")
    if order > _MAX_ORDER or num_means > _MAX_MEANS:
        raise ValueError("damaged, the parameters of the shorten stream are out of bounds")
    samples = np.empty((most, num_channels), np.int16)
    table = _mu_law_samples() if kind == _MU_LAW else np.zeros((0, 0), np.int16)
    found, num, end = _decode(data, begin, content[4] > 1, size, order, num_means, table, samples)
    if found == _FULL:
        raise ValueError(f"its header counts {most} samples, but more follow")
    if found == _DAMAGED:
        raise ValueError(f"damaged, no valid shorten data after {num} samples")
    return DecodedAudio(samples[:num], found == _WHOLE, _HEAD_BYTES + 4 * -(-end // 32))


@lru_cache(maxsize=1)
def _mu_law_samples() -> np.ndarray:
    """The linear sample for each number of dropped bits and each decoded value from -129 to 127 of mu-law,
    int16 (13, 257)."""
    codes = [
        (order := _codes(shift))[:128] + [_NEGATIVE_ZERO] + order[128:] for shift in range(_MU_LAW_SHIFTS)
    ]
    return np.array([[_linear(code) for code in row] for row in codes], np.int16)


def _codes(shift: int) -> list[int]:
    """All codes of mu-law, with the smallest magnitudes in the middle: for each sign, first the codes whose
    cell contains a multiple of 2^shift steps of 8, then the others."""

    def rank(code: int) -> tuple[bool, int]:
        """Order among the codes of a sign."""
        low, high = _cell(code)
        step = 8 << shift
        return code == _NEGATIVE_ZERO or (high - 1) // step * step < low, low

    return sorted(range(128), key=rank, reverse=True) + sorted(range(128, 256), key=rank)


def _cell(code: int) -> tuple[int, int]:
    """The range of magnitudes (minimum, first beyond) of a code of mu-law (G.711), at 16 bits."""
    exponent, mantissa = (~code >> 4) & 7, ~code & 15
    return ((16 + mantissa) << (exponent + 3)) - _BIAS, ((17 + mantissa) << (exponent + 3)) - _BIAS


def _linear(code: int) -> int:
    """The decoded sample of a code of mu-law: the middle of its cell."""
    magnitude = sum(_cell(code)) // 2
    return magnitude if code & 128 else -magnitude


@njit(nogil=True, cache=True)
def _unsigned(data, at, num_bits):
    """(the number whose code begins at the bit `at`, the bit after the code); a bit beyond `data` if the code
    is truncated."""
    end, begin = 8 * len(data), at
    while at < end and not data[at >> 3] >> (7 - (at & 7)) & 1:
        at += 1
    value = at - begin
    at += 1
    if at + num_bits > end:
        return 0, end + 1
    while num_bits > 0:
        num_left = 8 - (at & 7)
        num = min(num_left, num_bits)
        value = value << num | (data[at >> 3] & ((1 << num_left) - 1)) >> (num_left - num)
        at += num
        num_bits -= num
    return value, at


@njit(nogil=True, cache=True)
def _signed(data, at, num_bits):
    value, at = _unsigned(data, at, num_bits + 1)
    return (-(value >> 1) - 1 if value & 1 else value >> 1), at


@njit(nogil=True, cache=True)
def _number(data, at):
    """A number preceded by its size; a number of more than 32 bits is treated as truncated."""
    num_bits, at = _unsigned(data, at, 2)
    return _unsigned(data, at, num_bits) if num_bits <= _MAX_BITS else (0, 8 * len(data) + 1)


@njit(nogil=True, cache=True)
def _head(data):
    """(type, channels, block size, order, number of means, first bit after the header)"""
    kind, at = _number(data, 0)
    num_channels, at = _number(data, at)
    size, at = _number(data, at)
    order, at = _number(data, at)
    num_means, at = _number(data, at)
    num_skipped, at = _number(data, at)
    while num_skipped > 0 and at <= 8 * len(data):
        _, at = _unsigned(data, at, 7)
        num_skipped -= 1
    return kind, num_channels, size, order, num_means, at


@njit(nogil=True, cache=True)
def _decode(data, at, rounds, size, order, num_means, table, out):
    """(status, number of samples per channel written to `out` (most, num_channels), first bit after them).

    rounds  whether means and predictions are rounded, as in version 2
    table   samples of mu-law by dropped bits and value; empty for PCM
    """
    end, (most, num_channels) = 8 * len(data), out.shape
    num_before = max(order, 3)
    history = np.zeros((num_channels, num_before), np.int64)
    means = np.zeros((num_channels, num_means), np.int64)
    block = np.zeros(num_before + min(most, _MAX_BLOCK), np.int64)
    num, channel, shift = 0, 0, 0
    while True:
        command, at = _unsigned(data, at, 2)
        if command == _SIZE:
            size, at = _number(data, at)
        elif command == _SHIFT:
            shift, at = _unsigned(data, at, 2)
        if at > end:
            return _CUT, num, end
        if command == _END:
            return (_WHOLE if channel == 0 else _DAMAGED), num, at
        if (
            not 0 < size <= _MAX_BLOCK
            or shift > _MAX_BITS
            or command > _ZERO
            or command == _SIZE
            and channel > 0
        ):
            return _DAMAGED, num, at
        if command == _SIZE or command == _SHIFT:
            continue
        if size > most - num:
            return _FULL, num, at
        samples = block[: num_before + size]
        samples[:num_before] = history[channel]
        at = _read_block(
            data, at, command, _mean_of(means[channel], rounds, shift), rounds, samples, num_before
        )
        if at > end:
            return _CUT, num, end
        if at < 0 or not _write_block(samples[num_before:], shift, table, out[num : num + size, channel]):
            return _DAMAGED, num, at
        history[channel] = samples[size:]
        _add_mean(means[channel], samples[num_before:], rounds, shift)
        channel = (channel + 1) % num_channels
        if channel == 0:
            num += size


@njit(nogil=True, cache=True)
def _read_block(data, at, command, mean, rounds, samples, first):
    """Decode a block to `samples`, after its `first` previous samples; the bit after the block, -1 for a
    damaged block."""
    if command == _ZERO:
        samples[first:] = 0
        return at
    low, at = _unsigned(data, at, 3)
    if low >= _MAX_BITS:
        return -1
    if command == _LPC:
        return _read_predicted(data, at, low, mean, rounds, samples, first)
    w1, w2, w3 = _DIFFERENCES[command, 0], _DIFFERENCES[command, 1], _DIFFERENCES[command, 2]
    base = mean if command == 0 else 0
    for t in range(first, len(samples)):
        residual, at = _signed(data, at, low)
        samples[t] = residual + base + w1 * samples[t - 1] + w2 * samples[t - 2] + w3 * samples[t - 3]
    return at


@njit(nogil=True, cache=True)
def _read_predicted(data, at, low, mean, rounds, samples, first):
    """The same for a block of linear prediction."""
    order, at = _unsigned(data, at, 2)
    if order > first:
        return -1
    weights = np.zeros(order, np.int64)
    for j in range(order):
        weights[j], at = _signed(data, at, 5)
    for t in range(first, len(samples)):
        residual, at = _signed(data, at, low)
        total = 32 if rounds else 0
        for j in range(order):
            total += weights[j] * (samples[t - 1 - j] - mean)
        samples[t] = residual + (total >> 5) + mean
    return at


@njit(nogil=True, cache=True)
def _write_block(samples, shift, table, out):
    """Write the samples at linear scale to `out`; False if they are not 16-bit samples or codes of mu-law."""
    if table.size:
        return _write_mu_law(samples, shift, table, out)
    for t in range(len(samples)):
        value = samples[t] << shift
        if not -32768 <= value < 32768:
            return False
        out[t] = value
    return True


@njit(nogil=True, cache=True)
def _write_mu_law(samples, shift, table, out):
    num_shifts, num_values = table.shape
    if shift >= num_shifts:
        return False
    for t in range(len(samples)):
        place = samples[t] + num_values // 2 + 1
        if not 0 <= place < num_values:
            return False
        out[t] = table[shift, place]
    return True


@njit(nogil=True, cache=True)
def _mean_of(means, rounds, shift):
    """The offset of a block of the channel with these means."""
    if len(means) == 0:
        return 0
    mean = _quotient(means.sum() + (len(means) // 2 if rounds else 0), len(means))
    return mean >> shift if rounds else mean


@njit(nogil=True, cache=True)
def _add_mean(means, samples, rounds, shift):
    """Replace the oldest mean by the mean of a block."""
    if len(means) == 0:
        return
    means[:-1] = means[1:]
    mean = _quotient(samples.sum() + (len(samples) // 2 if rounds else 0), len(samples))
    means[-1] = mean << shift if rounds else mean


@njit(nogil=True, cache=True)
def _quotient(number, divisor):
    """The quotient rounded toward zero, as in C."""
    return number // divisor if number >= 0 else -(-number // divisor)
