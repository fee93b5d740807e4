# Sizes of the systems on mini_librispeech (Kaldi's) and options of their networks; sourced by run.sh and run_models.sh.
# shellcheck shell=bash disable=SC2034
mono_utts=500    # shortest utterances for monophones; other systems take all
mono_opts=""
tri1_opts="--num-leaves 2000 --num-gauss 10000"
tri2b_opts="--num-leaves 2500 --num-gauss 15000"
tri3b_opts="--num-leaves 2500 --num-gauss 15000"
dnn_opts="--config conf/dnn_mini.conf"
chain_tree_opts="--num-leaves 2000"
chain_opts="--config conf/chain_mini.conf"
