#!/usr/bin/env bash
# Averaging models over ranks: effect of random or DBN initialisation, SGD or natural gradient, and the number of ranks on the error rate of
# a sigmoid network (the contrasts of Su, Chen, Xu 2015, Tables 2 to 7), each with several seeds. Uses the output of run.sh:
# features and alignments of the SAT system, its graph, its language directories.
#
# Rates were chosen by the held-out objective of shorter trainings on 2 ranks (docs/networks/pretraining.md); each is multiplied by the number of ranks.
#
#   ./run_averaging.sh
#   ./run_averaging.sh --seeds 1 --ranks "1 2"

CDPATH='' cd "$(dirname "$0")" || exit 1
[ -f utils/recipe.sh ] || { echo "$0: error: no utils/recipe.sh next to it (docs/recipes.md); for Slurm: sbatch --wrap SCRIPT" >&2; exit 1; }
. utils/recipe.sh
. utils/recipe_decoding.sh

ranks="1 2 4"   # numbers of MPI ranks
seeds="1 2 3"   # seeds of the networks of each kind
nj=2            # parallel jobs of decoding (at least 1)
sgd_rate=4      # learning rate of one rank with SGD
ng_rate=1       # learning rate of one rank with natural gradient from random parameters
dbn_ng_rate=4   # learning rate of one rank with natural gradient from a DBN
parse_recipe_options "$@"
. ./path.sh
. ./cmd.sh

dir=exp/averaging

# network NAME SEED OPTIONS...: train and decode exp/averaging/NAME/seedSEED.
network() {
  local name=$1 seed=$2
  local out=$dir/$name/seed$seed
  shift 2
  steps/train_dnn.py --cmd "$cuda_cmd" --config conf/dnn_dbn.conf --train-seed "$seed" "$@" data/train_fmllr data/lang_prons exp/tri3_ali "$out"
  decode decode "$out" exp/tri3/graph _fmllr
}

if stage 1 "DBNs, on 2 ranks"; then
  for seed in $seeds; do
    steps/pretrain_dbn.py --cmd "$cuda_cmd" --share-devices true --config conf/dbn_512.conf --train-seed "$seed" data/train_fmllr "$dir/dbn/seed$seed"
  done
fi

if stage 2 "Networks"; then
  for seed in $seeds; do
    for num_ranks in $ranks; do
      for init in random dbn; do
        init_opts="" rate=$ng_rate
        if [ $init = dbn ]; then init_opts="--dbn $dir/dbn/seed$seed" rate=$dbn_ng_rate; fi
        network "${init}_sgd_$num_ranks" "$seed" --num-ranks "$num_ranks" --share-devices true $init_opts --learning-rate "$sgd_rate" \
          --natural-gradient none
        network "${init}_ng_$num_ranks" "$seed" --num-ranks "$num_ranks" --share-devices true $init_opts --learning-rate "$rate"
      done
    done
  done
fi

if stage 3 "Results"; then
  utils/collect_results.py "$dir" "$dir/RESULTS.md"
fi
