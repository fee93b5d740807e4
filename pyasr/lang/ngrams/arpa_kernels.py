"""Compiled loops over the bytes of ARPA files and texts, and over n-gram tables."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pyasr.base.compiled.kernels import njit

BAD_NUMBER, UNKNOWN_WORD, BAD_COLUMNS = 1, 2, 3
_SPACE, _TAB, _RETURN, _NEWLINE = 32, 9, 13, 10
_FNV_OFFSET, _FNV_PRIME = np.uint64(14695981039346656037), np.uint64(1099511628211)


@njit(cache=True, nogil=True)
def _is_blank(byte):
    return byte == _SPACE or byte == _TAB or byte == _RETURN


@njit(cache=True, nogil=True)
def _hash(text, begin, end):
    """64-bit FNV-1a."""
    value = _FNV_OFFSET
    for i in range(begin, end):
        value = (value ^ np.uint64(text[i])) * _FNV_PRIME
    return value ^ (value >> np.uint64(32))


def word_table(words: list[bytes]):
    """(text, offsets, slots): a hash table with open addressing that maps the bytes of a word to its
    number."""
    text = np.frombuffer(b"".join(words), np.uint8)
    offsets = np.concatenate(([0], np.cumsum([len(word) for word in words]))).astype(np.int64)
    slots = np.full(1 << max(4, (2 * len(words)).bit_length()), -1, np.int64)
    _fill_slots(text, offsets, slots)
    return text, offsets, slots


@njit(cache=True, nogil=True)
def _fill_slots(text, offsets, slots):
    mask = len(slots) - 1
    for word in range(len(offsets) - 1):
        slot = np.int64(_hash(text, offsets[word], offsets[word + 1]) & np.uint64(mask))
        while slots[slot] >= 0:
            slot = (slot + 1) & mask
        slots[slot] = word


@njit(cache=True, nogil=True)
def _find(line, begin, end, text, offsets, slots):
    """Number of the word in line[begin:end], or -1."""
    mask = len(slots) - 1
    slot = np.int64(_hash(line, begin, end) & np.uint64(mask))
    while slots[slot] >= 0:
        word = slots[slot]
        first = offsets[word]
        if offsets[word + 1] - first == end - begin:
            same = True
            for i in range(end - begin):
                if text[first + i] != line[begin + i]:
                    same = False
                    break
            if same:
                return word
        slot = (slot + 1) & mask
    return -1


@njit(cache=True, nogil=True)
def map_lines(lines, text, offsets, slots, skip, flat, lengths):
    """Word ids of all lines, -1 for unknown words. The first `skip` words of a line are skipped, and lines
    without further words.

    flat, lengths  int64, with room for half as many words as bytes and for all lines. Returns the number of
                   used entries of each.
    """
    num_words = num_lines = i = 0
    while i < len(lines):
        seen, before = 0, num_words
        while i < len(lines) and lines[i] != _NEWLINE:
            first = i
            while i < len(lines) and lines[i] != _NEWLINE and not _is_blank(lines[i]):
                i += 1
            if i == first:
                i += 1
                continue
            seen += 1
            if seen > skip:
                flat[num_words] = _find(lines, first, i, text, offsets, slots)
                num_words += 1
        i += 1
        if num_words > before:
            lengths[num_lines] = num_words - before
            num_lines += 1
    return num_words, num_lines


@njit(cache=True, nogil=True)
def _number(line, begin, end):
    """(value, whether it is a number) of a decimal with optional fraction and exponent; also inf."""
    i, sign, mantissa, scale, digits, fraction = begin, 1.0, 0.0, 0, 0, False
    if i < end and (line[i] == 45 or line[i] == 43):
        sign = -1.0 if line[i] == 45 else 1.0
        i += 1
    if end - i == 3 and (line[i] | 32) == 105 and (line[i + 1] | 32) == 110 and (line[i + 2] | 32) == 102:
        return sign * np.inf, True
    while i < end and (48 <= line[i] <= 57 or (line[i] == 46 and not fraction)):
        if line[i] == 46:
            fraction = True
        else:
            digits += 1
            if mantissa < 1e15:
                mantissa = mantissa * 10.0 + (line[i] - 48)
                scale -= 1 if fraction else 0
            else:
                scale += 0 if fraction else 1
        i += 1
    if digits == 0:
        return 0.0, False
    if i < end and (line[i] | 32) == 101:
        i += 1
        negative = i < end and line[i] == 45
        if i < end and (line[i] == 45 or line[i] == 43):
            i += 1
        if i == end:
            return 0.0, False
        exponent = 0
        while i < end and 48 <= line[i] <= 57:
            exponent = min(exponent * 10 + (line[i] - 48), 1000)
            i += 1
        scale += -exponent if negative else exponent
    value = mantissa / 10.0**-scale if scale < 0 else mantissa * 10.0**scale
    return sign * value, i == end


@njit(cache=True, nogil=True)
def parse_section(lines, text, offsets, slots, ids, logprob, backoff, may_back_off):
    """Fill ids (num, n), logprob and backoff from the lines of one section.

    Returns (number of n-grams, problem, byte of the problem); problem is 0 or one of the constants above.
    N-grams beyond the end of the arrays are only counted.
    """
    room, n = ids.shape
    row, i, size = 0, 0, len(lines)
    field = np.zeros((n + 2, 2), np.int64)
    while i < size:
        begin, num_fields = i, 0
        while i < size and lines[i] != _NEWLINE:
            while i < size and _is_blank(lines[i]):
                i += 1
            first = i
            while i < size and lines[i] != _NEWLINE and not _is_blank(lines[i]):
                i += 1
            if i > first:
                if num_fields == n + 2:
                    return row, BAD_COLUMNS, begin
                field[num_fields, 0], field[num_fields, 1] = first, i
                num_fields += 1
        i += 1
        if num_fields == 0:
            continue
        if num_fields < n + 1 or (num_fields == n + 2 and not may_back_off):
            return row, BAD_COLUMNS, begin
        if row < room:
            value, good = _number(lines, field[0, 0], field[0, 1])
            weight = 0.0
            if good and num_fields == n + 2:
                weight, good = _number(lines, field[n + 1, 0], field[n + 1, 1])
            if not good:
                return row, BAD_NUMBER, begin
            logprob[row], backoff[row] = value, weight
            for k in range(n):
                word = _find(lines, field[k + 1, 0], field[k + 1, 1], text, offsets, slots)
                if word < 0:
                    return row, UNKNOWN_WORD, begin
                ids[row, k] = word
        row += 1
    return row, 0, 0


@njit(cache=True, nogil=True)
def is_rising(ids):
    """Whether each row of `ids` (num, n) is greater than the previous one, comparing columns from the first
    on or from the last on."""
    forwards = backwards = True
    row, n = 1, ids.shape[1]
    while row < len(ids) and (forwards or backwards):
        first, last = 0, n - 1
        while first < n - 1 and ids[row - 1, first] == ids[row, first]:
            first += 1
        while last > 0 and ids[row - 1, last] == ids[row, last]:
            last -= 1
        forwards &= ids[row - 1, first] < ids[row, first]
        backwards &= ids[row - 1, last] < ids[row, last]
        row += 1
    return forwards or backwards


@njit(cache=True, nogil=True)
def row_hashes(ids):
    """A hash of each row of `ids` (num, n), uint64 (num)."""
    hashes = np.empty(len(ids), np.uint64)
    for row in range(len(ids)):
        value = _FNV_OFFSET
        for k in range(ids.shape[1]):
            value = (value ^ np.uint64(ids[row, k])) * _FNV_PRIME
            value ^= value >> np.uint64(29)
        hashes[row] = value
    return hashes


@njit(cache=True, nogil=True)
def _put_number(out, at, value):
    """Write `value` (|value| < 10^12) rounded to 6 decimals. Returns the new end."""
    if value < 0:
        out[at] = 45
        at += 1
    scaled = np.int64(abs(value) * 1e6 + 0.5)
    whole, fraction = scaled // 1000000, scaled % 1000000
    digits = 1
    while whole >= 10**digits:
        digits += 1
    for k in range(digits):
        out[at + digits - 1 - k] = 48 + whole % 10
        whole //= 10
    at += digits
    out[at] = 46
    for k in range(6):
        out[at + 6 - k] = 48 + fraction % 10
        fraction //= 10
    return at + 7


@njit(cache=True, nogil=True)
def format_section(out, text, offsets, ids, logprob, backoff, with_backoff):
    """Write the lines of one section to the bytes `out`. Returns the number of bytes used. A back-off weight
    of 1 is not written."""
    at = 0
    for row in range(len(ids)):
        at = _put_number(out, at, logprob[row])
        for k in range(ids.shape[1]):
            out[at] = _TAB if k == 0 else _SPACE
            at += 1
            for i in range(offsets[ids[row, k]], offsets[ids[row, k] + 1]):
                out[at] = text[i]
                at += 1
        if with_backoff and backoff[row] != 0.0:
            out[at] = _TAB
            at = _put_number(out, at + 1, backoff[row])
        out[at] = _NEWLINE
        at += 1
    return at


@njit(cache=True, nogil=True)
def find_key(keys, low, high, key):
    """Position of `key` in keys[low:high] (sorted), relative to `low`, or -1."""
    first, last = low, high
    while first < last:
        middle = (first + last) >> 1
        if keys[middle] < key:
            first = middle + 1
        else:
            last = middle
    return first - low if first < high and keys[first] == key else -1


class Ngrams(NamedTuple):
    """An n-gram model: those of order n are offsets[n - 1]:offsets[n]; `pyasr.lang.ngrams.arpa.ngram_keys`
    has the keys."""

    keys: np.ndarray
    logprob: np.ndarray
    backoff: np.ndarray
    offsets: np.ndarray
    num_words: int


@njit(cache=True, nogil=True)
def advance(lm, history, word, new_history):
    """log10 p(word | history), and the next history.

    history      history[k]: index in order k of the k-gram that ends here, -1 if it is not in the model;
                 k = 1 ... order - 1
    """
    offsets, order = lm.offsets, len(lm.offsets) - 1
    score, done = 0.0, False
    for n in range(order, 0, -1):
        below = history[n - 1] if n > 1 else 0
        at = -1
        if below >= 0:
            at = find_key(lm.keys, offsets[n - 1], offsets[n], below * lm.num_words + word)
            if not done and at >= 0:
                score += lm.logprob[offsets[n - 1] + at]
                done = True
            elif not done and n > 1:
                score += lm.backoff[offsets[n - 2] + below]
        if n < order:
            new_history[n] = at
    return score if done else np.nan


@njit(cache=True, nogil=True)
def score(lm, flat, lengths, begin, end):
    """log10 probabilities of all words and ends of sentences; see `pyasr.lang.ngrams.arpa.Scorer`."""
    order = len(lm.offsets) - 1
    result = np.empty(len(flat) + len(lengths))
    history, following = np.empty(order + 1, np.int64), np.empty(order + 1, np.int64)
    token = out = 0
    for sentence in range(len(lengths)):
        history[:] = -1
        advance(lm, history, begin, following)
        history, following = following, history
        for k in range(lengths[sentence] + 1):
            word = flat[token] if k < lengths[sentence] else end
            if word < 0:
                result[out] = np.nan
                following[:] = -1
            else:
                result[out] = advance(lm, history, word, following)
            history, following = following, history
            token += 1 if k < lengths[sentence] else 0
            out += 1
    return result
