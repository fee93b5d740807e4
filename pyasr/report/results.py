"""RESULTS.md: the table of word error rates, costs, and commands, from the records of the run."""

from __future__ import annotations

from pyasr.report.provenance import commands, in_order, made_with, records
from pyasr.report.seed_runs import SeedRun, families_notes, families_table, family_means, seed_runs
from pyasr.report.systems import ScoredSystem, paired
from pyasr.report.text_table import markdown_table, value_range
from pyasr.score.bootstrap import difference_interval

_HEAD = (
    "# Results\n\nWritten by `utils/collect_results.py` from the records of the run; not edited by hand.\n"
)


def results_page(systems: list[ScoredSystem], runs: list[SeedRun] | None = None, published: str = "") -> str:
    """The whole page; its first table depends only on the scores, so the same run gives the same table.

    runs       networks of several seeds; default: those of `systems`
    published  a section on published results
    """
    single, runs = _split(systems, runs)
    parts = [_HEAD]
    if single:
        parts += [results_table(single), _notes(single), *_subsets(single), "\n## Cost\n", cost_table(single)]
    if runs:
        parts += ["\n## Several seeds\n", families_table(runs), families_notes(runs)]
    parts.append(f"\n{best_on_dev(single, runs)}")
    if published:
        parts.append(published)
    steps = [step for run in runs for step in run.made_by] + records(
        directory for system in single for directory in system.directories
    )
    found = in_order(steps)
    parts += ["\n## Made with\n", made_with(found), _seeds(single, runs), "\n## Commands\n", commands(found)]
    return "\n".join(parts)


def tables(systems: list[ScoredSystem], runs: list[SeedRun] | None = None) -> str:
    """The tables of WERs, for the screen; arguments as for `results_page`."""
    single, runs = _split(systems, runs)
    parts = (
        ([results_table(single)] if single else [])
        + _subsets(single)[1:]
        + ([families_table(runs)] if runs else [])
    )
    return "\n\n".join([*parts, best_on_dev(single, runs)])


def best_on_dev(systems: list[ScoredSystem], runs: list[SeedRun]) -> str:
    """A line that names the system with the lowest WER on its dev set; a kind of network with several seeds
    is represented by its mean."""
    single = [
        (system.dev["chosen"]["wer"], system.test["chosen"]["wer"], system.name)
        for system in systems
        if system.dev
    ]
    found = single + family_means(runs)
    if not found:
        return "Best system: not known, since no system has a dev set."
    dev, test, name = min(found)
    return f"Best system on dev: {name}, {dev:.2f} % on dev, {test:.2f} % on test."


def results_table(systems: list[ScoredSystem]) -> str:
    """A row per system: WERs with intervals and counts, at the parameters chosen on dev and at the best ones
    for the test set."""
    head = [
        "system",
        "dev WER %",
        "test WER %",
        "95 % by utterance",
        "95 % by speaker",
        "ins / del / sub",
        "LM weight, penalty",
        "best on test: WER %",
        "ins / del / sub",
        "LM weight, penalty",
    ]
    best = _clearly_best(systems)
    return markdown_table(head, [_row(system, system is best) for system in systems])


def _split(
    systems: list[ScoredSystem], runs: list[SeedRun] | None
) -> tuple[list[ScoredSystem], list[SeedRun]]:
    """(single systems, systems trained with several seeds)."""
    return [system for system in systems if not system.family], seed_runs(systems) if runs is None else runs


def _row(system: ScoredSystem, bold: bool) -> list[str]:
    chosen, oracle = system.test["chosen"], system.test["best"]
    wer = f"{chosen['wer']:.2f}"
    dev = f"{system.dev['chosen']['wer']:.2f}" if system.dev else "-"
    return [
        system.name,
        dev,
        f"**{wer}**" if bold else wer,
        value_range(chosen["interval"]),
        _by_speaker(chosen),
        _counts(chosen),
        _point(chosen) + _chosen_elsewhere(system),
        f"{oracle['wer']:.2f}",
        _counts(oracle),
        _point(oracle),
    ]


def _chosen_elsewhere(system: ScoredSystem) -> str:
    """A note on the set on which the parameters were chosen, if it is not the system's own dev set."""
    return "" if system.dev else f" (on {system.test['params_from'] or 'test'})"


def _by_speaker(entry: dict) -> str:
    return (
        f"{value_range(entry['speaker_interval'])} ({entry['num_speakers']})"
        if entry["num_speakers"] > 1
        else "-"
    )


def _counts(entry: dict) -> str:
    return f"{entry['ins']} / {entry['del']} / {entry['sub']}"


def _point(entry: dict) -> str:
    return f"{entry['point'][0]}, {entry['point'][1]}"


def _clearly_best(systems: list[ScoredSystem]) -> ScoredSystem | None:
    """The system with a significantly lower WER than all others: the 95 % interval of each paired difference
    is above 0."""
    best = min(systems, key=lambda system: system.test["chosen"]["wer"])
    others = [system for system in systems if system is not best]
    for other in others:
        pair = paired(best, other)
        if pair is None or difference_interval(*pair)[0] <= 0:
            return None
    return best if others else None


def _notes(systems: list[ScoredSystem]) -> str:
    """Notes on the numbers: references, signature, missing hypotheses, comparisons."""
    lines = sorted(
        {
            f"Signature `{s.test['signature']}`: {s.test['data']}, {s.test['chosen']['num_utterances']} "
            f"utterances, {s.test['chosen']['words']} words."
            for s in systems
        }
    )
    lines.append(
        "LM weight and word insertion penalty are chosen on dev unless said otherwise; the last three "
        "columns show the best ones for the test set, for comparison only. Intervals are bootstrap "
        "intervals; (n) is the number of speakers drawn from."
    )
    lines.append(
        "A WER in bold is lower than all others by more than chance (paired bootstrap, 95 %); no bold, no "
        "such system."
    )
    for system in systems:
        if system.test["chosen"]["missing"]:
            lines.append(
                f"{system.name}: {len(system.test['chosen']['missing'])} utterances have no hypothesis and "
                "count as deleted."
            )
    for first, second in zip(systems, systems[1:]):
        pair = paired(first, second)
        if pair is not None:
            low, high = difference_interval(*pair)
            difference = 100 * (pair[1].sum() - pair[0].sum()) / pair[2].sum()
            lines.append(
                f"{second.name} against {first.name}: {difference:+.2f} WER absolute, 95 % {low:+.2f} to "
                f"{high:+.2f}."
            )
    return "\n" + "\n".join(f"* {line}" for line in lines)


def _subsets(systems: list[ScoredSystem]) -> list[str]:
    """The section on subsets of test sets, if a system has them."""
    return (
        ["\n## Subsets\n", subsets_table(systems)]
        if any("subsets" in system.test for system in systems)
        else []
    )


def subsets_table(systems: list[ScoredSystem]) -> str:
    """A row for each subset of each system's test set: the WER at the parameters of the whole set, and the
    best WER of the subset."""
    head = [
        "system",
        "subset",
        "words",
        "WER %",
        "95 % by utterance",
        "95 % by speaker",
        "ins / del / sub",
        "best on subset: WER %",
        "LM weight, penalty",
    ]
    return markdown_table(
        head,
        [
            _subset_row(system, name, **entries)
            for system in systems
            for name, entries in system.test.get("subsets", {}).items()
        ],
    )


def _subset_row(system: ScoredSystem, name: str, chosen: dict, best: dict) -> list[str]:
    return [
        system.name,
        name,
        str(chosen["words"]),
        f"{chosen['wer']:.2f}",
        value_range(chosen["interval"]),
        _by_speaker(chosen),
        _counts(chosen),
        f"{best['wer']:.2f}",
        _point(best),
    ]


def cost_table(systems: list[ScoredSystem]) -> str:
    """Seconds of training, and real-time factors of decoding the test set."""

    def number(value, form):
        return "-" if value is None else format(value, form)

    rows = [
        [s.name, number(s.training_s, ".0f"), number(s.search_rtf, ".3f"), number(s.rtf, ".3f")]
        for s in systems
    ]
    return markdown_table(
        ["system", "training, s", "real-time factor of the search (CPU)", "of all of decoding (CPU)"], rows
    )


def _seeds(single: list[ScoredSystem], runs: list[SeedRun]) -> str:
    trained = [(system.name, system.seed) for system in single] + [(run.name, run.train_seed) for run in runs]
    seeds = ", ".join(f"{name} {seed}" for name, seed in trained if seed is not None)
    scoring = ", ".join(
        sorted({str(system.test["seed"]) for system in single} | {str(run.interval_seed) for run in runs})
    )
    return f"* seeds: {seeds + '; ' if seeds else ''}intervals {scoring}"
