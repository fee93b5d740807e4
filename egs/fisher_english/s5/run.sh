#!/usr/bin/env bash
# Fisher English: 1,915 hours of telephone conversations, the data of Povey, Zhang and Khudanpur (arXiv:1410.7455). The recipe
# trains GMMs as in Kaldi's recipe, then p-norm and tanh networks with natural gradient and infrequent parameter averaging.
# RESULTS.md lists the published error rates.
#
#   ./run.sh --fisher /corpora/fisher                        all releases in one directory, in any folders
#   ./run.sh --fisher /ldc/LDC2004S13:/ldc/LDC2004T19        part 1 only; LDC2005S13 and LDC2005T19 are part 2
#   ./run.sh --help                                          the options below

CDPATH='' cd "$(dirname "$0")" || exit 1
[ -f utils/recipe.sh ] || { echo "$0: error: no utils/recipe.sh next to it (docs/recipes.md); for Slurm: sbatch --wrap SCRIPT" >&2; exit 1; }
. utils/recipe.sh
. utils/recipe_decoding.sh

fisher=""         # directories of LDC2004S13, LDC2004T19, LDC2005S13, LDC2005T19, separated by ':' (paths)
dir=.             # directory of data/ and exp/ (path)
speakers=pin      # speakers are callers (PIN and sex), or the sides of calls (one of pin side)
networks="pnorm tanh"    # networks to train (any of these) (may be empty)
sizes=full        # sizes of the systems, a file in conf/sizes (one of full toy)
nj=16             # parallel jobs of feature extraction, alignment and decoding (at least 1)
num_ranks=8       # MPI ranks that train a network (at least 1)
parse_recipe_options "$@"
. ./path.sh
. ./cmd.sh
# shellcheck source=conf/sizes/full.sh
. "conf/sizes/$sizes.sh"

data=$dir/data exp=$dir/exp
decode_opts="--beam 11"
score_opts="--drop [noise],[laughter],[oov],<unk>"
jobs="--nj $nj"

# network NAME FEATURES: train conf/NAME.conf on the alignments of tri5a, decode dev and test.
network() {
  steps/train_dnn.py --cmd "$cuda_cmd" --num-ranks "$num_ranks" --share-devices true --config "conf/$1.conf" $network_opts \
    "$data/train$2" "$data/lang" "$exp/tri5a_ali" "$exp/$1"
  decode decode "$exp/$1" "$exp/tri5a/graph" "$2"
}

if stage 1 "Check the installation; data of all calls, divided into dev, test and train"; then
  utils/check_install.py --trust-known true --dir "$dir" --disk-gb "$disk_gb"
  local/prepare_fisher.py --fisher "$fisher" --speakers "$speakers" "$data/all"
  local/split_fisher.py $split_opts "$data/all" "$data"
fi

if stage 2 "Dictionary, lang directory, language model"; then
  local/prepare_fisher_dict.py "$data/all/text" "$data/local/dict"
  utils/prepare_lang.py "$data/local/dict" "<unk>" "$data/lang"
  utils/train_lm.py --min-counts 1,2 --eval-text "$data/dev/text" "$data/train/text" "$data/local/dict/lexicon.txt" \
    "$data/local/lm/trigram"
  utils/make_grammar.py "$data/lang" "$data/local/lm/trigram/lm.arpa.gz" "$data/lang_test"
fi

if stage 3 "Features"; then
  for set in dev test train; do
    steps/make_mfcc.py $jobs --cmd "$train_cmd" --config conf/mfcc.conf "$data/$set"
    steps/compute_cmvn.py $jobs --cmd "$train_cmd" "$data/$set"
    utils/validate_data_dir.py --need-feats true "$data/$set"
  done
fi

if stage 4 "Parts of the training data: short utterances, whole speakers"; then
  utils/subset_data_dir.py --shortest "$num_short" "$data/train" "$data/train_short"
  utils/subset_data_dir.py --random "$num_mono" "$data/train_short" "$data/train_mono_same"
  utils/subset_data_dir.py --max-same-text "$most_same" "$data/train_mono_same" "$data/train_mono"
  utils/subset_data_dir.py --speakers "$num_few" "$data/train" "$data/train_few"
  utils/subset_data_dir.py --speakers "$num_some" "$data/train" "$data/train_some"
fi

if stage 5 "GMMs on deltas: monophones, triphones"; then
  train="$jobs $gmm_opts $missing_opts"
  steps/train_mono.py $train --cmd "$train_cmd" "$data/train_mono" "$data/lang" "$exp/mono"
  steps/align_si.py $jobs $missing_opts --cmd "$train_cmd" "$data/train_few" "$data/lang" "$exp/mono" "$exp/mono_ali"
  steps/train_deltas.py $train --cmd "$train_cmd" $tri1_opts "$data/train_few" "$data/lang" "$exp/mono_ali" "$exp/tri1"
  steps/align_si.py $jobs $missing_opts --cmd "$train_cmd" "$data/train_few" "$data/lang" "$exp/tri1" "$exp/tri1_ali"
  steps/train_deltas.py $train --cmd "$train_cmd" $tri2_opts "$data/train_few" "$data/lang" "$exp/tri1_ali" "$exp/tri2"
  steps/align_si.py $jobs $missing_opts --cmd "$train_cmd" "$data/train_some" "$data/lang" "$exp/tri2" "$exp/tri2_ali"
fi

if stage 6 "GMMs on LDA+MLLT, adapted to speakers, the last one on all of the training data"; then
  train="$jobs $gmm_opts $missing_opts"
  steps/train_lda_mllt.py $train --cmd "$train_cmd" --splice-left 3 --splice-right 3 $mllt_opts $tri3a_opts "$data/train_some" "$data/lang" \
    "$exp/tri2_ali" "$exp/tri3a"
  steps/align_fmllr.py $jobs $missing_opts --cmd "$train_cmd" "$data/train_some" "$data/lang" "$exp/tri3a" "$exp/tri3a_ali"
  steps/train_sat.py $train --cmd "$train_cmd" $sat_opts $tri4a_opts "$data/train_some" "$data/lang" "$exp/tri3a_ali" "$exp/tri4a"
  steps/align_fmllr.py $jobs $missing_opts --cmd "$train_cmd" "$data/train" "$data/lang" "$exp/tri4a" "$exp/tri4a_ali"
  steps/train_sat.py $train --cmd "$train_cmd" $sat_opts $tri5a_opts "$data/train" "$data/lang" "$exp/tri4a_ali" "$exp/tri5a"
  steps/align_fmllr.py $jobs $missing_opts --cmd "$train_cmd" "$data/train" "$data/lang" "$exp/tri5a" "$exp/tri5a_ali"
fi

if stage 7 "Graphs and lattices of the GMMs"; then
  for system in $decoded; do
    step=decode
    case $system in tri4a | tri5a) step=decode_fmllr ;; esac
    utils/make_graph.py "$data/lang_test" "$exp/$system" "$exp/$system/graph"
    decode $step "$exp/$system" "$exp/$system/graph" ""
  done
fi

if stage 8 "fMLLR features for networks"; then
  for set in dev test train; do
    transforms=$exp/tri5a/decode_$set
    if [ $set = train ]; then transforms=$exp/tri5a_ali; fi
    steps/make_fmllr_feats.py $jobs --cmd "$train_cmd" --transform-dir "$transforms" "$data/$set" "$exp/tri5a" "$data/${set}_fmllr"
  done
fi

if is_among pnorm "$networks" && stage 9 "p-norm network on $num_ranks MPI ranks"; then network pnorm _fmllr; fi
if is_among tanh "$networks" && stage 10 "tanh network on $num_ranks MPI ranks"; then network tanh _fmllr; fi

if stage 11 "Results"; then
  utils/collect_results.py --published conf/published.tsv "$exp" "$exp/RESULTS.md"
fi
