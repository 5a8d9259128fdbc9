#!/usr/bin/env bash
# Fetches what the application is made of, for the Python of its base image.
#
# usage: wheels.sh BASE [remote|workspace]...
#
# It runs on the host, so that the images build without a network; what is there already for
# the same Python and requirements is not fetched again.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
base=${1:?usage: wheels.sh BASE [remote|workspace]...}
shift
[ $# -gt 0 ] || set -- remote workspace

mkdir -p "$here/app/wheels"
# Two that fetch at once would take away what the other builds with.
exec 9>"$here/app/wheels/lock"
flock 9

python=$(docker run --rm "$base" python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
machine=$(uname -m)
for client in "$@"; do
  wheels=$here/app/wheels/$client
  wanted="$python $machine $(sha256sum <"$here/app/requirements-$client.txt")"
  if [ "$(cat "$wheels/complete" 2>/dev/null)" = "$wanted" ]; then
    continue
  fi
  rm -rf "$wheels"
  mkdir -p "$wheels"
  python3 -m pip download --quiet --disable-pip-version-check --dest "$wheels" \
    --python-version "$python" --only-binary=:all: \
    --platform "manylinux_2_28_$machine" --platform "manylinux_2_17_$machine" --platform "manylinux2014_$machine" \
    --requirement "$here/app/requirements-$client.txt"
  printf '%s\n' "$wanted" >"$wheels/complete"
done
