# Sizes for a few minutes of speech, by which all stages are tried; sourced by run.sh.
# shellcheck shell=bash disable=SC2034
disk_gb=0.1
num_dev=12
num_short=60
num_mono=50
num_few=40
num_some=60
same_short=10
same_few=10
same_some=10
same_all=10
missing_opts="--max-missing 0.2"    # models of so little speech cannot align all of it
gmm_opts="--num-iters 6 --max-iter-inc 4"
tri1_opts="--num-leaves 80 --num-gauss 200"
tri2_opts=$tri1_opts
tri3a_opts=$tri1_opts
tri3b_opts=$tri1_opts
tri4a_opts=$tri1_opts
tri5a_opts=$tri1_opts
tri6a_opts=$tri1_opts
decoded=tri6a
mllt_opts="--config conf/toy_lda_mllt.conf"
sat_opts="--config conf/toy_sat.conf"
ivector_conf=conf/toy_ivector.conf
network_opts="--config conf/toy_network.conf"
batch_opts="--minibatch 168 --learning-rate 0.5"
