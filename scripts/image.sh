#!/usr/bin/env bash
# Builds a container image of sandboxd, without a registry.
#
# usage: scripts/image.sh [TAG] [BASE]
#   TAG   the name of the image; sandboxd:latest by default
#   BASE  the image to build on; scratch, which is empty, by default
#
# The programs are linked statically. With SANDBOXD_PROGRAMS=DIR those in DIR are taken as they
# are; what they need of the system's libraries is put beside them.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$ROOT"

tag=${1:-sandboxd:latest}
base=${2:-scratch}
programs=${SANDBOXD_PROGRAMS:-}

need_engine
if [ -z "$programs" ]; then
  need_rust
  need_c_toolchain
  target=$(rustc -vV | sed -n 's/^host: //p')
  say "building the programs, linked statically: this takes a few minutes"
  # For a named target, the flags are not for the macros that the compiler itself runs.
  RUSTFLAGS="${RUSTFLAGS:-} -C target-feature=+crt-static" cargo build --release --locked --bins \
    --target "$target" --target-dir target/static
  programs=target/static/$target/release
fi

context=$(mktemp -d)
trap 'rm -rf "$context"' EXIT
cp Dockerfile "$context/"
mkdir -p "$context/root/usr/bin" "$context/root/tmp"
chmod 1777 "$context/root/tmp"
for program in sandboxd sandboxctl; do
  into=$context/root/usr/bin/$program
  # Names for backtraces stay; what only a debugger reads goes.
  if have strip; then
    strip --strip-debug -o "$into" "$programs/$program"
  else
    cp "$programs/$program" "$into"
  fi
  chmod 755 "$into"
  # Nothing, where it is linked statically.
  { ldd "$into" 2>/dev/null || true; } | { grep -o '/[^ ]*' || true; } | while read -r library; do
    mkdir -p "$context/root$(dirname "$library")"
    cp -L "$library" "$context/root$library"
  done
done
say "building the image $tag on $base"
docker build --quiet --build-arg "BASE=$base" --tag "$tag" "$context"
