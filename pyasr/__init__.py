"""Speech recognition in Python, in Kaldi's terms. What is imported from here is loaded when it is asked for."""

import os

__path__ = [os.path.realpath(place) for place in __path__]  # not steps/pyasr: compiled kernels are kept by their sources' paths

from pyasr.base.complaints import tell_uncaught  # noqa: E402

tell_uncaught()

from pyasr.base.compiled import kernel_cache  # noqa: E402

kernel_cache.find_a_place()


def __getattr__(name: str):
    if name == "Recognizer":
        from pyasr.recognition.recognizer import Recognizer

        return Recognizer
    raise AttributeError(f"module 'pyasr' has no attribute '{name}'")
