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

case ":$PATH:" in
  *":$PYASR_ROOT/utils:"*) ;;
  *) export PATH="$PYASR_ROOT/.venv/bin:$PYASR_ROOT/utils:$PYASR_ROOT/steps:$PATH" ;;
esac
case ":${PYTHONPATH:-}:" in
  *":$PYASR_ROOT:"*) ;;
  *) export PYTHONPATH="$PYASR_ROOT${PYTHONPATH:+:$PYTHONPATH}" ;;
esac
export LC_ALL=C PYTHONUTF8=1 OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
