"""What the measurements share: keep-alive HTTP clients, medians and one table."""

import http.client
import json
import os
import socket
import statistics
import time
import urllib.parse

TIMEOUT_SECS = 120
REST_SECS_MAX = 2
# Bytes of a reply that is not copied once more.
LARGE = 1 << 16


class Client:
    """One keep-alive connection to a sandboxd."""

    def __init__(self, url, token):
        parts = urllib.parse.urlsplit(url)
        self.connection = http.client.HTTPConnection(parts.hostname, parts.port or 80, timeout=TIMEOUT_SECS)
        self.headers = {"X-Sandbox-Token": token, "Content-Type": "application/json"}

    def call(self, method, path, body=None):
        """Sends a request and returns the decoded reply; raises unless it succeeded."""
        return exchange(self.connection, method, path, body, self.headers)


class Raw:
    """One keep-alive connection without a library in between, which would take longer than the service."""

    def __init__(self, url, token):
        parts = urllib.parse.urlsplit(url)
        self.address = (parts.hostname, parts.port or 80)
        self.head = f"Host: {parts.hostname}\r\nX-Sandbox-Token: {token}\r\nContent-Type: application/json\r\n"
        self.socket, self.rest, self.used = None, b"", 0
        self.large = bytearray()

    def post(self, path, body):
        return self.request("POST", path, body)

    def request(self, method, path, body):
        """Sends a request and returns the bytes of the reply; raises unless it succeeded."""
        # A server may close a connection that has rested.
        if self.socket is None or self.used + REST_SECS_MAX < time.monotonic():
            self.socket = socket.create_connection(self.address, TIMEOUT_SECS)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        head = f"{method} {path} HTTP/1.1\r\n{self.head}Content-Length: {len(body)}\r\n\r\n"
        self.send(head.encode(), body)
        while (end := self.rest.find(b"\r\n\r\n")) < 0:
            self.more()
        head, self.rest = self.rest[:end].lower(), self.rest[end + 4:]
        reply = self.chunks() if b"transfer-encoding: chunked" in head else self.take(self.length(head))
        self.used = time.monotonic()
        if b"connection: close" in head:
            self.socket, self.rest = None, b""
        if not head.startswith(b"http/1.1 2"):
            raise RuntimeError(f"{method} {path}: {head[:60]!r} {bytes(reply[:300])!r}")
        return reply

    def send(self, head, body):
        # Without a copy of a large body.
        sent = self.socket.sendmsg([head, body]) - len(head)
        if sent < 0:
            raise RuntimeError("the head did not fit into the socket")
        if sent < len(body):
            self.socket.sendall(memoryview(body)[sent:])

    @staticmethod
    def length(head):
        lines = [line for line in head.split(b"\r\n") if line.startswith(b"content-length:")]
        return int(lines[0].split(b":")[1]) if lines else 0

    def take(self, size):
        """Returns the next bytes; many of them as a view that the next reply writes over."""
        if len(self.rest) < size:
            if len(self.large) < size:
                self.large = bytearray(size)
            view, got = memoryview(self.large)[:size], len(self.rest)
            view[:got], self.rest = self.rest, b""
            while got < size:
                more = self.socket.recv_into(view[got:])
                if not more:
                    raise RuntimeError("the connection was closed")
                got += more
            return view if LARGE <= size else bytes(view)
        taken, self.rest = self.rest[:size], self.rest[size:]
        return taken

    def chunks(self):
        whole = []
        while True:
            while (end := self.rest.find(b"\r\n")) < 0:
                self.more()
            size = int(self.rest[:end].split(b";")[0], 16)
            self.rest = self.rest[end + 2:]
            whole.append(bytes(self.take(size)))
            self.take(2)
            if size == 0:
                return b"".join(whole)

    def more(self):
        piece = self.socket.recv(1 << 20)
        if not piece:
            raise RuntimeError("the connection was closed")
        self.rest += piece


class UnixConnection(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(TIMEOUT_SECS)
        self.sock.connect(self.host)


class Engine:
    """One keep-alive connection to the Docker engine, without any client in between."""

    def __init__(self, path):
        self.connection = UnixConnection(path)
        version = exchange(self.connection, "GET", "/version", None, {"Host": "docker"})
        self.prefix = "/v" + version["ApiVersion"]

    def call(self, method, path, body=None):
        headers = {"Host": "docker", "Content-Type": "application/json"}
        return exchange(self.connection, method, self.prefix + path, body, headers)

    def stream(self, path, body):
        """Sends a request whose reply is a stream on the connection, and reads it to its end.

        Returns its bytes as they came, frames and all, and the seconds until the first and the last.
        """
        connection = UnixConnection(self.connection.host)
        connection.request("POST", self.prefix + path, json.dumps(body),
                           {"Host": "docker", "Content-Type": "application/json"})
        started = time.perf_counter()
        reply = connection.getresponse()
        first, size = None, 0
        while piece := reply.read1(1 << 20):
            first = first or time.perf_counter() - started
            size += len(piece)
        connection.close()
        return size, first, time.perf_counter() - started


def exchange(connection, method, path, body, headers):
    data = None if body is None else json.dumps(body)
    if connection.sock is None:
        connection.connect()
        if connection.sock.family != socket.AF_UNIX:
            connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.request(method, path, data, headers)
    reply = connection.getresponse()
    data = reply.read()
    if reply.status >= 300:
        raise RuntimeError(f"{method} {path}: {reply.status} {data[:300]!r}")
    return json.loads(data) if data else None


def timed_ms(call):
    """Runs a call and returns how long it took, in milliseconds, and its result."""
    started = time.perf_counter()
    result = call()
    return (time.perf_counter() - started) * 1000, result


def print_table(rows, base):
    """Prints each row's median, 95th percentile and ratio to the median of row `base`."""
    base_ms = statistics.median(rows[base])
    print(f"{'':32}{'n':>5}{'median ms':>12}{'p95 ms':>12}{'ratio':>8}")
    for name, samples in rows.items():
        middle = statistics.median(samples)
        p95 = statistics.quantiles(samples, n=20)[-1] if len(samples) > 1 else middle
        print(f"{name:32}{len(samples):5}{middle:12.2f}{p95:12.2f}{middle / base_ms:8.3f}")


def add_service_arguments(parser):
    """The arguments by which every measurement finds the service and the engine."""
    parser.add_argument("--url", default=os.environ.get("SANDBOXD_URL", "http://127.0.0.1:8080"))
    parser.add_argument("--token", default=os.environ.get("SANDBOXD_TOKEN"), help="default: SANDBOXD_TOKEN")
    parser.add_argument("--docker-socket", default="/var/run/docker.sock")
    parser.add_argument("-n", type=int, default=30, help="samples of each kind (default 30)")
