#!/usr/bin/env bash
# Shows sandboxd at work in two minutes: opens a session, kills the daemon with SIGKILL,
# starts it again and finds the session, its file and its running process unharmed.
# Leaves nothing behind but the build.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$ROOT"

READY_SECS_MAX=30
PULL_SECS_MAX=20
session=demo
daemon_pid=
work=

bold= plain=
[ ! -t 1 ] || { bold=$'\033[1m' plain=$'\033[0m'; }
step() { printf '\n%s# %s%s\n' "$bold" "$*" "$plain"; }

# Shows a command line as one would type it, then runs it.
run() {
  local word shown=
  for word in "$@"; do
    case $word in *[!A-Za-z0-9_./:=@%+-]* | '') shown+=" '${word//\'/\'\\\'\'}'" ;; *) shown+=" $word" ;; esac
  done
  printf '$%s\n' "$shown"
  "$@"
}

pass() { printf 'PASS  %s\n' "$*"; }
wrong() {
  printf 'FAIL  %s\n' "$*"
  printf -- '--- the last lines of the daemon ---\n'
  tail -n 30 "$work/daemon.log"
  exit 1
}
# same WHAT WANTED FOUND
same() { [ "$2" = "$3" ] && pass "$1" || wrong "$1: wanted '$2', found '$3'"; }

start_daemon() {
  sandboxd >>"$work/daemon.log" 2>&1 </dev/null &
  daemon_pid=$!
  local tries=0
  until [ "$(http_status "$SANDBOXD_PORT" /readyz)" = 200 ]; do
    kill -0 "$daemon_pid" 2>/dev/null || wrong "sandboxd ended while it started"
    [ "$tries" -lt $((READY_SECS_MAX * 5)) ] || wrong "sandboxd was not ready within $READY_SECS_MAX seconds"
    tries=$((tries + 1))
    sleep 0.2
  done
  printf 'sandboxd is ready: process %s on %s\n' "$daemon_pid" "$SANDBOXD_URL"
}

cleanup() {
  local status=$? left
  trap - EXIT
  set +e
  if [ -n "$daemon_pid" ] && kill -0 "$daemon_pid" 2>/dev/null; then
    sandboxctl purge "$session" --yes --close >/dev/null 2>&1
    kill -TERM "$daemon_pid" 2>/dev/null
    wait "$daemon_pid" 2>/dev/null
  fi
  if [ -n "$work" ]; then
    # Only if the purge failed: containers that mount something of this run's folder.
    left=$(containers_under "$work")
    [ -z "$left" ] || docker rm -f $left >/dev/null 2>&1
    rm -rf "$work"
  fi
  [ "$status" = 0 ] || printf '\nthe demo failed\n'
  exit "$status"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

step "Get ready: toolchain, Docker engine, image"
prepare

step "Build the daemon and its command line client"
run cargo build --release --locked
export PATH="${CARGO_TARGET_DIR:-$ROOT/target}/release:$PATH"

image=python:3.12-slim
if ! docker image inspect "$image" >/dev/null 2>&1; then
  say "fetching $image, $PULL_SECS_MAX seconds at most"
  timeout "$PULL_SECS_MAX" docker pull -q "$image" >/dev/null 2>&1 || image=$TEST_IMAGE
fi
printf 'sandboxes are made from %s\n' "$image"

step "Start the daemon on an empty state directory"
work=$(mktemp -d "${TMPDIR:-/tmp}/sandboxd-demo.XXXXXX")
mkdir "$work/state" "$work/run" "$work/workspaces"
export SANDBOXD_TOKEN SANDBOXD_PORT SANDBOXD_URL
SANDBOXD_TOKEN=$(random_token)
SANDBOXD_PORT=$(free_port)
SANDBOXD_URL=http://127.0.0.1:$SANDBOXD_PORT
export SANDBOXD_HOST=127.0.0.1 SANDBOXD_STATE_DIR="$work/state" SANDBOXD_RUNTIME_DIR="$work/run"
export SANDBOXD_WORKSPACE_ROOT="$work/workspaces" SANDBOXD_RUNTIMES="demo=$image" SANDBOXD_PREWARM=0
start_daemon

step "Open a session: a container of its own, with a workspace"
run sandboxctl open --id "$session"

step "Run a command in it, and write a file"
run sandboxctl exec "$session" -- uname -sm
run sandboxctl exec "$session" -- 'echo "written before the crash" > note.txt'

step "Start a process that goes on in the background"
shown=$(run sandboxctl exec "$session" -- 'sleep 300 >/dev/null 2>&1 & echo $!')
printf '%s\n' "$shown"
pid=${shown##*$'\n'}
[ "$pid" -gt 0 ] 2>/dev/null || wrong "the process id of the background process: found '$pid'"
same "process $pid runs in the sandbox" "sleep 300 " \
  "$(sandboxctl exec "$session" -- "tr '\\0' ' ' < /proc/$pid/cmdline")"

step "Start a run that the service keeps an eye on: its output can be read from any place, at any time"
shown=$(run sandboxctl run -d "$session" -- sh -c 'n=0; while [ $n -lt 3000 ]; do n=$((n + 1)); echo "line $n"; sleep 0.1; done')
printf '%s\n' "$shown"
run_id=${shown##*$'\n'}
sleep 1
run sandboxctl logs "$session" "$run_id"

step "Twenty commands, one after the other"
began=$(date +%s%N)
for _ in $(seq 20); do sandboxctl exec "$session" -- true; done
printf 'each took %s ms, the client program included; exec by the engine costs some 50\n' \
  $((($(date +%s%N) - began) / 20000000))

step "See what the service knows"
run sandboxctl ls
run sandboxctl runs "$session"
run sandboxctl events "$session"

step "Kill the daemon: SIGKILL, no chance to tidy up"
run kill -KILL "$daemon_pid"
wait "$daemon_pid" 2>/dev/null || true
same "nobody answers on port $SANDBOXD_PORT" 000 "$(http_status "$SANDBOXD_PORT" /healthz)"

step "Start it again, on the same state directory"
start_daemon
run sandboxctl ls

step "What is left of the session?"
sandboxctl ls | grep -qw "$session" || wrong "the session is not listed any more"
pass "the session is still open"
same "its file is still there" "written before the crash" "$(sandboxctl exec "$session" -- cat note.txt)"
same "process $pid still runs, the same one" "sleep 300 " \
  "$(sandboxctl exec "$session" -- "tr '\\0' ' ' < /proc/$pid/cmdline")"
goes_on() { sandboxctl logs "$session" "$run_id" | tail -n 1; }
before=$(goes_on)
sleep 1
after=$(goes_on)
[ "${after#line }" -gt "${before#line }" ] || wrong "the run does not go on: '$before', then '$after'"
same "the run goes on, and nothing that it wrote meanwhile is missing" \
  "$(seq -f 'line %g' "${after#line }" | tail -n +2)" \
  "$(sandboxctl logs "$session" "$run_id" | head -n "${after#line }" | tail -n +2)"
run sandboxctl stop "$session" "$run_id"
run sandboxctl events "$session"

step "Purge the session: container, files and record"
run sandboxctl purge "$session" --yes --close
same "no container is left" "" "$(containers_under "$work")"

printf '\nAll of it held. The API is described in README.md; the daemon is configured by SANDBOXD_* variables.\n'
