#!/usr/bin/env bash
# Povey, Zhang and Khudanpur (arXiv:1410.7455) on virtual learners: rare averages of what learners have come to by SGD and by natural
# gradient. A small p-norm network; learners average every 10 or 100 minibatches, or once in an epoch, which stands for a whole archive.
# Begins with what run.sh made.
#
#   local/experiments/povey.sh
#   local/experiments/povey.sh --seeds 1
#
# Adds the result of each training to parallel/povey.jsonl, and leaves out those that are there. A file named stop ends it before the next one.

CDPATH='' cd "$(dirname "$0")" || exit 1
[ -f ../../utils/recipe.sh ] || { echo "$0: error: no utils/recipe.sh above it (docs/recipes.md); for Slurm: sbatch --wrap SCRIPT" >&2; exit 1; }
. ../../utils/recipe.sh

seeds="1 2 3"    # of each training
only=""          # train these cells alone, names TABLE/ROW/COLUMN, in which * stands for anything
kept=parallel    # directory of the results (path)
list=""          # add the names of the trainings to this file, and train nothing (path)
decode=true      # decode the test set where error rates were published
num_utts=2520    # utterances to train on
sgd_rate=0.02    # of one learner; stage 2 has others
ng_rate=0.02     # with natural gradient
parse_recipe_options "$@"
cd ../..
. local/experiments/cells.sh

# povey SCHEME GRADIENT PERIOD LEARNERS: averages after PERIOD frames of a learner; the first average takes the best of the new networks.
povey() {
  local scheme=$1 gradient=$2 period=$3 learners=$4 natural=none rate=$sgd_rate first=""
  if [ "$gradient" = ng ]; then natural=online rate=$ng_rate; fi
  if [ "$scheme" = allreduce ]; then first="--first-mixing best"; fi
  cell "averages/$scheme-$gradient-$period/$learners" --config conf/parallel_pnorm.conf --num-learners "$learners" --parallel "$scheme" $first \
    --natural-gradient $natural --learning-rate "$rate" --period-frames "$((period * 128))"
}

if stage 1 "Data"; then
  make_data
fi

if stage 2 "Rates of one learner"; then
  for rate in 0.005 0.02 0.08; do
    for gradient in none online; do
      once cell "rates/$gradient/$rate" --config conf/parallel_pnorm.conf --num-learners 1 --natural-gradient $gradient \
        --learning-rate $rate --num-epochs 2
    done
  done
fi

# 1000 minibatches are more than a learner has in an epoch, at whose end all average. Test sets are decoded for the two that claims compare.
if stage 3 "Averages by gradient, period and learners"; then
  for gradient in ng sgd; do decoded povey allreduce $gradient 10 1; done
  for gradient in ng sgd; do
    for learners in 8 16; do
      decoded povey allreduce $gradient 1000 $learners
      for period in 10 100; do povey allreduce $gradient $period $learners; done
      povey kaldi $gradient 1000 $learners
    done
    for learners in 4 2; do
      for period in 1000 10; do once povey allreduce $gradient $period $learners; done
      once povey kaldi $gradient 1000 $learners
    done
  done
fi
