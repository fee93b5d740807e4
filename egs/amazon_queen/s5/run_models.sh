#!/usr/bin/env bash
# Networks over time and sequence training, each with several seeds: sMBR and MMI on a DNN like that of run.sh, TDNN, IBM's BLSTM, Kaldi's
# LSTMP, a plain LSTM with state carried over, Chan's TC-DNN-BLSTM-DNN, CNN, TDNN with LF-MMI, CTC on subwords, small DNNs taught by larger
# networks, other language models on a network's lattices. Uses the output of run.sh: features and alignments of the SAT system, its graph,
# lang directories.
#
#   ./run_models.sh
#   ./run_models.sh --models "dnn lfmmi" --seeds "1 2"
#   ./run_models.sh --models lm --rescored dnn     # also trains the network of --rescored
#   ./run_models.sh --quick true       # one epoch each on the output of run.sh --quick: only shows that everything works

CDPATH='' cd "$(dirname "$0")" || exit 1
[ -f utils/recipe.sh ] || { echo "$0: error: no utils/recipe.sh next to it (docs/recipes.md); for Slurm: sbatch --wrap SCRIPT" >&2; exit 1; }
. utils/recipe.sh
. utils/recipe_decoding.sh

models="dnn dnn_sp smbr mmi tdnn blstm blstm_streams lstmp lstm tc_dnn_blstm_dnn cnn lfmmi ctc student lm"  # networks to train (any of these)
seeds="1 2 3"   # seeds of the networks of each kind; the teachers have the first
rescored=lfmmi  # network whose lattices are rescored with other language models (one of dnn dnn_sp smbr mmi tdnn blstm blstm_streams lstmp lstm tc_dnn_blstm_dnn cnn lfmmi student)
quick=false     # one epoch each on the output of run.sh --quick
nj=2            # parallel jobs (at least 1)
num_ranks=2     # MPI ranks of a training (at least 1)
parse_recipe_options "$@"
. ./path.sh
. ./cmd.sh

data=data exp=exp short=""
if $quick; then
  data=data_quick exp=exp_quick seeds=1
  short="--num-epochs 1" decode_opts="--beam 9 --lattice-beam 5 --max-active 1000"
fi
dir=$exp/models
ali=$exp/tri3_ali
jobs="--nj $nj"
score_lang=$data/lang_prons_test
score_opts="--max-lmwt 30"

if wanted lm; then models="$models $rescored"; fi

# train STEP MODEL SEED OPTIONS AND INPUTS...: make $dir/MODEL/seedSEED.
train() {
  local step=$1 out=$dir/$2/seed$3 seed=$3
  shift 3
  steps/$step.py --cmd "$cuda_cmd" --num-ranks "$num_ranks" --share-devices true --train-seed "$seed" $short "$@" "$out"
}

# by_frames MODEL FEATURES CONFIG OPTIONS...: networks that learn the states of the alignment $ali frame by frame, with all seeds.
by_frames() {
  local model=$1 features=$2 config=$3 seed
  shift 3
  for seed in $seeds; do
    train train_dnn "$model" "$seed" --config "conf/$config.conf" "$@" "$data/train$features" "$data/lang_prons" "$ali"
    decode decode "$dir/$model/seed$seed" "$exp/tri3/graph" "$features"
  done
}

# by_lattices MODEL SEED BEGIN OPTIONS...: the network of the directory BEGIN, trained on its own alignment and lattices, which are created
# at the scale of its training.
by_lattices() {
  local model=$1 seed=$2 begin=$3
  shift 3
  steps/align_dnn.py $jobs --cmd "$train_cmd" "$data/train_fmllr" "$data/lang_prons" "$begin" "${begin}_ali"
  steps/decode.py $jobs --cmd "$decode_cmd" --lattice-beam 7 --acoustic-scale 0.1 $decode_opts --model-dir "$begin" \
    "$exp/tri3/graph_unigram" "$data/train_fmllr" "${begin}_denlats"
  train train_smbr "$model" "$seed" "$@" "$data/train_fmllr" "$data/lang_prons" "${begin}_ali" "${begin}_denlats" "$begin"
}

if wanted dnn_sp lfmmi ctc && stage 1 "Speech at three speeds, aligned, adapted to speakers"; then
  utils/perturb_data_dir.py "$data/train" "$data/train_sp"
  steps/make_mfcc.py $jobs --cmd "$train_cmd" --config conf/mfcc.conf "$data/train_sp"
  steps/compute_cmvn.py $jobs --cmd "$train_cmd" "$data/train_sp"
  steps/align_fmllr.py $jobs --boost-silence 1.25 --cmd "$train_cmd" "$data/train_sp" "$data/lang_prons" "$exp/tri3" "$exp/tri3_ali_sp"
  steps/make_fmllr_feats.py $jobs --cmd "$train_cmd" --transform-dir "$exp/tri3_ali_sp" "$data/train_sp" "$exp/tri3" "$data/train_sp_fmllr"
fi

if wanted blstm_streams && stage 2 "Streams side by side: fMLLR, log mel energies with derivatives, i-vectors"; then
  steps/train_ivector_extractor.py $jobs --cmd "$train_cmd" --config conf/ivector.conf --model-dir "$exp/tri2" "$data/train" "$dir/ivector"
  for set in train dev test; do
    short_speakers=""; if [ $set = train ]; then short_speakers="--utts-per-spk-max 2"; fi
    steps/extract_ivectors.py $jobs --cmd "$train_cmd" $short_speakers "$data/$set" "$dir/ivector" "$dir/ivectors_$set"
    steps/paste_feats.py $jobs --cmd "$train_cmd" --cmvn "none speaker" --deltas "0 2" --vectors "$dir/ivectors_$set/ivector_online.scp" \
      "$data/${set}_streams" "$data/${set}_fmllr" "$data/${set}_fbank"
  done
fi

if wanted dnn smbr mmi student && stage 3 "DNN"; then by_frames dnn _fmllr dnn; fi

if wanted dnn_sp && stage 4 "DNN on speech at three speeds"; then
  for seed in $seeds; do
    train train_dnn dnn_sp "$seed" --config conf/dnn.conf --num-epochs 4 $short "$data/train_sp_fmllr" "$data/lang_prons" "$exp/tri3_ali_sp"
    decode decode "$dir/dnn_sp/seed$seed" "$exp/tri3/graph" _fmllr
  done
fi

if wanted smbr mmi && stage 5 "sMBR and MMI on lattices of a unigram model, generated again after an epoch"; then
  utils/train_lm.py --order 1 "$data/train/text" "$data/local/dict/lexicon.txt" "$data/local/lm/unigram"
  utils/make_grammar.py "$data/lang_prons" "$data/local/lm/unigram/lm.arpa.gz" "$data/lang_prons_unigram"
  utils/make_graph.py "$data/lang_prons_unigram" "$exp/tri3" "$exp/tri3/graph_unigram"
  for seed in $seeds; do
    for criterion in smbr mmi; do
      wanted $criterion || continue
      by_lattices ${criterion}_begun "$seed" "$dir/dnn/seed$seed" --config conf/$criterion.conf --num-epochs 1
      by_lattices $criterion "$seed" "$dir/${criterion}_begun/seed$seed" --config conf/$criterion.conf
      decode decode "$dir/$criterion/seed$seed" "$exp/tri3/graph" _fmllr
    done
  done
fi

if wanted tdnn && stage 6 "TDNN"; then by_frames tdnn _fmllr tdnn; fi
if wanted blstm && stage 7 "BLSTM, as IBM's"; then by_frames blstm _fmllr blstm; fi
if wanted blstm_streams && stage 8 "The same on streams"; then by_frames blstm_streams _streams blstm; fi
if wanted lstmp student && stage 9 "LSTMP, as Kaldi's"; then by_frames lstmp _fmllr lstmp; fi
if wanted lstm && stage 10 "LSTM whose state is carried from chunk to chunk"; then by_frames lstm _fmllr lstm; fi
if wanted tc_dnn_blstm_dnn && stage 11 "TC-DNN-BLSTM-DNN, as Chan's"; then by_frames tc_dnn_blstm_dnn _fmllr tc_dnn_blstm_dnn; fi
if wanted cnn && stage 12 "CNN on log mel energies"; then by_frames cnn _fbank cnn; fi

if wanted lfmmi && stage 13 "TDNN with LF-MMI"; then
  steps/build_chain_tree.py $jobs --cmd "$train_cmd" --num-leaves 1200 "$data/train" "$data/lang_prons" "$exp/tri3_ali" "$dir/chain_tree"
  for seed in $seeds; do
    train train_lfmmi lfmmi "$seed" --config conf/chain.conf "$data/train_sp_fmllr" "$exp/tri3_ali_sp" "$dir/chain_tree"
    utils/make_graph.py --self-loop-scale 1.0 "$data/lang_prons_test" "$dir/chain_tree" "$dir/chain_tree/graph"
    decode decode "$dir/lfmmi/seed$seed" "$dir/chain_tree/graph" _fmllr --acoustic-scale 0.1
  done
fi

if wanted ctc && stage 14 "CTC on subwords"; then
  utils/train_subwords.py --num-units 300 "$data/train" "$dir/units"
  utils/prepare_ctc_lang.py "$dir/units" "$data/local/dict/lexicon.txt" "$data/lang_ctc"
  utils/make_grammar.py "$data/lang_ctc" "$data/local/lm/trigram/lm.arpa.gz" "$data/lang_ctc_test"
  utils/make_ctc_graph.py "$data/lang_ctc_test" "$dir/ctc_graph"
  for seed in $seeds; do
    out=$dir/ctc/seed$seed
    train train_ctc ctc "$seed" --config conf/ctc.conf "$data/train_sp_fmllr" "$dir/units" conf/network/ctc.net
    for set in dev test; do
      for search in greedy prefix wfst; do
        how="--search $search"
        case $search in
          prefix) how="$how --lm $data/local/lm/trigram/lm.arpa.gz --lm-weight 0.5 --word-bonus 3" ;;    # chosen on dev
          wfst) how="$how $decode_opts --graph-dir $dir/ctc_graph" ;;
        esac
        steps/decode_ctc.py $jobs --cmd "$decode_cmd" $how "$data/${set}_fmllr" "$out" "$out/decode_${set}_$search"
      done
    done
    for search in greedy prefix wfst; do
      score_lang=$data/lang_ctc_test score "$out" _fmllr "_$search" --min-lmwt 3 --word-ins-penalties=-8.0,-6.0,-4.0,-2.0,0.0,1.0
    done
    steps/get_ctm.py $jobs --cmd "$decode_cmd" "$data/test_fmllr" "$data/lang_ctc_test" "$out/decode_test_wfst" "$out/ctm_test"
  done
fi

if wanted student && stage 15 "Small DNNs, taught by alignments of the GMM and of the LSTMP, by the LSTMP and by the DNN"; then
  small="--hidden-layers 2 --hidden-dim 512 --dropout 0"    # as in arXiv:1504.01483
  first=${seeds%% *}
  lstmp=$dir/lstmp/seed$first
  steps/align_dnn.py $jobs --cmd "$train_cmd" "$data/train_fmllr" "$data/lang_prons" "$lstmp" "${lstmp}_ali"
  by_frames small _fmllr dnn $small
  ali=${lstmp}_ali by_frames small_of_lstmp _fmllr dnn $small
  by_frames student _fmllr dnn $small --teacher "$lstmp"
  by_frames student_of_dnn _fmllr dnn $small --teacher "$dir/dnn/seed$first"
fi

if wanted lm && stage 16 "Lattices of $rescored with a 4-gram and an LSTM language model, minimum Bayes risk, times of words"; then
  utils/train_lm.py --order 4 "$data/train/text" "$data/local/dict/lexicon.txt" "$data/local/lm/fourgram"
  utils/train_lstm_lm.py --ngram "$data/local/lm/trigram" "$data/train/text" "$data/dev/text" "$data/local/dict/lexicon.txt" \
    "$dir/lstm_lm"
  case $rescored in
    blstm_streams) features=_streams ;;
    cnn) features=_fbank ;;
    *) features=_fmllr ;;
  esac
  for seed in $seeds; do
    out=$dir/$rescored/seed$seed
    score "$out" $features "" --decode-mbr true
    rescore lm_rescore "$out" "$data/lang_prons_test" "$data/local/lm/fourgram" $features _fourgram
    rescore lm_rescore_lstm "$out" "$data/lang_prons_test" "$dir/lstm_lm" $features _lstm
    score "$out" $features _lstm --decode-mbr true
    steps/get_ctm.py $jobs --cmd "$decode_cmd" "$data/test$features" "$data/lang_prons_test" "$out/decode_test_lstm" "$out/ctm_test"
  done
fi

if stage 17 "Results"; then
  utils/collect_results.py "$dir" "$dir/RESULTS.md"
fi
