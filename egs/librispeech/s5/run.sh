#!/usr/bin/env bash
# LibriSpeech, read English at 16 kHz (www.openslr.org/12; mini: www.openslr.org/31), with its published lexicon and language models
# (www.openslr.org/11): GMMs of growing size on 5, 100, 460 or 960 hours, decoding with a pruned trigram, lattices rescored with larger
# models, a DNN on MPI ranks. The results page compares the error rates with published ones.
#
#   ./run.sh --corpus DIR --lm-dir DIR                     mini_librispeech
#   ./run.sh --corpus DIR:DIR2 --lm-dir DIR --subset 960   parts in two directories
#   ./run.sh --help                                        the options below

CDPATH='' cd "$(dirname "$0")" || exit 1
[ -f utils/recipe.sh ] || { echo "$0: error: no utils/recipe.sh next to it (docs/recipes.md); for Slurm: sbatch --wrap SCRIPT" >&2; exit 1; }
. utils/recipe.sh
. utils/recipe_decoding.sh

corpus=""       # directories that contain the parts, such as LibriSpeech, separated by ':' (paths)
lm_dir=""       # directories of the lexicon and language models, separated by ':' (paths); empty: those of --corpus
subset=mini     # training data: mini, or hours (one of mini 100 460 960)
test_kinds="clean other"             # kinds of dev and test sets; mini has its own (any of these)
rescoring="tgmed tglarge fglarge"    # language models that rescore lattices (any of these) (may be empty)
sizes=""        # file of sizes to use instead of conf/sizes (path)
nj=4            # parallel jobs of feature extraction, alignment and decoding (at least 1)
num_ranks=2     # MPI ranks that train the DNN (at least 1)
parse_recipe_options "$@"
. ./path.sh
. ./cmd.sh
. local/subset.sh

jobs="--nj $nj"

# sat SET FROM SYSTEM OPTIONS...: SYSTEM, adapted to the speakers of SET, on alignments by the adapted system FROM.
sat() {
  local set=$1 from=$2 system=$3
  shift 3
  steps/align_fmllr.py $jobs --cmd "$train_cmd" "$data/$set" "$lang" "$exp/$from" "$exp/${from}_ali_$set"
  steps/train_sat.py $jobs --cmd "$train_cmd" "$@" "$data/$set" "$lang" "$exp/${from}_ali_$set" "$exp/$system"
}

if stage 1 "Check the installation and prepare the corpus"; then
  utils/check_install.py --trust-known true --disk-gb "$disk_gb"
  local/prepare_librispeech.py $jobs --subset "$subset" --test-kinds "$test_kinds" "$corpus" "$data"
fi

if stage 2 "Lexicon, lang directory, language models"; then
  local/get_lms.py --rescoring "$rescoring" "${lm_dir:-$corpus}" "$data/local/lm"
  utils/prepare_dict.py --dictionary "$data/local/lm/lexicon/lexicon.txt" --words "$data/local/lm/lexicon/lexicon.txt" --stress true \
    --oov-word "<UNK>" "$data/$base/text" "$data/local/dict"
  utils/prepare_lang.py "$data/local/dict" "<UNK>" "$data/lang"
  utils/make_grammar.py "$data/lang" "$data/local/lm/tgsmall/lm.arpa.gz" "$data/lang_test"
fi

if stage 3 "Features"; then
  case $subset in
    460) parts="train_clean_100 train_clean_360" ;;
    960) parts="train_clean_100 train_clean_360 train_other_500" ;;
    *) parts=$base ;;
  esac
  for set in $parts $decode_sets; do
    set=${set%%:*}
    steps/make_mfcc.py $jobs --cmd "$train_cmd" --config conf/mfcc.conf "$data/$set"
    steps/compute_cmvn.py $jobs --cmd "$train_cmd" "$data/$set"
    utils/validate_data_dir.py --need-feats true "$data/$set"
  done
  if [ "$train" != "$base" ]; then
    utils/combine_data.py "$data/train_clean_460" "$data/train_clean_100" "$data/train_clean_360"
  fi
  if [ "$subset" = 960 ]; then
    utils/combine_data.py "$data/train_960" "$data/train_clean_460" "$data/train_other_500"
  fi
  utils/subset_data_dir.py --shortest "$mono_utts" "$data/$base" "$data/${base}_mono"
  if [ "$subset" != mini ]; then
    utils/subset_data_dir.py --random "$tri1_utts" "$data/$base" "$data/${base}_tri1"
    utils/subset_data_dir.py --random "$tri2b_utts" "$data/$base" "$data/${base}_tri2b"
  fi
fi

tri1_set=$base tri2b_set=$base
if [ "$subset" != mini ]; then tri1_set=${base}_tri1 tri2b_set=${base}_tri2b; fi

if stage 4 "GMMs: monophones, triphones on deltas, on LDA+MLLT, adapted to speakers"; then
  boosted="$jobs --boost-silence 1.25"
  steps/train_mono.py $boosted --cmd "$train_cmd" $mono_opts "$data/${base}_mono" "$data/lang" "$exp/mono"
  steps/align_si.py $boosted --cmd "$train_cmd" "$data/$tri1_set" "$data/lang" "$exp/mono" "$exp/mono_ali"
  steps/train_deltas.py $boosted --cmd "$train_cmd" $tri1_opts "$data/$tri1_set" "$data/lang" "$exp/mono_ali" "$exp/tri1"
  steps/align_si.py $jobs --cmd "$train_cmd" "$data/$tri2b_set" "$data/lang" "$exp/tri1" "$exp/tri1_ali"
  steps/train_lda_mllt.py $jobs --cmd "$train_cmd" --splice-left 3 --splice-right 3 $tri2b_opts "$data/$tri2b_set" "$data/lang" "$exp/tri1_ali" \
    "$exp/tri2b"
  steps/align_si.py $jobs --cmd "$train_cmd" "$data/$tri2b_set" "$data/lang" "$exp/tri2b" "$exp/tri2b_ali"
  steps/train_sat.py $jobs --cmd "$train_cmd" $tri3b_opts "$data/$tri2b_set" "$data/lang" "$exp/tri2b_ali" "$exp/tri3b"
fi

if stage 5 "SAT on all of $base; probabilities of pronunciations and pauses"; then
  lang=$data/lang counted=tri3b
  if [ "$subset" != mini ]; then
    sat "$base" tri3b tri4b $tri4b_opts
    counted=tri4b
  fi
  steps/align_fmllr.py $jobs --cmd "$train_cmd" "$data/$base" "$data/lang" "$exp/$counted" "$exp/${counted}_ali_counted"
  steps/get_prons.py $jobs --cmd "$train_cmd" "$data/$base" "$data/lang" "$exp/${counted}_ali_counted" "$exp/${counted}_prons"
  utils/dict_dir_add_pronprobs.py "$data/local/dict" "$exp/${counted}_prons" "$data/local/dict_prons"
  utils/prepare_lang.py "$data/local/dict_prons" "<UNK>" "$data/lang_prons"
  utils/make_grammar.py "$data/lang_prons" "$data/local/lm/tgsmall/lm.arpa.gz" "$data/lang_prons_test"
fi

if stage 6 "SAT on more data; alignments for networks"; then
  lang=$data/lang_prons
  if [ "$train" != "$base" ]; then sat train_clean_460 tri4b tri5b $tri5b_opts; fi
  if [ "$subset" = 960 ]; then sat train_960 tri5b tri6b $tri6b_opts; fi
  steps/align_fmllr.py $jobs --cmd "$train_cmd" "$data/$train" "$lang" "$exp/$last" "$exp/${last}_ali_$train"
fi

if stage 7 "Graphs and lattices of the GMMs, rescored"; then
  for system in $decoded; do
    step=decode lang=lang_test
    case $system in tri[3-6]b) step=decode_fmllr lang=lang_prons_test ;; esac
    utils/make_graph.py "$data/$lang" "$exp/$system" "$exp/$system/graph"
    decode $step "$exp/$system" "$exp/$system/graph" ""
    if [ $step = decode_fmllr ]; then rescore_all "$system" ""; fi
  done
fi

if stage 8 "fMLLR features for networks"; then
  for set in $train $decode_sets; do
    set=${set%%:*}
    transforms=$exp/$last/decode_$set
    if [ "$set" = "$train" ]; then transforms=$exp/${last}_ali_$train; fi
    steps/make_fmllr_feats.py $jobs --cmd "$train_cmd" --transform-dir "$transforms" "$data/$set" "$exp/$last" "$data/${set}_fmllr_$subset"
  done
fi

if stage 9 "DNN: $num_ranks MPI ranks with parameter averaging"; then
  steps/train_dnn.py --cmd "$cuda_cmd" --num-ranks "$num_ranks" --share-devices true $dnn_opts "$data/${train}_fmllr_$subset" \
    "$data/lang_prons" "$exp/${last}_ali_$train" "$exp/dnn_$subset"
  decode decode "$exp/dnn_$subset" "$exp/$last/graph" "_fmllr_$subset"
  rescore_all "dnn_$subset" "_fmllr_$subset"
fi

if stage 10 "Results"; then
  utils/collect_results.py --published "conf/published/$kind.tsv" "$exp" "$exp/RESULTS.md"
fi
