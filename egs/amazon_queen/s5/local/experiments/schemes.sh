#!/usr/bin/env bash
# Every scheme of parallel training on 4, 8 and 16 virtual learners, with the same small network, data, rate and period: what docs/parallel/parallel.md says
# of schemes that none of the other scripts has. Begins with what run.sh made.
#
#   local/experiments/schemes.sh
#   local/experiments/schemes.sh --learners "4 16"
#
# Adds the result of each training to parallel/schemes.jsonl, and leaves out those that are there. A file named stop ends it before the next one.

CDPATH='' cd "$(dirname "$0")" || exit 1
[ -f ../../utils/recipe.sh ] || { echo "$0: error: no utils/recipe.sh above it (docs/recipes.md); for Slurm: sbatch --wrap SCRIPT" >&2; exit 1; }
. ../../utils/recipe.sh

seeds="1 2 3"         # of each training
only=""               # train these cells alone, names TABLE/ROW/COLUMN, in which * stands for anything
kept=parallel         # directory of the results (path)
list=""               # add the names of the trainings to this file, and train nothing (path)
num_utts=1260         # utterances to train on
learners="16 4 8"     # numbers of learners
parse_recipe_options "$@"
cd ../..
. local/experiments/cells.sh

# In the order of docs/parallel/parallel.md; SCHEME:TOPOLOGY where a scheme leaves that to be chosen.
by_frames="allreduce butterfly ring hopping-ring exponential static-exponential base2 fixed-ring random-ring pairs random-pairs post-local
  delayed bmuf bmuf-classical slowmo diloco easgd kaldi"
by_minibatch="gradient d1d dpsgd:fixed-ring dpsgd:random-ring adpsgd adpsgd:fixed-ring adpsgd:random-ring hadpsgd asgd"

# scheme TABLE SCHEME LEARNERS OPTIONS...: SGD with minibatches of 128, at the rate that 16 learners bear.
scheme() {
  local name=$1/${2/:/-}/$3 num=$3
  set_scheme "$2"
  shift 3
  cell "$name" --config conf/parallel_dnn.conf --num-learners "$num" $scheme_opts --learning-rate 0.05 --final-factor 0.05 "$@"
}

if stage 1 "Data"; then
  make_data
fi

if stage 2 "Schemes by learners"; then
  scheme every allreduce 1 --period-frames 1280
  for num in $learners; do
    for name in $by_frames; do scheme every "$name" "$num" --period-frames 1280; done
    for name in $by_minibatch; do scheme every "$name" "$num"; done
  done
fi

if stage 3 "Rare mixing, every 100 minibatches"; then
  for name in allreduce bmuf slowmo diloco easgd kaldi; do scheme rare "$name" 16 --period-frames 12800; done
fi
