#!/usr/bin/env bash
# Fisher and Switchboard together: 2,000 hours of telephone conversations, tested on Hub5'00 (eval2000) and RT-03. The recipe
# trains GMMs as in Kaldi's recipe, then the BLSTM of IBM (Zhang, Cui et al.) with one of IBM's decentralised training schemes.
# RESULTS.md lists the published error rates.
#
#   ./run.sh --swbd /ldc/LDC97S62 --transcripts /ldc/swb_ms98_transcriptions \
#            --fisher /ldc/LDC2004S13:/ldc/LDC2004T19:/ldc/LDC2005S13:/ldc/LDC2005T19 \
#            --eval2000-audio /ldc/LDC2002S09 --eval2000-text /ldc/LDC2002T43 --rt03 /ldc/LDC2007S10
#   ./run.sh --scheme hadpsgd ...    H-ADPSGD; other schemes are dpsgd, adpsgd, d1d and gradient (synchronous SGD)
#   ./run.sh --topology fixed-ring ...    AD-PSGD with the two neighbours on a ring; or random-ring
#   ./run.sh --help                  the options below

CDPATH='' cd "$(dirname "$0")" || exit 1
[ -f utils/recipe.sh ] || { echo "$0: error: no utils/recipe.sh next to it (docs/recipes.md); for Slurm: sbatch --wrap SCRIPT" >&2; exit 1; }
. utils/recipe.sh
. utils/recipe_decoding.sh

swbd=""             # LDC97S62: a directory above all of its discs, or several separated by ':' (paths)
transcripts=""      # swb_ms98_transcriptions or switchboard_word_alignments.tar.gz (paths); empty: those in LDC97S62
fisher=""           # directories of LDC2004S13, LDC2004T19, LDC2005S13, LDC2005T19, separated by ':' (paths)
eval2000_audio=""   # LDC2002S09 (paths); empty: eval2000 is left out
eval2000_text=""    # LDC2002T43 (paths); empty: looked for in LDC2002S09
rt03=""             # LDC2007S10 (paths); empty: RT-03 is left out
rt03_glm=""         # glm for RT-03 (path); empty: that of the disc
dir=.               # directory of data/ and exp/ (path)
scheme=adpsgd       # scheme of parallel training (one of gradient dpsgd adpsgd hadpsgd d1d)
topology=""         # ranks that mix with each other in dpsgd, adpsgd and hadpsgd (docs/parallel/topologies.md); empty: the scheme's default
batch=8192          # segments of 21 frames in a minibatch, over all ranks (at least 1)
sizes=full          # sizes of the systems, a file in conf/sizes (one of full toy)
nj=32               # parallel jobs of feature extraction, alignment and decoding (at least 1)
num_ranks=16        # MPI ranks that train the network (at least 1)
parse_recipe_options "$@"
. ./path.sh
. ./cmd.sh
# shellcheck source=conf/sizes/full.sh
. "conf/sizes/$sizes.sh"

data=$dir/data exp=$dir/exp lm=$dir/data/local/lm
. local/evaluation_sets.sh
decode_opts="--beam 11"
jobs="--nj $nj"
blstm=blstm_$scheme${topology:+_$topology}

# sat FROM SYSTEM OPTIONS...: SYSTEM, adapted to the speakers of all training data, on alignments by FROM.
sat() {
  local from=$1 system=$2 nodup=$data/train_all_nodup
  shift 2
  steps/align_fmllr.py $jobs $missing_opts --cmd "$train_cmd" "$nodup" "$data/lang_prons" "$exp/$from" "$exp/${from}_ali"
  steps/train_sat.py $jobs --cmd "$train_cmd" $gmm_opts $missing_opts $sat_opts "$@" "$nodup" "$data/lang_prons" "$exp/${from}_ali" "$exp/$system"
}

# of_batch: minibatch and initial learning rate of a rank. In torch, the peak is 0.1 for 256 segments, and the initial rate a tenth of it.
# With a momentum of 0.9, pyasr's rates are ten times torch's.
of_batch() {
  printf -- '--minibatch %d --learning-rate %d.%04d' $((21 * batch / num_ranks)) $((batch / 2560)) $((batch % 2560 * 10000 / 2560))
}

if stage 1 "Check the installation and prepare the corpora"; then
  utils/check_install.py --trust-known true --dir "$dir" --disk-gb "$disk_gb"
  local/prepare_swbd.py --swbd "$swbd" --transcripts "$transcripts" "$data/swbd"
  local/prepare_fisher.py --fisher "$fisher" --speakers side "$data/fisher"
  utils/subset_data_dir.py --first "$num_dev" "$data/swbd/train" "$data/train_dev"
  utils/subset_data_dir.py --all-but-first "$num_dev" "$data/swbd/train" "$data/train_swbd"
  prepare_tests
  make_dev_stm "$data/train_dev"
fi

if stage 2 "Features"; then
  for set in train_swbd fisher train_dev $tests; do
    steps/make_mfcc.py $jobs --cmd "$train_cmd" --config conf/mfcc.conf "$data/$set"
    steps/compute_cmvn.py $jobs --cmd "$train_cmd" "$data/$set"
    utils/validate_data_dir.py --need-feats true "$data/$set"
  done
  utils/combine_data.py "$data/train_all" "$data/train_swbd" "$data/fisher"
fi

if stage 3 "Dictionary, lang directory, language models: a pruned trigram for graphs, a 4-gram for rescoring"; then
  local/prepare_joint_dict.py --swbd "$swbd" --transcripts "$transcripts" "$data/train_all/text" "$data/local/dict"
  utils/prepare_lang.py "$data/local/dict" "<unk>" "$data/lang"
  for order in 3 4; do
    utils/train_lm.py --order $order --min-counts 1,2 --eval-text "$data/train_dev/text" "$data/train_all/text" \
      "$data/local/dict/lexicon.txt" "$lm/${order}g"
  done
  utils/prune_lm.py --lowprobs true "$lm/3g" "$lm/graph_3g"
  utils/make_grammar.py "$data/lang" "$lm/graph_3g/lm.arpa.gz" "$data/lang_test"
fi

if stage 4 "Parts of the training data"; then
  utils/subset_data_dir.py --shortest "$num_short" "$data/train_swbd" "$data/train_short"
  utils/subset_data_dir.py --max-same-text "$same_short" "$data/train_short" "$data/train_short_nodup"
  utils/subset_data_dir.py --random "$num_mono" "$data/train_short_nodup" "$data/train_mono"
  utils/subset_data_dir.py --speakers "$num_few" "$data/train_swbd" "$data/train_few"
  utils/subset_data_dir.py --max-same-text "$same_few" "$data/train_few" "$data/train_few_nodup"
  utils/subset_data_dir.py --speakers "$num_some" "$data/train_swbd" "$data/train_some"
  utils/subset_data_dir.py --max-same-text "$same_some" "$data/train_some" "$data/train_some_nodup"
  utils/subset_data_dir.py --max-same-text "$same_all" "$data/train_all" "$data/train_all_nodup"
fi

if stage 5 "GMMs on deltas, on Switchboard: monophones, triphones"; then
  train="$jobs $gmm_opts $missing_opts" few=$data/train_few_nodup some=$data/train_some_nodup all=$data/train_swbd
  steps/train_mono.py $train --cmd "$train_cmd" "$data/train_mono" "$data/lang" "$exp/mono"
  steps/align_si.py $jobs $missing_opts --cmd "$train_cmd" "$few" "$data/lang" "$exp/mono" "$exp/mono_ali"
  steps/train_deltas.py $train --cmd "$train_cmd" $tri1_opts "$few" "$data/lang" "$exp/mono_ali" "$exp/tri1a"
  steps/align_si.py $jobs $missing_opts --cmd "$train_cmd" "$few" "$data/lang" "$exp/tri1a" "$exp/tri1a_ali"
  steps/train_deltas.py $train --cmd "$train_cmd" $tri1_opts "$few" "$data/lang" "$exp/tri1a_ali" "$exp/tri1b"
  steps/align_si.py $jobs $missing_opts --cmd "$train_cmd" "$some" "$data/lang" "$exp/tri1b" "$exp/tri1b_ali"
  steps/train_deltas.py $train --cmd "$train_cmd" $tri2_opts "$some" "$data/lang" "$exp/tri1b_ali" "$exp/tri2"
  steps/align_si.py $jobs $missing_opts --cmd "$train_cmd" "$all" "$data/lang" "$exp/tri2" "$exp/tri2_ali"
  steps/train_deltas.py $train --cmd "$train_cmd" $tri3a_opts "$all" "$data/lang" "$exp/tri2_ali" "$exp/tri3a"
fi

if stage 6 "GMMs on LDA+MLLT, adapted to speakers, on both corpora"; then
  nodup=$data/train_all_nodup
  steps/align_si.py $jobs $missing_opts --cmd "$train_cmd" "$nodup" "$data/lang" "$exp/tri3a" "$exp/tri3a_ali"
  steps/train_lda_mllt.py $jobs $gmm_opts $missing_opts --cmd "$train_cmd" --splice-left 3 --splice-right 3 $mllt_opts $tri3b_opts "$nodup" "$data/lang" \
    "$exp/tri3a_ali" "$exp/tri3b"

  # From here on, the probabilities of pronunciations and pauses are those in the alignments.
  steps/align_si.py $jobs $missing_opts --cmd "$train_cmd" "$nodup" "$data/lang" "$exp/tri3b" "$exp/tri3b_ali_si"
  steps/get_prons.py $jobs --cmd "$train_cmd" "$nodup" "$data/lang" "$exp/tri3b_ali_si" "$exp/tri3b_prons"
  utils/dict_dir_add_pronprobs.py "$data/local/dict" "$exp/tri3b_prons" "$data/local/dict_prons"
  utils/prepare_lang.py "$data/local/dict_prons" "<unk>" "$data/lang_prons"
  utils/make_grammar.py "$data/lang_prons" "$lm/graph_3g/lm.arpa.gz" "$data/lang_prons_test"
  from=tri3b
  for system in $adapted; do
    opts=${system}_opts
    sat $from "$system" ${!opts}
    from=$system
  done
  steps/align_fmllr.py $jobs $missing_opts --cmd "$train_cmd" "$nodup" "$data/lang_prons" "$exp/tri6a" "$exp/tri6a_ali"
fi

if stage 7 "Graphs and lattices of the GMMs"; then
  for system in $decoded; do
    step=decode lang=lang_test
    case $system in
      tri3b) lang=lang_prons_test ;;
      tri[456]a) step=decode_fmllr lang=lang_prons_test ;;
    esac
    utils/make_graph.py "$data/$lang" "$exp/$system" "$exp/$system/graph"
    decode $step "$exp/$system" "$exp/$system/graph" ""
  done
fi

if stage 8 "Streams for the network: fMLLR, log mel energies with derivatives, i-vectors"; then
  steps/train_ivector_extractor.py $jobs --cmd "$train_cmd" --config "$ivector_conf" --model-dir "$exp/tri3b" "$data/train_some_nodup" \
    "$exp/ivector"
  for set in train_all_nodup train_dev $tests; do
    transforms=$exp/tri6a/decode_$set short_speakers=""
    if [ $set = train_all_nodup ]; then transforms=$exp/tri6a_ali short_speakers="--utts-per-spk-max 2"; fi
    steps/make_fmllr_feats.py $jobs --cmd "$train_cmd" --transform-dir "$transforms" "$data/$set" "$exp/tri6a" "$data/${set}_fmllr"
    utils/copy_data_dir.py --features false "$data/$set" "$data/${set}_fbank"
    steps/make_fbank.py $jobs --cmd "$train_cmd" --config conf/fbank.conf --compress true "$data/${set}_fbank"
    steps/compute_cmvn.py $jobs --cmd "$train_cmd" "$data/${set}_fbank"
    steps/extract_ivectors.py $jobs --cmd "$train_cmd" $short_speakers "$data/$set" "$exp/ivector" "$exp/ivectors_$set"
    steps/paste_feats.py $jobs --cmd "$train_cmd" --cmvn "none speaker" --deltas "0 2" --vectors "$exp/ivectors_$set/ivector_online.scp" \
      "$data/${set}_streams" "$data/${set}_fmllr" "$data/${set}_fbank"
  done
fi

if stage 9 "BLSTM on $num_ranks MPI ranks by $scheme"; then
  steps/train_dnn.py --cmd "$cuda_cmd" --num-ranks "$num_ranks" --share-devices true --config conf/ibm.conf $network_opts \
    --parallel "$scheme" ${topology:+--topology "$topology"} ${batch_opts:-$(of_batch)} \
    "$data/train_all_nodup_streams" "$data/lang_prons" "$exp/tri6a_ali" "$exp/$blstm"
  decode_opts="--beam 13 --lattice-beam 8"
  decode decode "$exp/$blstm" "$exp/tri6a/graph" _streams
fi

if stage 10 "Lattices with the 4-gram"; then
  for system in $rescored_gmms; do
    rescore lm_rescore "$exp/$system" "$data/lang_prons_test" "$lm/4g" "" _4g
  done
  rescore lm_rescore "$exp/$blstm" "$data/lang_prons_test" "$lm/4g" _streams _4g
fi

if stage 11 "Results"; then
  utils/collect_results.py --published conf/published.tsv "$exp" "$exp/RESULTS.md"
fi
