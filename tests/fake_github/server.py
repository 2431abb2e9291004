"""The fake's two servers on loopback: the API, and the other host that hands out artifacts."""

from __future__ import annotations

import json
import math
import re
import ssl
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from fake_github import answers, description
from fake_github.state import DEAD_LINE, Fault, State, Token

WRITES = ("POST", "PATCH", "DELETE")


class Fake:
    """A running fake. `api_url` and `graphql_url` are what a job finds in its environment."""

    def __init__(self, state: State, *, enterprise: bool = False, tls: ssl.SSLContext | None = None) -> None:
        self.state = state
        self.prefix = "/api/v3" if enterprise else ""
        self.graphql_path = "/api/graphql" if enterprise else "/graphql"
        self.api = _Server(_api_handler(self))
        self.blobs = _Server(_blob_handler(self))
        for server in (self.api, self.blobs) if tls else ():
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        scheme = "https" if tls else "http"
        self.server_url = f"{scheme}://127.0.0.1:{self.api.server_port}"
        self.api_url = self.server_url + self.prefix
        self.graphql_url = self.server_url + self.graphql_path
        self.blob_url = f"{scheme}://localhost:{self.blobs.server_port}"

    def environment(self, token: str = "good") -> dict[str, str]:
        """The variables of a job that point here."""
        return {
            "GITHUB_API_URL": self.api_url,
            "GITHUB_GRAPHQL_URL": self.graphql_url,
            "GITHUB_SERVER_URL": self.server_url,
            "GITHUB_TOKEN": token,
        }


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(("127.0.0.1", 0), handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hung up is no news."""


@contextmanager
def running(
    state: State | None = None, *, enterprise: bool = False, tls: ssl.SSLContext | None = None
) -> Iterator[Fake]:
    """A fake that serves until the block ends; anything against GitHub's description then fails the test."""
    fake = Fake(state or State(), enterprise=enterprise, tls=tls)
    threads = [
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        for server in (fake.api, fake.blobs)
    ]
    for thread in threads:
        thread.start()
    try:
        yield fake
    finally:
        for server in (fake.api, fake.blobs):
            server.shutdown()
            server.server_close()
    assert fake.state.complaints == []


def _api_handler(fake: Fake) -> type[BaseHTTPRequestHandler]:
    class Handler(_Handler):
        def serve(self, method: str) -> None:
            state, split = fake.state, urlsplit(self.path)
            body = self.body()
            secret = self.headers.get("Authorization", "").removeprefix("token ").removeprefix("Bearer ")
            token = state.tokens.get(secret)
            if split.path == fake.graphql_path:
                return self.graphql(method, token, body)
            path = (
                split.path.removeprefix(fake.prefix) if split.path.startswith(fake.prefix) else "/outside" + split.path
            )
            query = parse_qs(split.query, keep_blank_values=True)
            if method in WRITES:
                state.before_write(method, path)
            with state.lock:
                if method in WRITES and time.monotonic() < state.told_to_wait.get(secret, 0.0):
                    state.hasty_writes.append(secret)
                fault = self.fault(method, path)
                answer = self.operate(method, path, query, body, token, fault)
                status = fault.status if fault else answer.status
                if method in WRITES and (told := (fault or answer).headers.get("Retry-After")):
                    state.told_to_wait[secret] = time.monotonic() + int(told)
                state.requests.append((method, path, status))
                if not fault or fault.after:
                    state.complaints += description.complaints(method, path, query, body, answer.status, answer.content)
            if fault:
                time.sleep(fault.hang)
                if fault.status == 0:
                    return self.hang_up()
                return self.send(fault.status, json.dumps({"message": fault.message}).encode(), dict(fault.headers))
            return self.send(answer.status, answer.content, answer.headers)

        def operate(self, method, path, query, body, token: Token | None, fault: Fault | None) -> answers.Answer:
            if fault and not fault.after:
                return answers.Answer(status=fault.status)
            if token is None:
                return answers.problem(401, "Bad credentials")
            if method in WRITES and not token.write:
                return answers.problem(403, "Resource not accessible by integration")
            if method in WRITES and (limited := _limited(fake.state)):
                return limited
            base = fake.api_url
            try:
                return answers.answer(fake.state, base, fake.blob_url, token, method, path, query, body)
            except Exception:
                fake.state.complaints.append(traceback.format_exc())
                return answers.problem(500, "the fake broke")

        def fault(self, method: str, path: str) -> Fault | None:
            for index, (of_method, part, fault) in enumerate(fake.state.faults):
                if of_method == method and re.search(part, path):
                    del fake.state.faults[index]
                    return fault
            return fake.state.trouble(method, path)

        def graphql(self, method: str, token: Token | None, body: bytes) -> None:
            with fake.state.lock:
                fault = self.fault(method, "/graphql")
                fake.state.requests.append((method, "/graphql", fault.status if fault else 200))
            if fault:
                time.sleep(fault.hang)
                return (
                    self.hang_up()
                    if fault.status == 0
                    else self.send(fault.status, json.dumps({"message": fault.message}).encode(), dict(fault.headers))
                )
            if token is None:
                return self.send(401, b'{"message": "Bad credentials"}')
            if "viewer" not in json.loads(body)["query"]:
                fake.state.complaints.append(f"a query that the fake does not know: {body!r}")
            return self.send(200, json.dumps({"data": {"viewer": {"login": token.login}}}).encode())

    return Handler


def _limited(state: State) -> answers.Answer | None:
    """GitHub's secondary limit on requests that make content."""
    most, seconds = state.write_limit
    now = time.monotonic()
    while state.writes and state.writes[0] < now - seconds:
        state.writes.popleft()
    if len(state.writes) >= most:
        state.refused_writes += 1
        wait = max(1, math.ceil(state.writes[0] + seconds - now))
        return answers.problem(403, "You have exceeded a secondary rate limit", {"Retry-After": str(wait)})
    state.writes.append(now)
    state.most_writes_in_window = max(state.most_writes_in_window, len(state.writes))
    return None


def _blob_handler(fake: Fake) -> type[BaseHTTPRequestHandler]:
    class Handler(_Handler):
        def serve(self, method: str) -> None:
            state, words = fake.state, urlsplit(self.path).path.strip("/").split("/")
            if words[0] == "upload":
                return self.upload(int(words[1]), words[2])
            if words[0] == "list":
                found = [(each.id, each.name) for each in state.artifacts.values() if each.run == int(words[1])]
                return self.send(200, json.dumps(found).encode())
            number = int(words[-1])
            if self.headers.get("Authorization"):
                state.complaints.append("the Authorization header went to the other host")
            with state.lock:
                artifact, fault = state.artifacts.get(number), None
                for index, (of_method, part, each) in enumerate(state.faults):
                    if of_method == "GET" and part == "blob":
                        fault = each
                        del state.faults[index]
                        break
            if fault:
                return self.hang_up() if fault == DEAD_LINE else self.send(fault.status, b"")
            if artifact is None:
                return self.send(404, b"")
            return self.send(200, artifact.data, {"Content-Type": "application/zip"})

        def upload(self, run: int, name: str) -> None:
            """Where the tests' upload action sends archives; a name can be taken once, as with GitHub."""
            data = self.body()
            with fake.state.lock:
                if any(each.run == run and each.name == name for each in fake.state.artifacts.values()):
                    return self.send(409, b"")
                fake.state.upload_raw(run, name, data)
            return self.send(201, b"")

    return Handler


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body in one packet; two would wait for each other
    serve: Callable[[str], None]

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def send(self, status: int, content: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def hang_up(self) -> None:
        self.close_connection = True
        self.connection.close()

    def do_GET(self) -> None:
        self.serve("GET")

    def do_POST(self) -> None:
        self.serve("POST")

    def do_PATCH(self) -> None:
        self.serve("PATCH")

    def do_DELETE(self) -> None:
        self.serve("DELETE")

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""
