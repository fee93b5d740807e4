# What every run.sh sources first: strict mode, stages, background work that cannot fail unseen, options, plans (--plan true).
#
#   CDPATH='' cd "$(dirname "$0")" || exit 1
#   . utils/recipe.sh || exit 1
#   nj=4            # parallel jobs
#   quick=false     # train on a part of the corpus
#   parse_recipe_options "$@"
#   . ./path.sh
#
#   if stage 1 "Prepare the corpus"; then
#     local/prepare_data.py data
#   fi
#   if stage 2 "Decode"; then
#     spawn dev steps/decode.py ...          # in the background, its output in exp/log/spawn.dev.log
#     spawn test steps/decode.py ...
#     join                                   # waits for both and shows their last lines; the recipe stops when one has failed
#   fi
#
# The recipe runs in its own directory, as a process group that is ended as a whole when run.sh is killed, however it is killed.

set -euo pipefail
unset CDPATH # with it, cd may go elsewhere, and prints where

recipe_root=$(cd -P "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
recipe_name=$(basename "$0")
# shellcheck source=utils/find_python.sh
. "$recipe_root/utils/find_python.sh"

recipe_python=$recipe_root/.venv/bin/python
[ -x "$recipe_python" ] || recipe_python=$(find_python)

# The recipe has gone to its own directory already.
recipe_file=./$recipe_name
[ -f "$recipe_file" ] || recipe_file=$0
if [ -z "${PYASR_SUPERVISED:-}" ]; then
  PYASR_START_DIR=${OLDPWD:-$PWD}
  export PYASR_START_DIR PYASR_SUPERVISED=$$
  exec "$recipe_python" "$recipe_root/utils/supervise.py" bash "$recipe_file" "$@"
fi
cd "$(dirname "$recipe_file")"

stage=0           # first stage to run
stop_stage=1000   # last stage to run
plan=false        # whether programs are recorded instead of run, and what they take is told in the end
recipe_record=""  # file of the record
recipe_stage=""
recipe_has_run="" # a stage
recipe_first_stage="" # of all that were looked at, wanted or not
recipe_log_dir=exp/log
recipe_num_spawned=0
recipe_pids=()
recipe_spawned=()
recipe_in_background=""   # the spawned command, in the subshell that runs it
recipe_told=""

# Replaces recipe variables by the values given on the command line; --help lists them.
parse_recipe_options() {
  local assignments
  assignments=$(PYTHONPATH=$recipe_root "$recipe_python" -m pyasr.base.recipe_options "./$recipe_name" "${PYASR_START_DIR:-$PWD}" "$@") || {
    trap - EXIT
    exit 1
  }
  eval "$assignments"
  if [ "$plan" = true ]; then recipe_begin_plan; fi
}

# Replaces the recipe's programs by functions that record how they are called: the words of a call end in tabs.
recipe_begin_plan() {
  local program
  recipe_record=$(mktemp "${TMPDIR:-/tmp}/plan.XXXXXX")
  for program in $(recipe_programs); do
    eval "$program() { recipe_note $program \"\$@\"; }"
  done
}

# The names by which a recipe's scripts call programs, wherever below the recipe's directory a script is.
recipe_programs() {
  local top
  for top in "$recipe_root" . .. ../..; do
    [ -d "$top/steps" ] || continue
    (cd "$top" && ls steps/*.py utils/*.py local/*.py local/*.sh local/*/*.sh ../../*/s5/local/*.py 2>/dev/null) || true
  done
}

recipe_note() {
  printf '%s\t' "$@" >>"$recipe_record"
  echo >>"$recipe_record"
}

# What the recorded programs take, unless the recipe has failed.
recipe_end_plan() {
  [ "$1" -ne 0 ] || "$recipe_root/utils/plan_recipe.py" "$recipe_record"
  set -- $?
  rm -f "$recipe_record"
  return "$1"
}

# stage N TITLE: is stage N to be run? Prints its header if so.
stage() {
  recipe_stage="$1 ($2)"
  export PYASR_STAGE=$recipe_stage # for failure reports
  recipe_first_stage=${recipe_first_stage:-$1}
  recipe_last_stage=$1
  [ "$1" -ge "$stage" ] && [ "$1" -le "$stop_stage" ] || return 1
  recipe_has_run=yes
  if [ -n "$recipe_record" ]; then
    recipe_note "== stage" "$1" "$2"
    return 0
  fi
  printf '\n== stage %s: %s (%s)\n' "$1" "$2" "$(date +%H:%M:%S)"
}

# is_among WORD WORDS: is it one of these, which have blanks between them?
is_among() {
  case " $2 " in *" $1 "*) return 0 ;; esac
  return 1
}

# wanted NAME...: is one of these among the words of $models, a recipe's option?
wanted() {
  local name
  for name in "$@"; do
    if is_among "$name" "${models:-}"; then return 0; fi
  done
  return 1
}

# spawn NAME COMMAND ARGUMENTS...: run in the background, with the output in a log file.
spawn() {
  local log=$recipe_log_dir/spawn.$1.log
  if [ -n "$recipe_record" ]; then
    "${@:2}"
    return
  fi
  recipe_spawned[recipe_num_spawned]=$1
  shift
  mkdir -p "$recipe_log_dir"
  (
    trap - EXIT
    # shellcheck disable=SC2030 # only this subshell is to know
    recipe_in_background="$*"
    "$@"
  ) >"$log" 2>&1 </dev/null &
  recipe_pids[recipe_num_spawned]=$!
  recipe_num_spawned=$((recipe_num_spawned + 1))
}

# join: wait for all that was spawned; fails when one of it has failed, and says which; the report of the first is shown in full.
join() {
  local i failed=0 number=$recipe_num_spawned
  recipe_num_spawned=0
  for ((i = 0; i < number; i++)); do
    if wait "${recipe_pids[i]}"; then
      tail -n 1 "$recipe_log_dir/spawn.${recipe_spawned[i]}.log" | recipe_show
    elif [ $failed = 0 ]; then
      failed=1
      recipe_show_failed "${recipe_spawned[i]}"
    else
      echo "$recipe_name: '${recipe_spawned[i]}' failed as well: see $recipe_log_dir/spawn.${recipe_spawned[i]}.log" >&2
    fi
  done
  return $failed
}

# What a spawned command has said of its failure: its runner's report and what follows, or the last lines.
recipe_show_failed() {
  local log=$recipe_log_dir/spawn.$1.log
  echo "$recipe_name: '$1' failed; the last lines of $log:" >&2
  { sed -n '/^[a-z]*\.pl: [0-9]* \/ [0-9]* failed/,$p' "$log" | grep -a . || tail -n 15 "$log"; } | tail -n 40 | recipe_show | sed 's/^/    | /' >&2
}

# Lines of a log, with control characters as \x1b, by which they give the terminal no orders.
recipe_show() {
  PYTHONPATH=$recipe_root "$recipe_python" -m pyasr.base.show
}

# On ERR: names stage, file, line and command. A subshell's failure is told once, by the recipe's own shell.
# shellcheck disable=SC2031,SC2016 # see spawn; and commands come here as they are written
recipe_failed() {
  local status=$1 parts=$2 file=$3 line=$4 command=$5
  if [ "$BASH_SUBSHELL" -gt 0 ] && [ -z "$recipe_in_background" ]; then return; fi
  case $command in
    '"$@"') command=$recipe_in_background ;;
    'return $failed') command='join' ;;
  esac
  case $parts in *\ *) command="... | $command" ;; esac
  recipe_tell "'$command' failed with status $status$(recipe_cause "$status" "$command") (${file#./} line $line)"
}

# recipe_cause STATUS COMMAND: what is known of a status of a command that could say nothing itself.
recipe_cause() {
  case $2 in
    *_cmd=*.pl\ -*)
      echo ", a value with blanks needs quotation marks, as in train_cmd=\"run.pl --mem 2G\""
      return
      ;;
  esac
  case $1 in
    141) echo ", the reader of what it writes has left" ;;
    137) echo ", killed from outside, most often for want of memory (see dmesg)" ;;
    127) echo ", there is no such program on PATH (was path.sh sourced?)" ;;
    126) echo ", it may not be run (see its mode with ls -l)" ;;
  esac
}

recipe_tell() {
  recipe_told=yes
  echo "$recipe_name: error: ${recipe_stage:+stage $recipe_stage: }$1" >&2
}

# On EXIT: nothing that was spawned is left unjoined, and no failure untold.
recipe_exit() {
  local status=$?
  trap - EXIT ERR
  set +e
  if [ "$status" -eq 0 ] && [ "$recipe_num_spawned" -gt 0 ]; then
    join || status=1
  fi
  if [ "$status" -eq 0 ] && [ -n "$recipe_stage" ] && [ -z "$recipe_has_run" ]; then
    rm -f "$recipe_record"
    recipe_stage=""
    recipe_tell "no stage was run: this recipe's stages are $recipe_first_stage to $recipe_last_stage, and --stage $stage --stop-stage $stop_stage names none of them"
    exit 1
  fi
  if [ -n "$recipe_record" ]; then
    recipe_end_plan "$status" || exit 1
  fi
  if [ "$status" -ne 0 ]; then
    [ -n "$recipe_told" ] || recipe_tell "ended with status $status"
    echo "$recipe_name: put it right and run the same command again; what is complete will not be made anew" >&2
  fi
  exit "$status"
}

# The runner for this machine, for cmd.sh: that of the cluster which is there and answers, else run.pl.
detect_runner() {
  if recipe_cluster_answers Slurm sbatch sinfo -h; then
    echo slurm.pl
  elif recipe_cluster_answers "Grid Engine" qsub qconf -sql; then
    echo queue.pl
  else
    echo run.pl
  fi
}

# detect_cuda_runner RUNNER: that runner, for jobs that train networks, which on a cluster with GPUs must ask for one, and on one machine find
# them by themselves.
detect_cuda_runner() {
  if recipe_cluster_has_gpus "$1"; then
    echo "$1 --gpu 1"
  else
    echo "$1"
  fi
}

# recipe_cluster_has_gpus RUNNER: has a host of the cluster of RUNNER one, under the name `gpu`?
recipe_cluster_has_gpus() {
  case $1 in
    slurm.pl*) timeout 20 sinfo -h -o %G | grep gpu ;;
    queue.pl*) timeout 20 qsub -w v -b y -l gpu=1 true ;; # asks only whether an empty cluster would run it
    *) false ;;
  esac >/dev/null 2>&1
}

# recipe_cluster_answers NAME PROGRAM QUESTION...: is PROGRAM, which submits jobs, here, and does the QUESTION find an answer?
recipe_cluster_answers() {
  command -v "$2" >/dev/null || return 1
  timeout 20 "${@:3}" >/dev/null 2>&1 && return 0
  echo "$recipe_name: $2 is here, but $1 does not answer" >&2
  return 1
}

set -E
trap 'recipe_failed $? "${PIPESTATUS[*]}" "${BASH_SOURCE[0]}" "$LINENO" "$BASH_COMMAND"' ERR
trap recipe_exit EXIT
