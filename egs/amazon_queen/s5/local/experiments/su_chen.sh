#!/usr/bin/env bash
# Su, Chen and Xu (arXiv:1507.01239) and Su and Chen's poster on virtual learners: initial parameters and gradient by learners, minibatches
# between averages, sizes of minibatches, schedules, topologies with the model of one learner. A small network of sigmoid units; minibatches
# are an eighth of the published ones. Begins with what run.sh made.
#
#   local/experiments/su_chen.sh
#   local/experiments/su_chen.sh --seeds 1 --stop-stage 3
#
# Adds the result of each training to parallel/su_chen.jsonl, and leaves out those that are there. A file named stop ends it before the next one.

CDPATH='' cd "$(dirname "$0")" || exit 1
[ -f ../../utils/recipe.sh ] || { echo "$0: error: no utils/recipe.sh above it (docs/recipes.md); for Slurm: sbatch --wrap SCRIPT" >&2; exit 1; }
. ../../utils/recipe.sh

seeds="1 2 3"    # of each training
only=""          # train these cells alone, names TABLE/ROW/COLUMN, in which * stands for anything
kept=parallel    # directory of the results (path)
list=""          # add the names of the trainings to this file, and train nothing (path)
decode=true      # decode the test set where error rates were published
num_utts=1260    # utterances to train on
sgd_rate=0.004   # of one learner, for minibatches of 128; half of the best one of 16 learners (stage 2), so that 32 can train with it
ng_rate=0.008    # with natural gradient, likewise
parse_recipe_options "$@"
cd ../..
. local/experiments/cells.sh

dbn=exp/experiments/dbn_256
from_dbn="--dbn $dbn"
by_ng="--natural-gradient online --learning-rate $ng_rate"
by_sgd="--learning-rate $sgd_rate"

# su_chen NAME LEARNERS OPTIONS...: averages every 10 minibatches of 128 unless the options say otherwise.
su_chen() {
  local name=$1 learners=$2
  shift 2
  cell "$name" --config conf/parallel_sigmoid.conf --num-learners "$learners" "$@"
}

# by_start_and_gradient LEARNERS: from a DBN and from random parameters, by natural gradient and by SGD.
by_start_and_gradient() {
  decoded su_chen "learners/dbn-ng/$1" "$1" $from_dbn $by_ng
  decoded su_chen "learners/dbn-sgd/$1" "$1" $from_dbn $by_sgd
  decoded su_chen "learners/random-ng/$1" "$1" $by_ng
  decoded su_chen "learners/random-sgd/$1" "$1" $by_sgd
}

# poster TOPOLOGY LEARNERS PERIOD: mixes every PERIOD minibatches; the model of one learner is also kept and decoded.
poster() {
  su_chen "poster-$3/$1/$2" "$2" --parallel "$1" --period-frames $(($3 * 128)) --save-learner true $from_dbn $by_ng
}

if stage 1 "Data and DBN"; then
  make_data
  prepare steps/pretrain_dbn.py --cmd "$cuda_cmd" --num-ranks 1 --config conf/dbn_quick.conf --hidden-layers 4 --hidden-dim 256 \
    "exp/experiments/data_$num_utts$features" "$dbn"
fi

if stage 2 "Rates of 16 learners"; then
  for rate in 0.001 0.004 0.008 0.016 0.032; do
    once su_chen rates/dbn-ng/$rate 16 $from_dbn --natural-gradient online --learning-rate $rate --num-epochs 2
    once su_chen rates/dbn-sgd/$rate 16 $from_dbn --learning-rate $rate --num-epochs 2
  done
fi

if stage 3 "Initial parameters and gradient by learners"; then
  for learners in 1 16 32; do by_start_and_gradient $learners; done
  for learners in 8 4; do once by_start_and_gradient $learners; done
fi

if stage 4 "Minibatches between averages, size of minibatches, schedule"; then
  decoded su_chen contrasts/newbob/16 16 $from_dbn $by_ng --schedule newbob-accuracy --num-epochs 12
  for minibatch in 32 512; do
    decoded su_chen contrasts/minibatch-$((8 * minibatch))/16 16 $from_dbn $by_ng --minibatch $minibatch \
      --period-frames $((10 * minibatch)) --compute-s "$(ratio $minibatch 800)"
  done
  for period in 20 100; do
    decoded su_chen contrasts/period-$period/16 16 $from_dbn $by_ng --period-frames $((period * 128))
  done
fi

if stage 5 "The poster: topologies and the model of one learner"; then
  for learners in 16 8 4; do
    for topology in ring butterfly allreduce; do decoded poster $topology $learners 10; done
  done
  for period in 100 1; do
    for topology in ring butterfly allreduce; do once decoded poster $topology 16 $period; done
  done
fi
