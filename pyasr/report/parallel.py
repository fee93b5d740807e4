"""The page of a comparison of parallel schemes on virtual learners: our tables, the published numbers, and what agrees."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable

from pyasr.report import published
from pyasr.report.parallel_runs import RealRun, Run
from pyasr.report.results import markdown_table
from pyasr.report.svg import COLOURS, line_plot

_WELL_KNOWN = ("allreduce", "butterfly", "ring", "gradient", "delayed", "adpsgd", "dpsgd fixed-ring", "asgd", "bmuf", "easgd")
_DIVERGED = "diverged"
_NOISE = 0.005  # of a loss: less is taken for chance
_PUBLISHED_NOISE = 0.015  # of a published error: 0.3 of 18 % WER
_HEAD = """# Parallel training on virtual learners

Written by `utils/collect_parallel.py`; not edited by hand. Real training of a small network by learners in simulated time: what is learnt
is real, what it takes is the declared network's and the declared minibatch's time. One seed each: small differences mean nothing. Loss is
held-out cross-entropy, nats a frame, of the model at the end: the consensus of all learners. Speed-up is against one learner's computing.
"""


def page(runs: list[Run], real: Iterable[RealRun] = ()) -> str:
    """The whole page; its pictures are `pictures`."""
    sections = [_schemes, _poster, _speed_ups, _straggler, _period, _minibatch, _gradient, _batch]
    made = [text for section in sections if (text := section(runs))]
    if compared := _real(runs, list(real)):
        made.insert(1, compared)
    links = "\n".join(f"![{name}]({name}.svg)" for name in pictures(runs))
    return "\n".join([_HEAD, *made, "## Pictures\n", links, ""])


def pivot(runs: Iterable[Run], row: str, column: str, value: Callable[[Run], str], label: str = "{}") -> str:
    """A table of `value` with a line for each `row` and a column for each `column`, which are names of properties."""
    cells = {(getattr(run, row), getattr(run, column)): value(run) for run in runs}
    rows, columns = dict.fromkeys(key for key, _ in cells), sorted({key for _, key in cells})
    body = [[str(r), *(cells.get((r, c), "-") for c in columns)] for r in rows]
    return markdown_table([row, *(label.format(_short(c)) for c in columns)], body)


def _short(value) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _loss(run: Run) -> str:
    return _DIVERGED if run.diverged else f"{run.loss:.3f} / {run.accuracy:.1f}"


def _of(runs: list[Run], purpose: str) -> list[Run]:
    """Runs of a purpose, fewest learners first."""
    return sorted((run for run in runs if run.purpose == purpose), key=lambda run: (run.learners, run.name))


def _schemes(runs: list[Run]) -> str:
    found = sorted(_of(runs, "schemes"), key=lambda run: (run.scheme, run.learners))
    if not found:
        return ""
    tables = [("Held-out loss / frame accuracy %", _loss), ("Speed-up", lambda run: _cell(run.speed_up, ".2f")),
              ("Time in communication / in waiting, %", lambda run: f"{run.share('mixing'):.0f} / {run.share('waiting'):.0f}"),
              ("Drift before mixing", lambda run: _cell(run.drift, ".3f"))]  # fmt: skip
    if any(run.loss_apart is not None for run in found):
        tables.append(("Held-out loss of single learners before the last consensus", lambda run: _cell(run.loss_apart, ".3f")))
    if any(run.wer is not None for run in found):
        tables.append(("Test WER %", lambda run: _cell(run.wer, ".1f")))
    parts = [f"**{title}**, by learners\n\n{pivot(found, 'scheme', 'learners', value)}" for title, value in tables]
    return _section("Schemes", _declared(found[-1]), *parts)


def _declared(run: Run) -> str:
    virtual, model = run.content["virtual"], run.content["num_parameters"]
    return (f"{run.content['epoch_frames']} frames an epoch, {len(run.content['history']) - 1} epochs, {model} parameters that stand for "
            f"{virtual['model_mb']:g} MB; {virtual['compute_s']:g} s a minibatch of {run.minibatch}, {virtual['bandwidth_mb']:g} MB/s, "
            f"mixing every {run.period} minibatches where a scheme does not say otherwise.")  # fmt: skip


def _poster(runs: list[Run]) -> str:
    names = published.POSTER_WER
    found = [run for run in _of(runs, "schemes") if run.scheme in names]
    columns = sorted({run.learners for run in found if run.scheme != "allreduce"})
    if not columns:
        return ""
    theirs = [[f"{name}, WER %, published", *(_cell(names[name].get(c)) for c in columns)] for name in names]
    losses = {(run.scheme, run.learners): run for run in found}
    ours = [[f"{name}, loss / accuracy %", *(_loss(losses[name, c]) if (name, c) in losses else "-" for c in columns)] for name in names]
    apart = [[f"{name}, loss of single learners", *(_own_loss(losses.get((name, c))) for c in columns)] for name in names]
    sentences = [agreement(f"{c} learners, {which}", {name: names[name][c] for name in names if c in names[name]},
                           {name: measure(losses[name, c]) for name in names if (name, c) in losses})
                 for c in columns for which, measure in (("consensus", _consensus_loss), ("single learners", _single_loss))]  # fmt: skip
    table = markdown_table(["", *map(str, columns)], [*ours, *apart, *theirs])
    return _section("The poster: all-reduce, butterfly, ring", table, sentences=sentences)


def _real(runs: list[Run], real: list[RealRun]) -> str:
    virtual = {(run.scheme, run.learners): run for run in _of(runs, "schemes") if not run.diverged}
    both = [(ranks, virtual[ranks.scheme, ranks.ranks]) for ranks in real if (ranks.scheme, ranks.ranks) in virtual]
    if not both:
        return ""
    rows = [[ranks.scheme, str(ranks.ranks), f"{ranks.loss:.4f} / {ranks.accuracy:.2f}", f"{run.loss:.4f} / {run.accuracy:.2f}",
             f"{ranks.loss / run.loss - 1:+.2%}"] for ranks, run in both]  # fmt: skip
    table = markdown_table(["scheme", "ranks", "MPI ranks, loss / accuracy %", "virtual learners", "difference of losses"], rows)
    return _section("MPI ranks", "The same trainings by MPI ranks on one machine, with the same options, seeds and shards.", table)


def _consensus_loss(run: Run) -> float:
    return run.loss


def _single_loss(run: Run) -> float:
    """Published models are those of rank 0 alone, after a mixing: after an all-reduce, the consensus."""
    return run.loss if run.loss_apart is None or run.scheme == "allreduce" else run.loss_apart


def _own_loss(run: Run | None) -> str:
    return "-" if run is None else f"{_single_loss(run):.3f}"


def _cell(value, form: str = "g") -> str:
    """A number, if there is one."""
    return "-" if value is None or math.isnan(value) else format(value, form)


def _section(title: str, *parts: str, sentences: Iterable[str] = ()) -> str:
    """Paragraphs and tables under a title, and a list."""
    bullets = "\n".join(f"* {sentence}" for sentence in sentences if sentence)
    return "\n\n".join([f"## {title}", *parts, *([bullets] if bullets else [])]) + "\n"


def agreement(what: str, theirs: dict, ours: dict[str, float]) -> str:
    """One sentence: does what is better there (less error) come out better here? Differences that may be chance say nothing."""
    both = [(a, b) for a, b in itertools.permutations([name for name in theirs if name in ours], 2) if theirs[a] < theirs[b]]
    pairs = [(a, b) for a, b in both if not math.isclose(theirs[a], theirs[b], rel_tol=_PUBLISHED_NOISE)]
    if not pairs:
        return f"{what}: published errors are equal within {_PUBLISHED_NOISE:.1%}{_spread(ours)}." if both else ""
    equal = [(a, b) for a, b in pairs if math.isclose(ours[a], ours[b], rel_tol=_NOISE)]
    wrong = [(a, b) for a, b in pairs if (a, b) not in equal and ours[a] > ours[b]]
    told = [f"{b} is better than {a}" for a, b in wrong] + [f"{a} and {b} are equal within {_NOISE:.1%}" for a, b in equal]
    verdict = f"{'disagrees' if wrong else 'does not show it'}: {', '.join(told)}" if told else "agrees"
    return f"{what}: published error {', '.join(f'{a} < {b}' for a, b in pairs)}; ours {verdict}."


def _spread(ours: dict[str, float]) -> str:
    low, high = min(ours.values()), max(ours.values())
    return f"; ours {'agree' if high <= (1 + _PUBLISHED_NOISE) * low else 'disagree'}, within {high / low - 1:.1%}"


def _speed_ups(runs: list[Run]) -> str:
    found = {(run.scheme, run.learners): run for run in _of(runs, "schemes") if not run.diverged}
    rows, sentences = [], []
    for source, table in (("arXiv:1507.01239", published.SU_SPEED_UP), ("poster", published.POSTER_SPEED_UP)):
        for scheme, values in table.items():
            both = {num: (value, found[scheme, num].speed_up) for num, value in values.items() if (scheme, num) in found}
            rows += [[scheme, source, str(num), f"{value:.2f}", f"{ours:.2f}"] for num, (value, ours) in both.items()]
            sentences += [_ratio_sentence(f"{scheme}, {source}", both)] if both else []
    if not rows:
        return ""
    table = markdown_table(["scheme", "source", "learners", "published speed-up", "ours, virtual"], rows)
    return _section("Speed-up", table, sentences=sentences)


def _ratio_sentence(what: str, both: dict[int, tuple[float, float]]) -> str:
    """How far ours is from what was published."""
    ratios = {num: ours / theirs for num, (theirs, ours) in both.items()}
    farthest = max(ratios, key=lambda num: abs(math.log(ratios[num])))
    verdict = "agrees" if 1 / 1.15 < ratios[farthest] < 1.15 else "disagrees"
    return f"{what}: ours {verdict}, at most {ratios[farthest] - 1:+.0%} ({farthest} learners)."


def _straggler(runs: list[Run]) -> str:
    found = sorted(_of(runs, "straggler"), key=lambda run: run.straggler)
    if not found:
        return ""
    base = {run.scheme: run.hours for run in found if run.straggler == 1}
    theirs = {scheme: {factor: hours / row[1] for factor, hours in row.items()} for scheme, row in published.IBM_HOURS_BY_SLOWDOWN.items()}
    rows = [[f"{scheme}, published", *(f"{value:.2f}" for value in row.values())] for scheme, row in theirs.items()]
    compared = [run for run in found if run.scheme in base]
    ours = pivot(compared, "scheme", "straggler", lambda run: _cell(run.hours / base[run.scheme], ".2f"), "{}x")
    slowest = [run for run in compared if run.straggler == found[-1].straggler]
    return _section(f"One slow learner of {found[0].learners}", "Time of an epoch relative to that without it, by how slow it is.", ours,
                    markdown_table(["arXiv:1904.04956, 16 GPUs", "1x", "2x", "10x", "100x"], rows),
                    sentences=[_straggler_sentence(run, base, theirs) for run in slowest])  # fmt: skip


def _straggler_sentence(run: Run, base: dict[str, float], theirs: dict[str, dict[int, float]]) -> str:
    """A scheme either waits for the slow one or does not: less than a tenth of its factor is not waiting."""
    if run.scheme not in theirs or run.straggler not in theirs[run.scheme] or math.isnan(run.hours / base[run.scheme]):
        return ""
    slower, expected = run.hours / base[run.scheme], theirs[run.scheme][run.straggler]
    waits, published_waits = (value > run.straggler / 10 for value in (slower, expected))
    verdict = "agrees" if waits == published_waits else "disagrees"
    return (f"{run.scheme}: a learner {run.straggler:g} times as slow makes an epoch {slower:.1f} times as long, published {expected:.1f}; "
            f"{verdict} that it {'waits' if published_waits else 'does not wait'} for it.")  # fmt: skip


def _period(runs: list[Run]) -> str:
    found = sorted(_of(runs, "period"), key=lambda run: run.period)
    if not found:
        return ""
    rows = [[str(run.period), _loss(run), _cell(run.speed_up, ".2f"), f"{run.share('mixing'):.0f}", _cell(run.drift, ".3f"),
             _cell(published.SU_WER_BY_PERIOD.get(run.period))] for run in found]  # fmt: skip
    table = markdown_table(["minibatches", "loss / accuracy %", "speed-up", "communication %", "drift", "published WER % (16 GPUs)"], rows)
    sentence = agreement("Averages after so many minibatches", published.SU_WER_BY_PERIOD, {run.period: run.loss for run in found})
    return _section(f"Minibatches between two averages, {found[0].learners} learners", table, sentences=[sentence])


def _minibatch(runs: list[Run]) -> str:
    found = _of(runs, "minibatch") + [run for run in _of(runs, "schemes") if run.scheme == "allreduce"]
    ours = {(run.minibatch, run.learners): run for run in found}
    sizes, numbers = sorted({size for size, _ in ours}), sorted({run.learners for run in _of(runs, "minibatch")})
    if len(sizes) < 2:
        return ""
    kept = [run for run in ours.values() if run.learners in numbers]
    names = {sizes[0]: "the smaller minibatch", sizes[-1]: "the larger minibatch"}
    at_most = {name: ours[size, numbers[-1]].loss for size, name in names.items() if (size, numbers[-1]) in ours}
    theirs = {"the larger minibatch": published.SU_WER_BY_MINIBATCH[1024], "the smaller minibatch": published.SU_WER_BY_MINIBATCH[256]}
    sentence = agreement(f"{numbers[-1]} learners (published: 256 and 1024, WER 15.6 and 15.1 %)", theirs, at_most)
    return _section("Minibatch", "Loss / accuracy %, by minibatch.", pivot(kept, "learners", "minibatch", _loss), sentences=[sentence])


def _gradient(runs: list[Run]) -> str:
    natural = _of(runs, "natural")
    if not natural:
        return ""
    plain = [run for run in _of(runs, "schemes") if run.scheme == "allreduce" and run.learners in {n.learners for n in natural}]
    most = max(run.learners for run in natural)
    ours = {run.gradient: run.loss for run in plain + natural if run.learners == most}
    sentence = agreement(f"{most} learners (published WER 15.1 and 16.3 %)", published.SU_WER_BY_GRADIENT, ours)
    table = pivot(plain + natural, "gradient", "learners", _loss)
    return _section("Plain and natural gradient", "Loss / accuracy %, by learners.", table, sentences=[sentence])


def _batch(runs: list[Run]) -> str:
    found = sorted(_of(runs, "batch"), key=lambda run: (run.scheme, run.batch))
    if not found:
        return ""
    rows = [[scheme, *map(_cell, row.values())] for scheme, row in published.IBM_LOSS_BY_BATCH.items()]
    return _section(f"Growing batches, {found[0].learners} learners",
                    "Loss / accuracy %, by frames of a minibatch over all learners; the rate is in proportion to it.",
                    pivot(found, "scheme", "batch", _loss),
                    markdown_table(["arXiv:2112.01433, SWB300, loss", "2048", "4096", "8192"], rows),
                    sentences=[*_loss_by_batch(found), _first_divergence(found)])  # fmt: skip


def _loss_by_batch(found: list[Run]) -> list[str]:
    """A sentence for each batch that was published."""
    loss = {(run.scheme, run.batch): math.inf if run.diverged else run.loss for run in found}
    batches = sorted({batch for row in published.IBM_LOSS_BY_BATCH.values() for batch in row})
    return [agreement(f"Minibatches of {batch}", {scheme: row[batch] for scheme, row in published.IBM_LOSS_BY_BATCH.items()},
                      {scheme: loss[scheme, batch] for scheme in published.IBM_LOSS_BY_BATCH})
            for batch in batches if all((scheme, batch) in loss for scheme in published.IBM_LOSS_BY_BATCH)]  # fmt: skip


def _first_divergence(found: list[Run]) -> str:
    """Who gives up first."""
    limit: dict[str, float] = {}
    for run in found:
        limit[run.scheme] = min(limit.get(run.scheme, math.inf), run.batch if run.diverged else math.inf)
    told = ", ".join(f"{scheme} {'at none of these' if batch == math.inf else f'at {batch}'}" for scheme, batch in limit.items())
    gossip = [batch for scheme, batch in limit.items() if "psgd" in scheme]
    if not gossip or "gradient" not in limit:
        return f"Diverges: {told}."
    verdict = "agrees" if limit["gradient"] < max(gossip) else "does not show"
    return f"Diverges: {told}; ours {verdict} that synchronous SGD is the first to (published: SSGD at 4096, D-PSGD not up to 8192)."


def pictures(runs: list[Run]) -> dict[str, str]:
    """SVGs by name: speed-up, loss against time, distance of learners from their mixture, word errors."""
    found = [run for run in _of(runs, "schemes") if not run.diverged and run.scheme in _drawn(runs)]
    if not found:
        return {}
    most = [run for run in found if run.learners in (1, found[-1].learners)]
    schemes = dict.fromkeys(run.scheme for run in found)
    speed = {scheme: [(run.learners, run.speed_up) for run in found if run.scheme == scheme] for scheme in schemes}
    names = {run.name: f"{run.scheme}, {run.learners}" for run in most}
    loss = {names[run.name]: [(seconds / 3600, -objective) for seconds, objective, _ in run.content["history"]] for run in most}
    drift = {names[run.name]: [(line["frames"] / 1e6, line["drift"]) for line in run.intervals] for run in most if run.learners > 1}
    made = {"speed_up": line_plot(speed, "Speed-up", "learners", "speed-up", log2=True),
            "loss": line_plot(loss, "Held-out loss against virtual time", "hours", "nats a frame")}  # fmt: skip
    if any(drift.values()):
        made["drift"] = line_plot(drift, "Distance from the mixture", "million frames", "relative distance")
    wer = {scheme: [(run.learners, run.wer) for run in found if run.scheme == scheme and run.wer is not None] for scheme in schemes}
    if any(len(line) > 1 for line in wer.values()):
        made["wer"] = line_plot({scheme: line for scheme, line in wer.items() if len(line) > 1}, "Word errors on test", "learners", "WER %")
    return made


def _drawn(runs: list[Run]) -> list[str]:
    """No more schemes than there are colours, the best known first."""
    found = dict.fromkeys(run.scheme for run in runs)
    return sorted(found, key=lambda scheme: _WELL_KNOWN.index(scheme) if scheme in _WELL_KNOWN else len(_WELL_KNOWN))[: len(COLOURS)]
