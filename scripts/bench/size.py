#!/usr/bin/env python3
"""Measures a daemon with many sessions on record: its start, its memory and its listings.

Starts daemons of its own on a directory of its own. In the place of the engine is a socket
that takes every call, counts it and never answers, so the figures hold for an engine that is
lost as well; with --docker-socket the calls go to a real one and are not counted.

usage: size.py [-n 10000] [--runs 7] [--kinds parked,closed] [--docker-socket PATH]
needs: cargo build --release --bins --example fill_store
"""

import argparse
import http.client
import os
import pathlib
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOKEN = "bench-only-bench-only"
START_SECS_MAX = 60
LISTINGS = 30


class SilentEngine:
    """A socket that takes calls, keeps their first lines and never answers."""

    def __init__(self, path):
        self.calls, self.held = [], []
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen(256)
        threading.Thread(target=self.take, daemon=True).start()

    def take(self):
        while True:
            stream, _ = self.listener.accept()
            self.held.append(stream)
            stream.settimeout(1)
            try:
                line = stream.recv(4096).split(b"\r\n")[0].decode()
            except OSError:
                line = "(nothing)"
            if "/_ping" not in line:
                self.calls.append(line)


class Daemon:
    """One run of the daemon; `start_ms` is from its spawn to its first healthy answer."""

    def __init__(self, options, directory, engine, **more):
        self.port = free_port()
        env = {
            "PATH": os.environ["PATH"],
            "SANDBOXD_PORT": str(self.port),
            "SANDBOXD_TOKEN": TOKEN,
            "SANDBOXD_STATE_DIR": f"{directory}/state",
            "SANDBOXD_RUNTIME_DIR": f"{directory}/run",
            "SANDBOXD_WORKSPACE_ROOT": f"{directory}/ws",
            "SANDBOXD_RUNTIMES": "bb=sandboxd-test/busybox:latest",
            "SANDBOXD_PREWARM": "0",
            "SANDBOXD_DOCKER_HOST": f"unix://{engine}",
            "SANDBOXD_LOG": "warn",
            **more,
        }
        log = open(f"{directory}/log", "ab")
        started = time.perf_counter()
        self.process = subprocess.Popen([options.bin / "sandboxd"], env=env, stdout=log, stderr=log)
        while not self.is_healthy():
            if self.process.poll() is not None or time.perf_counter() - started > START_SECS_MAX:
                raise RuntimeError(pathlib.Path(f"{directory}/log").read_text()[-2000:])
            time.sleep(0.001)
        self.start_ms = (time.perf_counter() - started) * 1000

    def is_healthy(self):
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as stream:
                stream.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
                return b" 200 " in stream.recv(64)
        except OSError:
            return False

    def memory_mib(self, name):
        for line in pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(name):
                return int(line.split()[1]) / 1024
        raise RuntimeError(name)

    def listing_ms(self, buffer):
        """Times one listing over a kept connection, read into a buffer that is there already."""
        if not hasattr(self, "connection"):
            self.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        started = time.perf_counter()
        self.connection.request("GET", "/sessions", headers={"X-Sandbox-Token": TOKEN})
        reply = self.connection.getresponse()
        length = int(reply.headers["content-length"])
        view = memoryview(buffer)[:length]
        at = 0
        while at < length:
            at += reply.readinto(view[at:])
        return (time.perf_counter() - started) * 1000, length

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(30)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def show(name, samples, unit):
    print(
        f"{name:44}{len(samples):4}   median {statistics.median(samples):9.2f} {unit}"
        f"   least {min(samples):9.2f}   most {max(samples):9.2f}"
    )


def measure(options, directory, engine, silent):
    starts, resident, listings, command = [], [], [], []
    buffer = bytearray(64 << 20)
    for _ in range(options.runs):
        daemon = Daemon(options, directory, engine)
        try:
            starts.append(daemon.start_ms)
            time.sleep(options.rest)
            resident.append(daemon.memory_mib("VmRSS"))
            calls = len(silent.calls) if silent else 0
            daemon.listing_ms(buffer)
            for _ in range(LISTINGS):
                took, length = daemon.listing_ms(buffer)
                listings.append(took)
            env = {"SANDBOXD_URL": f"http://127.0.0.1:{daemon.port}", "SANDBOXD_TOKEN": TOKEN}
            started = time.perf_counter()
            subprocess.run([options.bin / "sandboxctl", "ls"], env=env, check=True, stdout=subprocess.DEVNULL)
            command.append((time.perf_counter() - started) * 1000)
            asked = silent.calls[calls:] if silent else []
            peak = daemon.memory_mib("VmHWM")
        finally:
            daemon.stop()
    show("start: spawn to the first healthy answer", starts, "ms ")
    show(f"resident after {options.rest:g} s", resident, "MiB")
    show(f"GET /sessions, {length / 1e6:.2f} MB", listings, "ms ")
    show("sandboxctl ls", command, "ms ")
    print(f"most that was ever resident, listings included: {peak:.1f} MiB")
    if silent:
        print(f"calls of the engine during the listings: {len(asked)} {asked[:3]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-n", type=int, default=10_000, help="sessions on record (default 10000)")
    parser.add_argument("--kinds", default="parked,closed", help="what they were in turn (default parked,closed)")
    parser.add_argument("--runs", type=int, default=7, help="starts (default 7)")
    parser.add_argument("--rest", type=float, default=3.0, help="seconds from the start to the look at memory")
    parser.add_argument("--docker-socket", help="a real engine (default: one that never answers)")
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "target/release")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sandboxd-bench-") as directory:
        for name in ("run", "ws"):
            os.mkdir(f"{directory}/{name}")
        fill = [options.bin / "examples/fill_store", f"{directory}/state", str(options.n)]
        subprocess.run(fill + options.kinds.split(","), check=True)
        silent = None if options.docker_socket else SilentEngine(f"{directory}/engine.sock")
        engine = options.docker_socket or f"{directory}/engine.sock"
        print(f"{options.n} sessions on record, {options.kinds} in turn")
        measure(options, directory, engine, silent)


if __name__ == "__main__":
    sys.exit(main())
