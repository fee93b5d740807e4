#!/usr/bin/env python3
"""Fuzz the readers for as long as is wanted: tests/fuzz/run.py --minutes 10 [--seed 1] [--engine
seeded|hypothesis|atheris] [FORMAT ...]

seeded      what the tests do, with other seeds; files that are refused with a new sentence, or read, are
            damaged further
hypothesis  single edits, made smaller until the smallest that is a finding remains
atheris     guided by the branches that a file takes; one FORMAT; tests/run.sh installs it where there is a
            wheel for this Python

Prints how many files were read and refused, and every finding; exit status 1 where there is one. What was
found lies in --out.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [
    str(path) for path in (HERE.parents[1], HERE.parent, *sorted(HERE.parent.iterdir())) if path.is_dir()
]

_BATCH, _MAX_KEPT = 200, 500


def main() -> int:
    """Fuzz the formats in turn; returns the exit status."""
    options = parse()
    if options.engine == "atheris":
        return with_atheris(options)
    from fuzz_formats import FORMATS

    unknown = set(options.formats) - set(FORMATS)
    if unknown:
        sys.exit(f"{', '.join(sorted(unknown))}: no such format; there are {' '.join(FORMATS)}")
    chosen = [FORMATS[name] for name in options.formats or FORMATS]
    engine = {"seeded": seeded, "hypothesis": with_hypothesis}[options.engine]
    end, counts, findings = time.time() + 60 * options.minutes, Counter(), 0
    warnings.simplefilter("ignore")
    for number, format in enumerate(chosen):
        until = time.time() + (end - time.time()) / (len(chosen) - number)
        with tempfile.TemporaryDirectory() as directory:
            counted, found = engine(format, Path(directory), options, until)
        counts, findings = counts + counted, findings + len(found)
        print(
            f"{format.name:<32} {' '.join(f'{what} {num}' for what, num in sorted(counted.items()))}",
            flush=True,
        )
        for place, (answer, content) in enumerate(found.items()):
            path = options.out / f"{format.name.replace('/', '_')}.{place}"
            path.write_bytes(content)
            print(f"  finding: {answer}\n  file: {path}", flush=True)
    print(f"{sum(counts.values())} files: {dict(counts)}, {findings} different findings")
    return int(findings > 0)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--engine", choices=("seeded", "hypothesis", "atheris"), default="seeded")
    parser.add_argument("--max-examples", type=int, default=100_000, help="of hypothesis, for a format")
    parser.add_argument("--out", type=Path, default=Path("/tmp/fuzz"))
    parser.add_argument("formats", nargs="*", metavar="FORMAT")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    return options


def kind_of(expected_text: str, directory: Path) -> str:
    """A finding or sentence without the parts that change from file to file."""
    return re.sub(r"'[^']*'|\"[^\"]*\"|[0-9]+", "_", expected_text.replace(str(directory), ""))[:160]


def seeded(format, directory: Path, options, until: float) -> tuple[Counter, dict[str, bytes]]:
    """(counted outcomes, {finding: a file that shows it}). A file of every new outcome is kept and mutated
    further."""
    from fuzz_child import examine
    from fuzz_mutations import mutate

    path = format.write(directory)
    rng = random.Random(f"{format.name} {options.seed}")
    counts = Counter()
    found = {}
    format.read(path)
    pool, seen = [path.read_bytes()], set()
    while True:
        files = [mutate(rng, rng.choice(pool)) for _ in range(_BATCH)]
        outcome = examine(format.read, path, files, str(directory) if format.names else "")
        counts += outcome.counts
        found |= {kind_of(message, directory): files[number] for number, message in outcome.findings}
        for message, content in zip(outcome.sentences, files):
            if (kind := kind_of(message, directory)) not in seen and len(pool) < _MAX_KEPT:
                seen.add(kind)
                pool.append(content)
        if time.time() > until:
            return counts, found


def with_hypothesis(format, directory: Path, options, until: float) -> tuple[Counter, dict[str, bytes]]:
    """The same with hypothesis, for `options.max_examples` files or up to its first finding, which hypothesis
    minimises."""
    from fuzz_child import examine
    from hypothesis import HealthCheck, Phase, given, seed, settings
    from hypothesis import strategies as st

    path, counts, found = format.write(directory), Counter(), {}
    format.read(path)
    valid = path.read_bytes()
    edits = st.tuples(st.integers(0, len(valid)), st.integers(0, 8), st.binary(max_size=12))

    @seed(options.seed)
    @settings(
        max_examples=options.max_examples,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(edits)
    def check(edit):
        if time.time() > until:
            raise TimeoutError
        at, num_removed, added = edit
        content = valid[:at] + added + valid[at + num_removed :]
        outcome = examine(format.read, path, [content], str(directory) if format.names else "")
        counts.update(outcome.counts)
        if outcome.findings:
            found.clear()
            found[kind_of(outcome.findings[0][1], directory)] = content
            raise AssertionError

    try:
        check()
    except Exception:
        pass  # harmless: the time is over, or the finding is in `found`
    return counts, found


def with_atheris(options) -> int:
    """Fuzz modules without compiled loops with libFuzzer. It ends the process with status 77 at the first
    finding."""
    try:
        import atheris
    except ModuleNotFoundError:
        sys.exit(
            "atheris is not installed; give --engine seeded or hypothesis, or install it: python -m pip "
            "install atheris==3.0.0"
        )
    if len(options.formats) != 1:
        sys.exit("atheris fuzzes one format at a time; name one FORMAT")

    root = HERE.parents[1]
    plain = [
        path
        for path in (root / "pyasr").rglob("*.py")
        if not re.search(r"njit|torch", path.read_text(encoding="utf-8"))
    ]
    with atheris.instrument_imports(
        include=[".".join(path.relative_to(root).with_suffix("").parts) for path in plain]
    ):
        from fuzz_formats import FORMATS
    from fuzz_child import CPU_S, MEMORY_BYTES, judge

    format = FORMATS[options.formats[0]]
    directory = Path(tempfile.mkdtemp())
    path = format.write(directory)
    format.read(path)
    corpus = directory / "corpus"
    corpus.mkdir()
    (corpus / "valid").write_bytes(path.read_bytes())

    def one(content: bytes) -> None:
        path.write_bytes(content)
        answer = judge(format.read, path, str(directory) if format.names else "")
        if answer not in ("read", "refused"):
            raise RuntimeError(answer)

    size_mb = int(Path("/proc/self/statm").read_text().split()[1]) * 4096 >> 20
    limits = [
        f"-max_total_time={int(60 * options.minutes)}",
        f"-timeout={CPU_S * 10}",
        f"-rss_limit_mb={size_mb + (MEMORY_BYTES >> 20) + 256}",
    ]
    atheris.Setup(
        [sys.argv[0], str(corpus), f"-artifact_prefix={options.out}/", f"-seed={options.seed + 1}", *limits],
        one,
    )
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())
