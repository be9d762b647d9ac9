"""An OTLP collector that only remembers."""

from contextlib import AbstractContextManager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.support.http_server import running


class Receiver(ThreadingHTTPServer):
    """Takes traces at `/v1/traces`."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Remember)
        self.requests: list[ExportTraceServiceRequest] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def spans(self) -> list[Span]:
        """All spans, in the order in which they came."""
        return [
            span
            for request in self.requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def services(self) -> set[str]:
        """The names of those that sent them."""
        return {
            item.value.string_value
            for request in self.requests
            for resource in request.resource_spans
            for item in resource.resource.attributes
            if item.key == "service.name"
        }


class _Remember(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        found = self.path == "/v1/traces"
        if found:
            self.server.requests.append(ExportTraceServiceRequest.FromString(body))
        answer = ExportTraceServiceResponse().SerializeToString()
        self.send_response(200 if found else 404)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing on stderr."""


def receiving() -> AbstractContextManager[Receiver]:
    """A receiver on a free port, from its start to its end."""
    return running(Receiver())


def attributes(of: Span | Span.Event) -> dict[str, object]:
    """Attributes by name."""
    return {item.key: _plain(item.value) for item in of.attributes}


def _plain(value: AnyValue) -> object:
    kind = str(value.WhichOneof("value"))
    held = getattr(value, kind)
    return [_plain(each) for each in held.values] if kind == "array_value" else held
