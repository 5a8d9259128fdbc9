#!/usr/bin/env python3
"""Measures waking, sleeping sessions and sweeps, each beside its bound.

wake    a session that wakes from stop, beside the engine's own start of a stopped container of
        the same settings, in pairs in turn: at most 1.2 times as long
asleep  a daemon with 1,000 sessions asleep: at most 40 MiB, and GET /sessions within 10 ms
sweep   a look at everything with 10,000 closed records: within 1 s, and no request waits for it;
        then one that removes them all, which has no bound

Starts daemons of its own on a directory of its own; a service that is there is left alone.

usage: lifecycle.py [wake] [asleep] [sweep] [-n 30] [--asleep 1000] [--closed 10000]
needs: cargo build --release --bins --example fill_store, and the images of the tests
"""

import argparse
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import uuid

import bench
import size
from open import settings_like

WAKE_RATIO_MAX = 1.2
ASLEEP_MIB_MAX = 40
LISTING_MS_MAX = 10
SWEEP_MS_MAX = 1000
# No request takes longer than this for a sweep that goes on.
REQUEST_MS_MAX = 50
REST_SECS = 0.3
SWEEPS = 10
EXPIRY_SECS_MAX = 300


class Verdict:
    """Says of each figure whether it holds, and of all of them at the end."""

    def __init__(self):
        self.broken = 0

    def judge(self, name, value, bound, unit):
        held = value <= bound
        self.broken += not held
        print(f"{'held  ' if held else 'BROKEN'}  {name}: {value:.2f} {unit} (at most {bound} {unit})")


def fresh(options, directory, engine, **more):
    """Starts a daemon; returns it and a client of it."""
    daemon = size.Daemon(options, directory, engine, **more)
    return daemon, bench.Client(f"http://127.0.0.1:{daemon.port}", size.TOKEN)


def folder():
    """Makes a directory as a daemon of `size` wants it."""
    made = tempfile.TemporaryDirectory(prefix="sandboxd-bench-")
    for name in ("run", "ws", "other"):
        pathlib.Path(made.name, name).mkdir()
    return made


def fill(options, directory, count, kind):
    program = options.bin / "examples/fill_store"
    subprocess.run([program, f"{directory}/state", str(count), kind], check=True)


def wake(options, verdict):
    engine = bench.Engine(options.docker_socket)
    name = f"bench-{uuid.uuid4().hex[:8]}"
    rows = {"engine: start": [], "sandboxd: wake": []}
    with folder() as directory:
        daemon, service = fresh(options, directory, options.docker_socket, SANDBOXD_PERSIST_CONTAINERS="1")
        made = None
        try:
            service.call("POST", "/sessions", {"session_id": name})
            shown = service.call("GET", f"/sessions/{name}")["container"]
            body = settings_like(engine, shown, f"{directory}/other")
            made = engine.call("POST", f"/containers/create?name={name}-engine", body)["Id"]
            engine.call("POST", f"/containers/{made}/start")
            turns = [
                (
                    "engine: start",
                    lambda: engine.call("POST", f"/containers/{made}/stop?t=1"),
                    lambda: engine.call("POST", f"/containers/{made}/start"),
                ),
                (
                    "sandboxd: wake",
                    lambda: service.call("POST", f"/sessions/{name}/hibernate"),
                    lambda: service.call("POST", f"/sessions/{name}/wake"),
                ),
            ]
            for n in range(options.n + 1):
                for row, stop, start in turns if n % 2 == 0 else reversed(turns):
                    stop()
                    # What the engine still does about the stop is not the start's.
                    time.sleep(REST_SECS)
                    took, _ = bench.timed_ms(start)
                    # The first of each warms caches and is not counted.
                    if n:
                        rows[row].append(took)
                    time.sleep(REST_SECS)
            again = service.call("GET", f"/sessions/{name}")["container"]
            if again != shown:
                raise RuntimeError("the session woke in another container, which is no start from stop")
        finally:
            service.call("DELETE", f"/sessions/{name}?purge=true")
            if made:
                engine.call("DELETE", f"/containers/{made}?force=true")
            daemon.stop()
    bench.print_table(rows, "engine: start")
    ours, theirs = (statistics.median(rows[row]) for row in ("sandboxd: wake", "engine: start"))
    verdict.judge("wake from stop over the engine's start", ours / theirs, WAKE_RATIO_MAX, "times")


def asleep(options, verdict):
    with folder() as directory:
        fill(options, directory, options.asleep, "parked")
        silent = size.SilentEngine(f"{directory}/engine.sock")
        daemon, _ = fresh(options, directory, f"{directory}/engine.sock")
        try:
            time.sleep(3)
            buffer = bytearray(64 << 20)
            daemon.listing_ms(buffer)
            listings = [daemon.listing_ms(buffer)[0] for _ in range(options.n)]
            peak = daemon.memory_mib("VmHWM")
        finally:
            daemon.stop()
    size.show("GET /sessions", listings, "ms ")
    print(f"calls of the engine: {len(silent.calls)}")
    verdict.judge(f"memory with {options.asleep} sessions asleep, at most ever", peak, ASLEEP_MIB_MAX, "MiB")
    verdict.judge("GET /sessions, median", statistics.median(listings), LISTING_MS_MAX, "ms")


def processor_ms(pid):
    """Returns the processor time that a process has used."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) * 10


def slowest_ms(service, until):
    """Asks for this and that until told to stop; returns the milliseconds of the slowest."""
    slowest = 0
    while not until.is_set():
        for path in ("/healthz", "/policy"):
            took, _ = bench.timed_ms(lambda: service.call("GET", path))
            slowest = max(slowest, took)
        time.sleep(0.002)
    return slowest


def watched(service, act):
    """Does something while requests are made; returns what it returned and the slowest of them."""
    over, found = threading.Event(), []
    asking = threading.Thread(target=lambda: found.append(slowest_ms(service, over)))
    asking.start()
    try:
        result = act()
    finally:
        over.set()
        asking.join()
    return result, found[0]


def at_rest(options, directory, interval):
    """Returns the processor time of ten seconds without a request, looks being so far apart."""
    daemon, service = fresh(options, directory, options.docker_socket, SANDBOXD_CLEANUP_INTERVAL=interval)
    try:
        time.sleep(3)
        before = processor_ms(daemon.process.pid)
        time.sleep(SWEEPS)
        used = processor_ms(daemon.process.pid) - before
        _, slowest = watched(service, lambda: time.sleep(SWEEPS))
    finally:
        daemon.stop()
    return used, slowest


def sweep(options, verdict):
    with folder() as directory:
        fill(options, directory, options.closed, "closed")
        without, calm = at_rest(options, directory, "3600")
        swept, slowest = at_rest(options, directory, "1")
        print(f"slowest request without sweeps {calm:.1f} ms, with one each second {slowest:.1f} ms")
        each = max(0, swept - without) / SWEEPS
        verdict.judge(f"processor time of a sweep over {options.closed} closed records", each, SWEEP_MS_MAX, "ms")
        verdict.judge("slowest request while sweeps go on", slowest, REQUEST_MS_MAX, "ms")
        more = {"SANDBOXD_WORKSPACE_TTL": "1", "SANDBOXD_CLEANUP_INTERVAL": "1"}
        daemon, service = fresh(options, directory, options.docker_socket, **more)

        def expire():
            end = time.monotonic() + EXPIRY_SECS_MAX
            purged = "/events?op=purged&limit=1000&after="
            count, after = 0, 0
            while count < options.closed:
                if end < time.monotonic():
                    raise RuntimeError(f"only {count} of {options.closed} went in {EXPIRY_SECS_MAX} s")
                page = service_events.call("GET", f"{purged}{after}")
                count, after = count + len(page["events"]), page["next"]
                time.sleep(0.02)

        service_events = bench.Client(f"http://127.0.0.1:{daemon.port}", size.TOKEN)
        try:
            started = time.perf_counter()
            _, slowest = watched(service, expire)
            took = time.perf_counter() - started
        finally:
            daemon.stop()
        print(f"all {options.closed} expired and forgotten in {took:.1f} s, slowest request meanwhile {slowest:.1f} ms")


def main():
    parts = {"wake": wake, "asleep": asleep, "sweep": sweep}
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help="wake, asleep, sweep (default: all)")
    parser.add_argument("-n", type=int, default=30, help="pairs of wakes, and listings (default 30)")
    parser.add_argument("--asleep", type=int, default=1_000, help="sessions asleep (default 1000)")
    parser.add_argument("--closed", type=int, default=10_000, help="closed records (default 10000)")
    parser.add_argument("--docker-socket", default="/var/run/docker.sock")
    parser.add_argument("--bin", type=pathlib.Path, default=size.ROOT / "target/release")
    options = parser.parse_args()
    unknown = [part for part in options.parts if part not in parts]
    if unknown:
        parser.error(f"no such part: {unknown[0]}")
    verdict = Verdict()
    for part in options.parts or parts:
        print(f"== {part}")
        parts[part](options, verdict)
    return min(verdict.broken, 1)


if __name__ == "__main__":
    sys.exit(main())
