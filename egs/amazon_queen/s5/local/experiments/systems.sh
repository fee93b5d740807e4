#!/usr/bin/env bash
# Whole systems of two works, trained on MPI ranks from all training data: the nnet2 system of Povey, Zhang and Khudanpur (arXiv:1410.7455;
# a p-norm network that grows, natural gradient, rare averages, the first of which takes the best network, mixtures before the output,
# combination of models) and the DBN system of Su, Chen and Xu (arXiv:1507.01239; averages every 10 minibatches) as run.sh trains it. LM
# weights are chosen on dev. Begins with what run.sh made.
#
#   local/experiments/systems.sh
#   local/experiments/systems.sh --seeds 1
#
# Adds the result of each training to parallel/systems.jsonl, and skips those that the file has. A file named stop ends it before the next one.

CDPATH='' cd "$(dirname "$0")" || exit 1
[ -f ../../utils/recipe.sh ] || { echo "$0: error: no utils/recipe.sh above it (docs/running/jobs.md); for Slurm: sbatch --wrap SCRIPT" >&2; exit 1; }
. ../../utils/recipe.sh
. ../../utils/recipe_decoding.sh

seeds="1 2 3"    # of each training
only=""          # train these cells alone, names TABLE/ROW/COLUMN, in which * stands for anything
kept=parallel    # directory of the results (path)
list=""          # add the names of the trainings to this file, and train nothing (path)
decode=true      # decode the dev and test sets
nj=2             # parallel jobs of decoding (at least 1)
num_ranks=2      # MPI ranks of a training (at least 1)
parse_recipe_options "$@"
cd ../..
. local/experiments/cells.sh

ranks="--num-ranks $num_ranks --share-devices true"
decode_opts=""
score_lang=data/lang_prons_test
score_opts="--max-lmwt 30"

# system NAME OPTIONS...: a network with each seed.
system() {
  local name=whole/$1/$num_ranks
  shift
  decoded train_seeds "$name" train_dnn $ranks "$@" data/train_fmllr data/lang_prons exp/tri3_ali
}

# decode_test OUT: word errors on dev and test.
decode_test() {
  decode decode "$1" exp/tri3/graph _fmllr
}

if stage 1 "DBN system: averages every 10 minibatches"; then
  prepare steps/pretrain_dbn.py --cmd "$cuda_cmd" $ranks --config conf/dbn_512.conf data/train_fmllr exp/dbn
  system dbn --config conf/dnn_dbn.conf --period-frames 2560 --dbn exp/dbn
fi

# Ranks average once for every model that may be combined.
if stage 2 "nnet2 system: rare averages"; then
  system nnet2 --config conf/dnn_pnorm.conf --period-frames 75000 --first-mixing best
fi
