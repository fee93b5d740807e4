#!/usr/bin/env bash
# Chan and Lane's parameter server (GTC 2015, arXiv:1504.01482): the TC-DNN-BLSTM-DNN by SGD and by a server with 3 shards, a CNN with 1 to 5
# shards. Begins with what run.sh made: fMLLR features and alignments of tri4. Complete outputs are left alone.
#
#   local/experiments/chan.sh
#   local/experiments/chan.sh --gpus "1 4"     # only the systems of 1 and 4 ranks; one of these is the server
#
# Writes exp/experiments/chan/RESULTS.md: the published tables with our numbers next to them; chan.md here is the page before the first run.

CDPATH='' cd "$(dirname "$0")" || exit 1
[ -f ../../utils/recipe.sh ] || { echo "$0: error: no utils/recipe.sh above it (docs/recipes.md); for Slurm: sbatch --wrap SCRIPT" >&2; exit 1; }
. ../../utils/recipe.sh
. ../../utils/recipe_decoding.sh

gpus="1 3 4 5 6"    # numbers of MPI ranks to train with, a GPU each (any of 1 3 4 5 6)
dir=.               # where data/ and exp/ are (path)
nj=16               # parallel jobs of feature extraction and decoding (at least 1)
parse_recipe_options "$@"
cd ../..
. local/experiments/systems.sh

if stage 1 "TC-DNN-BLSTM-DNN by SGD and with a server"; then
  system tc_1 1 --config conf/tc_dnn_blstm_dnn.conf --parallel allreduce --num-epochs 17
  system tc_4 4 --config conf/tc_dnn_blstm_dnn.conf --num-epochs 14
fi

if stage 2 "Log mel energies"; then make_filter_banks; fi

if stage 3 "CNN with 1 to 5 shards"; then
  train=$data/train_nodup_fbank features=_fbank
  system cnn_1 1 --config conf/cnn.conf --parallel allreduce
  for shards in 2 3 4 5; do system "cnn_$shards" $((shards + 1)) --config conf/cnn.conf; done
fi

if stage 4 "Results"; then write_page; fi
