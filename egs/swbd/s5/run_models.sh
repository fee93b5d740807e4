#!/usr/bin/env bash
# Further networks on Switchboard, with published settings: Povey's p-norm and tanh networks with rare averaging (arXiv:1410.7455), IBM's BLSTM by
# four schemes (arXiv:1904.04956, 1907.05701, 2110.11199), Chan's CNN and TC-DNN-BLSTM-DNN with a parameter server (GTC 2015, arXiv:1504.01482),
# sMBR on the DNN of run.sh, Kaldi's factorised TDNN with LF-MMI. Run run.sh first: the features, and the alignments and
# graph of tri4 and the DNN, are its output.
#
#   ./run_models.sh --tests eval2000
#   ./run_models.sh --models "smbr lfmmi" --num-ranks 16

CDPATH='' cd "$(dirname "$0")" || exit 1
[ -f utils/recipe.sh ] || { echo "$0: error: no utils/recipe.sh next to it (docs/recipes.md); for Slurm: sbatch --wrap SCRIPT" >&2; exit 1; }
. utils/recipe.sh
. utils/recipe_decoding.sh

models="pnorm tanh blstm_dpsgd blstm_adpsgd blstm_hadpsgd blstm_d1d cnn tc_dnn_blstm_dnn smbr lfmmi"  # networks to train (any of these)
tests="eval2000 rt03"   # test sets that run.sh has prepared (any of these) (may be empty)
front_end=plp           # front end of run.sh (one of plp mfcc)
dir=.                   # directory of data/ and exp/ (path)
nj=16                   # parallel jobs (at least 1)
num_ranks=16            # MPI ranks that train a network (at least 1)
server_ranks=4          # MPI ranks that train with a parameter server, including the server (at least 2)
parse_recipe_options "$@"
. ./path.sh
. ./cmd.sh

data=$dir/data exp=$dir/exp ali=$dir/exp/tri4_ali lang=$dir/data/lang_prons
decode_sets="train_dev"
for set in $tests; do decode_sets="$decode_sets $set:train_dev"; done
decode_opts="--beam 13 --lattice-beam 8"
score_lang=$data/lang_test
jobs="--nj $nj"

# network NAME CONFIG FEATURES RANKS OPTIONS...: trained frame by frame on the alignments of tri4, decoded with its graph.
network() {
  local name=$1 config=$2 features=$3 ranks=$4
  shift 4
  steps/train_dnn.py --cmd "$cuda_cmd" --num-ranks "$ranks" --share-devices true --config "conf/$config.conf" "$@" "$data/train_nodup$features" \
    "$lang" "$ali" "$exp/$name"
  decode decode "$exp/$name" "$exp/tri4/graph" "$features"
}

# base_features DATA: the features that run.sh computes.
base_features() {
  case $front_end in
    plp) steps/make_plp.py $jobs --cmd "$train_cmd" --config conf/plp.conf "$1" ;;
    mfcc) steps/make_mfcc.py $jobs --cmd "$train_cmd" --config conf/mfcc.conf "$1" ;;
  esac
  steps/compute_cmvn.py $jobs --cmd "$train_cmd" "$1"
}

if wanted pnorm && stage 1 "p-norm network, averaged rarely"; then network pnorm pnorm _fmllr "$num_ranks"; fi
if wanted tanh && stage 2 "tanh network, averaged rarely"; then network tanh tanh _fmllr "$num_ranks"; fi

if wanted blstm_dpsgd blstm_adpsgd blstm_hadpsgd blstm_d1d && stage 3 "BLSTM by D-PSGD, AD-PSGD, hierarchical AD-PSGD, delay by one"; then
  for scheme in dpsgd adpsgd hadpsgd d1d; do
    if wanted blstm_$scheme; then network blstm_$scheme blstm _fmllr "$num_ranks" --parallel $scheme; fi
  done
fi

if wanted cnn && stage 4 "CNN with a parameter server"; then
  for set in train_nodup ${decode_sets//:train_dev/}; do
    utils/copy_data_dir.py --features false "$data/$set" "$data/${set}_fbank"
    steps/make_fbank.py $jobs --cmd "$train_cmd" --config conf/fbank.conf --compress true "$data/${set}_fbank"
    steps/compute_cmvn.py $jobs --cmd "$train_cmd" "$data/${set}_fbank"
  done
  network cnn cnn _fbank "$server_ranks"
fi

if wanted tc_dnn_blstm_dnn && stage 5 "TC-DNN-BLSTM-DNN with a parameter server"; then
  network tc_dnn_blstm_dnn tc_dnn_blstm_dnn _fmllr "$server_ranks"
fi

if wanted smbr && stage 6 "sMBR on the DNN, from lattices of a unigram model"; then
  utils/train_lm.py --order 1 "$data/lm_train/text" "$data/local/dict/lexicon.txt" "$data/local/lm/unigram"
  utils/make_grammar.py "$lang" "$data/local/lm/unigram/lm.arpa.gz" "$data/lang_prons_unigram"
  utils/make_graph.py "$data/lang_prons_unigram" "$exp/tri4" "$exp/tri4/graph_unigram"
  train=$data/train_nodup_fmllr
  steps/align_dnn.py $jobs --cmd "$train_cmd" "$train" "$lang" "$exp/dnn" "$exp/dnn_ali"
  steps/decode.py $jobs --cmd "$decode_cmd" --beam 13 --lattice-beam 7 --acoustic-scale 0.0909 --model-dir "$exp/dnn" \
    "$exp/tri4/graph_unigram" "$train" "$exp/dnn_denlats"
  steps/train_smbr.py --cmd "$cuda_cmd" --num-ranks "$num_ranks" --share-devices true --config conf/smbr.conf "$train" "$lang" "$exp/dnn_ali" \
    "$exp/dnn_denlats" "$exp/dnn" "$exp/dnn_smbr"
  decode decode "$exp/dnn_smbr" "$exp/tri4/graph" _fmllr
fi

if wanted lfmmi && stage 7 "Factorised TDNN with LF-MMI, on speech at three speeds"; then
  sp=$data/train_nodup_sp
  utils/perturb_data_dir.py "$data/train_nodup" "$sp"
  base_features "$sp"
  steps/align_fmllr.py $jobs --cmd "$train_cmd" "$sp" "$lang" "$exp/tri4" "${ali}_sp"
  steps/make_fmllr_feats.py $jobs --cmd "$train_cmd" --transform-dir "${ali}_sp" "$sp" "$exp/tri4" "${sp}_fmllr"
  steps/build_chain_tree.py $jobs --cmd "$train_cmd" --num-leaves 7000 "$data/train_nodup" "$lang" "$ali" "$exp/chain_tree"
  steps/train_lfmmi.py --cmd "$cuda_cmd" --num-ranks "$num_ranks" --share-devices true --config conf/chain.conf "${sp}_fmllr" "${ali}_sp" \
    "$exp/chain_tree" "$exp/lfmmi"
  utils/make_graph.py --self-loop-scale 1.0 "$data/lang_prons_test" "$exp/chain_tree" "$exp/chain_tree/graph"
  decode decode "$exp/lfmmi" "$exp/chain_tree/graph" _fmllr --acoustic-scale 0.1
fi

if stage 8 "Results"; then
  utils/collect_results.py --published conf/published/eval2000.tsv "$exp" "$exp/RESULTS.md"
fi
