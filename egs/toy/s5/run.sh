#!/usr/bin/env bash
# Toy: speech-like signals of invented speakers, made by the recipe itself. The whole chain from audio to word error rates in about
# a minute on two cores, the first time some more, since kernels are compiled: to see that an installation works, and for the project's
# own tests.

CDPATH='' cd "$(dirname "$0")" || exit 1
[ -f utils/recipe.sh ] || { echo "$0: error: no utils/recipe.sh beside it (docs/jobs.md); for Slurm: sbatch --wrap SCRIPT" >&2; exit 1; }
. utils/recipe.sh

dir=.             # where data/ and exp/ are made (path)
num_train=120     # training utterances (at least 8)
nj=2              # parallel jobs (at least 1)
num_ranks=2       # MPI ranks of DNN training (at least 1)
parse_recipe_options "$@"
. ./path.sh
. ./cmd.sh

d=$dir/data e=$dir/exp

if stage 1 "Check the installation and make the corpus"; then
  utils/check_install.py --dir "$dir" --disk-gb 0.1
  local/make_corpus.py --num-train "$num_train" "$d"
fi

if stage 2 "Lang directory and language model"; then
  utils/prepare_lang.py "$d/local/dict" "<unk>" "$d/lang"
  utils/train_lm.py "$d/train/text" "$d/local/dict/lexicon.txt" "$d/local/lm"
  utils/make_grammar.py "$d/lang" "$d/local/lm/lm.arpa.gz" "$d/lang_test"
fi

if stage 3 "Features"; then
  for set in train dev test; do
    steps/make_mfcc.py --config conf/mfcc.conf --nj "$nj" --cmd "$train_cmd" "$d/$set"
    steps/compute_cmvn.py "$d/$set"
    utils/validate_data_dir.py --need-feats true "$d/$set"
  done
fi

if stage 4 "GMMs: monophones, triphones on deltas, on LDA+MLLT, adapted to speakers"; then
  steps/train_mono.py --nj "$nj" --cmd "$train_cmd" --num-iters 12 --num-gauss 120 "$d/train" "$d/lang" "$e/mono"
  steps/align_si.py --nj "$nj" --cmd "$train_cmd" "$d/train" "$d/lang" "$e/mono" "$e/mono_ali"
  steps/train_deltas.py --nj "$nj" --cmd "$train_cmd" --num-iters 10 --num-leaves 80 --num-gauss 200 "$d/train" "$d/lang" "$e/mono_ali" "$e/tri1"
  steps/train_lda_mllt.py --nj "$nj" --cmd "$train_cmd" --num-iters 8 --max-iter-inc 6 --mllt-iters "2 4" --realign-iters 5 --dim 30 \
    --num-leaves 80 --num-gauss 200 "$d/train" "$d/lang" "$e/tri1" "$e/tri2"
  steps/train_sat.py --nj "$nj" --cmd "$train_cmd" --num-iters 8 --max-iter-inc 6 --fmllr-iters "2 4" --realign-iters 5 \
    --num-leaves 80 --num-gauss 200 "$d/train" "$d/lang" "$e/tri2" "$e/tri3"
fi

if stage 5 "Graphs and lattices of the GMMs"; then
  utils/make_graph.py "$d/lang_test" "$e/mono" "$e/mono/graph"
  utils/make_graph.py "$d/lang_test" "$e/tri3" "$e/tri3/graph"
  for set in dev test; do
    spawn "decode_mono_$set" steps/decode.py --nj 1 --cmd "$decode_cmd" "$e/mono/graph" "$d/$set" "$e/mono/decode_$set"
    spawn "decode_tri3_$set" steps/decode_fmllr.py --nj 1 --cmd "$decode_cmd" "$e/tri3/graph" "$d/$set" "$e/tri3/decode_$set"
  done
  join
fi

if stage 6 "DNN on fMLLR features: $num_ranks MPI ranks with parameter averaging"; then
  for set in train dev test; do
    transforms=$e/tri3/decode_$set
    if [ $set = train ]; then transforms=$e/tri3; fi
    steps/make_fmllr_feats.py --nj 1 --cmd "$train_cmd" --transform-dir "$transforms" "$d/$set" "$e/tri3" "$d/${set}_fmllr"
  done
  steps/train_dnn.py --cmd "$cuda_cmd" --num-ranks "$num_ranks" --share-devices true --hidden-layers 2 --hidden-dim 64 --minibatch 64 \
    --period-frames 640 --num-epochs 4 --cmvn none "$d/train_fmllr" "$d/lang" "$e/tri3" "$e/dnn"
  for set in dev test; do
    spawn "decode_dnn_$set" steps/decode.py --nj 1 --cmd "$decode_cmd" --model-dir "$e/dnn" "$e/tri3/graph" "$d/${set}_fmllr" "$e/dnn/decode_$set"
  done
  join
fi

if stage 7 "Word error rates"; then
  for system in mono tri3 dnn; do
    steps/score.py --nj 1 --cmd "$decode_cmd" "$d/dev" "$d/lang_test" "$e/$system/decode_dev"
    steps/score.py --nj 1 --cmd "$decode_cmd" --params-from "$e/$system/decode_dev" "$d/test" "$d/lang_test" "$e/$system/decode_test"
  done
  utils/collect_results.py "$e" "$e/RESULTS.md"
fi
