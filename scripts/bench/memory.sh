#!/usr/bin/env bash
# Prints the resident memory of a running daemon after a time without requests.
#
# usage: memory.sh PID [SECONDS]     SECONDS of rest before the reading, 30 by default
set -euo pipefail

pid=${1:?usage: memory.sh PID [SECONDS]}
rest=${2:-30}
[ -r "/proc/$pid/status" ] || {
  printf 'error: there is no process %s\n' "$pid" >&2
  exit 1
}
printf 'waiting %s s …\n' "$rest" >&2
sleep "$rest"
awk '/^(VmRSS|VmHWM|RssAnon|Threads)/ { printf "%-8s %8s %s\n", $1, $2, $3 }' "/proc/$pid/status"
