# What --subset decides, for run.sh and run_models.sh: directories, sets, the last GMM system, sizes.
# shellcheck shell=bash disable=SC2034,SC2154

data=data exp=exp                             # 100, 460 and 960 hours have their first systems in common
base=train_clean_100                          # what these are trained on
train=$base last=tri4b disk_gb=15             # of networks: the training set, and the system that gives alignments and transforms
kind=full decoded=tri4b                       # systems whose lattices are made
case $subset in
  mini) data=data_mini exp=exp_mini base=train_clean_5 train=train_clean_5 last=tri3b disk_gb=2 kind=mini decoded="mono tri1 tri2b tri3b" ;;
  460) train=train_clean_460 last=tri5b disk_gb=60 decoded="tri4b tri5b" ;;
  960) train=train_960 last=tri6b disk_gb=120 decoded="tri4b tri5b tri6b" ;;
esac
decode_sets=dev_clean_2
if [ "$subset" != mini ]; then
  decode_sets=""
  for condition in $test_kinds; do decode_sets="$decode_sets dev_$condition"; done
  for condition in $test_kinds; do decode_sets="$decode_sets test_$condition:dev_$condition"; done
fi
score_lang=$data/lang_prons_test
sizes=${sizes:-conf/sizes/$kind.sh}
[ -f "$sizes" ] || { recipe_tell "--sizes $sizes: no such file; conf/sizes shows what it holds"; exit 1; }
# shellcheck source=conf/sizes/full.sh
. "$sizes"

# rescore_all SYSTEM FEATURES: lattices of all sets with the larger language models.
rescore_all() {
  local lm
  for lm in $rescoring; do
    rescore lm_rescore "$exp/$1" "$data/lang_prons_test" "$data/local/lm/$lm" "$2" "_$lm"
  done
}
