# Hub5'00 (eval2000) and RT-03, for run.sh, which sets $data and has the options eval2000_audio, eval2000_text, rt03, rt03_glm. A set without
# discs is left out.
# shellcheck shell=bash disable=SC2034,SC2154

tests=""
if [ -n "$eval2000_audio$eval2000_text" ]; then tests="eval2000"; fi
if [ -n "$rt03" ]; then tests="$tests rt03"; fi
decode_sets="train_dev"
for set in $tests; do decode_sets="$decode_sets $set:train_dev"; done

# prepare_tests: data directories of these sets.
prepare_tests() {
  local set
  for set in $tests; do
    case $set in
      eval2000) local/prepare_eval2000.py --audio "$eval2000_audio" --text "$eval2000_text" "$data" ;;
      rt03) local/prepare_rt03.py --rt03 "$rt03" --glm "$rt03_glm" "$data" ;;
    esac
  done
}

# make_dev_stm DATA: the stm of held-out data, and the glm of the first test set, so that LM weights are chosen by the rules of the tests.
make_dev_stm() {
  local set glm=""
  for set in $tests; do glm=${glm:-$data/$set/glm}; done
  local/make_stm.py --glm "$glm" "$1"
}
