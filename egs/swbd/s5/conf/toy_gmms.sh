# Common toy sizes of the recipes for telephone speech, for a few minutes of speech; sourced by their sizes.
# shellcheck shell=bash disable=SC2034
disk_gb=0.1
missing_opts="--max-missing 0.2"    # models of so little speech cannot align all of it
mllt_opts="--config conf/toy_lda_mllt.conf"
sat_opts="--config conf/toy_sat.conf"
score_opts="--min-lmwt 8 --max-lmwt 12 --word-ins-penalties 0.0"
for system in tri1 tri2 tri3 tri3a tri3b tri4 tri4a tri5a tri6a; do
  printf -v "${system}_opts" %s "--num-leaves 80 --num-gauss 200"
done
