"""Copy standard input to standard output with unprintable characters escaped; recipes show the end of a log
with it.

tail -n 15 log/x.log | python -m pyasr.base.show
"""

import io
import sys

from pyasr.base.errors import printable_lines


def main() -> None:
    assert isinstance(sys.stdin, io.TextIOWrapper) and isinstance(sys.stdout, io.TextIOWrapper)
    sys.stdin.reconfigure(encoding="utf-8", errors="backslashreplace", newline="\n")
    sys.stdout.reconfigure(encoding="utf-8")
    for line in sys.stdin:
        sys.stdout.write(printable_lines(line))


if __name__ == "__main__":
    main()
