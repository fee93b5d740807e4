# Sourced first by every run.sh: strict mode, stages, background jobs whose failures are reported, options, plans (--plan true).
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
#     join                                   # waits for both and shows their last lines; the recipe stops if one failed
#   fi
#
# The recipe runs in its own directory, in a process group that is killed as a whole when run.sh is killed by any signal.

set -euo pipefail
unset CDPATH # cd would search it and print the directory found

recipe_root=$(cd -P "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
recipe_name=$(basename "$0")
# shellcheck source=utils/find_python.sh
. "$recipe_root/utils/find_python.sh"

recipe_python=$recipe_root/.venv/bin/python
[ -x "$recipe_python" ] || recipe_python=$(find_python)

# The caller has changed to the recipe's directory.
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
plan=false        # print the time, disk and memory that the stages need, and run nothing
recipe_record=""  # file of the record
recipe_stage=""
recipe_has_run="" # a stage
recipe_first_stage="" # of all stages, also of those that are not run
recipe_log_dir=exp/log
recipe_num_spawned=0
recipe_pids=()
recipe_spawned=()
recipe_in_background=""   # the spawned command, in the subshell that runs it
recipe_has_reported=""

# Sets recipe variables to the values given on the command line; --help lists them.
parse_recipe_options() {
  local assignments
  assignments=$(PYTHONPATH=$recipe_root "$recipe_python" -m pyasr.base.cli.recipe_options "./$recipe_name" "${PYASR_START_DIR:-$PWD}" "$@") || {
    trap - EXIT
    exit 1
  }
  eval "$assignments"
  if [ "$plan" = true ]; then recipe_begin_plan; fi
}

# Replaces the recipe's programs by functions that record their calls, a line each, with a tab after each word.
recipe_begin_plan() {
  local program
  recipe_record=$(mktemp "${TMPDIR:-/tmp}/plan.XXXXXX")
  for program in $(recipe_programs); do
    eval "$program() { recipe_note $program \"\$@\"; }"
  done
}

# The names by which a recipe's scripts call programs, for scripts in the recipe's directory and up to two levels below it.
recipe_programs() {
  local top
  for top in "$recipe_root" . .. ../..; do
    [ -d "$top/steps" ] || continue
    (cd "$top" && ls steps/*.py utils/*.py local/*.py 2>/dev/null) || true
  done
}

recipe_note() {
  printf '%s\t' "$@" >>"$recipe_record"
  echo >>"$recipe_record"
}

# Prints the plan of the recorded calls, unless the recipe failed.
recipe_end_plan() {
  [ "$1" -ne 0 ] || "$recipe_root/utils/plan_recipe.py" "$recipe_record"
  set -- $?
  rm -f "$recipe_record"
  return "$1"
}

# stage N TITLE: succeeds if stage N is to be run, and prints its header.
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

# is_among WORD WORDS: succeeds if WORD is one of WORDS, a list separated by blanks.
is_among() {
  case " $2 " in *" $1 "*) return 0 ;; esac
  return 1
}

# wanted NAME...: succeeds if one of the names is in $models, an option of the recipe.
wanted() {
  local name
  for name in "$@"; do
    if is_among "$name" "${models:-}"; then return 0; fi
  done
  return 1
}

# spawn NAME COMMAND ARGUMENTS...: run a command in the background, with its output in a log file.
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
    # shellcheck disable=SC2030 # used in this subshell only
    recipe_in_background="$*"
    "$@"
  ) >"$log" 2>&1 </dev/null &
  recipe_pids[recipe_num_spawned]=$!
  recipe_num_spawned=$((recipe_num_spawned + 1))
}

# join: wait for all spawned commands. If any failed, join fails, names them and shows the report of the first.
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
      echo "$recipe_name: '${recipe_spawned[i]}' failed too; see $recipe_log_dir/spawn.${recipe_spawned[i]}.log" >&2
    fi
  done
  return $failed
}

# Shows why a spawned command failed: the log from its runner's report on, else the last lines.
recipe_show_failed() {
  local log=$recipe_log_dir/spawn.$1.log
  echo "$recipe_name: '$1' failed; the last lines of $log:" >&2
  { sed -n '/^[a-z]*\.pl: [0-9]* \/ [0-9]* failed/,$p' "$log" | grep -a . || tail -n 15 "$log"; } | tail -n 40 | recipe_show | sed 's/^/    | /' >&2
}

# Prints lines of a log with control characters escaped, as \x1b, so that the terminal does not execute them.
recipe_show() {
  PYTHONPATH=$recipe_root "$recipe_python" -m pyasr.base.show
}

# On ERR: reports stage, file, line and command. The failure of a subshell is reported once, by the recipe's own shell.
# shellcheck disable=SC2031,SC2016 # see spawn; and the patterns are compared with unexpanded commands
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

# recipe_cause STATUS COMMAND: the likely cause of an exit status of a command that printed no message of its own.
recipe_cause() {
  case $2 in
    *_cmd=*.pl\ -*)
      echo "; quote values that contain spaces: train_cmd=\"run.pl --mem 2G\""
      return
      ;;
  esac
  case $1 in
    141) echo ": the program that reads its output has exited" ;;
    137) echo ": killed by signal 9, usually because memory ran out (see dmesg)" ;;
    127) echo ": command not found; source path.sh before it" ;;
    126) echo ": not executable; check its permissions with ls -l" ;;
  esac
}

recipe_tell() {
  recipe_has_reported=yes
  echo "$recipe_name: error: ${recipe_stage:+stage $recipe_stage: }$1" >&2
}

# On EXIT: joins the spawned commands and reports a failure that was not reported yet.
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
    recipe_tell "no stage was run: --stage $stage --stop-stage $stop_stage selects none of this recipe's stages, $recipe_first_stage to $recipe_last_stage"
    exit 1
  fi
  if [ -n "$recipe_record" ]; then
    recipe_end_plan "$status" || exit 1
  fi
  if [ "$status" -ne 0 ]; then
    [ -n "$recipe_has_reported" ] || recipe_tell "exited with status $status"
    echo "$recipe_name: fix the error and run the same command again; completed steps are not repeated" >&2
  fi
  exit "$status"
}

# Prints the runner for cmd.sh: that of the cluster whose commands are installed and answer, else run.pl.
detect_runner() {
  if recipe_cluster_answers Slurm sbatch sinfo -h; then
    echo slurm.pl
  elif recipe_cluster_answers "Grid Engine" qsub qconf -sql; then
    echo queue.pl
  else
    echo run.pl
  fi
}

# detect_cuda_runner RUNNER: prints the runner for jobs that train networks. On a cluster with GPUs each job requests one; with run.pl, jobs
# find the GPUs themselves.
detect_cuda_runner() {
  if recipe_cluster_has_gpus "$1"; then
    echo "$1 --gpu 1"
  else
    echo "$1"
  fi
}

# recipe_cluster_has_gpus RUNNER: succeeds if a host of the runner's cluster has the resource `gpu`.
recipe_cluster_has_gpus() {
  case $1 in
    slurm.pl*) timeout 20 sinfo -h -o %G | grep gpu ;;
    queue.pl*) timeout 20 qsub -w v -b y -l gpu=1 true ;; # only verifies that an empty cluster could run it
    *) false ;;
  esac >/dev/null 2>&1
}

# recipe_cluster_answers NAME PROGRAM QUERY...: succeeds if PROGRAM, which submits jobs, is installed and the command QUERY succeeds.
recipe_cluster_answers() {
  command -v "$2" >/dev/null || return 1
  timeout 20 "${@:3}" >/dev/null 2>&1 && return 0
  echo "$recipe_name: $2 is installed, but $1 does not answer" >&2
  return 1
}

set -E
trap 'recipe_failed $? "${PIPESTATUS[*]}" "${BASH_SOURCE[0]}" "$LINENO" "$BASH_COMMAND"' ERR
trap recipe_exit EXIT
