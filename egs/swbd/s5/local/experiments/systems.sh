# What the scripts of published experiments share. Sourced from the recipe's directory, after the options.
#
#   gpus        numbers of ranks that are trained with
#   dir, nj     as those of run.sh
#   gmm         system whose alignments and graph are used; tri4 unless set
#   train_set   training data; train_nodup unless set
#
# shellcheck disable=SC2034,SC2154 # variables of the script that sources it, and of utils/recipe_decoding.sh

. ./path.sh
. ./cmd.sh

experiment=${recipe_name%.sh}
data=$dir/data exp=$dir/exp out=$dir/exp/experiments/$experiment
gmm=${gmm:-tri4} train_set=${train_set:-train_nodup}
train=$data/${train_set}_fmllr features=_fmllr
decode_sets="train_dev eval2000:train_dev"
decode_opts="--beam 13 --lattice-beam 8"
score_lang=$data/lang_test
jobs="--nj $nj"
from_dbn="--config conf/dnn.conf --dbn $exp/dbn"    # the network of run.sh

# system NAME RANKS OPTIONS...: a network trained on the alignments of the GMM by RANKS ranks, and decoded. Left out unless --gpus names RANKS.
system() {
  local name=$1 ranks=$2
  shift 2
  is_among "$ranks" "$gpus" || return 0
  steps/train_dnn.py --cmd "$cuda_cmd" --num-ranks "$ranks" --share-devices true "$@" "$train" "$data/lang_prons" "$exp/${gmm}_ali" "$out/$name"
  decode decode "$out/$name" "$exp/$gmm/graph" "$features"
}

# make_filter_banks: log mel energies of the audio of all sets.
make_filter_banks() {
  local set
  for set in "$train_set" train_dev eval2000; do
    utils/copy_data_dir.py --features false "$data/$set" "$data/${set}_fbank"
    steps/make_fbank.py $jobs --cmd "$train_cmd" --config conf/fbank.conf --compress true "$data/${set}_fbank"
    steps/compute_cmvn.py $jobs --cmd "$train_cmd" "$data/${set}_fbank"
  done
}

# write_page: published numbers next to ours.
write_page() {
  utils/compare_published.py "local/experiments/$experiment.tsv" "$out" "$out/RESULTS.md"
}
