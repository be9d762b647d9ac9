"""A tiny HTTP server in this process: answers as it is told and remembers what it was asked."""

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import BaseServer
from typing import TypeVar


@dataclass(frozen=True)
class Seen:
    """One request as it came."""

    method: str
    path: str
    headers: dict[str, str]  # names in lower case
    body: bytes


@dataclass(frozen=True)
class Answer:
    """What is answered to every request of a path. `breaks_off`: after the body, without an end."""

    body: bytes = b"{}"
    status: int = 200
    kind: str = "application/json"
    breaks_off: bool = False


class Server(ThreadingHTTPServer):
    """`answers` by path; a path that is not there is a 404."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: dict[str, Answer] = {}
        self.seen: list[Seen] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.seen.append(Seen(self.command, self.path, headers, body))
        answer = self.server.answers.get(self.path, Answer(b"nothing is here", 404, "text/plain"))
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.kind)
        missing = 10 if answer.breaks_off else 0
        self.send_header("Content-Length", str(len(answer.body) + missing))
        self.end_headers()
        self.wfile.write(answer.body)

    do_GET = do_POST = do_PUT = _answer  # noqa: N815 - names of the standard library

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing on stderr."""


Served = TypeVar("Served", bound=BaseServer)


@contextmanager
def running(server: Served) -> Iterator[Served]:
    """`server` on a thread of its own, from its start to its end."""
    with server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def recording_server() -> AbstractContextManager[Server]:
    """A server on a free port, from its start to its end."""
    return running(Server())
