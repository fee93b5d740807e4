#!/usr/bin/env bash
# Toy: speech-like signals of invented speakers, made by the recipe itself. The whole chain from audio to word error rates in about
# a minute on two cores, the first time some more, since kernels are compiled: to see that an installation works, and for the project's
# own tests.

CDPATH='' cd "$(dirname "$0")" || exit 1
[ -f utils/recipe.sh ] || { echo "$0: error: no utils/recipe.sh beside it (docs/recipes.md); for Slurm: sbatch --wrap SCRIPT" >&2; exit 1; }
. utils/recipe.sh
. utils/recipe_decoding.sh

dir=.             # where data/ and exp/ are made (path)
num_train=120     # training utterances (at least 8)
nj=2              # parallel jobs (at least 1)
num_ranks=2       # MPI ranks of DNN training (at least 1)
parse_recipe_options "$@"
. ./path.sh
. ./cmd.sh

data=$dir/data exp=$dir/exp decode_nj=1

if stage 1 "Check the installation and make the corpus"; then
  utils/check_install.py --dir "$dir" --disk-gb 0.1
  local/make_corpus.py --num-train "$num_train" "$data"
fi

if stage 2 "Lang directory and language model"; then
  utils/prepare_lang.py "$data/local/dict" "<unk>" "$data/lang"
  utils/train_lm.py "$data/train/text" "$data/local/dict/lexicon.txt" "$data/local/lm"
  utils/make_grammar.py "$data/lang" "$data/local/lm/lm.arpa.gz" "$data/lang_test"
fi

if stage 3 "Features"; then
  for set in train dev test; do
    steps/make_mfcc.py --config conf/mfcc.conf --nj "$nj" --cmd "$train_cmd" "$data/$set"
    steps/compute_cmvn.py "$data/$set"
    utils/validate_data_dir.py --need-feats true "$data/$set"
  done
fi

if stage 4 "GMMs: monophones, triphones on deltas, on LDA+MLLT, adapted to speakers"; then
  steps/train_mono.py --nj "$nj" --cmd "$train_cmd" --num-iters 12 --num-gauss 120 "$data/train" "$data/lang" "$exp/mono"
  steps/align_si.py --nj "$nj" --cmd "$train_cmd" "$data/train" "$data/lang" "$exp/mono" "$exp/mono_ali"
  steps/train_deltas.py --nj "$nj" --cmd "$train_cmd" --num-iters 10 --num-leaves 80 --num-gauss 200 "$data/train" "$data/lang" "$exp/mono_ali" "$exp/tri1"
  steps/train_lda_mllt.py --nj "$nj" --cmd "$train_cmd" --num-iters 8 --max-iter-inc 6 --mllt-iters "2 4" --realign-iters 5 --dim 30 \
    --num-leaves 80 --num-gauss 200 "$data/train" "$data/lang" "$exp/tri1" "$exp/tri2"
  steps/train_sat.py --nj "$nj" --cmd "$train_cmd" --num-iters 8 --max-iter-inc 6 --fmllr-iters "2 4" --realign-iters 5 \
    --num-leaves 80 --num-gauss 200 "$data/train" "$data/lang" "$exp/tri2" "$exp/tri3"
fi

if stage 5 "Graphs and lattices of the GMMs"; then
  utils/make_graph.py "$data/lang_test" "$exp/mono" "$exp/mono/graph"
  utils/make_graph.py "$data/lang_test" "$exp/tri3" "$exp/tri3/graph"
  for set in dev test; do
    decode_sets=$set spawn "decode_mono_$set" make_lattices decode "$exp/mono" "$exp/mono/graph" ""
    decode_sets=$set spawn "decode_tri3_$set" make_lattices decode_fmllr "$exp/tri3" "$exp/tri3/graph" ""
  done
  join
fi

if stage 6 "DNN on fMLLR features: $num_ranks MPI ranks with parameter averaging"; then
  for set in train dev test; do
    transforms=$exp/tri3/decode_$set
    if [ $set = train ]; then transforms=$exp/tri3; fi
    steps/make_fmllr_feats.py --nj 1 --cmd "$train_cmd" --transform-dir "$transforms" "$data/$set" "$exp/tri3" "$data/${set}_fmllr"
  done
  steps/train_dnn.py --cmd "$cuda_cmd" --num-ranks "$num_ranks" --share-devices true --hidden-layers 2 --hidden-dim 64 --minibatch 64 \
    --period-frames 640 --num-epochs 4 --cmvn none "$data/train_fmllr" "$data/lang" "$exp/tri3" "$exp/dnn"
  for set in dev test; do
    decode_sets=$set spawn "decode_dnn_$set" make_lattices decode "$exp/dnn" "$exp/tri3/graph" _fmllr
  done
  join
fi

if stage 7 "Word error rates"; then
  for system in mono tri3 dnn; do
    score "$exp/$system" ""
  done
  utils/collect_results.py "$exp" "$exp/RESULTS.md"
fi
