# What the scripts of published experiments share: trainings, cells of tables, whose results are kept. Sourced from the recipe's directory,
# after the options.
#
#   kept      directory of the files of results; a cell whose result is there is left out
#   seeds     a cell is trained with each of them
#   only      cells to train, with * for any part of a name; empty: all
#   decode    whether `decoded` cells decode the test set
#   num_utts  utterances from which cells learn
#   list      file to which the names of the trainings are added, in place of any training; empty: train
#
# shellcheck disable=SC2034,SC2086,SC2154 # variables of the script that sources it; options are lists of words

. ./path.sh
. ./cmd.sh

experiment=${recipe_name%.sh}
cells=exp/experiments/$experiment
results=$kept/$experiment.jsonl
is_decoded=false
features=_fmllr
# Lattices narrower than the recipe's, to save time, and one LM weight, near that of the networks of run.sh, so that a cell needs no other.
decode_opts="--beam 10 --lattice-beam 6 --max-active 2000"
score_opts="--min-lmwt 15 --max-lmwt 15 --word-ins-penalties 0.5"

# prepare COMMAND: make what cells begin with, unless they are only listed.
prepare() {
  if [ -z "$list" ]; then "$@"; fi
}

# make_data: what cells learn from, utterances of the training data with $features.
make_data() {
  prepare utils/subset_data_dir.py --random "$num_utts" "data/train$features" "exp/experiments/data_$num_utts$features"
}

# set_scheme SCHEME[:TOPOLOGY]: its options as $scheme_opts.
set_scheme() {
  scheme_opts="--parallel ${1%%:*}"
  if [ "${1#*:}" != "$1" ]; then scheme_opts="$scheme_opts --topology ${1#*:}"; fi
}

# ratio A B: A / B of two whole numbers, to six places.
ratio() {
  printf '%d.%06d\n' $(($1 / $2)) $(($1 % $2 * 1000000 / $2))
}

# decoded COMMAND: a cell whose models decode the test set, too.
decoded() {
  local is_decoded=$decode
  "$@"
}

# once COMMAND: a cell that is trained with seed 1 alone.
once() {
  local seeds=1
  "$@"
}

# cell TABLE/ROW/COLUMN OPTIONS...: a training on virtual learners with each seed.
cell() {
  local name=$1
  shift
  train_seeds "$name" simulate_parallel "$@" "exp/experiments/data_$num_utts$features" data/lang_prons exp/tri3_ali
}

# train_seeds TABLE/ROW/COLUMN STEP WORDS...: a training with each seed, if --only does not exclude the cell.
train_seeds() {
  local name=$1 step=$2 seed
  shift 2
  if ! is_requested "$name"; then return 0; fi
  for seed in $seeds; do
    train "$step" "$cells/$name/seed$seed" --train-seed "$seed" "$@"
  done
}

# is_requested TABLE/ROW/COLUMN: does --only name the cell, or no cell at all?
is_requested() {
  local - pattern
  set -f
  for pattern in ${only:-*}; do
    # shellcheck disable=SC2254 # a pattern
    case $1 in $pattern) return 0 ;; esac
  done
  return 1
}

# train STEP OUT WORDS...: one training, whose result is then kept. A file named stop ends the script before the next one.
train() {
  local step=$1 out=$2 runner=$cuda_cmd
  shift 2
  if [ "$step" = simulate_parallel ]; then runner=$train_cmd; fi
  if [ -n "$list" ]; then
    echo "$experiment/${out#"$cells"/}" >> "$list"
    return 0
  fi
  local command="steps/$step.py $* $out"
  if is_kept "$command"; then return 0; fi
  if [ -e stop ]; then
    echo "$recipe_name: there is a file named stop"
    exit 0
  fi
  steps/$step.py --cmd "$runner" "$@" "$out"
  if $is_decoded; then decode_test "$out"; fi
  local/keep_training.py --command "$command" "$out" "$results"
}

# is_kept COMMAND: is there a result of this command, with the word error rates that are wanted of the models that there are?
is_kept() {
  local found
  found=$(grep -F "\"command\": \"$1\"" "$results" 2>/dev/null) || return 1
  if ! $is_decoded || [[ $found == *'"loss": null'* ]]; then return 0; fi
  [[ $found != *'"wer": null'* ]] && [[ $1 != *"--save-learner true"* || $found != *'"learner_wer": null'* ]]
}

# decode_test OUT: word errors of the model of all learners, and of that of one learner where it is saved; there is none where numbers
# were not finite.
decode_test() {
  local model
  for model in "$1" "$1/learner"; do
    if [ ! -e "$model/final.nnet" ]; then continue; fi
    steps/decode.py --cmd "$decode_cmd" $decode_opts --model-dir "$model" exp/tri3/graph "data/test$features" "$model/decode_test"
    steps/score.py --cmd "$decode_cmd" $score_opts "data/test$features" data/lang_prons_test "$model/decode_test"
  done
}
