#!/usr/bin/env python3
"""Times operations on files, beside other services if their addresses are given, and beside the engine's exec.

Every round gives each side a turn at each work, of a few calls one after the other. A line NAME=KIND@URL adds a service: KIND is `legacy` or `native`, after the
routes that it has; its token is the same. After that come a tree of many files, a page of a file of 2 GiB, and
five mebibytes written and edited.

usage: SANDBOXD_URL=... SANDBOXD_TOKEN=... files.py [-n 100] [--pid PID] [NAME=KIND@URL ...]
"""

import argparse
import base64
import json
import os
import statistics
import time
import uuid

import bench

KIB = b"x" * 1023 + b"\n"
MIB = (b"y" * 99 + b"\n") * 10486
BIG_ROUNDS = 10
# Calls of one turn.
TURN = 5
LINES = 1_000_000
PAGE = 10


class Side:
    """One service, its session, and what is asked of it."""

    def __init__(self, name, kind, url, token):
        self.name, self.kind = name, kind
        self.raw = bench.Raw(url, token)
        self.session = f"bench-{uuid.uuid4().hex[:10]}"

    def open(self):
        self.ask("", {"session_id": self.session}, path="/sessions")
        if self.kind == "legacy":
            self.ask("write", {"path": "small", "content_b64": base64.b64encode(KIB).decode()})
            self.ask("write", {"path": "large", "content_b64": base64.b64encode(MIB).decode()})
        else:
            self.put("small", KIB)
            self.put("large", MIB)

    def ask(self, operation, body, path=None):
        path = path or f"/sessions/{self.session}/{operation}"
        return self.raw.post(path, json.dumps(body).encode())

    def put(self, name, content):
        self.raw.post(f"/sessions/{self.session}/files/write?path=/workspace/{name}", content)

    def works(self):
        """What this kind of service can do, and how often a round asks for it."""
        small_b64, large_b64 = (base64.b64encode(one).decode() for one in (KIB, MIB))
        if self.kind == "legacy":
            return {
                "read 1 KiB": lambda: self.ask("read", {"path": "small", "offset": 0, "limit": 2000}),
                "write 1 KiB": lambda: self.ask("write", {"path": "small", "content_b64": small_b64}),
                "edit 1 KiB": lambda: self.ask("edit", {"path": "small", "old_string": "x" * 1000,
                                                        "new_string": "x" * 1000}),
                "ls": lambda: self.ask("ls", {"path": "/workspace"}),
                "read 1 MiB": lambda: self.ask("read_bytes", {"path": "large"}),
                "write 1 MiB": lambda: self.ask("write", {"path": "large", "content_b64": large_b64}),
            }
        return {
            "read 1 KiB": lambda: self.ask("files/read", {"path": "/workspace/small"}),
            "write 1 KiB": lambda: self.put("small", KIB),
            "read 1 MiB": lambda: self.ask("files/read", {"path": "/workspace/large"}),
            "write 1 MiB": lambda: self.put("large", MIB),
        }

    def close(self):
        self.raw.request("DELETE", f"/sessions/{self.session}?purge=true", b"")


def rounds(sides, count):
    rows = {}
    for nth in range(count):
        for side in sides:
            for work, call in side.works().items():
                if nth < BIG_ROUNDS or "MiB" not in work:
                    taken = rows.setdefault(work, {}).setdefault(side.name, [])
                    taken.extend(bench.timed_ms(call)[0] for _ in range(TURN))
    return rows


def show(rows, ours):
    print(f"{'':14}{'':24}{'n':>5}{'p50 ms':>10}{'p99 ms':>10}   times as long as {' and '.join(ours)}")
    for work, by_side in rows.items():
        for name, samples in by_side.items():
            p99 = statistics.quantiles(samples, n=100)[-1] if 1 < len(samples) else samples[0]
            middle = statistics.median(samples)
            ratios = [f"{middle / statistics.median(by_side[one]):6.1f}" for one in ours if one in by_side]
            print(f"{work:14}{name:24}{len(samples):5}{middle:10.2f}{p99:10.2f}   {' '.join(ratios)}")


def in_engine(engine, container, argv):
    made = engine.call("POST", f"/containers/{container}/exec", {"Cmd": argv, "AttachStdout": True})
    return engine.stream(f"/exec/{made['Id']}/start", {"Detach": False, "Tty": False})[0]


def tree(side, service, engine, files):
    """Finds files and lines in a tree, by the service and by programs that the engine starts."""
    make = (f"mkdir tree && cd tree && for d in $(seq {files // 100}); do mkdir $d; "
            "for f in $(seq 100); do echo some text $f > $d/$f.txt; done; done; echo the needle > 7/needle.md")
    service.call("POST", f"/sessions/{side.session}/exec", {"command": make, "timeout_seconds": 120})
    container = service.call("GET", f"/sessions/{side.session}")["container"]
    works = {
        "glob": (lambda: side.ask("glob", {"pattern": "*.md", "path": "tree"}),
                 ["find", "/workspace/tree", "-type", "f", "-name", "*.md"]),
        "grep": (lambda: side.ask("grep", {"pattern": "the ne+dle", "path": "tree"}),
                 ["grep", "-rE", "the ne+dle", "/workspace/tree"]),
    }
    print(f"\na tree of {files:,} files, median of {BIG_ROUNDS}")
    for name, (ours, argv) in works.items():
        taken = {"sandboxd": [], " ".join(argv[:2]) + " by the engine": []}
        for _ in range(BIG_ROUNDS):
            for who, call in zip(taken, (ours, lambda argv=argv: in_engine(engine, container, argv))):
                elapsed, found = bench.timed_ms(call)
                if not found:
                    raise RuntimeError(f"{who} found nothing")
                taken[who].append(elapsed)
        bench.print_table(taken, next(iter(taken)))


def kib_of(pid, name):
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(name))


def page(side, service, pid):
    """Reads ten lines in the middle of a file of 2 GiB."""
    make = "yes $(printf '%01023d' 0) | head -n 2097152 > huge.txt; ls -l huge.txt"
    service.call("POST", f"/sessions/{side.session}/exec", {"command": make, "timeout_seconds": 120})
    before = kib_of(pid, "VmRSS") if pid else 0
    asked = {"path": "huge.txt", "offset": LINES, "limit": PAGE}
    taken, highest = [], before
    for _ in range(3):
        elapsed, reply = bench.timed_ms(lambda: side.ask("read", asked))
        taken.append(elapsed)
        highest = max(highest, kib_of(pid, "VmHWM") if pid else 0)
        if json.loads(bytes(reply))["content"].count("0" * 1023) != PAGE:
            raise RuntimeError(bytes(reply[:300]))
    more = f", at most {(highest - before) / 1024:.1f} MiB more memory than before" if pid else ""
    print(f"\n{PAGE} lines from line {LINES:,} of 2 GiB: {statistics.median(taken):.0f} ms{more}")


def five_mebibytes(side):
    content = (b"z" * 99 + b"\n") * 52429
    content = content[:5 << 20]
    began = time.perf_counter()
    side.ask("write", {"path": "five", "content_b64": base64.b64encode(content).decode()})
    written = time.perf_counter()
    side.ask("edit", {"path": "five", "old_string": "z" * 99 + "\n", "new_string": "w" * 99 + "\n",
                      "replace_all": True})
    edited = time.perf_counter()
    back = json.loads(bytes(side.ask("read_bytes", {"path": "five"})))["content_b64"]
    if base64.b64decode(back) != content.replace(b"z" * 99 + b"\n", b"w" * 99 + b"\n"):
        raise RuntimeError("five mebibytes did not come back as they were edited")
    print(f"5 MiB written in {(written - began) * 1000:.0f} ms, edited in {(edited - written) * 1000:.0f} ms, whole")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    bench.add_service_arguments(parser)
    parser.add_argument("--pid", type=int, help="of the daemon, whose memory is read")
    parser.add_argument("--files", type=int, default=50_000, help="in the tree that is searched")
    parser.add_argument("others", nargs="*", metavar="NAME=KIND@URL")
    parser.set_defaults(n=100)
    options = parser.parse_args()
    token = options.token or os.environ.get("SANDBOXD_TOKEN")
    if not token:
        parser.error("a service token is needed: set SANDBOXD_TOKEN")
    sides = [Side(f"sandboxd: {kind}", kind, options.url, token) for kind in ("legacy", "native")]
    for other in options.others:
        name, _, rest = other.partition("=")
        kind, _, url = rest.partition("@")
        sides.append(Side(f"{name}: {kind}", kind, url, token))
    service, engine = bench.Client(options.url, token), bench.Engine(options.docker_socket)
    opened = []
    try:
        for side in sides:
            side.open()
            opened.append(side)
        show(rounds(sides, options.n), [side.name for side in sides[:2]])
        five_mebibytes(sides[0])
        tree(sides[0], service, engine, options.files)
        page(sides[0], service, options.pid)
    finally:
        for side in opened:
            side.close()


if __name__ == "__main__":
    main()
