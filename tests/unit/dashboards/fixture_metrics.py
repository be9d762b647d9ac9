"""A `/metrics` page that covers the whole catalog, from two versions, moving with time."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import product

from monitors import catalog, recorded
from monitors.metric import CLOSED, Kind, Label, Metric
from monitors.redlines import RedLines

VERSIONS = ("omni-1", "omni-2")
OPEN_VALUES: dict[Label, tuple[str, ...]] = {
    Label.VERSION: VERSIONS,
    Label.LAYER: ("0", "1"),
    Label.RESIDENT: ("a",),
    Label.DIGEST: ("0f1e2d",),
    Label.EPOCH: ("3",),
    Label.RUNG: ("full",),
    Label.ROLE: ("stable",),
    Label.BUILD: ("1.0",),
}
# Per second, where one a second would make no sense beside another series.
RATES = {
    catalog.RESIDENCY_HIT_MASS: 0.95,
    catalog.PREFIX_HIT_TOKENS: 0.5,
    catalog.BUSY: 0.6,
    catalog.ENTROPY_SUM: 0.3,
    catalog.UNDERRUN_SECONDS: 0.01,
}
GAUGES = {catalog.FAULT_WINDOW_REQUESTS: 1000.0, catalog.FAULT_WINDOW_FAULTED: 3.0}


def page(seconds: float) -> str:
    """The exposition `seconds` after the start: counters have grown, levels have moved. What is
    recorded once a minute, of gains over minutes, is there from the start."""
    lines = [line for metric in catalog.ALL for line in _family(metric, seconds)]
    return "\n".join([*lines, *(f"{series.name} 0.001" for series in recorded.BUDGETS)]) + "\n"


def _family(metric: Metric, seconds: float) -> Iterator[str]:
    kind = "gauge" if metric.kind is Kind.INFO else metric.kind.value
    name = metric.name + "_info" if metric.kind is Kind.INFO else metric.name
    yield f"# TYPE {name} {kind}"
    for labels in _label_sets(metric):
        if metric.kind is Kind.HISTOGRAM:
            yield from _histogram(metric, labels, seconds)
        else:
            yield f"{name}{{{labels}}} {_value(metric, seconds)}"


def _label_sets(metric: Metric) -> list[str]:
    values = [OPEN_VALUES.get(label) or CLOSED[label] for label in metric.labels]
    return [
        ",".join(f'{label}="{value}"' for label, value in zip(metric.labels, chosen, strict=True))
        for chosen in product(*values)
    ]


def _value(metric: Metric, seconds: float) -> float:
    if metric is catalog.LEVEL:
        return float(int(seconds) % 2)
    if metric.kind is Kind.COUNTER:
        return seconds * RATES.get(metric, 1.0)
    return GAUGES.get(metric, 1.0)


def _histogram(metric: Metric, labels: str, seconds: float) -> Iterator[str]:
    """Twenty requests a second, all of them answered in 0.3 s."""
    count = seconds * 20
    for bound in catalog.latency_bounds(RedLines()):
        below = count if bound >= 0.3 else 0.0
        yield f'{metric.name}_bucket{{{labels},le="{catalog.bound_label(bound)}"}} {below}'
    yield f'{metric.name}_bucket{{{labels},le="+Inf"}} {count}'
    yield f"{metric.name}_sum{{{labels}}} {count * 0.3}"
    yield f"{metric.name}_count{{{labels}}} {count}"


@contextmanager
def served() -> Iterator[int]:
    """Serve the page on a free loopback port; yields the port."""
    started = time.monotonic()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = page(time.monotonic() - started).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
