# Sizes of the systems on 100, 460 and 960 hours (Kaldi's) and options of their networks; sourced by run.sh and run_models.sh.
# shellcheck shell=bash disable=SC2034
mono_utts=2000    # shortest utterances of train-clean-100 for monophones
tri1_utts=5000    # utterances of train-clean-100, drawn at random, for triphones on deltas
tri2b_utts=10000   # for LDA+MLLT and the first system with SAT
mono_opts=""
tri1_opts="--num-leaves 2000 --num-gauss 10000"
tri2b_opts="--num-leaves 2500 --num-gauss 15000"
tri3b_opts="--num-leaves 2500 --num-gauss 15000"
tri4b_opts="--num-leaves 4200 --num-gauss 40000"
tri5b_opts="--num-leaves 5000 --num-gauss 100000"
tri6b_opts="--num-leaves 7000 --num-gauss 150000"
dnn_opts="--config conf/dnn.conf"
chain_tree_opts="--num-leaves 7000"
chain_opts="--config conf/chain.conf"
