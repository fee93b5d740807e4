#!/usr/bin/env bash
# Toy: speech-like signals of invented speakers, made by the recipe itself. The whole chain from audio to word error rates in about
# a minute on two cores: to see that an installation works, and for the project's own tests.

cd "$(dirname "$0")"
. utils/recipe.sh

dir=.             # where data/ and exp/ are made (path)
num_train=120     # training utterances
nj=2              # parallel jobs
num_ranks=2       # MPI ranks of DNN training
parse_recipe_options "$@"
. ./path.sh
. ./cmd.sh

d=$dir/data e=$dir/exp

if stage 1 "Make the corpus"; then
  local/make_corpus.py --num-train "$num_train" "$d"
  for set in train dev test; do utils/validate_data_dir.py "$d/$set"; done
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
  done
fi

if stage 4 "GMMs"; then
  steps/train_mono.py --nj "$nj" --cmd "$train_cmd" --num-iters 12 --num-gauss 120 "$d/train" "$d/lang" "$e/mono"
  steps/align_si.py --nj "$nj" --cmd "$train_cmd" "$d/train" "$d/lang" "$e/mono" "$e/mono_ali"
  steps/train_deltas.py --nj "$nj" --cmd "$train_cmd" --num-iters 10 --num-leaves 80 --num-gauss 200 "$d/train" "$d/lang" "$e/mono_ali" "$e/tri1"
  steps/align_si.py --nj "$nj" --cmd "$train_cmd" "$d/train" "$d/lang" "$e/tri1" "$e/tri1_ali"
fi

if stage 5 "DNN: $num_ranks MPI ranks with parameter averaging"; then
  steps/train_dnn.py --cmd "$train_cmd" --num-ranks "$num_ranks" --hidden-layers 2 --hidden-dim 64 --minibatch 64 --period-frames 640 --num-epochs 4 \
    "$d/train" "$d/lang" "$e/tri1_ali" "$e/dnn"
fi

if stage 6 "Decode and score"; then
  utils/make_graph.py "$d/lang_test" "$e/mono" "$e/mono/graph"
  utils/make_graph.py "$d/lang_test" "$e/tri1" "$e/tri1/graph"
  for system in mono tri1 dnn; do
    graph=$e/tri1/graph
    if [ $system = mono ]; then graph=$e/mono/graph; fi
    for set in dev test; do
      spawn "decode_${system}_$set" steps/decode.py --nj 1 --cmd "$decode_cmd" --model-dir "$e/$system" "$graph" "$d/$set" "$e/$system/decode_$set"
    done
    join
    steps/score.py --nj 1 "$d/dev" "$d/lang_test" "$e/$system/decode_dev"
    steps/score.py --nj 1 --params-from "$e/$system/decode_dev" "$d/test" "$d/lang_test" "$e/$system/decode_test"
  done
fi

if stage 7 "Results"; then
  utils/collect_results.py "$e" "$e/RESULTS.md"
fi
