# How jobs are run, given to steps as --cmd: the runner of the cluster that is there, else run.pl (docs/running/jobs.md). Edit it to choose by hand.
train_cmd=$(detect_runner)
decode_cmd=$train_cmd
cuda_cmd=$(detect_cuda_runner "$train_cmd") # for networks
echo "jobs are run by $train_cmd, those that train networks by $cuda_cmd (cmd.sh)"
export train_cmd decode_cmd cuda_cmd
