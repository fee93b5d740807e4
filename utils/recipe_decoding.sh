# Decoding, scoring and rescoring of all sets of a recipe, sourced after utils/recipe.sh.
#
#   decode_sets="dev test:dev"    # dev chooses its LM weight; test takes the one chosen on dev, which comes before it
#   decode decode_fmllr exp/tri3 exp/tri3/graph "" --beam 11
#   rescore lm_rescore exp/tri3 data/lang_test data/local/lm/fourgram "" _fourgram
#
# The lattices of data/SETFEATURES are MODEL/decode_SET, rescored ones MODEL/decode_SETSUFFIX. A recipe sets nj (parallel jobs) and decode_cmd,
# and the variables below where their defaults do not suit it.

# shellcheck disable=SC2086,SC2154 # options are lists of words; nj and decode_cmd come from the recipe

data=data                     # directory of data and lang directories
decode_sets="dev test:dev"    # in the order of decoding
decode_nj=""                  # parallel jobs of decoding; nj unless given
decode_opts=""                # options of all decodings
score_lang=""                 # lang directory of scores; $data/lang_test unless given
score_opts=""                 # options of all scores

# decode STEP MODEL GRAPH FEATURES [OPTIONS...]: lattices of all sets by steps/STEP.py, scored.
decode() {
  make_lattices "$@"
  score "$2" "$4"
}

# make_lattices STEP MODEL GRAPH FEATURES [OPTIONS...]: lattices of all sets.
make_lattices() {
  local step=$1 model=$2 graph=$3 features=$4 set
  shift 4
  for set in $decode_sets; do
    set=${set%%:*}
    steps/$step.py --nj "${decode_nj:-$nj}" --cmd "$decode_cmd" $decode_opts "$@" --model-dir "$model" "$graph" "$data/$set$features" \
      "$model/decode_$set"
  done
}

# score MODEL FEATURES [SUFFIX [OPTIONS...]]: scores of the lattices of all sets.
score() {
  local model=$1 features=$2 suffix=${3-} set chosen
  shift $(($# < 3 ? $# : 3))
  for set in $decode_sets; do
    chosen=""
    case $set in *:*) chosen=$model/decode_${set#*:}$suffix ;; esac
    set=${set%%:*}
    steps/score.py --nj "${decode_nj:-$nj}" --cmd "$decode_cmd" $score_opts "$@" ${chosen:+--params-from "$chosen"} "$data/$set$features" \
      "${score_lang:-$data/lang_test}" "$model/decode_$set$suffix"
  done
}

# rescore STEP MODEL LANG LM FEATURES SUFFIX [OPTIONS...]: lattices of all sets, decoded with the G.fst of LANG, with another language model by
# steps/STEP.py, scored.
rescore() {
  local step=$1 model=$2 lang=$3 lm=$4 features=$5 suffix=$6 set
  shift 6
  for set in $decode_sets; do
    set=${set%%:*}
    steps/$step.py --nj "${decode_nj:-$nj}" --cmd "$decode_cmd" "$@" "$lang" "$lm" "$data/$set$features" "$model/decode_$set" \
      "$model/decode_$set$suffix"
  done
  score "$model" "$features" "$suffix"
}
