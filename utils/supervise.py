#!/usr/bin/env python3
"""Run a recipe and end all of its processes when it ends or is killed; utils/recipe.sh starts every run.sh
with this program.

Reads and writes nothing. The exit status is that of the command, or 128 + the number of the signal that ended
it.

    utils/supervise.py bash egs/amazon_queen/s5/run.sh
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pyasr.base.standard_streams import open_standard_streams  # noqa: E402
from pyasr.base.system_errors import as_user_error  # noqa: E402
from pyasr.base.version import VERSION  # noqa: E402
from pyasr.cluster.runner.processes import supervise  # noqa: E402

open_standard_streams()
if sys.argv[1:] == ["--version"]:
    print(f"pyasr {VERSION}")
    sys.exit(0)
if len(sys.argv) == 1 or sys.argv[1] in ("--help", "-h"):
    print(__doc__.strip())
    sys.exit(0)
try:
    sys.exit(supervise(sys.argv[1:]))
except OSError as error:
    sys.exit(f"supervise.py: error: {as_user_error(error)}")
