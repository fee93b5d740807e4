#!/usr/bin/env bash
# Schemes of parallel training, compared as the papers do, in miniature: real training of a small network on a part of the corpus, by
# learners that are simulated on one core (steps/simulate_parallel.py), so that all numbers of learners fit. Begins with what run.sh made:
# fMLLR features, the alignments of the system with SAT, its graph. Complete outputs are left alone.
#
#   local/compare_parallel.sh
#   local/compare_parallel.sh --quick
#   local/compare_parallel.sh --schemes "allreduce bmuf" --learners "4 16" --stage 7 --stop-stage 7
#
# Writes exp/parallel/RESULTS.md and its pictures; those of the whole corpus are in parallel/.

CDPATH='' cd "$(dirname "$0")" || exit 1
[ -f ../utils/recipe.sh ] || { echo "$0: error: no utils/recipe.sh above it (docs/jobs.md); for Slurm: sbatch --wrap SCRIPT" >&2; exit 1; }
. ../utils/recipe.sh

quick=false               # a few seconds a network, on a tenth of the frames: shows that all works, and nothing else
schemes=""                # schemes to compare; empty: all that there are
learners="2 4 8 16"       # numbers of learners
seeds="1 2 3"             # seeds to try beside the usual one (may be empty)
num_utts=1260             # utterances to train on
straggler_utts=630        # utterances where only time is measured
sgd_rate=0.05             # learning rate of one learner with SGD and minibatches of 128
ng_rate=0.05              # and with natural gradient
real_ranks="2 4"          # numbers of MPI ranks
decode=true               # decode test
decode_opts="--beam 10 --lattice-beam 6 --max-active 2000"    # narrower than the recipe's, to save time
nj=2                      # parallel jobs of decoding
parse_recipe_options "$@"
cd ..
. ./path.sh
. ./cmd.sh

dir=exp/parallel
if $quick; then dir=exp/parallel_quick num_utts=120 straggler_utts=60 seeds="" decode=false; fi
if [ -z "$schemes" ]; then schemes=$(python3 -c 'from pyasr.parallel.strategies import strategy_names; print(*strategy_names())'); fi
most=${learners##* }
# Where only time is measured, a tiny network and minibatches so small that the slow learner has many of them in an epoch.
tiny="--hidden-layers 1 --hidden-dim 8 --minibatch 16 --lr-scaling none --num-epochs 1"
usual_period=1280    # 10 minibatches of 128
fall="--final-factor 0.05"    # of the rate of the exponential schedule
# 16 P100 in 4 machines with 100 Gbit/s between them (arXiv:1904.04956): 8.58 h for an epoch of 4 million samples
ibm="--compute-s 1.3 --bandwidth-mb 12500 --latency-s 5e-6 --learners-per-host 4 --model-mb 165"

# simulate NAME DATA OPTIONS...: train exp/parallel/NAME.
simulate() {
  local name=$1 data=$2
  shift 2
  steps/simulate_parallel.py --cmd "$train_cmd" --config conf/parallel_dnn.conf "$@" "$data" data/lang_prons exp/tri3_ali "$dir/$name"
}

# set_period SCHEME FRAMES: the array `mixing_period`, options for mixing so often, where a scheme leaves the choice.
set_period() {
  case ${1%%:*} in
    adpsgd | asgd | d1d | dpsgd | gradient | hadpsgd) mixing_period=() ;;
    *) mixing_period=(--period-frames "$2") ;;
  esac
}

# fits SCHEME LEARNERS: whether there are enough of them; one of asgd's is the server.
fits() {
  [ "$1" != asgd ] || [ "$2" -gt 2 ]
}

# compare NAME LEARNERS SCHEME OPTIONS...: SCHEME may be NAME:TOPOLOGY.
compare() {
  local name=$1 num=$2 scheme=$3 topology=""
  shift 3
  if [ "${scheme#*:}" != "$scheme" ]; then topology="--topology ${scheme#*:}"; fi
  set_period "$scheme" "$usual_period"
  simulate "$name" "${data:-$dir/data}" --num-learners "$num" --parallel "${scheme%%:*}" $topology "${mixing_period[@]}" \
    --learning-rate "$sgd_rate" $fall --save-learner true "$@"
}

# train_on_ranks RANKS SCHEME: the same training by MPI ranks.
train_on_ranks() {
  set_period "$2" "$usual_period"
  steps/train_dnn.py --cmd "$cuda_cmd" --config conf/parallel_dnn.conf --num-ranks "$1" --share-devices true --parallel "$2" \
    "${mixing_period[@]}" --learning-rate "$sgd_rate" $fall "$dir/data" data/lang_prons exp/tri3_ali "$dir/real/$2_$1"
}

# known SCHEME...: those that there are; SCHEME:TOPOLOGY and SCHEME_LEARNERS as well.
known() {
  local scheme
  for scheme in "$@"; do
    case " $schemes " in *" ${scheme%%[:_]*} "*) echo "$scheme" ;; esac
  done
}

if stage 1 "Data"; then
  utils/subset_data_dir.py --random "$num_utts" data/train_fmllr "$dir/data"
  utils/subset_data_dir.py --random "$straggler_utts" data/train_fmllr "$dir/data_small"
fi

# Other seeds tell how much of a difference is chance.
if stage 2 "The poster: all-reduce, butterfly, ring"; then
  compare allreduce_1 1 allreduce
  for num in ${learners/#2 /}; do    # two learners have one topology
    for scheme in $(known allreduce butterfly ring); do compare "${scheme}_$num" "$num" "$scheme"; done
  done
  for seed in $seeds; do
    for scheme in $(known allreduce butterfly ring); do
      compare "seed_${seed}_${scheme}_$most" "$most" "$scheme" --train-seed "$seed"
    done
  done
fi

if stage 3 "One straggler"; then
  for factor in 1 2 10 100; do
    for scheme in $(known allreduce gradient d1d dpsgd:fixed-ring dpsgd:random-ring adpsgd adpsgd:fixed-ring adpsgd:random-ring \
                          hadpsgd asgd); do
      data=$dir/data_small compare "straggler_${scheme/:/_}_$factor" "$most" "$scheme" --straggler "$factor" $tiny $ibm
    done
  done
fi

if stage 4 "Minibatches between averages"; then
  for period in 1 10 20 100; do
    compare "period_$period" "$most" allreduce --period-frames $((128 * period))
  done
  for scheme in $(known bmuf easgd slowmo diloco kaldi); do    # those that are made to mix rarely
    compare "rarely_$scheme" "$most" "$scheme" --period-frames 12800
  done
  for scheme in $(known adpsgd); do compare "${scheme}_random_$most" "$most" "$scheme" --random-peers true; done
  for scheme in $(known adpsgd:fixed-ring adpsgd:random-ring); do compare "${scheme/:/_}_$most" "$most" "$scheme"; done
fi

if stage 5 "Minibatch of 256 and 1024 in eighths, plain and natural gradient"; then
  for num in 1 "$most"; do
    compare "minibatch_32_$num" "$num" allreduce --minibatch 32 --period-frames 320 --compute-s 0.04 --lr-convention sum \
      --learning-rate "$(python3 -c "print($sgd_rate / 128)")"
  done
  for num in 1 $learners; do
    compare "natural_$num" "$num" allreduce --natural-gradient online --learning-rate "$ng_rate"
  done
fi

# As in arXiv:1904.04956 the rate is in proportion to the batch, and rises tenfold to that in the first part of the epochs, momentum is 0.9,
# which leaves the length of our steps as it is, and learners draw from all data. The rings
# without `dpsgd` mix after the move: they tell what comes of learners that differ, and what of gradients taken before the mixing.
if stage 6 "Growing batches"; then
  for minibatch in 64 128 256 512; do
    for scheme in $(known gradient fixed-ring random-ring dpsgd:fixed-ring dpsgd:random-ring d1d adpsgd adpsgd:fixed-ring \
                          adpsgd:random-ring hadpsgd); do
      set_period "$scheme" $minibatch
      fall="" compare "batch_${scheme/:/_}_$minibatch" "$most" "$scheme" --minibatch $minibatch "${mixing_period[@]}" $ibm \
        --momentum 0.9 --data-assignment all --schedule warm-up --num-epochs 4 --warm-up-epochs 2 --warm-up-factor 10 \
        --learning-rate "$(python3 -c "print($sgd_rate * $minibatch / 64 / 10)")"
    done
  done
fi

if stage 7 "Every scheme"; then
  for num in $learners; do
    for scheme in $schemes; do
      if fits "$scheme" "$num"; then compare "${scheme}_$num" "$num" "$scheme"; fi
    done
  done
fi

if stage 8 "MPI ranks"; then
  train_on_ranks 1 allreduce    # what the speed of others is relative to
  for num in $real_ranks; do
    for scheme in $(known allreduce gradient butterfly ring delayed d1d adpsgd asgd bmuf kaldi); do
      if fits "$scheme" "$num"; then train_on_ranks "$num" "$scheme"; fi
    done
  done
fi

# All that stands beside published WERs: by learners, and all schemes at the most; with the LM weight that is best on dev for one learner.
if $decode && stage 9 "Word error rates"; then
  steps/decode.py --nj "$nj" $decode_opts --cmd "$decode_cmd" --model-dir "$dir/allreduce_1" exp/tri3/graph data/dev_fmllr "$dir/allreduce_1/decode_dev"
  steps/score.py --nj "$nj" --cmd "$decode_cmd" data/dev_fmllr data/lang_prons_test "$dir/allreduce_1/decode_dev"
  names=$(for scheme in $schemes; do echo "${scheme}_$most" "rarely_$scheme"; done
          for num in 1 $learners; do
            known "allreduce_$num" "butterfly_$num" "ring_$num" "asgd_$num" "bmuf_$num" "easgd_$num"
            known "allreduce_$num/learner" "butterfly_$num/learner" "ring_$num/learner"
            echo "natural_$num" "minibatch_32_$num"
          done
          echo period_{1,10,20,100} "adpsgd_random_$most")
  for name in $(tr ' ' '\n' <<< "$names" | sort -u); do
    out=$dir/$name
    if [ ! -e "$out/final.nnet" ]; then continue; fi
    steps/decode.py --nj "$nj" $decode_opts --cmd "$decode_cmd" --model-dir "$out" exp/tri3/graph data/test_fmllr "$out/decode_test"
    steps/score.py --nj "$nj" --cmd "$decode_cmd" --params-from "$dir/allreduce_1/decode_dev" data/test_fmllr data/lang_prons_test "$out/decode_test"
  done
fi

if stage 10 "Results"; then
  utils/collect_parallel.py "$dir" "$dir/RESULTS.md"
fi
