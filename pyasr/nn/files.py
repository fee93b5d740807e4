"""What the files of trained networks are called in their directories."""

MODEL_FILE = "final.nnet"
DBN_FILE = "final.dbn"
LM_FILE = "lm.nnet"
