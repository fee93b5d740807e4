#!/usr/bin/env bash
# Chan's parameter server (GTC 2015, arXiv:1504.01482) on virtual learners: time to frame accuracies with 1 to 5 shards, a CNN and an LSTM
# whose cells are bounded; what keeps 8 and 16 shards alive. Small networks. Begins with what run.sh made.
#
#   local/experiments/chan.sh
#   local/experiments/chan.sh --seeds 1 --stop-stage 2
#
# Adds the result of each training to parallel/chan.jsonl, and leaves out those that are there. A file named stop ends it before the next one.

CDPATH='' cd "$(dirname "$0")" || exit 1
[ -f ../../utils/recipe.sh ] || { echo "$0: error: no utils/recipe.sh above it (docs/recipes.md); for Slurm: sbatch --wrap SCRIPT" >&2; exit 1; }
. ../../utils/recipe.sh

seeds="1 2 3"    # of each training
only=""          # train these cells alone, names TABLE/ROW/COLUMN, in which * stands for anything
kept=parallel    # directory of the results (path)
list=""          # add the names of the trainings to this file, and train nothing (path)
decode=true      # decode the test set where error rates were published
num_utts=1260    # utterances to train on
parse_recipe_options "$@"
cd ../..
. local/experiments/cells.sh

# chan TABLE/ROW NETWORK SHARDS OPTIONS...: shards and a server; one shard learns alone.
chan() {
  local name=$1/$3 config=conf/parallel_$2.conf shards=$3 scheme="--num-learners $(($3 + 1)) --parallel asgd" features=_fmllr
  shift 3
  case $config in *lstm*) ;; *) features=_fbank ;; esac
  if [ "$shards" = 1 ]; then scheme="--num-learners 1 --parallel allreduce"; fi
  cell "$name" --config "$config" $scheme "$@"
}

# by_network SHARDS
by_network() {
  decoded chan shards/lstm lstm_clip "$1"
  chan shards/cnn cnn "$1"
  chan shards/dnn fbank_dnn "$1"
}

if stage 1 "Data"; then
  for features in _fmllr _fbank; do make_data; done
fi

if stage 2 "Rates of one shard"; then
  for rate in 0.5 2 8; do once chan "rates/lstm-$rate" lstm_clip 1 --learning-rate $rate --num-epochs 2; done
  for rate in 0.025 0.1 0.4; do
    for network in cnn fbank_dnn; do once chan "rates/$network-$rate" $network 1 --learning-rate $rate --num-epochs 2; done
  done
fi

if stage 3 "Time to frame accuracies"; then
  for shards in 1 5 3; do by_network $shards; done
  for shards in 2 4; do once by_network $shards; done
fi

if stage 4 "What keeps many shards alive"; then
  for shards in 16 8; do
    once chan many/alone lstm_clip $shards
    for momentum in 0.5 0.9; do once chan many/momentum-$momentum lstm_clip $shards --server-momentum $momentum; done
    for decay in 0.9 0.7 0.5; do once chan many/decay-$decay lstm_clip $shards --gradient-decay $decay; done
    for distance in 1 4; do once chan many/distance-$distance lstm_clip $shards --max-distance $distance; done
  done
fi
