"""Tests do not assert durations, because machines differ and run other work. Speed is measured in
benchmarks/."""

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
CLOCKS = {
    "time",
    "monotonic",
    "perf_counter",
    "process_time",
    "thread_time",
    "time_ns",
    "monotonic_ns",
    "perf_counter_ns",
    "process_time_ns",
    "getrusage",
    "times",
    "cpu_times",
    "default_timer",
}
OWNERS = {"time", "resource", "os", "psutil", "timeit"}
USED_TIMES = {"ru_utime", "ru_stime"}  # fields of getrusage
ANY_CLOCK = re.compile(rf"\b(?:{'|'.join(sorted(CLOCKS | USED_TIMES))})\b")


def is_clock(node: ast.AST) -> bool:
    """Whether a node reads a clock: `time.monotonic()`, `monotonic()`, `resource.getrusage(...).ru_utime`."""
    if isinstance(node, ast.Attribute):
        return node.attr in USED_TIMES
    if not isinstance(node, ast.Call):
        return False
    function = node.func
    if isinstance(function, ast.Attribute):
        owner = function.value
        return function.attr in CLOCKS - {"getrusage"} and isinstance(owner, ast.Name) and owner.id in OWNERS
    return isinstance(function, ast.Name) and function.id in CLOCKS - {"time", "times", "getrusage"}


def names_in(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def timed_names(function: ast.AST) -> set[str]:
    """Names in a function whose values were read from a clock, or computed from such values."""
    timed: set[str] = set()
    for _ in range(3):  # assignments may be in any order
        for node in ast.walk(function):
            if (
                isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.NamedExpr)
                and node.value
                and is_timed(node.value, timed)
            ):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                timed |= {
                    name.id
                    for target in targets
                    for name in ast.walk(target)
                    if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)
                }
            elif (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in ("append", "extend", "add")
            ):
                if isinstance(node.func.value, ast.Name) and any(
                    is_timed(argument, timed) for argument in node.args
                ):
                    timed.add(node.func.value.id)
    return timed


def is_timed(node: ast.AST, timed: set[str]) -> bool:
    """Whether an expression is computed from a clock; results of other functions are not followed."""
    if isinstance(node, ast.Lambda | ast.Compare):
        return False
    if is_clock(node) or isinstance(node, ast.Name) and node.id in timed:
        return True
    if isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        inner = [*node.args, node.func.value] if isinstance(node.func, ast.Attribute) else node.args
        return name in (
            "min",
            "max",
            "sum",
            "abs",
            "float",
            "round",
            "diff",
            "mean",
            "median",
            "sorted",
        ) and any(is_timed(part, timed) for part in inner)
    return any(is_timed(part, timed) for part in ast.iter_child_nodes(node))


def asserted_times(source: str) -> list[int]:
    """Lines with an assertion that compares times, except deadlines in loops that wait for something."""
    if not ANY_CLOCK.search(source):
        return []
    tree, found = ast.parse(source), set()
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    inner = {part for function in functions for part in ast.walk(function)}
    module = ast.Module(
        [node for node in tree.body if node not in inner and not isinstance(node, ast.ClassDef)], []
    )
    for scope in (module, *functions):
        timed = timed_names(scope)
        waits = {part for loop in ast.walk(scope) if isinstance(loop, ast.While) for part in ast.walk(loop)}
        for node in ast.walk(scope):
            if isinstance(node, ast.Assert) and node not in waits:
                compared = [part for part in ast.walk(node.test) if isinstance(part, ast.Compare)]
                sides = [side for part in compared for side in (part.left, *part.comparators)]
                if any(is_timed(side, timed) for side in sides):
                    found.add(node.lineno)
    return sorted(found)


@pytest.mark.parametrize(
    "source, lines",
    [
        ("begin = time.monotonic()\nwork()\nassert time.monotonic() - begin < 5", [3]),
        (
            (
                "def test():\n    begin = time.process_time()\n    work()\n    took = time.process_time() - "
                "begin\n    assert 1 < took"
            ),
            [5],
        ),
        (
            (
                "def test():\n    turns = []\n    turns.append(time.perf_counter())\n    assert "
                "max(np.diff(turns)) < 0.5"
            ),
            [4],
        ),
        ("begin = perf_counter()\nassert x and (perf_counter() - begin) / 2 < 20 * least, begin", [2]),
        ("a = resource.getrusage(0).ru_utime\nassert resource.getrusage(0).ru_utime - a < 3", [2]),
        ("end = time.monotonic() + 60\nwhile not done():\n    assert time.monotonic() < end", []),
        ("assert comm.time() == 3.0", []),
        ("until = time.time() + 600\nassert run(until) == 3", []),
        ("assert resource.getrusage(0).ru_maxrss < 9", []),
        ("assert 'time' in words and time_s == 4", []),
    ],
)
def test_asserted_times_are_found(source, lines):
    assert asserted_times(source) == lines


@pytest.mark.parametrize("folder", sorted(path.name for path in TESTS.iterdir() if path.is_dir()) + ["."])
def test_tests_assert_no_time(folder):
    paths = sorted((TESTS / folder).glob("*.py" if folder == "." else "**/*.py"))
    found = [
        f"{path.relative_to(TESTS)}:{line}"
        for path in paths
        for line in asserted_times(path.read_text(encoding="utf-8"))
    ]
    assert not found, "count operations, reads, or growth instead"
