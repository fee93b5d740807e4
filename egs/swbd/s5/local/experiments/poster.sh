#!/usr/bin/env bash
# Su and Chen's poster on butterfly mixing: all-reduce, butterfly and ring on 1 to 16 nodes, with the network of arXiv:1507.01239. Begins with
# what run.sh made: fMLLR features, alignments of tri4, the DBN. Complete outputs are left alone.
#
#   local/experiments/poster.sh
#   local/experiments/poster.sh --gpus "1 4"     # only the systems of 1 and 4 ranks
#
# Writes exp/experiments/poster/RESULTS.md: the published tables with our numbers next to them; poster.md here is the page before the first run.

CDPATH='' cd "$(dirname "$0")" || exit 1
[ -f ../../utils/recipe.sh ] || { echo "$0: error: no utils/recipe.sh above it (docs/recipes.md); for Slurm: sbatch --wrap SCRIPT" >&2; exit 1; }
. ../../utils/recipe.sh
. ../../utils/recipe_decoding.sh

gpus="1 2 4 8 16"    # numbers of MPI ranks to train with, a GPU each (any of 1 2 4 8 16)
dir=.                # where data/ and exp/ are (path)
nj=16                # parallel jobs of decoding (at least 1)
parse_recipe_options "$@"
cd ../..
. local/experiments/systems.sh

if stage 1 "All-reduce"; then
  for num in 1 2 4 8 16; do system "allreduce_$num" "$num" $from_dbn; done
fi

if stage 2 "Butterfly"; then
  for num in 4 8 16; do system "butterfly_$num" "$num" $from_dbn --parallel butterfly; done
fi

if stage 3 "Ring"; then
  for num in 4 8 16; do system "ring_$num" "$num" $from_dbn --parallel ring; done
fi

if stage 4 "Results"; then write_page; fi
