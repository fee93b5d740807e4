# How jobs are run, given to steps as --cmd: the runner of the cluster that is there, else run.pl (docs/jobs.md). Edit it to choose by hand.
train_cmd=$(detect_runner)
decode_cmd=$train_cmd
echo "jobs are run by $train_cmd (cmd.sh)"
export train_cmd decode_cmd
