#!/usr/bin/env bash
# Povey, Zhang and Khudanpur (arXiv:1410.7455) with the settings of Kaldi's recipes for Switchboard: p-norm and tanh networks and a TDNN with
# natural gradient, parameters averaged rarely, on a growing number of ranks; the p-norm network by SGD. Begins with what run.sh made: fMLLR
# features, alignments of tri4, language models. Complete outputs are left alone.
#
#   local/experiments/povey.sh
#   local/experiments/povey.sh --gpus 10     # only the systems of 10 ranks
#
# Writes exp/experiments/povey/RESULTS.md: the published tables with our numbers next to them; povey.md here is the page before the first run.

CDPATH='' cd "$(dirname "$0")" || exit 1
[ -f ../../utils/recipe.sh ] || { echo "$0: error: no utils/recipe.sh above it (docs/recipes.md); for Slurm: sbatch --wrap SCRIPT" >&2; exit 1; }
. ../../utils/recipe.sh
. ../../utils/recipe_decoding.sh

gpus="10 16"         # numbers of MPI ranks to train with, a GPU each (any of 10 16)
fourgram=mixed_4g    # 4-gram for rescoring: with Fisher, or of the transcripts alone (one of mixed_4g swbd_4g)
dir=.                # where data/ and exp/ are (path)
nj=16                # parallel jobs of decoding (at least 1)
parse_recipe_options "$@"
cd ../..
. local/experiments/systems.sh

# rescored NAME RANKS OPTIONS...: a system whose lattices get the 4-gram, too.
rescored() {
  system "$@"
  is_among "$2" "$gpus" || return 0
  rescore lm_rescore "$out/$1" "$data/lang_prons_test" "$data/local/lm/$fourgram" _fmllr _4g
}

if stage 1 "p-norm"; then rescored pnorm 10 --config conf/pnorm.conf; fi
if stage 2 "p-norm by SGD"; then system pnorm_sgd 10 --config conf/pnorm_sgd.conf; fi
if stage 3 "tanh"; then system tanh 16 --config conf/tanh.conf; fi
if stage 4 "TDNN"; then rescored tdnn_b 16 --config conf/tdnn_b.conf; fi
if stage 5 "Results"; then write_page; fi
