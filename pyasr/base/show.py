"""Standard input to standard output, so that it gives a terminal no orders: what a recipe shows of a log.

    tail -n 15 log/x.log | python -m pyasr.base.show
"""

import sys

from pyasr.base.errors import printable_lines


def main() -> None:
    sys.stdin.reconfigure(encoding="utf-8", errors="backslashreplace", newline="\n")
    sys.stdout.reconfigure(encoding="utf-8")
    for line in sys.stdin:
        sys.stdout.write(printable_lines(line))


if __name__ == "__main__":
    main()
