#!/usr/bin/env bash
# Flight of the Amazon Queen: acted dialogue of a 1995 adventure game, 8 kHz, 3.6 h of training speech, 31 min of test speech
# by three actors who are not in the training data. The recipe goes from the Debian package to word error rates. Test WER % (RESULTS.md):
#
#   mono 75.4   tri1 65.8   tri2 (LDA+MLLT) 64.0   tri3 (SAT) 55.7   dnn (RBM pretraining) 49.1   lstm 47.5
#   best so far: TDNN by LF-MMI 42.1 (run_models.sh, models/RESULTS.md)
#
#   ./run.sh            the whole corpus
#   ./run.sh --quick    45 minutes of speech, smaller models
#   ./run.sh --help     the options below

CDPATH='' cd "$(dirname "$0")" || exit 1
[ -f utils/recipe.sh ] || { echo "$0: error: no utils/recipe.sh next to it (docs/recipes.md); for Slurm: sbatch --wrap SCRIPT" >&2; exit 1; }
. utils/recipe.sh
. utils/recipe_decoding.sh

corpus=""       # a copy of the corpus (path): queen.1c, the .deb or a directory with one of them; empty: fetch the Debian package
quick=false     # use 45 minutes of speech and smaller models
nj=2            # parallel jobs of feature extraction, alignment and decoding (at least 1)
num_ranks=2     # MPI ranks of RBM, DNN and LSTM training (at least 1)
parse_recipe_options "$@"
. ./path.sh
. ./cmd.sh

data=data exp=exp
tri1_opts="--num-leaves 1200 --num-gauss 9000"
tri2_opts="--num-leaves 1800 --num-gauss 15000"
tri3_opts="--num-leaves 2000 --num-gauss 20000"
gmm_opts="--beam 11 --lattice-beam 6"
fmllr_opts="--config conf/decode_fmllr.conf"
dbn_opts="--config conf/dbn_512.conf"
dnn_opts="--config conf/dnn_dbn.conf"
lstm_opts="--config conf/lstm.conf"
if $quick; then
  data=data_quick exp=exp_quick
  tri1_opts="--num-leaves 500 --num-gauss 3000"
  tri2_opts="--num-leaves 600 --num-gauss 4000"
  tri3_opts="--num-leaves 600 --num-gauss 5000"
  decode_opts="--beam 9 --lattice-beam 5"
  gmm_opts="" fmllr_opts=""
  dbn_opts="--config conf/dbn_quick.conf"
  dnn_opts="--config conf/dnn_dbn_quick.conf"
  lstm_opts="--config conf/lstm_quick.conf"
fi
jobs="--nj $nj"
score_lang=$data/lang_test
score_opts="--max-lmwt 30"

if stage 1 "Check the installation and prepare the corpus"; then
  utils/check_install.py --trust-known true --disk-gb 1.5
  local/get_corpus.py --corpus "$corpus" corpus
  local/prepare_data.py --quick $quick --nj "$nj" corpus "$data"
fi

if stage 2 "Lexicon, lang directory, language model"; then
  utils/prepare_dict.py "$data/train/text" "$data/local/dict"
  utils/prepare_lang.py "$data/local/dict" "<unk>" "$data/lang"
  utils/train_lm.py "$data/train/text" "$data/local/dict/lexicon.txt" "$data/local/lm/trigram"
  utils/make_grammar.py "$data/lang" "$data/local/lm/trigram/lm.arpa.gz" "$data/lang_test"
fi

if stage 3 "Features: MFCC for GMMs, MFCC and filter banks of 40 for networks"; then
  for set in train dev test; do
    for features in _hires _fbank; do
      utils/copy_data_dir.py --features false "$data/$set" "$data/$set$features"
    done
    steps/make_mfcc.py $jobs --cmd "$train_cmd" --config conf/mfcc.conf "$data/$set"
    steps/make_mfcc.py $jobs --cmd "$train_cmd" --config conf/mfcc_hires.conf "$data/${set}_hires"
    steps/make_fbank.py $jobs --cmd "$train_cmd" --config conf/fbank.conf --compress true "$data/${set}_fbank"
    for features in "" _hires _fbank; do
      steps/compute_cmvn.py $jobs --cmd "$train_cmd" "$data/$set$features"
      utils/validate_data_dir.py --need-feats true "$data/$set$features"
    done
  done
fi

if stage 4 "GMMs: monophones, triphones on deltas, on LDA+MLLT, adapted to speakers"; then
  gmm="$jobs --boost-silence 1.25"
  steps/train_mono.py $gmm --cmd "$train_cmd" "$data/train" "$data/lang" "$exp/mono"
  steps/align_si.py $gmm --cmd "$train_cmd" "$data/train" "$data/lang" "$exp/mono" "$exp/mono_ali"
  steps/train_deltas.py $gmm --cmd "$train_cmd" $tri1_opts "$data/train" "$data/lang" "$exp/mono_ali" "$exp/tri1"
  steps/align_si.py $gmm --cmd "$train_cmd" "$data/train" "$data/lang" "$exp/tri1" "$exp/tri1_ali"
  steps/train_lda_mllt.py $gmm --cmd "$train_cmd" $tri2_opts "$data/train" "$data/lang" "$exp/tri1_ali" "$exp/tri2"
  steps/align_si.py $gmm --cmd "$train_cmd" "$data/train" "$data/lang" "$exp/tri2" "$exp/tri2_ali"

  # From here on, the probabilities of pronunciations and pauses are those in the alignments.
  steps/get_prons.py $jobs --cmd "$train_cmd" "$data/train" "$data/lang" "$exp/tri2_ali" "$exp/tri2_prons"
  utils/dict_dir_add_pronprobs.py "$data/local/dict" "$exp/tri2_prons" "$data/local/dict_prons"
  utils/prepare_lang.py "$data/local/dict_prons" "<unk>" "$data/lang_prons"
  utils/make_grammar.py "$data/lang_prons" "$data/local/lm/trigram/lm.arpa.gz" "$data/lang_prons_test"
  steps/train_sat.py $gmm --cmd "$train_cmd" $tri3_opts "$data/train" "$data/lang_prons" "$exp/tri2_ali" "$exp/tri3"
  steps/align_fmllr.py $gmm --cmd "$train_cmd" "$data/train" "$data/lang_prons" "$exp/tri3" "$exp/tri3_ali"
fi

if stage 5 "Graphs and lattices of the GMMs"; then
  for system in mono tri1 tri2 tri3; do
    step=decode lang=lang_test opts=$gmm_opts
    if [ $system = tri3 ]; then step=decode_fmllr lang=lang_prons_test opts=$fmllr_opts; fi
    utils/make_graph.py "$data/$lang" "$exp/$system" "$exp/$system/graph"
    decode $step "$exp/$system" "$exp/$system/graph" "" $opts
  done
  score "$exp/tri3" "" .si
fi

if stage 6 "fMLLR features for networks"; then
  for set in train dev test; do
    transforms=$exp/tri3/decode_$set; if [ $set = train ]; then transforms=$exp/tri3_ali; fi
    steps/make_fmllr_feats.py $jobs --cmd "$train_cmd" --transform-dir "$transforms" "$data/$set" "$exp/tri3" "$data/${set}_fmllr"
  done
fi

ranks="--num-ranks $num_ranks --share-devices true"

if stage 7 "RBM pretraining: a DBN on $num_ranks MPI ranks"; then
  steps/pretrain_dbn.py --cmd "$cuda_cmd" $ranks $dbn_opts "$data/train_fmllr" "$exp/dbn"
fi

if stage 8 "DNN from it: natural gradient on $num_ranks MPI ranks with periodic averaging"; then
  steps/train_dnn.py --cmd "$cuda_cmd" $ranks $dnn_opts --dbn "$exp/dbn" "$data/train_fmllr" "$data/lang_prons" "$exp/tri3_ali" "$exp/dnn"
fi

if stage 9 "LSTM: natural gradient on $num_ranks MPI ranks with periodic averaging"; then
  steps/train_dnn.py --cmd "$cuda_cmd" $ranks $lstm_opts "$data/train_fmllr" "$data/lang_prons" "$exp/tri3_ali" "$exp/lstm"
fi

if stage 10 "Lattices of the networks"; then
  for system in dnn lstm; do
    decode decode "$exp/$system" "$exp/tri3/graph" _fmllr
    steps/get_ctm.py $jobs --cmd "$decode_cmd" "$data/test_fmllr" "$data/lang_prons" "$exp/$system/decode_test" "$exp/$system/ctm_test"
  done
fi

if stage 11 "Results"; then
  utils/collect_results.py "$exp" "$exp/RESULTS.md"
fi
