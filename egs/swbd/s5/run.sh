#!/usr/bin/env bash
# Switchboard: 300 hours of telephone calls, tested on Hub5'00 (eval2000) and RT-03. The recipe trains GMMs of Kaldi's sizes,
# then the network of Su, Chen and Xu (arXiv:1507.01239): a DBN, natural gradient, parameters averaged over MPI ranks every 10 minibatches.
# RESULTS.md lists the published error rates. run_models.sh trains further networks.
#
#   ./run.sh --swbd /corpora/LDC97S62 --transcripts /corpora/swb_ms98_transcriptions \
#            --eval2000-audio /corpora/LDC2002S09 --eval2000-text /corpora/LDC2002T43 --rt03 /corpora/LDC2007S10
#   ./run.sh --front-end mfcc ...     Kaldi's front end
#   ./run.sh --help     the options below; docs/corpora/switchboard.md describes the discs

CDPATH='' cd "$(dirname "$0")" || exit 1
[ -f utils/recipe.sh ] || { echo "$0: error: no utils/recipe.sh next to it (docs/recipes.md); for Slurm: sbatch --wrap SCRIPT" >&2; exit 1; }
. utils/recipe.sh
. utils/recipe_decoding.sh

swbd=""             # LDC97S62: a directory above all of its discs, or several separated by ':' (paths)
transcripts=""      # swb_ms98_transcriptions or switchboard_word_alignments.tar.gz (paths); empty: those in LDC97S62
docs=""             # directory of conv_tab.csv and caller_tab.csv (paths); empty: those in LDC97S62, if any
speakers=side       # speakers are the sides of calls, or the callers of conv_tab.csv (one of side caller)
eval2000_audio=""   # LDC2002S09 (paths); empty: eval2000 is left out
eval2000_text=""    # LDC2002T43 (paths); empty: looked for in LDC2002S09
rt03=""             # LDC2007S10 (paths); empty: RT-03 is left out
rt03_glm=""         # glm for RT-03 (path); empty: that of the disc
fisher_text=""      # Fisher's transcripts for the 4-gram: LDC2004T19 and LDC2005T19, separated by ':' (paths); empty: only Switchboard
front_end=plp       # features: PLP with pitch (Su and Chen) or MFCC (Kaldi) (one of plp mfcc)
dir=.               # directory of data/ and exp/ (path)
toy=false           # small models for a few minutes of speech, to try all stages
nj=16               # parallel jobs of feature extraction, alignment and decoding (at least 1)
num_ranks=2         # MPI ranks that train a network (at least 1)
parse_recipe_options "$@"
. ./path.sh
. ./cmd.sh

data=$dir/data exp=$dir/exp lm=$dir/data/local/lm
num_dev=4000 num_lm_dev=10000 num_short=100000 num_mono=30000 num_first=100000 few_same=200 many_same=300
disk_gb=100 mono_opts="" gmm_opts="" mllt_opts="" sat_opts="" fmllr_opts="" missing_opts=""
tri1_opts="--num-leaves 3200 --num-gauss 30000"
tri2_opts="--num-leaves 4000 --num-gauss 70000"
tri3_opts="--num-leaves 6000 --num-gauss 140000"
tri4_opts="--num-leaves 11500 --num-gauss 200000"
gmms="tri1 tri2 tri3 tri4" rescored_gmms=tri4 dbn_conf=conf/dbn.conf dnn_conf=conf/dnn.conf
decode_opts="--beam 11"
dnn_decode_opts="--beam 13 --lattice-beam 8"
if $toy; then
  . conf/toy_gmms.sh
  num_dev=8 num_lm_dev=12 num_short=95 num_mono=90 num_first=95 few_same=20 many_same=20
  mono_opts="--num-gauss 150" gmm_opts="--num-iters 12 --max-iter-inc 8" fmllr_opts="--fmllr-min-count 100"
  gmms=tri4 rescored_gmms="" dbn_conf=conf/toy_dbn.conf dnn_conf=conf/toy_dnn.conf
fi
jobs="--nj $nj"
. local/evaluation_sets.sh
score_lang=$data/lang_test

if stage 1 "Check the installation and prepare the corpora"; then
  utils/check_install.py --trust-known true --dir "$dir" --disk-gb "$disk_gb"
  local/prepare_swbd.py --swbd "$swbd" --transcripts "$transcripts" --docs "$docs" --speakers "$speakers" "$data"
  prepare_tests
fi

if stage 2 "Dictionary and lang directory"; then
  local/prepare_dict.py --swbd "$swbd" --transcripts "$transcripts" "$data/train/text" "$data/local/dict"
  utils/prepare_lang.py "$data/local/dict" "<unk>" "$data/lang"
fi

if stage 3 "Features"; then
  for set in train $tests; do
    case $front_end in
      plp) steps/make_plp.py $jobs --cmd "$train_cmd" --config conf/plp.conf "$data/$set" ;;
      mfcc) steps/make_mfcc.py $jobs --cmd "$train_cmd" --config conf/mfcc.conf "$data/$set" ;;
    esac
    steps/compute_cmvn.py $jobs --cmd "$train_cmd" "$data/$set"
    utils/validate_data_dir.py --need-feats true "$data/$set"
  done
fi

if stage 4 "Parts of the training data"; then
  utils/subset_data_dir.py --first "$num_dev" "$data/train" "$data/train_dev"
  make_dev_stm "$data/train_dev"
  utils/subset_data_dir.py --all-but-first "$num_dev" "$data/train" "$data/train_nodev"
  utils/subset_data_dir.py --shortest "$num_short" "$data/train_nodev" "$data/train_short"
  utils/subset_data_dir.py --random "$num_mono" "$data/train_short" "$data/train_mono"
  utils/subset_data_dir.py --first "$num_first" "$data/train_nodev" "$data/train_first"
  utils/subset_data_dir.py --max-same-text "$few_same" "$data/train_first" "$data/train_first_nodup"
  utils/subset_data_dir.py --max-same-text "$many_same" "$data/train_nodev" "$data/train_nodup"
  utils/subset_data_dir.py --first "$num_lm_dev" "$data/train" "$data/lm_dev"
  utils/subset_data_dir.py --all-but-first "$num_lm_dev" "$data/train" "$data/lm_train"
fi

if stage 5 "Language models: a pruned trigram for graphs, a 4-gram for rescoring"; then
  words=$data/local/dict/lexicon.txt
  utils/train_lm.py --eval-text "$data/lm_dev/text" "$data/lm_train/text" "$words" "$lm/swbd_3g"
  utils/train_lm.py --order 4 --eval-text "$data/lm_dev/text" "$data/lm_train/text" "$words" "$lm/swbd_4g"
  utils/prune_lm.py --lowprobs true "$lm/swbd_3g" "$lm/graph_3g"
  utils/make_grammar.py "$data/lang" "$lm/graph_3g/lm.arpa.gz" "$data/lang_test"
  if [ -n "$fisher_text" ]; then
    local/prepare_lm_text.py --fisher "$fisher_text" "$data/local/fisher"
    utils/train_lm.py --order 4 --min-counts 1,2 "$data/local/fisher/text" "$words" "$lm/fisher_4g"
    utils/mix_lms.py --heldout "$data/lm_dev/text" "$lm/mixed_4g" "$lm/swbd_4g" "$lm/fisher_4g"
  fi
fi

if stage 6 "GMMs on deltas: monophones, triphones"; then
  first=$data/train_first_nodup train="$jobs $gmm_opts $missing_opts"
  steps/train_mono.py $train $mono_opts --cmd "$train_cmd" "$data/train_mono" "$data/lang" "$exp/mono"
  steps/align_si.py $jobs $missing_opts --cmd "$train_cmd" "$first" "$data/lang" "$exp/mono" "$exp/mono_ali"
  steps/train_deltas.py $train --cmd "$train_cmd" $tri1_opts "$first" "$data/lang" "$exp/mono_ali" "$exp/tri1"
  steps/align_si.py $jobs $missing_opts --cmd "$train_cmd" "$first" "$data/lang" "$exp/tri1" "$exp/tri1_ali"
  steps/train_deltas.py $train --cmd "$train_cmd" $tri2_opts "$first" "$data/lang" "$exp/tri1_ali" "$exp/tri2"
  steps/align_si.py $jobs $missing_opts --cmd "$train_cmd" "$data/train_nodup" "$data/lang" "$exp/tri2" "$exp/tri2_ali"
fi

if stage 7 "GMMs on LDA+MLLT, adapted to speakers"; then
  nodup=$data/train_nodup train="$jobs $gmm_opts $missing_opts"
  steps/train_lda_mllt.py $train --cmd "$train_cmd" $mllt_opts $tri3_opts "$nodup" "$data/lang" "$exp/tri2_ali" "$exp/tri3"

  # From here on, the probabilities of pronunciations and pauses are those in the alignments.
  steps/align_si.py $jobs $missing_opts --cmd "$train_cmd" "$nodup" "$data/lang" "$exp/tri3" "$exp/tri3_ali"
  steps/get_prons.py $jobs --cmd "$train_cmd" "$nodup" "$data/lang" "$exp/tri3_ali" "$exp/tri3_prons"
  utils/dict_dir_add_pronprobs.py "$data/local/dict" "$exp/tri3_prons" "$data/local/dict_prons"
  utils/prepare_lang.py "$data/local/dict_prons" "<unk>" "$data/lang_prons"
  utils/make_grammar.py "$data/lang_prons" "$lm/graph_3g/lm.arpa.gz" "$data/lang_prons_test"
  steps/train_sat.py $train --cmd "$train_cmd" $sat_opts $tri4_opts "$nodup" "$data/lang_prons" "$exp/tri3_ali" "$exp/tri4"
  steps/align_fmllr.py $jobs $missing_opts --cmd "$train_cmd" "$nodup" "$data/lang_prons" "$exp/tri4" "$exp/tri4_ali"
fi

if stage 8 "Graphs and lattices of the GMMs"; then
  for system in $gmms; do
    step=decode lang=lang_test opts=""
    case $system in
      tri3) lang=lang_prons_test ;;
      tri4) step=decode_fmllr lang=lang_prons_test opts=$fmllr_opts ;;
    esac
    utils/make_graph.py "$data/$lang" "$exp/$system" "$exp/$system/graph"
    decode $step "$exp/$system" "$exp/$system/graph" "" $opts
  done
fi

if stage 9 "fMLLR features for networks"; then
  for set in train_nodup train_dev $tests; do
    transforms=$exp/tri4/decode_$set
    if [ $set = train_nodup ]; then transforms=$exp/tri4_ali; fi
    steps/make_fmllr_feats.py $jobs --cmd "$train_cmd" --transform-dir "$transforms" "$data/$set" "$exp/tri4" "$data/${set}_fmllr"
  done
fi

if stage 10 "DBN on $num_ranks MPI ranks"; then
  steps/pretrain_dbn.py --cmd "$cuda_cmd" --num-ranks "$num_ranks" --share-devices true --config "$dbn_conf" "$data/train_nodup_fmllr" "$exp/dbn"
fi

if stage 11 "DNN from it on $num_ranks MPI ranks, with natural gradient and averaging"; then
  steps/train_dnn.py --cmd "$cuda_cmd" --num-ranks "$num_ranks" --share-devices true --config "$dnn_conf" --dbn "$exp/dbn" \
    "$data/train_nodup_fmllr" "$data/lang_prons" "$exp/tri4_ali" "$exp/dnn"
  decode_opts=$dnn_decode_opts
  decode decode "$exp/dnn" "$exp/tri4/graph" _fmllr
fi

if stage 12 "Lattices with the 4-gram"; then
  fourgram=$lm/swbd_4g
  if [ -n "$fisher_text" ]; then fourgram=$lm/mixed_4g; fi
  for system in $rescored_gmms; do
    rescore lm_rescore "$exp/$system" "$data/lang_prons_test" "$fourgram" "" _4g
  done
  rescore lm_rescore "$exp/dnn" "$data/lang_prons_test" "$fourgram" _fmllr _4g
fi

if stage 13 "Results"; then
  utils/collect_results.py --published conf/published/eval2000.tsv "$exp" "$exp/RESULTS.md"
fi
