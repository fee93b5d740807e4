#!/usr/bin/env bash
# TDNN with LF-MMI on speech at three speeds. Uses the output of run.sh for the same --subset: alignments and transforms of its last SAT
# system, lang directories, language models.
#
#   ./run_models.sh --subset mini
#   ./run_models.sh --subset 960 --nj 40 --num-ranks 16

CDPATH='' cd "$(dirname "$0")" || exit 1
[ -f utils/recipe.sh ] || { echo "$0: error: no utils/recipe.sh next to it (docs/recipes.md); for Slurm: sbatch --wrap SCRIPT" >&2; exit 1; }
. utils/recipe.sh
. utils/recipe_decoding.sh

subset=mini     # training data: mini, or hours (one of mini 100 460 960)
test_kinds="clean other"             # kinds of dev and test sets; mini has its own (any of these)
rescoring="tgmed tglarge fglarge"    # language models that rescore lattices (any of these) (may be empty)
sizes=""        # file of sizes to use instead of conf/sizes (path)
nj=4            # parallel jobs of feature extraction, alignment and decoding (at least 1)
num_ranks=2     # MPI ranks that train a network (at least 1)
parse_recipe_options "$@"
. ./path.sh
. ./cmd.sh
. local/subset.sh

jobs="--nj $nj"
fast=${train}_sp
tree=$exp/chain_tree_$subset

if stage 1 "Speech at three speeds, aligned, adapted to speakers"; then
  utils/perturb_data_dir.py "$data/$train" "$data/$fast"
  steps/make_mfcc.py $jobs --cmd "$train_cmd" --config conf/mfcc.conf "$data/$fast"
  steps/compute_cmvn.py $jobs --cmd "$train_cmd" "$data/$fast"
  steps/align_fmllr.py $jobs --cmd "$train_cmd" "$data/$fast" "$data/lang_prons" "$exp/$last" "$exp/${last}_ali_$fast"
  steps/make_fmllr_feats.py $jobs --cmd "$train_cmd" --transform-dir "$exp/${last}_ali_$fast" "$data/$fast" "$exp/$last" \
    "$data/${fast}_fmllr_$subset"
fi

if stage 2 "TDNN with LF-MMI: $num_ranks MPI ranks"; then
  steps/build_chain_tree.py $jobs --cmd "$train_cmd" $chain_tree_opts "$data/$train" "$data/lang_prons" "$exp/${last}_ali_$train" "$tree"
  steps/train_lfmmi.py --cmd "$cuda_cmd" --num-ranks "$num_ranks" --share-devices true $chain_opts "$data/${fast}_fmllr_$subset" \
    "$exp/${last}_ali_$fast" "$tree" "$exp/lfmmi_$subset"
fi

if stage 3 "Graph and lattices, rescored"; then
  utils/make_graph.py --self-loop-scale 1.0 "$data/lang_prons_test" "$tree" "$tree/graph"
  decode decode "$exp/lfmmi_$subset" "$tree/graph" "_fmllr_$subset" --acoustic-scale 0.1
  rescore_all "lfmmi_$subset" "_fmllr_$subset"
fi

if stage 4 "Results"; then
  utils/collect_results.py --published "conf/published/$kind.tsv" "$exp" "$exp/RESULTS.md"
fi
