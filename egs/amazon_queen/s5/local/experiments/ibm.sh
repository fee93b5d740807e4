#!/usr/bin/env bash
# IBM's comparisons (arXiv:1904.04956, 1907.05701, 2110.11199, 2112.01433) on virtual learners: batches, rates and numbers of learners by
# scheme, one slow learner. A small BLSTM learns from half of the corpus with the published rates and momentum, in 5 epochs instead of 16. A
# batch is a 64th of the published one, so that an epoch has about half of the updates that it has in the papers' 300 hours.
# Begins with what run.sh made.
#
#   local/experiments/ibm.sh
#   local/experiments/ibm.sh --seeds 1 --stop-stage 2
#
# Adds the result of each training to parallel/ibm.jsonl, and leaves out those that are there. A file named stop ends it before the next one.

CDPATH='' cd "$(dirname "$0")" || exit 1
[ -f ../../utils/recipe.sh ] || { echo "$0: error: no utils/recipe.sh above it (docs/recipes.md); for Slurm: sbatch --wrap SCRIPT" >&2; exit 1; }
. ../../utils/recipe.sh

seeds="1 2 3"    # of each training
only=""          # train these cells alone, names TABLE/ROW/COLUMN, in which * stands for anything
kept=parallel    # directory of the results (path)
list=""          # add the names of the trainings to this file, and train nothing (path)
decode=true      # decode the test set where error rates were published
num_utts=2520    # utterances to train on; a quarter of them where only time is looked at
parse_recipe_options "$@"
cd ../..
. local/experiments/cells.sh

rings="adpsgd:fixed-ring adpsgd:random-ring"
all_schemes="gradient dpsgd:fixed-ring dpsgd:random-ring adpsgd $rings d1d"
# 16 P100 in 4 machines with 100 Gbit/s between them (arXiv:1904.04956): 8.58 h for an epoch of 4 million segments
hosts="--compute-s 1.3 --bandwidth-mb 12500 --latency-s 5e-6 --learners-per-host 4 --model-mb 165"

# ibm NAME LEARNERS BATCH SCHEME[:TOPOLOGY] FACTOR OPTIONS...: a 64th of a published batch, and its published rate times FACTOR. The rate is
# 0.1 for 256 segments in torch's terms, where steps are 10 times ours if the momentum is 0.9; the warm-up begins with a tenth of it.
ibm() {
  local name=$1 learners=$2 batch=$3 rate=$(($3 * $5)) segments
  set_scheme "$4"
  shift 5
  segments=$(((batch / 64 + learners - 1) / learners))
  cell "$name" --config conf/parallel_blstm.conf --num-learners "$learners" $scheme_opts $hosts --minibatch $((21 * segments)) \
    --learning-rate "$(ratio $rate 2560)" "$@"
}

# batch SCHEME[:TOPOLOGY] BATCH: with 16 learners at the published rate.
batch() {
  ibm "batch/${1/:/-}/$2" 16 "$2" "$1" 1
}

if stage 1 "Data"; then
  make_data
fi

if stage 2 "Batch by scheme, 16 learners"; then
  for scheme in $all_schemes; do decoded batch "$scheme" 8192; done
  for batch in 4096 2048; do
    for scheme in gradient dpsgd:fixed-ring; do batch "$scheme" $batch; done
    for scheme in dpsgd:random-ring adpsgd $rings d1d; do once batch "$scheme" $batch; done
  done
  for scheme in gradient dpsgd:random-ring adpsgd; do once batch "$scheme" 12288; done
  decoded ibm batch/one/256 1 256 allreduce 10 --warm-up-factor 1
fi

if stage 3 "Rate by scheme, 16 learners, batch 8192"; then
  for factor in 1/4 1/8; do
    for scheme in gradient dpsgd:fixed-ring; do ibm "rate/${scheme/:/-}/${factor/\//-}" 16 8192 "$scheme" $factor; done
    for scheme in dpsgd:random-ring adpsgd; do once ibm "rate/${scheme/:/-}/${factor/\//-}" 16 8192 "$scheme" $factor; done
  done
  for scheme in gradient dpsgd:fixed-ring dpsgd:random-ring adpsgd; do once ibm "rate/${scheme/:/-}/4" 16 8192 "$scheme" 4; done
fi

# IBM's network has 6 layers: a step towards it.
if stage 4 "Layers by scheme, 16 learners, batch 8192"; then
  for scheme in gradient dpsgd:fixed-ring adpsgd; do
    once ibm "layers/${scheme/:/-}/6" 16 8192 "$scheme" 1 --network conf/network/blstm_64x6.net
  done
fi

if stage 5 "Learners by scheme, batch 8192"; then
  for scheme in $rings d1d adpsgd; do decoded ibm "learners/${scheme/:/-}/64" 64 8192 "$scheme" 1; done
  decoded ibm learners/hadpsgd/64 64 8192 hadpsgd 1 --ranks-per-node 4
  for scheme in $rings d1d; do decoded once ibm "learners/${scheme/:/-}/32" 32 8192 "$scheme" 1; done
  decoded once ibm learners/d1d/128 128 8192 d1d 1
fi

# Only the time of an epoch is looked at: a tiny network, and minibatches so small that the slow learner has many of them.
if stage 6 "One slow learner of 16"; then
  num_utts=$((num_utts / 4))
  make_data
  for factor in 1 100 10 5 2; do
    for scheme in gradient dpsgd:fixed-ring dpsgd:random-ring adpsgd $rings d1d; do
      set_scheme "$scheme"
      once cell "straggler/${scheme/:/-}/$factor" --config conf/parallel_dnn.conf --num-learners 16 $scheme_opts $hosts \
        --hidden-layers 1 --hidden-dim 8 --minibatch 16 --num-epochs 1 --straggler $factor
    done
  done
fi
