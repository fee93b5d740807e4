"""Speech recognition in Python, in Kaldi's terms. Names imported from here are loaded on first use."""

import os

# not steps/pyasr: compiled kernels are kept by their sources' paths
__path__ = [os.path.realpath(place) for place in __path__]

from pyasr.base.complaints import report_uncaught  # noqa: E402
from pyasr.base.version import VERSION as __version__  # noqa: E402, F401

report_uncaught()

from pyasr.base.compiled import kernel_cache  # noqa: E402

kernel_cache.find_a_place()


def __getattr__(name: str):
    if name == "Recognizer":
        from pyasr.recognition.recognizer import Recognizer

        return Recognizer
    raise AttributeError(f"module 'pyasr' has no attribute '{name}'")
