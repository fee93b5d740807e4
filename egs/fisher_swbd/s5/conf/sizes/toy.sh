# Sizes for a few minutes of speech, for trying all stages; sourced by run.sh.
# shellcheck shell=bash disable=SC2034
. conf/toy_gmms.sh
num_dev=12
num_short=60
num_mono=50
num_few=40
num_some=60
same_short=10
same_few=10
same_some=10
same_all=10
gmm_opts="--num-iters 6 --max-iter-inc 4"
adapted=tri6a
rescored_gmms=""
decoded=tri6a
ivector_conf=conf/toy_ivector.conf
network_opts="--config conf/toy_network.conf"
batch_opts="--minibatch 336 --learning-rate 1.0"
