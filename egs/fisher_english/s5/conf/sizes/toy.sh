# Sizes for a few minutes of speech, by which all stages are tried; sourced by run.sh.
# shellcheck shell=bash disable=SC2034
disk_gb=0.1
split_opts="--num-dev 12 --num-test 12"
num_short=70
num_mono=50
most_same=10
num_few=40
num_some=60
missing_opts="--max-missing 0.2"    # models of so little speech cannot align all of it
gmm_opts="--num-iters 7 --max-iter-inc 5"
tri1_opts="--num-leaves 80 --num-gauss 200"
tri2_opts=$tri1_opts
tri3a_opts=$tri1_opts
tri4a_opts=$tri1_opts
tri5a_opts=$tri1_opts
decoded="tri1 tri5a"
mllt_opts="--config conf/toy_lda_mllt.conf"
sat_opts="--config conf/toy_sat.conf"
network_opts="--config conf/toy_network.conf"
