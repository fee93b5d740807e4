# Sizes of the systems, those of Kaldi's recipe; sourced by run.sh.
# shellcheck shell=bash disable=SC2034
disk_gb=600
split_opts=""       # 5000 utterances of dev, 5000 of test
num_short=100000    # shortest utterances of train
num_mono=10000      # number of these, drawn at random, for monophones
most_same=100       # maximum number of utterances with the same text
num_few=30000       # utterances of whole speakers, for tri1 and tri2
num_some=100000     # for tri3a and tri4a
missing_opts=""
gmm_opts=""         # options of all GMMs
tri1_opts="--num-leaves 2500 --num-gauss 20000"
tri2_opts="--num-leaves 2500 --num-gauss 20000"
tri3a_opts="--num-leaves 5000 --num-gauss 40000"
tri4a_opts="--num-leaves 5000 --num-gauss 100000"
tri5a_opts="--num-leaves 10000 --num-gauss 300000"
decoded="tri1 tri2 tri3a tri4a tri5a"
mllt_opts=""
sat_opts=""
network_opts=""     # in addition to conf/pnorm.conf, conf/tanh.conf
