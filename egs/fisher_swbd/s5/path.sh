# Sourced by run.sh: the environment of the whole toolkit.
# shellcheck source=path.sh
. "$(dirname "${BASH_SOURCE[0]}")/../../../path.sh" || return 1
