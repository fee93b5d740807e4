# Sourced by path.sh and utils/recipe.sh. find_python prints a Python of version 3.10 or newer; PYASR_PYTHON names one to be used.

find_python() {
  local name
  for name in ${PYASR_PYTHON:+"$PYASR_PYTHON"} python3 python3.13 python3.12 python3.11 python3.10 python3.14; do
    if "$name" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
      echo "$name"
      return 0
    fi
    if [ -n "${PYASR_PYTHON:-}" ]; then
      echo "PYASR_PYTHON=$PYASR_PYTHON is no Python of version 3.10 or newer; set it to one, or unset it" >&2
      return 1
    fi
  done
  echo "no Python of version 3.10 or newer was found; install one, or say where it is with PYASR_PYTHON=/path/to/python3" >&2
  return 1
}
