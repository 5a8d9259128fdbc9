#!/usr/bin/env bash
# Runs every block of docs/application-guide.md in order, those of the shell and those of Python,
# on this machine's engine; ends with an error at the first that fails.
#
# The images of the guide, sandboxd:example and remote-sandbox-app:example, are made anew.
#   SANDBOXD_PROGRAMS  a directory with sandboxd and sandboxctl; built if unset
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../../scripts/lib.sh"

need_application_tools

export COMPOSE_PROJECT_NAME=sandboxd-guide-$$ SANDBOX_IMAGE=$PYTHON_IMAGE APP_PORT
APP_PORT=$(free_port)
unset APP_IMAGE SANDBOXD_IMAGE

take_down() {
  local failed=$? service=${COMPOSE_PROJECT_NAME}_sandboxd_1
  set +e
  cd "$here"
  if docker inspect "$service" >/dev/null 2>&1; then
    [ "$failed" = 0 ] || SANDBOXD_TOKEN=x docker-compose logs --no-color --tail 60
    docker exec "$service" /usr/bin/sandboxctl workspaces --quiet |
      xargs -r docker exec "$service" /usr/bin/sandboxctl purge --close --yes
  fi
  SANDBOXD_TOKEN=x docker-compose down --volumes >/dev/null 2>&1
  exit "$failed"
}
trap take_down EXIT

cd "$ROOT"
python3 "$here/guide.py" docs/application-guide.md
