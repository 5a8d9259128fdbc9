#!/usr/bin/env python3
"""Times commands beside the engine's own exec, and beside other services if their addresses are given.

Every round gives each side a turn, so that what disturbs one disturbs all: a rest, since the engine goes
on working for a while after its answer, and then a few commands one after the other. Then each side is driven by
wrk with 32 connections. A line NAME=KIND@URL adds a service: KIND is `exec` or `run`, after the route
that it has; its token is the same.

usage: SANDBOXD_URL=... SANDBOXD_TOKEN=... commands.py [-n 200] [--wrk-secs 10] [NAME=KIND@URL ...]
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import tempfile
import time
import uuid

import bench

CONNECTIONS = 32
REST_SECS = 0.05
# Commands of one turn.
TURN = 5
EXEC = {"command": "true"}
LUA = """
local n = 0
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
wrk.headers["X-Sandbox-Token"] = os.getenv("SANDBOXD_TOKEN")
local threads = 0
function setup(thread)
  threads = threads + 1
  thread:set("thread_number", threads)
end
function init() math.randomseed(os.time() + thread_number) end
request = function()
  n = n + 1
  return wrk.format(nil, nil, nil, %s)
end
local bad = 0
response = function(status) if status ~= 200 then bad = bad + 1 end end
"""
RUN_ID = 'string.format("%08x%08x%08x%08x", thread_number, math.random(0, 2^31), math.random(0, 2^31), n)'


def run_body():
    return {"argv": ["/bin/sh", "-c", "true"], "run_id": uuid.uuid4().hex}


class Side:
    """One service: its session, and how a command is run there."""

    def __init__(self, name, kind, url, token):
        self.name, self.kind, self.url = name, kind, url
        self.client = bench.Client(url, token)
        self.raw = bench.Raw(url, token)
        self.session = f"bench-{uuid.uuid4().hex[:10]}"

    def open(self):
        self.client.call("POST", "/sessions", {"session_id": self.session})

    def path(self):
        return f"/sessions/{self.session}/{self.kind}"

    def command(self):
        body = EXEC if self.kind == "exec" else run_body()
        reply = json.loads(bytes(self.raw.post(self.path(), json.dumps(body).encode())))
        if reply["exit_code"] != 0:
            raise RuntimeError(f"{self.name}: {reply}")

    def close(self):
        # While wrk ran the connection was idle, and some servers end it then.
        fresh = bench.Client(self.url, self.client.headers["X-Sandbox-Token"])
        fresh.call("DELETE", f"/sessions/{self.session}?purge=true")

    def per_second(self, secs):
        body = """'{"command":"true"}'"""
        if self.kind == "run":
            body = """'{"argv":["/bin/sh","-c","true"],"run_id":"'..%s..'"}'""" % RUN_ID
        with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
            script.write(LUA % body)
            script.flush()
            done = subprocess.run(
                ["wrk", "-t2", f"-c{CONNECTIONS}", f"-d{secs}s", "--timeout", "60s", "--latency", "-s", script.name,
                 self.url + self.path()],
                capture_output=True, text=True, check=True,
            ).stdout
        rate = float(re.search(r"Requests/sec:\s+([\d.]+)", done).group(1))
        refused = re.search(r"Non-2xx or 3xx responses: (\d+)", done)
        latency = dict(re.findall(r"(50|99)%\s+(\S+)", done))
        return rate, latency, int(refused.group(1)) if refused else 0


class EngineSide:
    """The engine's own exec in a container of its own."""

    name = "engine: exec"

    def __init__(self, engine, image):
        self.engine = engine
        made = engine.call("POST", "/containers/create", {
            "Image": image, "Cmd": ["sleep", "infinity"],
            "HostConfig": {"NetworkMode": "none", "Init": True},
        })
        self.container = made["Id"]
        engine.call("POST", f"/containers/{self.container}/start")

    def command(self):
        body = {"Cmd": ["/bin/sh", "-c", "true"], "AttachStdout": True, "AttachStderr": True}
        made = self.engine.call("POST", f"/containers/{self.container}/exec", body)
        self.engine.stream(f"/exec/{made['Id']}/start", {"Detach": False, "Tty": False})
        if self.engine.call("GET", f"/exec/{made['Id']}/json")["ExitCode"] != 0:
            raise RuntimeError("the engine's exec failed")

    def close(self):
        self.engine.call("DELETE", f"/containers/{self.container}?force=1")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    bench.add_service_arguments(parser)
    parser.add_argument("--image", default="sandboxd-test/busybox:latest")
    parser.add_argument("--wrk-secs", type=int, default=10)
    parser.add_argument("others", nargs="*", metavar="NAME=KIND@URL")
    options = parser.parse_args()
    if not options.token:
        parser.error("a service token is needed: set SANDBOXD_TOKEN")
    os.environ["SANDBOXD_TOKEN"] = options.token
    services = [Side("sandboxd: exec", "exec", options.url, options.token),
                Side("sandboxd: run", "run", options.url, options.token)]
    for other in options.others:
        name, _, rest = other.partition("=")
        kind, _, url = rest.partition("@")
        services.append(Side(f"{name}: {kind}", kind, url, options.token))
    engine = EngineSide(bench.Engine(options.docker_socket), options.image)
    sides = [engine, *services]
    rows = {side.name: [] for side in sides}
    try:
        for service in services:
            service.open()
        for side in sides:
            side.command()
        for _ in range(options.n):
            for side in sides:
                time.sleep(REST_SECS)
                rows[side.name].extend(bench.timed_ms(side.command)[0] for _ in range(TURN))
        bench.print_table(rows, engine.name)
        for name, samples in rows.items():
            print(f"{name:32} p99 {statistics.quantiles(samples, n=100)[-1]:.2f} ms")
        for service in services:
            rate, latency, refused = service.per_second(options.wrk_secs)
            print(f"{service.name:32} {rate:8.1f} commands/s at {CONNECTIONS} connections, "
                  f"p50 {latency.get('50')}, p99 {latency.get('99')}, {refused} refused")
    finally:
        engine.close()
        for service in services:
            service.close()


if __name__ == "__main__":
    main()
