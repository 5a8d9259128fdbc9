#!/usr/bin/env bash
# Checks licences, sources and duplicates of the dependencies against deny.toml.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$ROOT"

need_rust
have cargo-deny || fail "cargo-deny is not installed" "cargo install --locked cargo-deny"
# Advisories need a database from the network; run them by hand: cargo deny check advisories
cargo deny --locked check bans licenses sources
