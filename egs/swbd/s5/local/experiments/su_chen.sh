#!/usr/bin/env bash
# Su, Chen and Xu (arXiv:1507.01239) in their settings: averaging models over 1 to 32 GPUs; random or RBM initialisation, minibatches between
# averages, minibatch, schedule, SGD or natural gradient, all-reduce or butterfly. Begins with what run.sh made: fMLLR features of PLP with
# pitch, alignments of tri4, the DBN. Complete outputs are left alone.
#
#   local/experiments/su_chen.sh
#   local/experiments/su_chen.sh --gpus "1 8"     # only the systems of 1 and 8 ranks
#
# Writes exp/experiments/su_chen/RESULTS.md: the published tables with our numbers next to them; su_chen.md here is the page before the first run.

CDPATH='' cd "$(dirname "$0")" || exit 1
[ -f ../../utils/recipe.sh ] || { echo "$0: error: no utils/recipe.sh above it (docs/recipes.md); for Slurm: sbatch --wrap SCRIPT" >&2; exit 1; }
. ../../utils/recipe.sh
. ../../utils/recipe_decoding.sh

gpus="1 2 4 8 16 32"    # numbers of MPI ranks to train with, a GPU each (any of 1 2 4 8 16 32)
dir=.                   # where data/ and exp/ are (path)
nj=16                   # parallel jobs of decoding (at least 1)
parse_recipe_options "$@"
cd ../..
. local/experiments/systems.sh

if stage 1 "By number of GPUs"; then
  for num in 1 2 4 8 16 32; do system "gpus_$num" "$num" $from_dbn; done
fi

if stage 2 "Random parameters"; then
  for num in 1 32; do system "random_$num" "$num" --config conf/dnn.conf; done
fi

if stage 3 "20 minibatches between averages"; then system period20_16 16 $from_dbn --period-frames 20480; fi

if stage 4 "Minibatches of 256"; then
  for num in 1 16; do system "minibatch256_$num" "$num" $from_dbn --minibatch 256 --period-frames 2560; done
fi

if stage 5 "The newbob schedule"; then
  for num in 1 16; do system "newbob_$num" "$num" --config conf/dnn_newbob.conf --dbn "$exp/dbn"; done
fi

if stage 6 "SGD"; then
  for num in 1 16; do system "sgd_$num" "$num" --config conf/dnn_sgd.conf --dbn "$exp/dbn"; done
fi

if stage 7 "Butterfly mixing"; then
  for num in 2 4 8 16 32; do system "butterfly_$num" "$num" $from_dbn --parallel butterfly; done
fi

if stage 8 "Results"; then write_page; fi
