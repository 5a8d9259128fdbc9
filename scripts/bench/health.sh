#!/usr/bin/env bash
# Measures requests a second on /healthz with wrk: of sandboxd, and of another server if its
# URL is given. Runs alternate, three of each.
#
# usage: health.sh [OTHER_URL]     sandboxd's own URL: SANDBOXD_URL, or http://127.0.0.1:8080
set -euo pipefail

ours=${SANDBOXD_URL:-http://127.0.0.1:8080}
seconds=${SECONDS_EACH:-10}
connections=${CONNECTIONS:-32}
command -v wrk >/dev/null || {
  printf 'error: wrk is not installed\nhint: apt-get install wrk\n' >&2
  exit 1
}

measure() {
  printf '%-40s ' "$1/healthz"
  wrk -t2 -c"$connections" -d"${seconds}s" --latency "$1/healthz" |
    awk '/Requests\/sec/ { rate = $2 } $1 == "50%" { p50 = $2 } $1 == "99%" { p99 = $2 } /Non-2xx/ { bad = $0 }
         END { printf "%10s requests/s   p50 %s   p99 %s %s\n", rate, p50, p99, bad }'
}

for _ in 1 2 3; do
  measure "$ours"
  [ $# = 0 ] || measure "${1%/}"
done
