"""Names of the files of trained networks."""

MODEL_FILE = "final.nnet"
DBN_FILE = "final.dbn"
LM_FILE = "lm.nnet"
