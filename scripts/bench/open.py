#!/usr/bin/env python3
"""Times POST /sessions beside the engine's own create and start of the same container.

Both are taken in turns on one machine, so that what disturbs one disturbs the other. The
settings of the engine's containers are copied from a container that sandboxd made; in the
place of a session's files they mount an empty folder.

With --first-command the time goes on to the answer of the session's first command.

usage: SANDBOXD_URL=... SANDBOXD_TOKEN=... open.py [-n 30] [--runtime ALIAS] [--first-command]
"""

import argparse
import sys
import tempfile
import time
import uuid

import bench

REST_SECS = 0.2
COPIED = ["Image", "User", "Entrypoint", "Cmd", "WorkingDir", "Env"]
COPIED_HOST = [
    "NetworkMode", "Memory", "MemorySwap", "NanoCpus", "CpuShares", "PidsLimit", "Tmpfs", "Init", "SecurityOpt",
    "CapDrop", "LogConfig", "RestartPolicy", "OomScoreAdj", "Runtime",
]


def settings_like(engine, container, folder):
    """Returns the body of a create call that makes a container like an existing one.

    Read-only mounts are shared with it; every other one shows `folder` instead.
    """
    found = engine.call("GET", f"/containers/{container}/json")
    body = {name: found["Config"][name] for name in COPIED if found["Config"].get(name) is not None}
    body["HostConfig"] = {
        name: found["HostConfig"][name] for name in COPIED_HOST if found["HostConfig"].get(name) is not None
    }
    body["HostConfig"]["Mounts"] = [
        mount if mount.get("ReadOnly") else {**mount, "Source": folder}
        for mount in found["HostConfig"].get("Mounts") or []
    ]
    return body


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    bench.add_service_arguments(parser)
    parser.add_argument("--runtime", help="the alias to open on (default: the service's default)")
    parser.add_argument("--first-command", action="store_true", help="time the first command as well")
    options = parser.parse_args()
    if not options.token:
        parser.error("a service token is needed: set SANDBOXD_TOKEN")
    service, engine = bench.Client(options.url, options.token), bench.Engine(options.docker_socket)
    prefix = f"bench-{uuid.uuid4().hex[:8]}"
    sessions, containers = [], []
    folder = tempfile.TemporaryDirectory(prefix="sandboxd-bench-")

    def open_session(n):
        body = {"session_id": f"{prefix}-{n}"}
        if options.runtime:
            body["runtime"] = options.runtime
        sessions.append(body["session_id"])
        opened = service.call("POST", "/sessions", body)
        if options.first_command:
            service.call("POST", f"/sessions/{body['session_id']}/exec", {"command": "true"})
        return opened

    def create():
        made = engine.call("POST", f"/containers/create?name={prefix}-{uuid.uuid4().hex[:8]}", body)
        containers.append(made["Id"])
        engine.call("POST", f"/containers/{made['Id']}/start")

    ours = "sandboxd: POST /sessions" + (" and a command" if options.first_command else "")
    rows = {"engine: create and start": [], ours: []}
    try:
        # The first of each warms caches and is not counted.
        first = open_session("first")
        name = service.call("GET", f"/sessions/{first['session']['session_id']}")["container"]
        body = settings_like(engine, name, folder.name)
        create()
        for n in range(options.n):
            # Turn about, and after a rest: what the engine still does about one
            # start must not slow down the next, and whoever is second has it behind him.
            turns = [("engine: create and start", create), (ours, lambda: open_session(n))]
            for name, call in turns if n % 2 == 0 else reversed(turns):
                time.sleep(REST_SECS)
                took, _ = bench.timed_ms(call)
                rows[name].append(took)
            # One of each lives at a time: the number of containers must not grow with n.
            service.call("DELETE", f"/sessions/{sessions.pop()}?purge=true")
            engine.call("DELETE", f"/containers/{containers.pop()}?force=true")
    finally:
        for session in sessions:
            service.call("DELETE", f"/sessions/{session}?purge=true")
        for container in containers:
            engine.call("DELETE", f"/containers/{container}?force=true")
        folder.cleanup()
    bench.print_table(rows, "engine: create and start")


if __name__ == "__main__":
    sys.exit(main())
