"""What every program needs: options, errors, logging, stage outputs. Its import fails with one sentence outside pyasr's environment."""

import importlib.util
import sys

_NEEDED = ("kaldiio", "numba", "numpy", "torch")

if missing := [name for name in _NEEDED if importlib.util.find_spec(name) is None]:
    found = f"{sys.executable} has no {', '.join(missing)}"
    sys.exit(f"error: {found}: begin with `. ./path.sh`, which builds pyasr's environment and enters it")
