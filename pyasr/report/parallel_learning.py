"""What learners come to by parallel schemes, beside what was published: topologies, periods, minibatches, gradients, growing batches."""

from __future__ import annotations

from pyasr.report import published
from pyasr.report.parallel_runs import Run, Runs
from pyasr.report.parallel_tables import cell, loss, pivot, section, wer
from pyasr.report.text_table import markdown_table
from pyasr.report.verdicts import agreement, compared, learns_longer, losses, word_errors

_RARELY = """\
There are {mixings:.1f} mixings an epoch then, {total:.0f} in all; BMUF's momentum, 1 - 1/P, takes about P = {learners} of them to come to
its speed. DiLoCo's inner optimiser is plain SGD here; it is AdamW in arXiv:2311.08105, which mixes every 500 minibatches or so, and does as
well as synchronous training."""

_VERDICTS = """\
As in the papers, where 10.37 = ln 32000, a training diverges whose network knows no more of the held-out frames in the end than how
frequent the states are: *stuck at the priors* with a loss of 98 % of what guessing by the priors comes to, up to 102 % of ln(states),
*worse than guessing* with more, *not a number*."""


def poster(runs: Runs) -> str:
    """All-reduce, butterfly, ring."""
    found, columns = _counterparts(runs, published.POSTER_WER)
    if not columns:
        return ""
    single = [("loss of single learners", lambda run: cell(_single_loss(run), ".3f"))]
    if any(run.of_learner for run in found.values()):
        single.append(("WER % of one learner", lambda run: wer(run and run.of_learner)))
    table = _beside("", published.POSTER_WER, found, columns, ".1f", *single)
    sentences = [sentence for num in columns for sentence in _poster_sentences(runs, num)]
    text = "The first of our WERs are of the consensus of all learners; the published models are those of one learner, after a mixing."
    return section("The poster: all-reduce, butterfly, ring", table, text, sentences=sentences)


def _counterparts(runs: Runs, theirs: dict) -> tuple[dict[tuple[str, int], Run], list[int]]:
    """Runs by scheme and learners that such published results have; their numbers of learners that have more than all-reduce."""
    found = {key: run for key, run in runs.schemes.items() if key[0] in theirs}
    return found, sorted({num for name, num in found if name != "allreduce" and num in theirs["allreduce"]})


def _beside(title: str, theirs: dict, found: dict, columns: list[int], form: str, *more) -> str:
    """A table of published WERs, then ours, by scheme and learners; `more` are (title, function of a run)."""
    kinds = [("WER %", wer), ("loss / accuracy %", loss), *more]
    rows = [[f"{name}, WER %, published", *(cell(row.get(num), form) for num in columns)] for name, row in theirs.items()]
    rows += [[f"{name}, {kind}", *(text(found.get((name, num))) for num in columns)] for kind, text in kinds for name in theirs]
    return markdown_table([title, *map(str, columns)], rows)


def _poster_sentences(runs: Runs, num: int) -> list[str]:
    theirs = {name: row[num] for name, row in published.POSTER_WER.items() if num in row}
    found = {name: runs.schemes[name, num] for name in theirs if (name, num) in runs.schemes}
    single = losses({name: _single_loss(run) for name, run in found.items()}, runs.noise)
    what = f"{num} learners"
    decoded = word_errors({name: run.of_learner for name, run in found.items() if run.of_learner})
    return [*compared(what, theirs, found, runs.noise), agreement(f"{what}, loss of single learners", theirs, single),
            agreement(f"{what}, WER of one learner", theirs, decoded)]  # fmt: skip


def _single_loss(run: Run | None) -> float | None:
    """That of a learner after a mixing: after an all-reduce, the consensus."""
    return run and (run.loss if run.loss_apart is None or run.scheme == "allreduce" else run.loss_apart)


def block_schemes(runs: Runs) -> str:
    """Averaging, block momentum, elastic averaging, a server."""
    theirs = published.BMUF_WER
    found, columns = _counterparts(runs, theirs)
    if not columns:
        return ""
    sentences = [sentence for num in columns
                 for sentence in compared(f"{num} learners", {name: row[num] for name, row in theirs.items()},
                                          {name: run for (name, n), run in found.items() if n == num}, runs.noise)]  # fmt: skip
    return section("Averaging, BMUF, EASGD, ASGD", _beside("arXiv:1703.05880", theirs, found, columns, ".2f"), sentences=sentences)


def period(runs: Runs) -> str:
    """All-reduce every so many minibatches."""
    found = sorted(runs.of("period"), key=lambda run: run.period)
    if not found:
        return ""
    rows = [[str(run.period), loss(run), wer(run), cell(published.SU_WER_BY_PERIOD.get(run.period)), cell(run.speed_up, ".2f"),
             f"{run.share('mixing'):.0f}"] for run in found]  # fmt: skip
    head = ["minibatches", "loss / accuracy %", "WER %", "published WER % (16 GPUs)", "speed-up", "communication %"]
    sentences = compared("Averages after so many minibatches", published.SU_WER_BY_PERIOD, {run.period: run for run in found}, runs.noise)
    return section(f"Minibatches between two averages, {found[0].learners} learners", markdown_table(head, rows), sentences=sentences)


def rarely(runs: Runs) -> str:
    """Schemes that are made to mix rarely, as often as others and rarely."""
    found = {run.scheme: run for run in runs.of("rarely")}
    if not found:
        return ""
    some = next(iter(found.values()))
    averages = [run for run in runs.of("period") if (run.period, run.learners) == (some.period, some.learners)]
    found = {**{run.scheme: run for run in averages}, **found}
    often = {scheme: runs.schemes.get((scheme, some.learners)) for scheme in found}
    rows = [[scheme, loss(often[scheme]), loss(run), wer(often[scheme]), wer(run), cell(run.speed_up, ".2f")]
            for scheme, run in found.items()]  # fmt: skip
    usual = next((run.period for run in often.values() if run), None)
    head = ["scheme", f"every {cell(usual)}, loss / accuracy %", f"every {some.period}, loss / accuracy %", f"every {cell(usual)}, WER %",
            f"every {some.period}, WER %", f"speed-up, every {some.period}"]  # fmt: skip
    mixings = some.content["epoch_frames"] / some.batch / some.period
    told = _RARELY.format(mixings=mixings, total=mixings * (len(some.content["history"]) - 1), learners=some.learners)
    return section(f"Schemes that are made to mix rarely, {some.learners} learners", markdown_table(head, rows), told,
                   sentences=_rarely_sentences(runs, found, often))  # fmt: skip


def _rarely_sentences(runs: Runs, found: dict[str, Run], often: dict[str, Run | None]) -> list[str]:
    """arXiv:1703.05880: BMUF and EASGD are as good when they mix rarely. arXiv:2311.08105: so is DiLoCo as synchronous training."""
    told = []
    for scheme, (few, many) in {name: tuple(row.values()) for name, row in published.BMUF_WER_BY_PERIOD.items()}.items():
        if scheme in found and often[scheme]:
            pair = {"often": often[scheme], "rarely": found[scheme]}
            told += compared(f"{scheme}, mixing", {"often": few, "rarely": many}, pair, runs.noise)
    gradient = runs.schemes.get(("gradient", found["diloco"].learners)) if "diloco" in found else None
    if gradient:
        pair = {"gradient": gradient, "diloco": found["diloco"]}
        told += compared("diloco, mixing rarely", {"gradient": 1.0, "diloco": 1.0}, pair, runs.noise)
    return told


def minibatch(runs: Runs) -> str:
    """Two sizes of minibatches."""
    own = runs.of("minibatch")
    numbers = sorted({run.learners for run in own})
    usual = [run for run in runs.of("schemes") if run.scheme == "allreduce" and run.learners in numbers]
    ours = {(run.minibatch, run.learners): run for run in own + usual}
    sizes = sorted({size for size, _ in ours})
    if len(sizes) < 2:
        return ""
    names = {"the smaller": sizes[0], "the larger": sizes[-1]}
    found = {name: ours[size, numbers[-1]] for name, size in names.items() if (size, numbers[-1]) in ours}
    theirs = {"the larger": published.SU_WER_BY_MINIBATCH[1024], "the smaller": published.SU_WER_BY_MINIBATCH[256]}
    sentences = compared(f"{numbers[-1]} learners (published: 256 and 1024, WER 15.6 and 15.1 %)", theirs, found, runs.noise)
    tables = (pivot(ours.values(), "learners", "minibatch", value) for value in (loss, wer))
    return section("Minibatch", "Loss / accuracy %, and WER %, by minibatch.", *tables, sentences=sentences)


def gradient(runs: Runs) -> str:
    """Plain and natural gradient."""
    natural = runs.of("natural")
    if not natural:
        return ""
    plain = [run for run in runs.of("schemes") if run.scheme == "allreduce" and run.learners in {n.learners for n in natural}]
    theirs, found = published.SU_WER_BY_GRADIENT, {(run.gradient, run.learners): run for run in plain + natural}
    rows = [[kind, str(num), loss(run), wer(run), cell(theirs.get((kind, num)))] for (kind, num), run in found.items()]
    table = markdown_table(["gradient", "learners", "loss / accuracy %", "WER %", "published WER %"], rows)
    return section("Plain and natural gradient", table, sentences=compared("Gradient and learners", theirs, found, runs.noise))


def growing_batch(runs: Runs) -> str:
    """Who learns with large batches."""
    found = sorted(runs.of("batch"), key=lambda run: (run.scheme, run.batch))
    if not found:
        return ""
    rows = [[scheme, *(cell(value, ".2f") for value in row.values())] for scheme, row in published.IBM_LOSS_BY_BATCH.items()]
    diverged: dict[str, dict[int, bool]] = {}
    for run in found:
        diverged.setdefault(run.scheme, {})[run.batch] = not run.learns
    sentences = [learns_longer(f"{scheme}, {source} (learns at {published.IBM_BATCH}, where synchronous SGD diverges)", diverged[scheme],
                               diverged.get("gradient", {}))
                 for scheme, source in published.IBM_LEARNS.items() if scheme in diverged]  # fmt: skip
    return section(f"Growing batches, {found[0].learners} learners",
                   "Loss / accuracy %, by frames of a minibatch over all learners; the rate is in proportion to it.", _VERDICTS,
                   pivot(found, "scheme", "batch", loss),
                   markdown_table(["arXiv:2112.01433, SWB300, loss", "2048", "4096", "8192"], rows),
                   sentences=[*sentences, *_loss_by_batch(runs, found)])  # fmt: skip


def _loss_by_batch(runs: Runs, found: list[Run]) -> list[str]:
    """A sentence for each batch that was published."""
    table = published.IBM_LOSS_BY_BATCH
    ours = {(run.scheme, run.batch): run.loss for run in found}
    return [agreement(f"Batches of {batch}, held-out loss", {scheme: row[batch] for scheme, row in table.items()},
                      losses({scheme: ours[scheme, batch] for scheme in table if (scheme, batch) in ours}, runs.noise))
            for batch in sorted({batch for row in table.values() for batch in row})]  # fmt: skip
