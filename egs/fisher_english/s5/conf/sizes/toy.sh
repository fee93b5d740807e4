# Sizes for a few minutes of speech, for trying all stages; sourced by run.sh.
# shellcheck shell=bash disable=SC2034
. conf/toy_gmms.sh
split_opts="--num-dev 12 --num-test 12"
num_short=70
num_mono=50
most_same=10
num_few=40
num_some=60
gmm_opts="--num-iters 7 --max-iter-inc 5"
decoded=tri5a
network_opts="--config conf/toy_network.conf"
