"""Entry point of all programs in steps/ and utils/: options, logging, signals, and error messages of one
sentence.

Importing it from a Python outside pyasr's environment ends the program.
"""

from __future__ import annotations

import importlib.util
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from pyasr.base import log
from pyasr.base.cli import options as opt
from pyasr.base.complaints import drop_output, print_error
from pyasr.base.errors import UpToDate, UserError
from pyasr.base.files import pipes
from pyasr.base.outputs.output import check_apart, stage_output
from pyasr.base.standard_streams import open_standard_streams
from pyasr.base.system_errors import as_user_error
from pyasr.base.utf8 import require_utf8

_NEEDED = ("kaldiio", "numba", "numpy", "torch")

if missing := [name for name in _NEEDED if importlib.util.find_spec(name) is None]:
    found = f"{sys.executable} has no {', '.join(missing)}"
    sys.exit(f"error: {found}; run `. ./path.sh` first, which builds and activates pyasr's environment")

_MARK_BYTES = 4096
_state = {"force": False}
_FORCE = "compute the output again from scratch, even if its options differ"
_SWITCHES = {
    "no-pipes": f"refuse to run commands in tables such as wav.scp (for whole recipes: {pipes.NO_PIPES}=1)"
}


class Terminated(KeyboardInterrupt):
    """SIGTERM or SIGHUP (`number`), handled like an interruption from the keyboard, so that jobs are stopped
    and files closed."""

    number = signal.SIGTERM


def _terminate(number, frame):
    stop = Terminated()
    stop.number = number
    raise stop


def _heed_signals() -> None:
    """Raise Terminated on SIGTERM, and on SIGHUP unless that is ignored (nohup)."""
    signal.signal(signal.SIGTERM, _terminate)
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        signal.signal(signal.SIGHUP, _terminate)


def run_step(cls, main, doc: str, argv: list[str] | None = None, *, force: str = _FORCE) -> None:
    """Parse the command line into `cls`, call `main(options)` and exit. `force` is the help text of --force.

    Exit status 0: done or up to date; 1: a UserError or an error of the system, printed as `NAME: error:
    SENTENCE`; 130, 143 or 129: interrupted, terminated or hung up; 141: ended silently because the reader of
    standard output, such as `head`, has closed it.
    """
    name = Path(sys.argv[0]).name
    try:
        if argv is None:
            open_standard_streams()
            require_utf8()
        log.setup(name)
        _heed_signals()
        _run(cls, main, doc, sys.argv[1:] if argv is None else argv, {"force": force, **_SWITCHES})
        sys.stdout.flush()
    except BrokenPipeError:
        drop_output()
        sys.exit(128 + signal.SIGPIPE)
    except KeyboardInterrupt as stop:
        print(f"{name}: interrupted; {str(stop) or 'run the same command again to resume'}", file=sys.stderr)
        sys.exit(128 + getattr(stop, "number", signal.SIGINT))
    except Exception as error:
        if not (user_error := as_user_error(error)):
            raise
        sys.exit(print_error(name, user_error))
    sys.exit(0)


def _run(cls, main, doc: str, argv: list[str], switches: dict[str, str]) -> None:
    try:
        options, switched = opt.parse(cls, argv, doc, switches)
        _state["force"] = "force" in switched
        if "no-pipes" in switched:
            pipes.refuse()
        main(options)
    except opt.HelpRequested as request:
        print(request)
    except UpToDate as note:
        log.info(str(note))


def output_of(options, out: Path, inputs: list[Path], **keywords):
    """`stage_output` for a step, with its options as JSON (without those of the jobs) and --force from the
    command line. Raises UserError, even with --force, if another path among the options is OUT or inside
    it."""
    check_apart(out, _other_paths(out, opt.paths_in(options)))

    def complete(saved: dict) -> dict:
        return _of_output(opt.completed(type(options), saved))

    return stage_output(
        out, _of_output(opt.to_json(options)), inputs, force=_state["force"], complete=complete, **keywords
    )


def _other_paths(out: Path, paths: list[Path]) -> list[Path]:
    """The paths without the one that names OUT."""
    place = Path(out).resolve()
    own = next((i for i, path in enumerate(paths) if path.resolve() == place), None)
    return [path for i, path in enumerate(paths) if i != own]


def check_replaceable(path: Path, mark: str, what: str) -> None:
    """Raise UserError if `path` is a file that does not begin with `mark`, the regular expression (ASCII) by
    which a program recognises `what` it writes, unless --force was given."""
    if path.is_file() and not is_forced() and not re.match(mark, _begin_of(path)):
        raise UserError(f"{path} exists and is not a {what}; give another name, or --force to replace it")


def _begin_of(path: Path) -> str:
    with path.open("rb") as f:
        return f.read(_MARK_BYTES).decode("latin-1")


def is_forced() -> bool:
    """Whether --force was given."""
    return _state["force"]


def _of_output(values: dict) -> dict:
    """The options that determine the output."""
    return {name: value for name, value in values.items() if name not in ("type", "jobs")}


def make_part(options, out: Path, inputs: list[Path], make: Callable[[Path], None]) -> None:
    """Compute one of several outputs of a program by `make(scratch directory)`. If OUT is up to date, only
    log that."""
    try:
        with output_of(options, out, inputs) as scratch:
            make(scratch)
    except UpToDate as note:
        log.info(str(note))
