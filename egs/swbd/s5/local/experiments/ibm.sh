#!/usr/bin/env bash
# IBM's BLSTM (arXiv:1904.04956, 1907.05701, 2002.10502, 2110.11199, 2112.01433) in its settings: synchronous SGD, delay by one, AD-PSGD of
# pairs and on rings, H-ADPSGD, D-PSGD, with batches of 256 to 12,288 segments on 1 to 128 learners. Begins with what run.sh made: audio
# features, fMLLR features and alignments of tri4, the LDA+MLLT system tri3. Complete outputs are left alone.
#
#   local/experiments/ibm.sh
#   local/experiments/ibm.sh --gpus "1 16"     # only the systems of 1 and 16 ranks
#
# On 2,000 hours, after egs/fisher_swbd/s5/run.sh, whose features it takes:
#
#   local/experiments/ibm.sh --stage 2 --dir ../../fisher_swbd/s5 --gmm tri6a --train-set train_all_nodup
#
# Writes exp/experiments/ibm/RESULTS.md: the published tables with our numbers next to them; ibm.md here is the page before the first run.

CDPATH='' cd "$(dirname "$0")" || exit 1
[ -f ../../utils/recipe.sh ] || { echo "$0: error: no utils/recipe.sh above it (docs/recipes.md); for Slurm: sbatch --wrap SCRIPT" >&2; exit 1; }
. ../../utils/recipe.sh
. ../../utils/recipe_decoding.sh

gpus="1 16 32 64 128"    # numbers of MPI ranks to train with, a GPU each (any of 1 16 32 64 128)
dir=.                    # where data/ and exp/ are (path)
gmm=tri4                 # system whose alignments and graph are used
train_set=train_nodup    # training data
nj=16                    # parallel jobs of feature extraction and decoding (at least 1)
parse_recipe_options "$@"
cd ../..
. local/experiments/systems.sh
train=$data/${train_set}_streams features=_streams

# ibm NAME RANKS SEGMENTS OPTIONS...: trained with batches of SEGMENTS segments of 21 frames over all ranks, which each rank draws from all
# data, with the momentum of conf/blstm.conf. The rate is in proportion to the batch: 0.1 at 256 segments after the warm-up, in torch's
# terms. A training that is stuck at the loss of an untrained network ends as others do.
ibm() {
  local name=$1 ranks=$2 segments=$3
  shift 3
  system "$name" "$ranks" --config conf/blstm.conf --data-assignment all --max-store-mb 4000 --stop-at-divergence false \
    --minibatch $((21 * segments / ranks)) \
    --learning-rate "$((segments / 2560)).$(printf %05d $((segments % 2560 * 100000 / 2560)))" "$@"
}

if stage 1 "Features: fMLLR, i-vectors of 100, log mel energies with derivatives"; then
  make_filter_banks
  steps/train_ivector_extractor.py $jobs --cmd "$train_cmd" --config conf/ivector.conf --model-dir "$exp/tri3" "$data/$train_set" "$out/ivector"
  for set in "$train_set" train_dev eval2000; do
    short_speakers=""; if [ "$set" = "$train_set" ]; then short_speakers="--utts-per-spk-max 2"; fi
    steps/extract_ivectors.py $jobs --cmd "$train_cmd" $short_speakers "$data/$set" "$out/ivector" "$out/ivectors_$set"
    steps/paste_feats.py $jobs --cmd "$train_cmd" --cmvn "none speaker" --deltas "0 2" --vectors "$out/ivectors_$set/ivector_online.scp" \
      "$data/${set}_streams" "$data/${set}_fmllr" "$data/${set}_fbank"
  done
fi

if stage 2 "One learner, batch 256"; then
  ibm one_256 1 256 --parallel allreduce --learning-rate 1.0 --warm-up-factor 1
fi

if stage 3 "16 learners, by batch"; then
  for segments in 2048 2560 4096 8192 10240 12288; do ibm "gradient_$segments" 16 $segments --parallel gradient; done
  for segments in 2560 4096 8192 10240 12288; do ibm "adpsgd_$segments" 16 $segments --parallel adpsgd; done
  for segments in 2048 4096 8192; do ibm "dpsgd_$segments" 16 $segments --parallel dpsgd --topology fixed-ring; done
  ibm d1d_2560 16 2560 --parallel d1d
fi

if stage 4 "Batch 8192, by learners"; then
  for num in 16 32 64; do
    for ring in fixed-ring random-ring; do ibm "${ring}_$num" "$num" 8192 --parallel adpsgd --topology $ring; done
    ibm "d1d_$num" "$num" 8192 --parallel d1d
  done
  ibm d1d_128 128 8192 --parallel d1d
fi

if stage 5 "H-ADPSGD: 128 segments of each learner, the ranks of a host are one learner of AD-PSGD"; then
  for num in 16 32 64; do ibm "hadpsgd_$num" "$num" $((128 * num)) --parallel hadpsgd; done
fi

if stage 6 "Results"; then write_page; fi
