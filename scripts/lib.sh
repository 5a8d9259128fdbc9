# Functions that the scripts share: make a machine ready to build and try sandboxd.
# Sourced, never run. The caller has set -euo pipefail.

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
TEST_IMAGE=sandboxd-test/busybox:latest
DEBIAN_IMAGE=sandboxd-test/debian:latest
SCRATCH_IMAGE=sandboxd-test/scratch:latest
PYTHON_IMAGE=sandboxd-test/python:latest
ENGINE_START_SECS_MAX=60

say() { printf '==> %s\n' "$*" >&2; }
fail() {
  printf 'error: %s\n' "$1" >&2
  [ $# -lt 2 ] || printf 'hint: %s\n' "$2" >&2
  exit 1
}
have() { command -v "$1" >/dev/null 2>&1; }
may_install() { [ "$(id -u)" = 0 ] && have apt-get; }

# Installs Debian packages, or says which are missing and ends.
install_packages() {
  [ $# -gt 0 ] || return 0
  may_install || fail "missing on this machine: $*" \
    "install these Debian packages or what your system calls them, for instance: sudo apt-get install $*"
  say "installing $*"
  local log
  log=$(mktemp)
  # The package lists of a fresh machine are empty; elsewhere they may do as they are.
  if ! apt_get install -y --no-install-recommends "$@" >"$log" 2>&1; then
    if ! { apt_get update && apt_get install -y --no-install-recommends "$@"; } >"$log" 2>&1; then
      tail -n 20 "$log" >&2
      rm -f "$log"
      fail "install $*" "the last lines of apt-get are above"
    fi
  fi
  rm -f "$log"
}
apt_get() { DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 "$@" </dev/null; }

# Rust is never installed behind anyone's back: say how.
need_rust() {
  local wanted found
  wanted=$(sed -n 's/^rust-version = "\(.*\)".*/\1/p' "$ROOT/Cargo.toml" | head -n 1)
  if ! have cargo && [ -x "${CARGO_HOME:-$HOME/.cargo}/bin/cargo" ]; then
    PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"
  fi
  have cargo && have rustc || fail "Rust is not installed" \
    "install rustup from https://rustup.rs, then: rustup toolchain install $wanted --component rustfmt,clippy"
  found=$(cd "$ROOT" && rustc --version | cut -d ' ' -f 2)
  [ "$(printf '%s\n%s\n' "$wanted" "$found" | sort -V | head -n 1)" = "$wanted" ] || fail \
    "Rust $found is too old: $wanted or later is needed" "rustup toolchain install $wanted && rustup default $wanted"
}

need_rust_component() {
  (cd "$ROOT" && cargo "$1" --version) >/dev/null 2>&1 || fail "cargo $1 is missing" "rustup component add $2"
}

# The linker and the C start-up files that every Rust program is linked with.
need_c_toolchain() {
  local missing=()
  have cc || missing+=(gcc)
  # An unknown file is echoed back as a bare name.
  case $(have cc && cc -print-file-name=crt1.o) in /*) ;; *) missing+=(libc6-dev) ;; esac
  install_packages "${missing[@]}"
}

need_command() { have "$1" || install_packages "$2"; }

engine_answers() { have docker && timeout 10 docker version --format '{{.Server.Version}}' >/dev/null 2>&1; }

# A running engine with its command line client; starts one where none answers.
need_engine() {
  engine_answers && return 0
  have dockerd || have docker || install_packages docker.io
  # Some releases ship the client in a package of its own.
  have docker || install_packages docker-cli
  engine_answers && return 0
  [ "$(id -u)" = 0 ] || fail "no Docker engine answers to this user" \
    "start the engine (sudo systemctl start docker) and join its group (sudo usermod -aG docker $(id -un)), or run this as root"
  if [ -d /run/systemd/system ]; then
    say "starting docker.service"
    systemctl start docker || fail "start docker.service" "journalctl -u docker"
    wait_for_engine 0 /dev/null
  else
    have dockerd || install_packages docker.io
    start_engine
  fi
}

# Starts dockerd in the background. It stays up for the next run; its pid is kept.
start_engine() {
  local log=/var/log/sandboxd-test-dockerd.log pidfile=/run/sandboxd-test-dockerd.pid pid
  say "no engine answers and no systemd runs here: starting dockerd, log in $log"
  # A pid file that outlived its dockerd keeps the next one from starting.
  if [ -s /var/run/docker.pid ] && ! kill -0 "$(cat /var/run/docker.pid)" 2>/dev/null; then
    rm -f /var/run/docker.pid
  fi
  setsid nohup dockerd >"$log" 2>&1 </dev/null &
  pid=$!
  printf '%s\n' "$pid" >"$pidfile"
  wait_for_engine "$pid" "$log"
  say "dockerd runs as process $pid; stop it with: kill \$(cat $pidfile)"
}

# wait_for_engine PID LOG: PID is 0 where somebody else looks after the process.
wait_for_engine() {
  local waited=0
  until engine_answers; do
    if [ "$1" != 0 ] && ! kill -0 "$1" 2>/dev/null; then
      tail -n 20 "$2" >&2
      fail "start dockerd" "its last lines are above; inside a container it needs the container to be privileged"
    fi
    [ "$waited" -lt "$ENGINE_START_SECS_MAX" ] || fail "reach the Docker engine within $ENGINE_START_SECS_MAX seconds"
    sleep 1
    waited=$((waited + 1))
  done
}

# A library by which a test sets the wall clock of one process, and of no other.
need_faketime() {
  local found=(/usr/lib/*/faketime/libfaketimeMT.so.1)
  [ -e "${found[0]}" ] || install_packages libfaketime
}

# What the tests make an engine of their own with, which they may kill.
need_second_engine() {
  have dockerd && have containerd || install_packages docker.io
  have docker-init || have tini || install_packages tini
  have mkfs.ext4 || install_packages e2fsprogs
  have unshare && have nsenter || install_packages util-linux
  [ "$(id -u)" = 0 ] || say "some tests start a Docker engine of their own and kill it: they need root, and fail without"
}

is_static() { ! ldd "$1" >/dev/null 2>&1; }

# The image of the tests: a static busybox and nothing else, so no registry is needed.
need_test_image() {
  docker image inspect "$TEST_IMAGE" >/dev/null 2>&1 && return 0
  if ! have busybox || ! is_static "$(command -v busybox)"; then
    install_packages busybox-static
    hash -r
  fi
  say "making the image $TEST_IMAGE"
  local tree applet
  tree=$(mktemp -d)
  mkdir -p "$tree"/bin "$tree"/etc "$tree"/root "$tree"/tmp "$tree"/usr/bin "$tree"/workspace
  chmod 755 "$tree"
  chmod 1777 "$tree/tmp"
  cp -L "$(command -v busybox)" "$tree/bin/busybox"
  for applet in $("$tree/bin/busybox" --list); do
    [ "$applet" = busybox ] || ln -s busybox "$tree/bin/$applet"
  done
  ln -s /bin/env "$tree/usr/bin/env"
  printf 'root:x:0:0:root:/root:/bin/sh\n' >"$tree/etc/passwd"
  tar -C "$tree" --numeric-owner --owner=0 --group=0 -c . | docker import - "$TEST_IMAGE" >/dev/null
  rm -rf "$tree"
}

# A Debian of its own packages, and an image that holds one program and nothing else: what
# sandboxes of other images than the first are tried with.
need_further_images() {
  if ! docker image inspect "$DEBIAN_IMAGE" >/dev/null 2>&1; then
    need_command debootstrap debootstrap
    say "making the image $DEBIAN_IMAGE"
    local tree log
    tree=$(mktemp -d)
    log=$(mktemp)
    debootstrap --variant=minbase stable "$tree" >"$log" 2>&1 || {
      tail -n 20 "$log" >&2
      fail "make a Debian with debootstrap" "the last lines of debootstrap are above"
    }
    tar -C "$tree" -c . | docker import - "$DEBIAN_IMAGE" >/dev/null
    rm -rf "$tree" "$log"
  fi
  docker image inspect "$SCRATCH_IMAGE" >/dev/null 2>&1 && return 0
  say "making the image $SCRATCH_IMAGE"
  local alone
  alone=$(mktemp -d)
  chmod 755 "$alone"
  cp -L "$(command -v busybox)" "$alone/busybox"
  tar -C "$alone" --numeric-owner --owner=0 --group=0 -c busybox | docker import - "$SCRATCH_IMAGE" >/dev/null
  rm -rf "$alone"
}

# A Debian with Python, for sandboxes and for the application of the example.
need_python_image() {
  docker image inspect "$PYTHON_IMAGE" >/dev/null 2>&1 && return 0
  need_command debootstrap debootstrap
  say "making the image $PYTHON_IMAGE"
  local tree log
  tree=$(mktemp -d)
  log=$(mktemp)
  debootstrap --variant=minbase --include=python3,python3-venv stable "$tree" >"$log" 2>&1 || {
    tail -n 20 "$log" >&2
    fail "make a Debian with debootstrap" "the last lines of debootstrap are above"
  }
  rm -f "$tree"/var/cache/apt/archives/*.deb
  tar -C "$tree" -c . | docker import - "$PYTHON_IMAGE" >/dev/null
  rm -rf "$tree" "$log"
}

# What the application of the example is brought up and checked with.
need_application_tools() {
  need_command curl curl
  need_command docker-compose docker-compose
  python3 -m pip --version >/dev/null 2>&1 || install_packages python3-pip
  need_engine
  need_test_image
  need_python_image
}

# All that building and running against a real engine takes.
prepare() {
  need_rust
  need_c_toolchain
  need_engine
  need_test_image
}

# Prints a TCP port on which nobody listens, below the range the kernel hands out.
free_port() {
  local port
  for port in $(shuf -i 20000-32000 -n 50); do
    if ! (: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
      printf '%s\n' "$port"
      return 0
    fi
  done
  fail "find a free port"
}

uuid() { cat /proc/sys/kernel/random/uuid; }
random_token() { head -c 24 /dev/urandom | od -An -tx1 | tr -d ' \n'; }

# http_status PORT PATH: prints the status of a GET, or 000; needs no HTTP client.
http_status() {
  local line=
  {
    if exec 9<>"/dev/tcp/127.0.0.1/$1"; then
      printf 'GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n' "$2" >&9
      read -r -t 5 line <&9 || true
      exec 9>&-
    fi
  } 2>/dev/null
  case $line in HTTP/1.1\ [1-5]*) printf '%.3s\n' "${line#HTTP/1.1 }" ;; *) printf '000\n' ;; esac
}

# containers_under DIR: ids of sandbox containers that mount something below DIR.
containers_under() {
  docker ps -aq --no-trunc --filter label=io.sandboxd.instance | while read -r id; do
    docker inspect --format '{{range .Mounts}}{{println .Source}}{{end}}' "$id" 2>/dev/null |
      grep -qF "$1/" && printf '%s\n' "$id"
  done || true
}

# What the tests of faults need beyond an engine: strace ends a process at a chosen system
# call, and the rest steps clocks and runs an engine that may be killed.
need_fault_tools() {
  need_command strace strace
  need_faketime
  need_second_engine
  # gVisor, an OCI runtime that reaches no socket of the host.
  need_command runsc runsc
}
