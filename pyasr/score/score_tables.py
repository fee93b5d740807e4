"""Files of a scoring: WER lines, and tables by utterance and speaker in the format of Kaldi's scripts. Totals
are sums of the rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pyasr.score.filters import TextFilter
from pyasr.score.wer import Row, Score
from pyasr.score.word_alignment import Counts, align

_NOTHING = "***"


def wer_line(counts: Counts) -> str:
    """`%WER 66.11 [ 3062 / 4632, 259 ins, 659 del, 2144 sub ]`, as Kaldi's compute-wer prints it."""
    return (
        f"%WER {counts.wer:.2f} [ {counts.errors} / {counts.num_words}, {counts.ins} ins, {counts.dele} "
        f"del, {counts.sub} sub ]"
    )


def interval_text(interval: tuple[float, float]) -> str:
    """`95% 64.82-67.40`, per cent."""
    return f"95% {interval[0]:.2f}-{interval[1]:.2f}"


def wer_file(score: Score) -> str:
    """Content of `wer_LMWT_WIP`: a WER line, the sentence error rate, and missing utterances."""
    num, wrong = len(score.utterances), score.num_wrong_utterances
    lines = [
        f"{wer_line(score.total)} {score.signature}",
        f"%SER {100 * wrong / num:.2f} [ {wrong} / {num} ]",
        f"Scored {num} sentences, {len(score.missing)} not present in hyp.",
    ]
    lines += [f"missing: {utt}" for utt in score.missing]
    return "\n".join(lines) + "\n"


def per_utterance(references: Mapping[str, str], hypotheses: Mapping[str, str], filters: TextFilter) -> str:
    """Four lines per utterance: `ref`, `hyp`, `op` (C S I D) word by word, and `#csid` with the counts."""
    lines = []
    for utt in sorted(references):
        pairs = align(filters.words(references[utt]), filters.words(hypotheses.get(utt, "")))
        ops = [
            "I" if ref is None else "D" if hyp is None else "C" if ref == hyp else "S" for ref, hyp in pairs
        ]
        lines += alignment_lines(utt, [(ref, hyp, op) for (ref, hyp), op in zip(pairs, ops)])
    return "\n".join(lines) + "\n"


def alignment_lines(utt: str, steps: Sequence[tuple[str | None, str | None, str]]) -> list[str]:
    """The four lines of an utterance. A step is (reference word, hypothesis word, one of C S I D); a missing
    word is None."""
    columns = [(ref or _NOTHING, hyp or _NOTHING, op) for ref, hyp, op in steps]
    lines = []
    for place, kind in enumerate(("ref", "hyp", "op")):
        cells = (column[place].ljust(max(map(len, column))) for column in columns)
        lines.append(f"{utt} {kind:<4} {' '.join(cells)}".rstrip())
    ops = [op for _, _, op in steps]
    return [*lines, f"{utt} #csid {' '.join(str(ops.count(op)) for op in 'CSID')}"]


def per_speaker(score: Score, utt2spk: Mapping[str, str]) -> str:
    """One line per speaker: utterances, words, then correct, sub, ins, del, errors and utterances with
    errors, as numbers and per cent."""
    return counts_table("SPEAKER", [*score.of_speaker(utt2spk).items(), ("SUM", score.row)])


def counts_table(title: str, rows: Iterable[tuple[str, Row]]) -> str:
    """A table in the format of `per_speaker`, of (name, counts); `title` is the heading of the names."""
    rows = list(rows)
    width = max(len(title), *(len(name) for name, _ in rows))
    head = (
        f"{title:<{width}} {'#UTT':>6} {'#WORD':>7} {'CORR':>7} {'SUB':>7} {'INS':>7} {'DEL':>7} "
        f"{'ERR':>7} {'U.ERR':>7}"
    )
    return "\n".join([head, *(line for name, row in rows for line in _row_lines(name, width, *row))]) + "\n"


def _row_lines(name: str, width: int, counts: Counts, num: int, wrong: int) -> list[str]:
    head = f"{name:<{width}} {num:>6} {counts.num_words:>7}"
    values = (counts.correct, counts.sub, counts.ins, counts.dele, counts.errors)
    words = max(counts.num_words, 1)
    return [
        head + "".join(f" {value:>7}" for value in (*values, wrong)),
        f"{'  %':<{len(head)}}"
        + "".join(f" {value:>7.2f}" for value in (*(100 * v / words for v in values), 100 * wrong / num)),
    ]
