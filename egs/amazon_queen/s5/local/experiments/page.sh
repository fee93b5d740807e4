#!/usr/bin/env bash
# Write parallel/RESULTS.md, the page of the experiments in this directory: claims with our verdicts, tables and figures. Planned trainings
# that have not been run are shown as missing.
#
#   local/experiments/page.sh

set -euo pipefail
CDPATH='' cd "$(dirname "$0")/../.."
. ./path.sh

planned=exp/experiments/planned
mkdir -p exp/experiments
rm -f $planned
for work in ibm povey su_chen chan systems schemes; do local/experiments/$work.sh --list $planned > exp/experiments/list.log; done
local/collect_parallel.py --claims local/experiments/claims.tsv --planned $planned \
  --curves local/experiments/overview.tsv parallel parallel/RESULTS.md
