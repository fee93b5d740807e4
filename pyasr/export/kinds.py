"""What networks can be exported as."""

FORMS = ("nnet3", "nnet1")  # of Kaldi's networks
UNITS = ("utterance", "chunk")  # what an ONNX graph takes at once
