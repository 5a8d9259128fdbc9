#!/usr/bin/env python3
"""Reads the daemon's memory and descriptors under load: ten endless writers, then 100,000 commands.

usage: SANDBOXD_URL=... SANDBOXD_TOKEN=... load.py PID [--secs 30] [--commands 100000]
"""

import argparse
import os
import threading
import time
import uuid

import bench

WRITERS = 10
CLIENTS = 16


def resident_kib(pid):
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def reading(pid):
    return f"{resident_kib(pid) / 1024:.1f} MiB resident, {descriptors(pid)} descriptors"


def agent_of(engine, container):
    pid = engine.call("GET", f"/containers/{container}/json")["State"]["Pid"]
    with open(f"/proc/{pid}/smaps_rollup") as rollup:
        sizes = {line.split(":")[0]: int(line.split()[1]) for line in rollup if line.endswith("kB\n")}
    return f"{sizes['Anonymous']} KiB anonymous, {sizes['Rss']} KiB resident"


def in_threads(count, work):
    threads = [threading.Thread(target=work, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    return threads


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    bench.add_service_arguments(parser)
    parser.add_argument("pid", type=int, help="of the daemon")
    parser.add_argument("--secs", type=int, default=30)
    parser.add_argument("--commands", type=int, default=100_000)
    options = parser.parse_args()
    if not options.token:
        parser.error("a service token is needed: set SANDBOXD_TOKEN")
    service, engine = bench.Client(options.url, options.token), bench.Engine(options.docker_socket)
    session = f"bench-{uuid.uuid4().hex[:10]}"
    path = f"/sessions/{session}/exec"
    service.call("POST", "/sessions", {"session_id": session})
    try:
        service.call("POST", path, {"command": "true"})
        time.sleep(2)
        container = service.call("GET", f"/sessions/{session}")["container"]
        print(f"agent of an idle sandbox:     {agent_of(engine, container)}")
        before = resident_kib(options.pid)
        print(f"before:                       {reading(options.pid)}")

        def write(_):
            body = {"command": "exec yes", "timeout_seconds": options.secs}
            reply = bench.Client(options.url, options.token).call("POST", path, body)
            if reply["exit_code"] != 124 or not reply["truncated"]:
                raise RuntimeError(str(reply)[:200])

        writers = in_threads(WRITERS, write)
        highest = before
        while any(writer.is_alive() for writer in writers):
            highest = max(highest, resident_kib(options.pid))
            time.sleep(0.1)
        print(f"{WRITERS} times `yes` for {options.secs} s:    at most {(highest - before) / 1024:.1f} MiB more")

        def run(n):
            client = bench.Client(options.url, options.token)
            for _ in range(n, options.commands, CLIENTS):
                if client.call("POST", path, {"command": "true"})["exit_code"] != 0:
                    raise RuntimeError("a command failed")

        started = time.perf_counter()
        warm = min(2_000, options.commands)
        for n in range(warm):
            service.call("POST", path, {"command": "true"})
        print(f"after {warm:,} commands:         {reading(options.pid)}")
        for runner in in_threads(CLIENTS, run):
            runner.join()
        rate = options.commands / (time.perf_counter() - started)
        print(f"after {options.commands:,} more:          {reading(options.pid)} ({rate:.0f} commands/s)")
        print(f"agent after that:             {agent_of(engine, container)}")
    finally:
        # Its connection has rested for long, and may be closed.
        bench.Client(options.url, options.token).call("DELETE", f"/sessions/{session}?purge=true")


if __name__ == "__main__":
    main()
