#!/usr/bin/env bash
# Makes the environment and runs all tests: tests/run.sh [pytest's arguments]. With root it also installs sclite and shellcheck, which a
# few tests compare with; without them these tests are skipped and say so.
set -euo pipefail
cd "$(dirname "$0")/.."
. ./path.sh
python utils/build_environment.py requirements-test.txt

install_debian() {
  if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    return 1
  fi
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$@" >/dev/null 2>&1 ||
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$@"; } >/dev/null 2>&1
}

command -v shellcheck >/dev/null || install_debian shellcheck || echo "warning: no shellcheck (apt-get install shellcheck); its tests are skipped" >&2
[ -x /usr/lib/sctk/bin/sclite ] || command -v sclite >/dev/null || install_debian sctk || echo "warning: no sclite (apt-get install sctk); its tests are skipped" >&2

exec python -m pytest "$@"
