#!/usr/bin/env python3
"""Times 200 MB of raw output beside the engine's own exec stream, and how soon a written byte is seen.

The run waits for its reader, so that nothing is dropped: every byte is counted. For the second figure a
line goes to the standard input of `cat` in the sandbox and is awaited at a follower of its output: the
way in is part of it, so a byte that a program writes is seen sooner than that.

usage: SANDBOXD_URL=... SANDBOXD_TOKEN=... streams.py [-n 5] [--bytes 200000000]
"""

import argparse
import http.client
import json
import statistics
import threading
import time
import urllib.parse
import uuid

import bench

LINES = 200


class Stream:
    """A connection of its own for a reply that goes on."""

    def __init__(self, url, token, path, accept):
        parts = urllib.parse.urlsplit(url)
        self.connection = http.client.HTTPConnection(parts.hostname, parts.port or 80, timeout=120)
        self.connection.request("GET", path, headers={"X-Sandbox-Token": token, "Accept": accept})
        self.reply = self.connection.getresponse()
        if self.reply.status != 200:
            raise RuntimeError(f"{path}: {self.reply.status} {self.reply.read()[:200]!r}")

    def size(self):
        size = 0
        while piece := self.reply.read1(1 << 20):
            size += len(piece)
        self.connection.close()
        return size


def raw_seconds(options, service, session):
    runs = f"/sessions/{session}/runs"
    body = {"argv": ["dd", "if=/dev/zero", "bs=64k", f"count={options.bytes >> 16}"], "overflow": "wait"}
    started = time.perf_counter()
    run = service.call("POST", runs, body)["run_id"]
    path = f"{runs}/{run}/output?follow=true&stream=stdout&offset=0"
    size = Stream(options.url, options.token, path, "application/octet-stream").size()
    took = time.perf_counter() - started
    if size != options.bytes >> 16 << 16:
        raise RuntimeError(f"{size} bytes arrived of {options.bytes}")
    return took


def engine_seconds(options, engine, container):
    body = {"Cmd": ["dd", "if=/dev/zero", "bs=64k", f"count={options.bytes >> 16}"], "AttachStdout": True, "AttachStderr": True}
    started = time.perf_counter()
    made = engine.call("POST", f"/containers/{container}/exec", body)
    size, _, _ = engine.stream(f"/exec/{made['Id']}/start", {"Detach": False, "Tty": False})
    if size < options.bytes >> 16 << 16:
        raise RuntimeError(f"{size} bytes arrived of {options.bytes}")
    return time.perf_counter() - started


def line_ms(options, service, session):
    runs = f"/sessions/{session}/runs"
    run = service.call("POST", runs, {"argv": ["cat"], "stdin": True})["run_id"]
    follower = Stream(options.url, options.token, f"{runs}/{run}/output?follow=true", "application/x-ndjson")
    seen = []
    arrived = threading.Semaphore(0)

    def follow():
        for line in follower.reply:
            seen.append((time.perf_counter(), json.loads(line)))
            arrived.release()

    reader = threading.Thread(target=follow, daemon=True)
    reader.start()
    took = []
    feeder = bench.Client(options.url, options.token)
    feeder.headers["Content-Type"] = "application/octet-stream"
    for n in range(LINES):
        connection = feeder.connection
        if connection.sock is None:
            connection.connect()
        started = time.perf_counter()
        connection.request("POST", f"{runs}/{run}/stdin", f"{n}\n".encode(), feeder.headers)
        arrived.acquire()
        took.append((seen[-1][0] - started) * 1000)
        connection.getresponse().read()
    service.call("POST", f"{runs}/{run}/stop")
    reader.join(10)
    return took


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    bench.add_service_arguments(parser)
    parser.add_argument("--bytes", type=int, default=200_000_000)
    parser.set_defaults(n=5)
    options = parser.parse_args()
    if not options.token:
        parser.error("a service token is needed: set SANDBOXD_TOKEN")
    service, engine = bench.Client(options.url, options.token), bench.Engine(options.docker_socket)
    session = f"bench-{uuid.uuid4().hex[:10]}"
    service.call("POST", "/sessions", {"session_id": session})
    try:
        container = service.call("GET", f"/sessions/{session}")["container"]
        ours, theirs = [], []
        for _ in range(options.n):
            theirs.append(engine_seconds(options, engine, container))
            ours.append(raw_seconds(options, service, session))
        for name, taken in [("engine: exec stream", theirs), ("sandboxd: raw output", ours)]:
            middle = statistics.median(taken)
            print(f"{name:24} {options.bytes / middle / 1e6:8.1f} MB/s, median of {options.n}")
        print(f"{'ratio':24} {statistics.median(theirs) / statistics.median(ours):8.2f}")
        took = line_ms(options, service, session)
        print(f"a line there and back: p50 {statistics.median(took):.2f} ms, "
              f"p99 {statistics.quantiles(took, n=100)[-1]:.2f} ms, of {LINES}")
    finally:
        service.call("DELETE", f"/sessions/{session}?purge=true")


if __name__ == "__main__":
    main()
