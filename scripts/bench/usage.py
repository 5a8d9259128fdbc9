#!/usr/bin/env python3
"""Times GET /sessions/{id}?usage=true beside the engine's own statistics of that container.

Samples follow one another as a dashboard's do; --pause spaces them out.

usage: SANDBOXD_URL=... SANDBOXD_TOKEN=... usage.py [-n 30] [--pause 0]
"""

import argparse
import sys
import time
import uuid

import bench


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    bench.add_service_arguments(parser)
    parser.add_argument("--pause", type=float, default=0.0, help="seconds between samples (default none)")
    options = parser.parse_args()
    if not options.token:
        parser.error("a service token is needed: set SANDBOXD_TOKEN")
    service, engine = bench.Client(options.url, options.token), bench.Engine(options.docker_socket)
    session = f"bench-{uuid.uuid4().hex[:8]}"
    rows = {"engine: one-shot stats": [], "sandboxd: usage=true": []}
    service.call("POST", "/sessions", {"session_id": session})
    try:
        container = service.call("GET", f"/sessions/{session}")["container"]
        for _ in range(options.n):
            took, _ = bench.timed_ms(
                lambda: engine.call("GET", f"/containers/{container}/stats?stream=false&one-shot=true")
            )
            rows["engine: one-shot stats"].append(took)
            took, found = bench.timed_ms(lambda: service.call("GET", f"/sessions/{session}?usage=true"))
            if not (found["usage"] or {}).get("memory_bytes"):
                raise RuntimeError(f"no usage in the reply: {found}")
            rows["sandboxd: usage=true"].append(took)
            time.sleep(options.pause)
    finally:
        service.call("DELETE", f"/sessions/{session}?purge=true")
    bench.print_table(rows, "engine: one-shot stats")


if __name__ == "__main__":
    sys.exit(main())
