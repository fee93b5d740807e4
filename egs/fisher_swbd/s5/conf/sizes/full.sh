# Sizes of the systems, those of Kaldi's recipe; sourced by run.sh.
# shellcheck shell=bash disable=SC2034
disk_gb=900
num_dev=4000        # utterances of Switchboard that are held out
num_short=100000    # shortest utterances of Switchboard, of which, without repetitions,
num_mono=10000      # so many, drawn at random, are for monophones
num_few=30000       # utterances of whole speakers of Switchboard, for tri1a and tri1b
num_some=100000     # for tri2
same_short=10       # utterances of one text among the shortest
same_few=200        # in tri1a and tri1b
same_some=200       # in tri2
same_all=300        # in the systems on both corpora
missing_opts=""
gmm_opts=""         # of all GMMs
tri1_opts="--num-leaves 3200 --num-gauss 30000"
tri2_opts="--num-leaves 5500 --num-gauss 90000"
tri3a_opts="--num-leaves 11500 --num-gauss 200000"
tri3b_opts="--num-leaves 11500 --num-gauss 400000"
tri4a_opts="--num-leaves 11500 --num-gauss 800000"
tri5a_opts="--num-leaves 11500 --num-gauss 1600000"
tri6a_opts="--num-leaves 11500 --num-gauss 3200000"
decoded="tri1b tri2 tri3a tri3b tri4a tri5a tri6a"
mllt_opts=""
sat_opts=""
ivector_conf=conf/ivector.conf
network_opts=""     # beside conf/ibm.conf
batch_opts=""       # as --batch says
