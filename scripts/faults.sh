#!/usr/bin/env bash
# Runs every test that docs/reliability.md names, in its full size, and says of each row
# whether it held. With --write the result replaces the one in that document.
# Takes about a quarter of an hour on two cores; scripts/test.sh runs the same tests in a smaller size.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$ROOT"

TABLE=docs/reliability.md
BEGIN='<!-- result: begin -->'
END='<!-- result: end -->'

write=no
case ${1:-} in
  '') ;;
  --write) write=yes ;;
  *) fail "unknown argument: $1" "usage: scripts/faults.sh [--write]" ;;
esac

prepare
need_fault_tools

say "building"
cargo test --locked --no-run --quiet

# The names in backquotes of each row's last column, without the path before them.
tests=$(awk -F'|' '/^\| / { print $(NF - 1) }' "$TABLE" | grep -o '`[^`]*`' | tr -d '`' | sed 's/.*:://' | sort -u)
[ -n "$tests" ] || fail "find tests in $TABLE"

log=$(mktemp)
trap 'rm -f "$log"' EXIT
say "running $(wc -l <<<"$tests") tests in their full size"
begun=$(date +%s)
status=0
# shellcheck disable=SC2086 # one filter a name
SANDBOXD_FAULTS=whole cargo test --locked --no-fail-fast --lib --test it -- $tests </dev/null 2>&1 | tee "$log" || status=$?
took=$(($(date +%s) - begun))

# test store::tests::damage::a_law ... ok
outcome() { sed -n "s/^test \(.*::\)\?$1 \.\.\. \(ok\|FAILED\|ignored\).*/\2/p" "$log" | head -n 1; }

held=0
broken=0
result=
while read -r name; do
  case $(outcome "$name") in
    ok) held=$((held + 1)); result+=$(printf 'held    %s' "$name")$'\n' ;;
    '') broken=$((broken + 1)); result+=$(printf 'MISSING %s' "$name")$'\n' ;;
    *) broken=$((broken + 1)); result+=$(printf 'BROKEN  %s' "$name")$'\n' ;;
  esac
done <<<"$tests"
result+=$(printf '%d held, %d broken, in %d min %d s; %s, Docker Engine %s, Linux %s, %d cores' \
  "$held" "$broken" $((took / 60)) $((took % 60)) "$(date +%F)" \
  "$(docker version --format '{{.Server.Version}}')" "$(uname -r)" "$(nproc)")
printf '\n%s\n' "$result"

if [ "$write" = yes ]; then
  awk -v begin="$BEGIN" -v end="$END" -v result="$result" '
    $0 == begin { print; print "```text"; print result; print "```"; inside = 1; next }
    $0 == end { inside = 0 }
    !inside { print }' "$TABLE" >"$log"
  cp "$log" "$TABLE"
fi
[ "$broken" = 0 ] && [ "$status" = 0 ]
