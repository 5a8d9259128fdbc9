#!/usr/bin/env bash
# Brings the whole application up from nothing, asserts that it does what the guide says, and
# takes it all down again.
#
# It runs on this machine's Docker engine and touches nothing that it did not make. What it
# needs is installed where it may; nothing is pulled from a registry of images.
#
#   SANDBOXD_PROGRAMS  a directory with sandboxd and sandboxctl; built, linked statically, if unset
#   EXAMPLE_PROGRAM    the example `application` of the Rust client; built if unset
#   KEEP=1             leaves everything up at the end
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../../scripts/lib.sh"

WAIT_SECS_MAX=90
project=sandboxd-check-$$
export APP_PORT
APP_PORT=$(free_port)
export SANDBOXD_TOKEN SANDBOX_IMAGE=$PYTHON_IMAGE SANDBOXD_IMAGE=sandboxd-test/sandboxd:$$
SANDBOXD_TOKEN=$(random_token)
export SANDBOXD_MAX_SESSIONS=8 SANDBOXD_MAX_SESSIONS_PER_TENANT=2 SANDBOXD_IDLE_TIMEOUT=1800

tenant_one=$(uuid) tenant_two=$(uuid)
ada=ada-$(random_token) bob=bob-$(random_token) eve=eve-$(random_token)
export APP_USERS="$ada=$(uuid):$tenant_one:operator,$bob=$(uuid):$tenant_one,$eve=$(uuid):$tenant_two"

step() { printf '\n== %s\n' "$*"; }
pass() { printf 'ok: %s\n' "$*"; }
wrong() {
  printf 'WRONG: %s\n' "$*" >&2
  compose logs --no-color --tail 60 >&2 || true
  exit 1
}
same() { [ "$3" = "$2" ] || wrong "$1: expected '$2', found '$3'"; pass "$1"; }
holds() { case $3 in *"$2"*) pass "$1" ;; *) wrong "$1: '$2' is not in '$3'" ;; esac; }

compose() { (cd "$here" && docker-compose -p "$project" -f compose.yml "$@"); }
container_of() { compose ps -q "$1"; }

# up CLIENT: brings the application up with that client library, and waits until it answers.
up() {
  APP_IMAGE=sandboxd-test/app-$1:$$ compose up -d --force-recreate >/dev/null 2>&1 ||
    { compose up -d --force-recreate || true; wrong "compose up"; }
  await "the application and the service answer" ready
}
ready() { [ "$(status "$ada" GET /healthz)" = 200 ] && [ "$(status "$ada" GET /capacity)" = 200 ]; }

# await WHAT COMMAND…: runs it until it succeeds.
await() {
  local what=$1 waited=0
  shift
  until "$@"; do
    waited=$((waited + 1))
    [ "$waited" -le $((WAIT_SECS_MAX * 4)) ] || wrong "not within $WAIT_SECS_MAX seconds: $what"
    sleep 0.25
  done
  pass "$what"
}

# call USER METHOD PATH [BODY]: prints the body; its status is left in a file.
call() {
  local body=()
  [ $# -lt 4 ] || body=(-H 'content-type: application/json' -d "$4")
  curl -sS --max-time 120 -o "$work/body" -w '%{http_code}' -X "$2" -H "Authorization: Bearer $1" \
    "${body[@]}" "http://127.0.0.1:$APP_PORT$3" >"$work/status" 2>"$work/curl" || printf 000 >"$work/status"
  cat "$work/body" 2>/dev/null || true
}
status() { : >"$work/body"; call "$@" >/dev/null; cat "$work/status"; }
# field EXPRESSION: evaluates Python on the JSON that is read, as `it`.
field() { python3 -c "import json,sys; it=json.load(sys.stdin); print($1)"; }

begin() { call "$1" POST /conversations "{\"scope\": \"${2:-conversation}\"}" | field 'it["id"]+" "+it["session"]'; }
# say USER CONVERSATION SCRIPT: prints what the agent answers.
say() {
  local text
  text=$(python3 -c 'import json,sys; print(json.dumps({"text": sys.argv[1]}))' "$3")
  call "$1" POST "/conversations/$2/messages" "$text" | field 'it.get("answer", it)'
}
service() { docker exec "$(container_of sandboxd)" /usr/bin/sandboxctl "$@"; }
containers() { docker ps -aq --no-trunc --filter "label=io.sandboxd.session=$1"; }
directories() { docker run --rm -v "${project}_workspaces:/w:ro" "$TEST_IMAGE" ls /w; }
is_asleep() { [ "$(service get "$1" -o json | field 'it["phase"]')" = hibernated ]; }
is_closed() { ! service get "$1" >/dev/null 2>&1; }

# nothing_left SESSION HOW: no container, directory or record of it is there.
nothing_left() {
  [ -n "$1" ] || wrong "$2: there is no session to look for"
  same "$2: no container is left" "" "$(containers "$1")"
  case $(directories) in *"$1"*) wrong "$2: its directory is left" ;; *) pass "$2: no directory is left" ;; esac
  service explain "$1" >/dev/null 2>&1 && wrong "$2: its record is left"
  service workspaces -o json | grep -q "$1" && wrong "$2: its workspace is listed"
  pass "$2: no record is left"
}

# delete USER CONVERSATION SESSION HOW
delete() {
  same "$4: the conversation is deleted" 204 "$(status "$1" DELETE "/conversations/$2")"
  nothing_left "$3" "$4"
}

take_down() {
  local failed=$?
  set +e
  if [ "${KEEP:-0}" = 1 ]; then
    printf 'left up: docker-compose -p %s; APP_PORT=%s\n' "$project" "$APP_PORT" >&2
    return
  fi
  # The containers of sandboxes are the service's, not compose's.
  local instance
  instance=$(service doctor 2>/dev/null | sed -n 's/.*instance \([0-9a-f]\{32\}\).*/\1/p' | head -n 1)
  compose kill sandboxd >/dev/null 2>&1 || true
  docker rm -f "$project-bare" >/dev/null 2>&1 || true
  docker volume rm "${project}_bare" >/dev/null 2>&1 || true
  [ -z "$instance" ] || docker ps -aq --filter "label=io.sandboxd.instance=$instance" | xargs -r docker rm -f >/dev/null
  compose down --volumes --remove-orphans >/dev/null 2>&1 || true
  docker rmi -f "$SANDBOXD_IMAGE" "sandboxd-test/app-remote:$$" "sandboxd-test/app-workspace:$$" >/dev/null 2>&1 || true
  rm -rf "$work"
  exit "$failed"
}

prepare_images() {
  need_application_tools
  "$ROOT/scripts/image.sh" "$SANDBOXD_IMAGE" >/dev/null
  "$here/wheels.sh" "$PYTHON_IMAGE"
  for client in remote workspace; do
    docker build --quiet --build-arg "BASE=$PYTHON_IMAGE" --build-arg "CLIENT=$client" \
      --tag "sandboxd-test/app-$client:$$" "$here/app" >/dev/null 2>"$work/build" ||
      { cat "$work/build" >&2; fail "build the image of the application"; }
  done
  if [ -z "${EXAMPLE_PROGRAM:-}" ]; then
    (cd "$ROOT" && cargo build --locked --example application)
    EXAMPLE_PROGRAM=$ROOT/target/debug/examples/application
  fi
}

# What both client libraries have to do alike.
conversation_flows() {
  local first session answer other denied
  step "$1: the agent works in a sandbox, which the first tool opens"
  read -r first session <<<"$(begin "$ada")"
  is_closed "$session" || wrong "a conversation without a tool has a session"
  answer=$(say "$ada" "$first" 'write_file {"path": "notes/plan.txt", "content": "alpha\nbeta needle\n"}
execute {"command": "echo from the shell > shell.txt; cat notes/plan.txt"}
ls {"path": "."}
read_file {"path": "notes/plan.txt"}
edit_file {"path": "notes/plan.txt", "old_string": "alpha", "new_string": "omega"}
glob {"pattern": "**/*.txt"}')
  holds "$1: a command sees the file" "beta needle" "$answer"
  holds "$1: grep finds it with its default arguments" "plan.txt" "$(say "$ada" "$first" 'grep {"pattern": "needle"}')"
  holds "$1: the listing shows what the shell wrote" "shell.txt" "$answer"
  same "$1: one container serves the conversation" 1 "$(containers "$session" | wc -l)"

  step "$1: a second run in the conversation sees the first one's files"
  answer=$(say "$ada" "$first" 'execute {"command": "cat notes/plan.txt shell.txt"}')
  holds "$1: the edit is there" "omega" "$answer"
  holds "$1: what the shell wrote is there" "from the shell" "$answer"

  step "$1: a run of its own shares nothing, and leaves nothing"
  read -r other _ <<<"$(begin "$ada" run)"
  answer=$(call "$ada" POST "/conversations/$other/messages" '{"text": "execute {\"command\": \"ls\"}"}')
  case $answer in *plan.txt*) wrong "a run sees another's files" ;; esac
  nothing_left "$(printf '%s' "$answer" | field 'it["session"]')" "$1: after the run"

  step "$1: the proxy shows files, and passes on what is wrong"
  same "$1: a listing" 200 "$(status "$ada" GET "/conversations/$first/files")"
  holds "$1: the listing names the file" "shell.txt" "$(call "$ada" GET "/conversations/$first/files")"
  same "$1: a file" "from the shell" "$(call "$ada" GET "/conversations/$first/files/shell.txt")"
  same "$1: a file that is not there" 404 "$(status "$ada" GET "/conversations/$first/files/none.txt")"
  same "$1: a path that leads out" 400 "$(status "$ada" GET "/conversations/$first/files/%2e%2e%2f%2e%2e%2fetc%2fpasswd")"
  same "$1: nobody who has not signed in" 401 "$(status nobody GET "/conversations/$first/files")"
  same "$1: nobody else" 404 "$(status "$bob" GET "/conversations/$first/files")"

  step "$1: what happens can be watched"
  holds "$1: capacity" '"limit":8' "$(call "$ada" GET /capacity | tr -d ' ')"
  same "$1: listings are for operators" 403 "$(status "$bob" GET /operator/sessions)"
  answer=$(call "$ada" GET /operator/sessions)
  same "$1: memory is shown against its ceiling, as the agent in the sandbox reads it" "True 1073741824 agent" \
    "$(printf '%s' "$answer" | field 'next(" ".join(map(str, (0 < u["memory_bytes"], u["memory_limit_bytes"], u["source"]))) for s in it if s["session_id"] == "'"$session"'" for u in [s["usage"]])')"
  holds "$1: events tell what the agent did" "shell.txt" "$(call "$ada" GET "/conversations/$first/events")"

  step "$1: deletion leaves nothing, of a session that is open"
  delete "$ada" "$first" "$session" "$1, open"
}

never_opened() {
  local one session
  step "Deletion of a conversation that never had a sandbox"
  read -r one session <<<"$(begin "$ada")"
  delete "$ada" "$one" "$session" "never opened"
}

hibernated() {
  local one session
  step "Deletion of a conversation whose sandbox is asleep"
  read -r one session <<<"$(begin "$ada")"
  say "$ada" "$one" 'write_file {"path": "a.txt", "content": "x"}' >/dev/null
  service hibernate "$session" >/dev/null
  await "it is asleep" is_asleep "$session"
  same "its file is shown" x "$(call "$ada" GET "/conversations/$one/files/a.txt")"
  delete "$ada" "$one" "$session" "asleep"
}

tenants() {
  local one two three other session answer
  step "A tenant at its ceiling does not stop another"
  read -r one session <<<"$(begin "$ada")"
  read -r two _ <<<"$(begin "$ada")"
  read -r three _ <<<"$(begin "$bob")"
  read -r other _ <<<"$(begin "$eve")"
  for each in "$one" "$two"; do
    holds "within the ceiling" works "$(say "$ada" "$each" 'execute {"command": "echo works"}')"
  done
  answer=$(say "$bob" "$three" 'execute {"command": "echo works"}')
  case $answer in *works*) wrong "a third session of the tenant was opened: $answer" ;; esac
  pass "the third of the same tenant is refused, and the agent is told: ${answer##*$'\n'}"
  holds "another tenant's works" works "$(say "$eve" "$other" 'execute {"command": "echo works"}')"
  for each in "$one" "$two"; do status "$ada" DELETE "/conversations/$each" >/dev/null; done
  holds "and so does the third, once there is room" works "$(say "$bob" "$three" 'execute {"command": "echo works"}')"
  status "$bob" DELETE "/conversations/$three" >/dev/null
  status "$eve" DELETE "/conversations/$other" >/dev/null
}

lives() { docker inspect --format '{{.Id}} {{.State.StartedAt}}' "$(containers "$1")"; }

survival() {
  local one session before token pid
  step "All of it survives the service's container: made again, and killed"
  read -r one session <<<"$(begin "$ada")"
  pid=$(say "$ada" "$one" 'write_file {"path": "kept.txt", "content": "kept"}
execute {"command": "sleep 1000 >/dev/null 2>&1 & echo $!"}' | tail -n 1)
  before=$(lives "$session")
  token=$(token_through_app "$session")
  for how in "made again" "killed"; do
    case $how in
      "made again") compose up -d --force-recreate --no-deps sandboxd >/dev/null 2>&1 ;;
      killed)
        docker kill --signal KILL "$(container_of sandboxd)" >/dev/null
        same "$how: files cannot be shown, and that is said" 502 "$(status "$ada" GET "/conversations/$one/files")"
        compose up -d sandboxd >/dev/null 2>&1
        ;;
    esac
    await "$how: the service answers again" ready
    same "$how: the sandbox is the same and ran on" "$before" "$(lives "$session")"
    same "$how: its token is the same" "$token" "$(token_through_app "$session")"
    holds "$how: its process runs" "it runs" "$(say "$ada" "$one" "execute {\"command\": \"kill -0 $pid && echo it runs\"}")"
    same "$how: its file is shown" kept "$(call "$ada" GET "/conversations/$one/files/kept.txt")"
  done
  kept=$one kept_session=$session
}

# A session's token, asked for where the application runs.
token_through_app() {
  docker exec -i "$(container_of app)" /opt/app/bin/python - "$1" <<'PYTHON'
import sys
import httpx
from conversations import settings
from conversations.service import HEADERS

body = {"session_id": sys.argv[1], "reuse": True}
reply = httpx.post(f"{settings.SERVICE_URL}/sessions", json=body, headers=HEADERS)
print(reply.raise_for_status().json()["token"])
PYTHON
}

reaped() {
  step "Files are readable after the session was reaped; its deletion leaves nothing"
  SANDBOXD_IDLE_TIMEOUT=2 compose up -d --no-deps sandboxd >/dev/null 2>&1
  await "the session is reaped as idle" is_closed "$kept_session"
  SANDBOXD_IDLE_TIMEOUT=1800 compose up -d --no-deps sandboxd >/dev/null 2>&1
  await "the service answers again" ready
  is_closed "$kept_session" || wrong "the session is open"
  same "the file of the reaped session is shown" kept "$(call "$ada" GET "/conversations/$kept/files/kept.txt")"
  is_closed "$kept_session" || wrong "showing a file opened the session"
  holds "a later run finds it" kept "$(say "$ada" "$kept" 'execute {"command": "cat kept.txt"}')"
  SANDBOXD_IDLE_TIMEOUT=2 compose up -d --no-deps sandboxd >/dev/null 2>&1
  await "it is reaped again" is_closed "$kept_session"
  delete "$ada" "$kept" "$kept_session" "reaped"
  SANDBOXD_IDLE_TIMEOUT=1800 compose up -d --no-deps sandboxd >/dev/null 2>&1
  await "the service answers again" ready
}

bare_answers() { docker exec "$project-bare" /usr/bin/sandboxctl health >/dev/null 2>&1; }
without_workspaces() {
  local one
  step "A service that keeps no workspaces says so, and the proxy passes it on"
  read -r one _ <<<"$(begin "$ada")"
  docker run -d --name "$project-bare" --network "${project}_backend" \
    -v /var/run/docker.sock:/var/run/docker.sock -v "${project}_bare:/var/lib/sandboxd" \
    -e SANDBOXD_TOKEN -e SANDBOXD_RUNTIMES="python=$PYTHON_IMAGE" -e SANDBOXD_WORKSPACE_ROOT= \
    "$SANDBOXD_IMAGE" >/dev/null
  await "it answers" bare_answers
  same "the archive's 409" 409 "$(docker exec -i -e SANDBOXD_URL="http://$project-bare:8080" "$(container_of app)" \
    /opt/app/bin/python - "$one" "$ada" <<'PYTHON'
import sys
from fastapi.testclient import TestClient
from conversations.main import app

conversation, token = sys.argv[1:]
reply = TestClient(app).get(f"/conversations/{conversation}/files", headers={"Authorization": f"Bearer {token}"})
print(reply.status_code)
PYTHON
)"
  docker rm -f "$project-bare" >/dev/null
  docker volume rm "${project}_bare" >/dev/null
}

isolation() {
  step "Only the service has the Docker socket, and only the application reaches the service"
  holds "the service has it" docker.sock "$(docker inspect --format '{{json .Mounts}}' "$(container_of sandboxd)")"
  case $(docker inspect --format '{{json .Mounts}}' "$(container_of app)") in
    *docker.sock*) wrong "the application has the socket" ;;
  esac
  same "the application has no socket" False "$(docker exec "$(container_of app)" python3 -c 'import os; print(os.path.exists("/var/run/docker.sock"))')"
  same "the service publishes no port" "" "$(docker port "$(container_of sandboxd)")"
  docker exec "$(container_of sandboxd)" /bin/sh -c true >/dev/null 2>&1 && wrong "the service's image has a shell"
  pass "the service's image has no shell"
}

work=$(mktemp -d)
trap take_down EXIT
began=$SECONDS
step "Make the images"
prepare_images
pass "they are there after $((SECONDS - began)) s"

began=$SECONDS
step "Bring it up from nothing, with RemoteSandbox"
up remote
isolation
conversation_flows remote
never_opened
hibernated
tenants
survival
reaped
without_workspaces

step "The same with SandboxdWorkspace"
up workspace
conversation_flows workspace

step "The same flows with the Rust client"
docker run --rm --network "${project}_backend" -e SANDBOXD_TOKEN -v "$EXAMPLE_PROGRAM:/application:ro" \
  "$PYTHON_IMAGE" /application http://sandboxd:8080 || wrong "the example of the Rust client"
pass "the example of the Rust client ran through"

step "Nothing is left"
same "no session is open" 0 "$(service health -o json | field 'it["open_sessions"]')"
same "no workspace is left" "" "$(directories)"
same "the service finds nothing wrong" "" "$(service doctor | grep '^fail' || true)"
printf '\nAll of it held, in %s s.\n' "$((SECONDS - began))"
