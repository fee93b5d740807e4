#!/usr/bin/env bash
# Makes the environment and runs all tests: tests/run.sh [pytest's arguments]. tests/run.sh --fast runs the quick tests alone, for use
# while you work (tests/durations.py). With root it also installs sclite, shellcheck and strace, which a few tests need, Slurm and Grid
# Engine; without them these tests are skipped and say so. A run of all tests writes how long they take to tests/durations.new.json.
set -euo pipefail
CDPATH='' cd "$(dirname "$0")/.."

install_debian() {
  if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    return 1
  fi
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$@" >/dev/null 2>&1 ||
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$@"; } >/dev/null 2>&1
}

install_programs() {
  command -v shellcheck >/dev/null || install_debian shellcheck || echo "warning: no shellcheck (apt-get install shellcheck); its tests are skipped" >&2
  command -v strace >/dev/null || install_debian strace || echo "warning: no strace (apt-get install strace); its tests are skipped" >&2
  [ -x /usr/lib/sctk/bin/sclite ] || command -v sclite >/dev/null || install_debian sctk || echo "warning: no sclite (apt-get install sctk); its tests are skipped" >&2
  command -v slurmctld >/dev/null ||
    install_debian slurmctld slurmd slurm-client munge slurm-wlm-basic-plugins || echo "warning: no Slurm; tests of slurm.pl are skipped" >&2
  command -v sge_qmaster >/dev/null || install_debian gridengine-master gridengine-exec gridengine-client ||
    echo "warning: no Grid Engine; tests of queue.pl are skipped" >&2
}

# install_wheel NAME VERSION: unless it is there
install_wheel() {
  python -c "import importlib.util as i, sys; sys.exit(not i.find_spec('$1'))" ||
    python -m pip install --quiet --no-input --disable-pip-version-check --no-deps --only-binary :all: "$1==$2"
}

install_programs &  # at the same time as pip
programs=$!
. ./path.sh
python utils/build_environment.py requirements-test.txt
install_wheel vosk 0.3.45 || echo "warning: no vosk, the wheel with Kaldi's nnet3; its tests are skipped" >&2
install_wheel atheris 3.0.0 || echo "warning: no atheris for this Python; tests/fuzz/run.py has its other engines" >&2
wait "$programs"

# tests/conftest.py says which tests a process runs together, and with which to begin.
spread=(--dist loadgroup --no-loadscope-reorder)

cores=$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc)    # nproc counts by these variables, which are meant for threads

# in_memory: puts pytest's directories on a tmpfs until the script ends, if root may mount one and 8 GB of memory are available. Steps sync
# each file that they write; on a disk, many tests wait longer for that than they compute. Recipes check for more disk than half the memory.
in_memory() {
  if [ "$(id -u)" -ne 0 ] || [ "$(awk '/^MemAvailable/ { print int($2 / 1048576) }' /proc/meminfo)" -lt 8 ]; then return; fi
  place=$(mktemp -d /tmp/pyasr-tests.XXXXXX)
  trap '{ umount -l "$place"; rmdir "$place"; } 2>/dev/null || true' EXIT
  if mount -t tmpfs -o size=64g pyasr-tests "$place" 2>/dev/null; then export PYTEST_DEBUG_TEMPROOT=$place; fi
}

# Two more processes than cores: many tests wait for schedulers.
run_tests() { python -m pytest -n "$((cores + 2))" "${spread[@]}" "$@"; }

# What is numeric of tensor, nn, sequence and train, as a processor without AVX-512 sees it.
run_as_avx2() {
  local numeric=(tests/tensor tests/nn tests/sequence/test_ctc.py tests/sequence/lfmmi/test_lfmmi.py)
  for name in components input_transform learner lfmmi_criterion trainer rbm_learner resume rows saturated_lstm; do
    numeric+=("$(find tests/train -name "test_$name.py")")
  done
  echo "== ${#numeric[@]} files and folders of numeric tests, without AVX-512"
  python tests/processors.py avx2 python -m pytest -n "$cores" "${spread[@]}" --durations=5 --ignore tests/tensor/test_fast_paths.py \
    --deselect tests/train/evolve/test_resume.py::test_resume_after_kill_gives_same_bits "${numeric[@]}"
}

if [ $# -gt 0 ]; then
  run_tests "$@"
  exit
fi
in_memory
status=0
python -m pytest --collect-only -qq >/dev/null 2>&1 &  # compiles all test files once, not in each of the processes that run them
run_as_avx2 || status=$?
wait $! || true  # mistakes are reported below
echo "== all tests, on this processor as it is"
PYASR_KEEP_DURATIONS=tests/durations.new.json run_tests || status=$?
echo "== tests/durations.new.json has the durations of these tests; --fast selects by tests/durations.json"
exit "$status"
