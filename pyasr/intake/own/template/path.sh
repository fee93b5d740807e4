# Sourced by run.sh: the environment of the toolkit that `steps` leads to.
# shellcheck source=/dev/null
. "$(CDPATH='' cd -P "$(dirname "${BASH_SOURCE[0]}")/steps/.." && pwd)/path.sh" || return 1
