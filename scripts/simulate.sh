#!/usr/bin/env bash
# Runs the deterministic simulation, optimised: whole lives of the daemon in a world of
# mishaps, one for each seed. Usage: scripts/simulate.sh [SEEDS [FIRST]]
#
# Ends with what happened in all of them, or with the first seed that failed, its last
# steps, and the command that replays it.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$ROOT"

SEEDS=${1:-100000}
FIRST=${2:-0}

need_rust
began=$(date +%s)
SANDBOXD_SIM_SEEDS=$SEEDS SANDBOXD_SIM_FROM=$FIRST \
  cargo test --profile simulation --locked --lib -- --nocapture --exact \
  daemon::simulation::tests::whatever_goes_wrong_nothing_is_lost_and_all_comes_to_rest
say "$SEEDS seeds from $FIRST on took $(($(date +%s) - began)) s, the build included"
