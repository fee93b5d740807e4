#!/usr/bin/env bash
# @TITLE@
# Created by utils/new_recipe.py; edit it as you like.
#
#   ./run.sh            run all stages; results are in exp/RESULTS.md; a second run resumes after the last complete step
#   ./run.sh --help     the options below

CDPATH='' cd "$(dirname "$0")" || exit 1
[ -f utils/recipe.sh ] || { echo "$0: error: no utils/recipe.sh next to it; has the toolkit moved? 'ln -sfn TOOLKIT/utils utils', and steps likewise" >&2; exit 1; }
. utils/recipe.sh
. utils/recipe_decoding.sh

@CHOICES@
parse_recipe_options "$@"
. ./path.sh
. ./cmd.sh

exp=exp
jobs="--nj $nj"
score_opts="--max-lmwt 30"

if stage 1 "Check the installation and prepare the corpus"; then
  utils/check_install.py --trust-known true --disk-gb @DISK_GB@
  utils/prepare_own_data.py --config conf/corpus.conf @SOURCES@ $data
  for set in train dev test; do
    utils/validate_data_dir.py $data/$set
  done
fi

if stage 2 "Lexicon, lang directory, language model"; then
  utils/prepare_dict.py --dictionary "$dictionary" $data/train/text $data/local/dict
  utils/prepare_lang.py $data/local/dict "<unk>" $data/lang
  utils/train_lm.py --order "$lm_order" --min-counts "$lm_min_counts" --eval-text $data/dev/text $data/train/text \
    $data/local/dict/lexicon.txt $data/local/lm
  utils/make_grammar.py $data/lang $data/local/lm/lm.arpa.gz $data/lang_test
fi

if stage 3 "Features: MFCC"; then
  for set in train dev test; do
    steps/make_mfcc.py $jobs --cmd "$train_cmd" --config conf/mfcc.conf $data/$set
    steps/compute_cmvn.py $data/$set
  done
fi

if stage 4 "GMMs: monophones, triphones on deltas, on LDA+MLLT, adapted to speakers"; then
  gmm="$jobs --boost-silence 1.25"
  steps/train_mono.py $gmm --cmd "$train_cmd" --num-gauss "$mono_gauss" $data/train $data/lang $exp/mono
  steps/align_si.py $gmm --cmd "$train_cmd" $data/train $data/lang $exp/mono $exp/mono_ali
  steps/train_deltas.py $gmm --cmd "$train_cmd" --num-leaves "$tri1_leaves" --num-gauss "$tri1_gauss" $data/train $data/lang \
    $exp/mono_ali $exp/tri1
  steps/align_si.py $gmm --cmd "$train_cmd" $data/train $data/lang $exp/tri1 $exp/tri1_ali
  steps/train_lda_mllt.py $gmm --cmd "$train_cmd" --num-leaves "$tri2_leaves" --num-gauss "$tri2_gauss" $data/train $data/lang \
    $exp/tri1_ali $exp/tri2
  steps/align_si.py $gmm --cmd "$train_cmd" $data/train $data/lang $exp/tri2 $exp/tri2_ali

  # From here on, the probabilities of pronunciations and pauses are those in the alignments.
  steps/get_prons.py $jobs --cmd "$train_cmd" $data/train $data/lang $exp/tri2_ali $exp/tri2_prons
  utils/dict_dir_add_pronprobs.py $data/local/dict $exp/tri2_prons $data/local/dict_prons
  utils/prepare_lang.py $data/local/dict_prons "<unk>" $data/lang_prons
  utils/make_grammar.py $data/lang_prons $data/local/lm/lm.arpa.gz $data/lang_prons_test
  steps/train_sat.py $gmm --cmd "$train_cmd" --fmllr-min-count "$fmllr_min_count" --num-leaves "$tri3_leaves" --num-gauss "$tri3_gauss" \
    $data/train $data/lang_prons $exp/tri2_ali $exp/tri3
  steps/align_fmllr.py $gmm --cmd "$train_cmd" --fmllr-min-count "$fmllr_min_count" $data/train $data/lang_prons $exp/tri3 $exp/tri3_ali
fi

if stage 5 "Graphs and lattices of the GMMs"; then
  for system in $decoded tri3; do
    step=decode lang=lang_test opts=""
    if [ $system = tri3 ]; then step=decode_fmllr lang=lang_prons_test opts="--fmllr-min-count $fmllr_min_count"; fi
    utils/make_graph.py $data/$lang $exp/$system $exp/$system/graph
    decode $step $exp/$system $exp/$system/graph "" $opts
  done
fi

if stage 6 "fMLLR features for the network"; then
  for set in train dev test; do
    transforms=$exp/tri3/decode_$set; if [ $set = train ]; then transforms=$exp/tri3_ali; fi
    steps/make_fmllr_feats.py $jobs --cmd "$train_cmd" --transform-dir $transforms $data/$set $exp/tri3 $data/${set}_fmllr
  done
fi

if stage 7 "DNN: $num_ranks MPI rank(s) with parameter averaging"; then
  steps/train_dnn.py --cmd "$cuda_cmd" --num-ranks "$num_ranks" --share-devices true --config conf/dnn.conf $data/train_fmllr $data/lang_prons \
    $exp/tri3_ali $exp/dnn
  decode decode $exp/dnn $exp/tri3/graph _fmllr
fi

if stage 8 "Results"; then
  utils/collect_results.py $exp $exp/RESULTS.md
fi
