#!/usr/bin/env bash
# Runs every check of the project: format, lints, documentation and all tests.
# Ends with one line, "N passed, N failed"; a check that fails counts as one failed.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$ROOT"

prepare
need_rust_component fmt rustfmt
need_rust_component clippy clippy
need_command systemd-analyze systemd
need_fault_tools
need_further_images
need_application_tools

AGENT=src/bin/sandbox-agent/Cargo.toml
log=$(mktemp)
trap 'rm -f "$log"' EXIT
failed_checks=()

check() {
  local name=$1
  shift
  say "$name"
  "$@" </dev/null || failed_checks+=("$name")
}

# Warnings become errors through the tools' own arguments: RUSTFLAGS would have every
# dependency compiled once more.
check "format" cargo fmt --check
check "lints" cargo clippy --locked --all-targets --quiet -- -D warnings
check "format of the agent" cargo fmt --manifest-path "$AGENT" --check
check "lints of the agent" cargo clippy --manifest-path "$AGENT" --target-dir target/agent --locked --all-targets --quiet -- -D warnings
check "documentation" env RUSTDOCFLAGS=-Dwarnings cargo doc --locked --no-deps --quiet

say "tests"
status=0
{
  cargo test --manifest-path "$AGENT" --target-dir target/agent --locked --no-fail-fast </dev/null 2>&1 &&
    cargo test --locked --no-fail-fast </dev/null 2>&1
} | tee "$log" || status=$?

# test result: ok. 12 passed; 0 failed; 0 ignored; …
counts=$(sed -n 's/^test result: .* \([0-9]*\) passed; \([0-9]*\) failed;.*/\1 \2/p' "$log" |
  awk '{ passed += $1; failed += $2 } END { print passed + 0, failed + 0 }')
passed=${counts% *}
failed=${counts#* }
if [ "$status" != 0 ] && [ "$failed" = 0 ]; then
  failed_checks+=("tests (a test program did not compile, or ended early)")
fi

printf '\n'
for name in "${failed_checks[@]}"; do
  printf 'check failed: %s\n' "$name"
done
failed=$((failed + ${#failed_checks[@]}))
printf '%d passed, %d failed\n' "$passed" "$failed"
[ "$failed" = 0 ] && [ "$passed" != 0 ]
