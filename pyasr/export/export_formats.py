"""Formats of exported networks."""

import importlib.util
import sys

from pyasr.base.errors import UserError

FORMS = ("nnet3", "nnet1")  # Kaldi's network formats
UNITS = ("utterance", "chunk")  # inputs of an ONNX graph
ONNX = "onnx==1.23.2"


def require_onnx() -> None:
    """Raise UserError if the package onnx, which only ONNX files need, is not installed."""
    if importlib.util.find_spec("onnx") is None:
        raise UserError(
            f"{sys.executable} has no onnx, which writes ONNX files; install it with '{sys.executable} -m "
            f"pip install {ONNX}'"
        )
