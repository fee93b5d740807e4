# Sourced by recipes, tests and users (bash): `. ./path.sh`. Sets the environment, and builds .venv when it is not there or when
# requirements.txt has changed. Needs no root and no compiler. See docs/install.md.

PYASR_ROOT=$(CDPATH='' cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
export PYASR_ROOT

pyasr_environment_is_current() {
  [ -x "$PYASR_ROOT/.venv/bin/python" ] && [ -e "$PYASR_ROOT/.venv/pyvenv.cfg" ] && [ -r "$PYASR_ROOT/.venv/.installed-requirements.txt" ] &&
    [ "$(cat "$PYASR_ROOT/.venv/.installed-requirements.txt")" = "# $PYASR_ROOT/.venv"$'\n'"$(cat "$PYASR_ROOT/requirements.txt")" ]
}

pyasr_build_environment() {
  local python
  # shellcheck source=utils/find_python.sh
  . "$PYASR_ROOT/utils/find_python.sh"
  python=$(find_python) && "$python" "$PYASR_ROOT/utils/build_environment.py" requirements.txt
}

pyasr_environment_is_current || pyasr_build_environment || return 1
unset -f pyasr_environment_is_current pyasr_build_environment

# pyasr_first DIRECTORY LIST: the list of directories, with this one at its head and nowhere else.
pyasr_first() {
  local list=":$2:"
  while [[ $list == *":$1:"* ]]; do list=${list/":$1:"/:}; done
  list=${list#:}
  list=${list%:}
  printf '%s' "$1${list:+:$list}"
}

for pyasr_directory in steps utils .venv/bin; do
  PATH=$(pyasr_first "$PYASR_ROOT/$pyasr_directory" "$PATH")
done
PYTHONPATH=$(pyasr_first "$PYASR_ROOT" "${PYTHONPATH:-}")
export PATH PYTHONPATH
unset pyasr_directory
unset -f pyasr_first
export LC_ALL=C PYTHONUTF8=1 OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
