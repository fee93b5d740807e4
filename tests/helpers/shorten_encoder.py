"""Encoder of shorten (T. Robinson, CUED/F-INFENG/TR.156) for tests: SPHERE files like those of Fisher and
WSJ.

    content = shortened_sphere(codes, channels=2, rate=8000)  # uint8 codes of mu-law, (num_samples, 2)
    content = shortened_sphere(samples, channels=1, rate=16000, coding="pcm")  # int16
    content = shortened_sphere(samples, channels=2, coding="ulaw")  # int16, converted to mu-law

Written independently of the decoder in pyasr.data.audio.shorten, with numpy: all numbers of a stream are
arrays of values and widths in bits.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

END, SIZE, SHIFT, LPC, ZERO = 4, 5, 6, 7, 8
MU_LAW, BIG_ENDIAN, LITTLE_ENDIAN = 8, 3, 5
BEST = "best"
_MAX_LOW, _MAX_SHIFT = 15, 12


@dataclass(frozen=True)
class Coding:
    """Parameters of a stream.

    version      version of shorten
    blocks       sizes of the blocks: (size, number of blocks), in order; () for blocks of `block` samples,
                 and a shorter one at the end
    orders       orders of differences for the coding of a block: 0, 1, 2, 3
    lpc          orders of linear prediction for the coding of a block
    choice       BEST: the coding with the fewest bits; "turns": all codings in turn
    shifts       dropped bits of the blocks, in turn (for PCM at most as its samples allow); (): for PCM the
                 maximum, for mu-law none
    with_zeros   whether blocks of digital silence are coded as such
    num_means    number of earlier blocks whose means are averaged for the offset of orders 0 and LPC
    num_skipped  number of bytes to skip, in the header
    seed         seed of the weights of linear prediction in "turns"
    """

    version: int = 2
    block: int = 256
    blocks: tuple[tuple[int, int], ...] = ()
    orders: tuple[int, ...] = (0, 1, 2, 3)
    lpc: tuple[int, ...] = ()
    choice: str = BEST
    shifts: tuple[int, ...] = ()
    with_zeros: bool = True
    num_means: int = 0
    num_skipped: int = 0
    seed: int = 0


def shortened_sphere(
    samples: np.ndarray,
    channels: int = 1,
    rate: int = 8000,
    coding: str = "ulaw",
    big_endian: bool = False,
    sample_count: int | None = None,
    **how,
) -> bytes:
    """A SPHERE file of `samples` (num_samples, channels), or interleaved.

    coding        'ulaw': codes as uint8, or int16 samples that are converted to codes; 'pcm': int16
    big_endian    byte order of the samples of 'pcm' before compression
    sample_count  value in the header; None: the number of samples per channel
    how           fields of `Coding`
    """
    samples = np.asarray(samples).reshape(-1, channels)
    is_mu_law = coding != "pcm"
    if is_mu_law and samples.dtype != np.uint8:
        samples = mu_law_codes(samples)
    how.setdefault("num_means", 0 if is_mu_law else 4)
    count = len(samples) if sample_count is None else sample_count
    kind = MU_LAW if is_mu_law else BIG_ENDIAN if big_endian else LITTLE_ENDIAN
    return sphere_header(count, channels, rate, f"{coding},embedded-shorten-v2.00", big_endian) + shortened(
        samples, kind, Coding(**how)
    )


def plain_sphere(
    samples: np.ndarray,
    channels: int = 1,
    rate: int = 8000,
    coding: str = "ulaw",
    big_endian: bool = False,
    sample_count: int | None = None,
) -> bytes:
    """The same file without compression."""
    samples = np.asarray(samples).reshape(-1, channels)
    if coding != "pcm" and samples.dtype != np.uint8:
        samples = mu_law_codes(samples)
    content = (
        samples.tobytes() if coding != "pcm" else samples.astype(">i2" if big_endian else "<i2").tobytes()
    )
    return (
        sphere_header(
            len(samples) if sample_count is None else sample_count, channels, rate, coding, big_endian
        )
        + content
    )


def sphere_header(
    sample_count: int, channels: int, rate: int, coding: str, big_endian: bool = False
) -> bytes:
    """1024 bytes."""
    is_mu_law = not coding.startswith("pcm")
    byte_format = "1" if is_mu_law else "10" if big_endian else "01"
    lines = [
        "NIST_1A",
        "   1024",
        f"sample_count -i {sample_count}",
        f"sample_n_bytes -i {1 if is_mu_law else 2}",
        f"channel_count -i {channels}",
        f"sample_byte_format -s{len(byte_format)} {byte_format}",
        f"sample_rate -i {rate}",
        f"sample_coding -s{len(coding)} {coding}",
        "end_head",
    ]
    return "".join(f"{line}\n" for line in lines).encode().ljust(1024)


def mu_law_codes(samples: np.ndarray) -> np.ndarray:
    """uint8 codes of int16 samples (G.711)."""
    magnitude = np.minimum(np.abs(samples.astype(np.int32)), 32635) + 132
    exponent = np.floor(np.log2(magnitude)).astype(np.int32) - 7
    code = exponent << 4 | magnitude >> (exponent + 3) & 15
    return (~(code | np.where(samples < 0, 128, 0)) & 255).astype(np.uint8)


def shortened(samples: np.ndarray, kind: int, coding: Coding) -> bytes:
    """The stream of (num_samples, channels), codes of mu-law or int16."""
    bits = _Bits()
    for number in (
        kind,
        samples.shape[1],
        coding.block,
        max(coding.lpc, default=0),
        coding.num_means,
        coding.num_skipped,
    ):
        bits.number(number)
    for _ in range(coding.num_skipped):
        bits.unsigned(0x55, 7)
    full, rest = divmod(len(samples), coding.block)
    runs = coding.blocks or ((coding.block, full), (rest, 1 if rest else 0))
    writer = _Writer(samples, kind == MU_LAW, coding, bits)
    for size, count in runs:
        if count:
            writer.write(size, count)
    bits.unsigned(END, 2)
    content = bits.content()
    return b"ajkg" + bytes([coding.version]) + content.ljust(-(-len(content) // 4) * 4, b"\0")


@dataclass
class _Bits:
    """Bit fields: values, and widths including leading zeros."""

    values: list = field(default_factory=list)
    widths: list = field(default_factory=list)

    def add(self, values: np.ndarray, widths: np.ndarray) -> None:
        self.values.append(values.ravel())
        self.widths.append(widths.ravel())

    def unsigned(self, number: int, num_bits: int) -> None:
        self.add(*map(np.array, _rice(np.array([number]), num_bits)))

    def number(self, number: int) -> None:
        num_bits = number.bit_length()
        self.unsigned(num_bits, 2)
        self.unsigned(number, num_bits)

    def content(self) -> bytes:
        values, widths = np.concatenate(self.values), np.concatenate(self.widths)
        ends = np.cumsum(widths)
        bits = np.zeros(ends[-1], np.uint8)
        for place in range(int(values.max()).bit_length()):
            bits[ends[values >> place & 1 == 1] - 1 - place] = 1
        return np.packbits(bits).tobytes()


def _rice(numbers: np.ndarray, num_bits) -> tuple[np.ndarray, np.ndarray]:
    """(values, widths) of unsigned(num_bits): numbers / 2^num_bits zeros, a one, and the remainder in
    num_bits bits."""
    one = np.left_shift(np.int64(1), num_bits)
    return one | numbers & (one - 1), (numbers >> num_bits) + 1 + num_bits


def _folded(residuals: np.ndarray) -> np.ndarray:
    return np.where(residuals >= 0, 2 * residuals, -2 * residuals - 1)


def mu_law_places(shift: int) -> np.ndarray:
    """int64 (256,): the value of each mu-law code if `shift` bits are dropped.

    For either sign, the codes of the multiples of 2^shift steps of 8 come first, in the order of the coder,
    then the others by magnitude. The negative zero is always -1, and its place among the others stays free.
    """
    places = np.zeros(256, np.int64)
    for sign, codes in ((1, range(255, 127, -1)), (-1, range(127, -1, -1))):
        step = 8 << shift
        met = mu_law_codes(sign * np.arange(0 if sign > 0 else step, 32636, step)).tolist()
        order = list(dict.fromkeys([*met, *codes]))
        places[order] = (0 if sign > 0 else -2) + sign * np.arange(128)
    places[127] = -1
    return places


class _Writer:
    """Writes blocks in sequence; keeps the state for the next ones: previous samples and means, dropped bits,
    size, number."""

    def __init__(self, samples: np.ndarray, is_mu_law: bool, coding: Coding, bits: _Bits):
        self.samples, self.is_mu_law, self.coding, self.bits = samples, is_mu_law, coding, bits
        num_channels = samples.shape[1]
        self.before = np.zeros((num_channels, max(3, *coding.lpc, 0)), np.int64)
        self.means = [[0] * coding.num_means for _ in range(num_channels)]
        self.begin, self.shift, self.size, self.number = 0, 0, coding.block, 0
        self.rng = np.random.default_rng(coding.seed)

    def write(self, size: int, count: int) -> None:
        """Write the next `count` blocks of each channel."""
        if size != self.size:
            self.bits.unsigned(SIZE, 2)
            self.bits.number(size)
        num_channels = self.samples.shape[1]
        part = (
            self.samples[self.begin : self.begin + size * count]
            .reshape(count, size, num_channels)
            .transpose(0, 2, 1)
        )
        shifts = self._shifts(part)
        values = self._values(part, shifts)
        flat = np.concatenate([self.before, values.transpose(1, 0, 2).reshape(num_channels, -1)], 1)
        commands = self._candidates(flat, values, self._offsets(values, shifts))
        self._add(values, shifts, *self._chosen(commands, values.shape))
        self.before = flat[:, flat.shape[1] - self.before.shape[1] :]
        self.begin = self.begin + size * count
        self.size = size
        self.number = self.number + count * num_channels

    def _turn(self, shape: tuple[int, ...], num: int) -> np.ndarray:
        """Index (below `num`) for each block, in turn."""
        return (self.number + np.arange(np.prod(shape)).reshape(shape)) % num

    def _shifts(self, part: np.ndarray) -> np.ndarray:
        """(count, channels)"""
        wanted = np.array(self.coding.shifts or ((0,) if self.is_mu_law else (_MAX_SHIFT,)))
        shifts = wanted[self._turn(part.shape[:2], len(wanted))]
        if self.is_mu_law:
            is_silent = (part == 255).all(2) & self.coding.with_zeros
            return np.where(is_silent, _MAX_SHIFT, shifts)
        union = np.bitwise_or.reduce(part.astype(np.int64), 2) | 1 << _MAX_SHIFT
        return np.minimum(shifts, np.log2(union & -union).astype(np.int64))

    def _values(self, part: np.ndarray, shifts: np.ndarray) -> np.ndarray:
        """int64 (count, channels, size): the coded values."""
        if not self.is_mu_law:
            return part.astype(np.int64) >> shifts[:, :, None]
        places = np.array([mu_law_places(shift) for shift in range(_MAX_SHIFT + 1)])
        return places[shifts[:, :, None], part]

    def _offsets(self, values: np.ndarray, shifts: np.ndarray) -> np.ndarray:
        """int64 (count, channels): the mean around which each block is coded."""
        offsets, size, num = np.zeros(shifts.shape, np.int64), values.shape[2], self.coding.num_means
        rounds = self.coding.version > 1
        for index in np.ndindex(shifts.shape) if num else ():
            means, shift = self.means[index[1]], int(shifts[index])
            offset = _quotient(sum(means) + (num // 2 if rounds else 0), num)
            offsets[index] = offset >> shift if rounds else offset
            mean = _quotient(int(values[index].sum()) + (size // 2 if rounds else 0), size)
            means[:] = [*means[1:], mean << shift if rounds else mean]
        return offsets

    def _candidates(
        self, flat: np.ndarray, values: np.ndarray, offsets: np.ndarray
    ) -> list[tuple[int, np.ndarray, np.ndarray]]:
        """(command, weights, residuals) of all codings of the blocks; weights (count, channels, order) of
        linear prediction."""
        lags = [self._lag(flat, values.shape, j) for j in range(1, self.before.shape[1] + 1)]
        none = np.zeros((*offsets.shape, 0), np.int64)
        predicted = [offsets[:, :, None], lags[0], 2 * lags[0] - lags[1], 3 * (lags[0] - lags[1]) + lags[2]]
        found = [(order, none, values - predicted[order]) for order in self.coding.orders]
        for order in self.coding.lpc:
            around = np.stack(lags[:order], 3) - offsets[:, :, None, None]
            weights = self._weights(around, values - offsets[:, :, None])
            total = np.einsum("bctj,bcj->bct", around, weights) + (32 if self.coding.version > 1 else 0)
            found.append((LPC, weights, values - (total >> 5) - offsets[:, :, None]))
        return found

    def _lag(self, flat: np.ndarray, shape: tuple[int, int, int], lag: int) -> np.ndarray:
        """The values `lag` samples earlier, as blocks."""
        count, num_channels, size = shape
        first = self.before.shape[1] - lag
        return flat[:, first : first + count * size].reshape(num_channels, count, size).transpose(1, 0, 2)

    def _weights(self, around: np.ndarray, wanted: np.ndarray) -> np.ndarray:
        """int64 (count, channels, order): weights in 32nds, by least squares; random if `choice` is
        "turns"."""
        shape = (*around.shape[:2], around.shape[3])
        if self.coding.choice != BEST:
            return self.rng.integers(-40, 41, shape)
        products = np.einsum("bctj,bctk->bcjk", around, around) + 1e-3 * np.eye(shape[2])
        found = np.linalg.solve(products, np.einsum("bctj,bct->bcj", around, wanted)[..., None])[..., 0]
        return np.clip(np.rint(32 * found), -1000, 1000).astype(np.int64)

    def _chosen(self, candidates: list, shape: tuple[int, int, int]) -> tuple[np.ndarray, ...]:
        """(commands, plain bits of residuals, weights (count, channels, maximum order), orders, residuals) of
        all blocks."""
        folded = [_folded(residuals) for _, _, residuals in candidates]
        lows, bits = zip(*map(_best_low, folded))
        costs = (
            np.array(bits) + np.array([8 * weights.shape[2] for _, weights, _ in candidates])[:, None, None]
        )
        choice = costs.argmin(0) if self.coding.choice == BEST else self._turn(shape[:2], len(candidates))
        most = max(weights.shape[2] for _, weights, _ in candidates)
        padded = np.array(
            [np.pad(weights, ((0, 0), (0, 0), (0, most - weights.shape[2]))) for _, weights, _ in candidates]
        )
        rows = np.ogrid[: shape[0], : shape[1]]
        orders = np.array([weights.shape[2] for _, weights, _ in candidates])[choice]
        commands = np.array([command for command, _, _ in candidates])[choice]
        chosen = np.empty(shape, np.int64)
        for i, residuals in enumerate(folded):
            chosen[choice == i] = residuals[choice == i]
        return commands, np.array(lows)[(choice, *rows)], padded[(choice, *rows)], orders, chosen

    def _add(self, values, shifts, commands, lows, weights, orders, folded) -> None:
        """Add the fields of all blocks: dropped bits if they change, command, plain bits, order, weights,
        residuals."""
        before = np.concatenate([[self.shift], shifts.ravel()[:-1]]).reshape(shifts.shape)
        self.shift = int(shifts[-1, -1])
        changes, is_zero = shifts != before, (values == 0).all(2) & self.coding.with_zeros
        is_lpc = (commands == LPC) & ~is_zero
        fields = [
            _present(changes, _rice(np.full(shifts.shape, SHIFT), 2)),
            _present(changes, _rice(shifts, 2)),
            _rice(np.where(is_zero, ZERO, commands), 2),
            _present(~is_zero, _rice(lows, 3)),
            _present(is_lpc, _rice(orders, 2)),
        ]
        numbers, widths = (np.stack(parts, 2) for parts in zip(*fields))
        places = np.arange(weights.shape[2]) < orders[:, :, None]
        of_weights = _present(places & is_lpc[:, :, None], _rice(_folded(weights), 6))
        of_residuals = _present(~is_zero[:, :, None], _rice(folded, lows[:, :, None] + 1))
        self.bits.add(
            np.concatenate([numbers, of_weights[0], of_residuals[0]], 2),
            np.concatenate([widths, of_weights[1], of_residuals[1]], 2),
        )


def _present(is_there: np.ndarray, fields: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The fields, with width 0 where they are absent."""
    return tuple(np.where(is_there, part, 0) for part in fields)


def _best_low(folded: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(plain bits `low`, bits of all residuals) of the shortest code for each block."""
    bits = np.array([(folded >> (low + 1)).sum(2) + (low + 2) * folded.shape[2] for low in range(_MAX_LOW)])
    return bits.argmin(0), bits.min(0)


def _quotient(number: int, divisor: int) -> int:
    """Quotient rounded toward zero."""
    return number // divisor if number >= 0 else -(-number // divisor)
