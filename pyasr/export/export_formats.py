"""Formats of exported networks."""

FORMS = ("nnet3", "nnet1")  # Kaldi's network formats
UNITS = ("utterance", "chunk")  # inputs of an ONNX graph
