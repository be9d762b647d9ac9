"""From a breach in the tables to the order that answers it, with Prometheus and without.

The control plane is its own process as in service; Prometheus and Alertmanager are real, scraping
and evaluating once a second. The data plane is simulated: real books, tables, exposition and HTTP,
but traffic that is made up. A breach is when the tables cross the line; an action is when the
order comes to the data plane. Many versions breach, each once, at random times.
"""

import asyncio
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx
import msgspec
import numpy as np
from numpy.typing import NDArray

from alerts.firing import NEWS
from alerts.names import AlertName
from alerts.policy import Policy, make
from alerts.routing import render_alertmanager
from alerts.rules import prometheus_flags, render_prometheus, render_rules
from bench.alerts_gateway import EVERY_S, Breach, Gateway, serving
from bench.board import Figure, unmeasured
from bench.timing import seconds_of
from monitors.redlines import AlertLines, CacheLines, LatencyLines, RedLines
from redline.control.settings import ControlSettings
from tests.support.ports import free_ports

# Short windows and holds, for a bench of a minute; what comes after the `for` is measured.
LINES = RedLines(
    cache=CacheLines(hold_s=5.0),
    latency=LatencyLines(window_s=10.0, min_count=20),
    alerts=AlertLines(repeat_s=10.0),
)
POLICY = make(LINES)
ALERT = {Breach.LATENCY: AlertName.LATENCY_DEGRADE, Breach.CACHE: AlertName.CACHE_BELOW_FLOOR}
FOR_S = {Breach.LATENCY: 0.0, Breach.CACHE: LINES.cache.hold_s}
VERSIONS, QUICK_VERSIONS = 32, 8
SPREAD_S, QUICK_SPREAD_S = 20.0, 5.0
PATIENCE_S = 30.0
# Prometheus decides alone once its windows and holds have passed, and a repeat.
SETTLE_S = LINES.latency.window_s + LINES.cache.hold_s + LINES.alerts.repeat_s + 2.0
BODY, BODIES = 1_000, 5  # alerts of one webhook; how often
SERVED, LAYERS, RATE = 2, 48, 100  # versions, layers of each, requests a second of each
TOKEN = "a-token-of-the-bench"


def figures(*, quick: bool) -> list[Figure]:
    """Both paths, and the webhook of a thousand alerts."""
    return [
        *asyncio.run(_path(False, quick)),
        *asyncio.run(_path(True, quick)),
        _cost(RedLines()),
    ]


async def _path(prometheus: bool, quick: bool) -> list[Figure]:
    if prometheus and not all(map(shutil.which, ("prometheus", "prometheus-alertmanager"))):
        reason = "needs prometheus and prometheus-alertmanager: make debian"
        return [unmeasured("breach to action, Prometheus path", reason, target=1.5)]
    gateway = Gateway(LINES, QUICK_VERSIONS if quick else VERSIONS)
    ports = free_ports(4)
    with tempfile.TemporaryDirectory() as state:
        folder = Path(state)
        async with serving(gateway, ports[0]), client_of(ports[1]) as client:
            with _processes(folder, commands(folder, ports, POLICY, prometheus=prometheus)):
                await until_evaluated(client, "prometheus" if prometheus else "embedded")
                await asyncio.sleep(SETTLE_S if prometheus else LINES.cache.hold_s)
                await _breach_all(gateway, QUICK_SPREAD_S if quick else SPREAD_S)
                found = await _figures(gateway, client, prometheus)
                if prometheus:
                    found += await _webhooks(client)
    return found


def client_of(port: int) -> httpx.AsyncClient:
    """Of a control plane."""
    headers = {"Authorization": f"Bearer {TOKEN}"}
    return httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{port}", headers=headers, trust_env=False, timeout=10
    )


# ---------------------------------------------------------------- processes
def commands(
    folder: Path, ports: Sequence[int], policy: Policy, *, prometheus: bool
) -> list[list[str]]:
    """The control plane; then, where asked for, Alertmanager and Prometheus as in service.

    `ports`: of the data plane, the control plane, Prometheus and Alertmanager.
    """
    runtime, control, prom, alertmanager = ports
    settings = ControlSettings(
        port=control, state_dir=folder / "state", runtime_url=f"http://127.0.0.1:{runtime}",
        token=TOKEN, prometheus=prometheus, lines=policy.lines,
    )  # fmt: skip
    (folder / "control.json").write_text(settings.model_dump_json())
    here = [sys.executable, "-m", "redline.cli", "control", f"--settings={folder}/control.json"]
    if not prometheus:
        return [here]
    (folder / "token").write_text(TOKEN)
    (folder / "rules.yml").write_text(render_rules(policy))
    (folder / "prometheus.yml").write_text(
        render_prometheus(
            runtime=f"127.0.0.1:{runtime}", control=f"127.0.0.1:{control}",
            alertmanager=f"127.0.0.1:{alertmanager}", rule_file="rules.yml",
        )
    )  # fmt: skip
    (folder / "alertmanager.yml").write_text(
        render_alertmanager(
            policy, webhook_url=f"http://127.0.0.1:{control}/alerts",
            credentials_file=str(folder / "token"),
        )
    )  # fmt: skip
    return [
        here,
        [
            "prometheus-alertmanager", f"--config.file={folder}/alertmanager.yml",
            f"--storage.path={folder}/alertmanager",
            f"--web.listen-address=127.0.0.1:{alertmanager}", "--cluster.listen-address=",
        ],
        [
            "prometheus", f"--config.file={folder}/prometheus.yml",
            f"--storage.tsdb.path={folder}/prometheus", f"--web.listen-address=127.0.0.1:{prom}",
            *prometheus_flags(policy.lines.alerts),
        ],
    ]  # fmt: skip


@contextmanager
def _processes(folder: Path, commands: list[list[str]]) -> Iterator[None]:
    """Until the block ends; their last words where it fails."""
    path = folder / "log"
    with path.open("wb") as log:
        running = [subprocess.Popen(c, stdout=log, stderr=log) for c in commands]
    try:
        yield
    except Exception:
        print(path.read_text(errors="replace")[-4_000:], file=sys.stderr)
        raise
    finally:
        for process in running:
            process.send_signal(signal.SIGTERM)
        for process in running:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                os.kill(process.pid, signal.SIGKILL)
                process.wait()


async def until_evaluated(control: httpx.AsyncClient, source: str) -> None:
    """Until the control plane leads, sees its data plane, and says that this one evaluates."""
    async with asyncio.timeout(60):
        while True:
            try:
                status = (await control.get("/api/status")).json()
                if status["rule_source"] == source and status["data_plane"] is not None:
                    return
            except httpx.TransportError:
                pass
            await asyncio.sleep(0.1)


# ---------------------------------------------------------------- breach to action
async def _breach_all(gateway: Gateway, spread_s: float) -> None:
    """Each resident each way, at random times; until all are helped, or for long enough."""
    draw = random.Random(5)
    due = sorted(
        (draw.uniform(0.0, spread_s), name, what) for name in gateway.residents for what in Breach
    )
    began = time.monotonic()
    for at, name, what in due:
        await asyncio.sleep(max(0.0, began + at - time.monotonic()))
        gateway.breach(name, what)
    deadline = time.monotonic() + PATIENCE_S
    while len(gateway.helped) < len(due) and time.monotonic() < deadline:  # noqa: ASYNC110
        await asyncio.sleep(EVERY_S)


async def _figures(gateway: Gateway, control: httpx.AsyncClient, prometheus: bool) -> list[Figure]:
    who, most_s = ("Prometheus", 1.5) if prometheus else ("embedded", 0.4)
    lines = (await control.get("/api/journal", params={"newest": 10_000})).json()
    told = {(e["body"]["alert"], e["body"]["source"]) for e in lines if e["kind"] == NEWS
            and e["body"]["state"] == "firing"}  # fmt: skip
    found: list[Figure] = []
    for what in Breach:
        of = [name for name, each in gateway.breached if each is what]
        missing = [name for name in of if (name, what) not in gateway.helped]
        said = {source for alert, source in told if alert == ALERT[what]}
        bar = f"breach to action, {who} path, `for` {FOR_S[what]:g} s: p90 beyond it"
        if missing or said != {who.lower()}:
            reason = f"{len(missing)} of {len(of)} were not answered, by {sorted(said)}"
            found.append(unmeasured(bar, reason, target=most_s))
            continue
        taken = [
            gateway.helped[name, what] - gateway.breached[name, what] - FOR_S[what] for name in of
        ]
        low, high = _interval(taken, 0.9)
        words = f"n {len(taken)}; p50 {np.median(taken):.2f}, most {max(taken):.2f} s"
        found.append(Figure(bar, _quantile(taken, 0.9), "s", most_s, words, low=low, high=high))
    return found


def _quantile(values: Sequence[float] | NDArray[np.float64], share: float) -> float:
    return float(np.quantile(values, share, method="inverted_cdf"))


def _interval(values: Sequence[float], share: float) -> tuple[float, float]:
    """The 95 % percentile interval of a quantile."""
    rng = np.random.default_rng(8)
    drawn = [_quantile(rng.choice(values, len(values)), share) for _ in range(2_000)]
    low, high = np.quantile(drawn, [0.025, 0.975])
    return float(low), float(high)


def _cost(lines: RedLines) -> Figure:
    """What the gateway spends on being looked at, of tables at their largest."""
    gateway = Gateway(lines, SERVED, layers=LAYERS)
    for each in gateway.residents.values():
        gateway.fill(each, round(RATE * lines.latency.window_s))
    settings = ControlSettings.model_fields
    every_s, slow_s = (float(settings[name].default) for name in ("evaluation_s", "tick_s"))
    look_s = float(np.median([seconds_of(lambda: _look(gateway)) for _ in range(30)]))
    return Figure(
        f"of a gateway's core, for {1 / every_s:g} looks a second and not {1 / slow_s:g}",
        100 * look_s * (1 / every_s - 1 / slow_s), "%", None,
        f"{1e3 * look_s:.1f} ms a look, HTTP apart: {SERVED} versions of {LAYERS} layers, "
        f"{RATE} requests a second each; only while Prometheus is silent",
    )  # fmt: skip


def _look(gateway: Gateway) -> None:
    gateway.tables().to_json()
    msgspec.json.encode(gateway.observed())


# ---------------------------------------------------------------- a thousand alerts in one body
async def _webhooks(control: httpx.AsyncClient) -> list[Figure]:
    answered, acted = list[float](), list[float]()
    await asyncio.sleep(2.0)
    for turn in range(BODIES):
        began = time.monotonic()
        answer = await control.post("/alerts", json=_body(turn))
        answered.append(time.monotonic() - began)
        assert answer.is_success, answer.text
        async with asyncio.timeout(PATIENCE_S):
            while not await _shows(control, turn):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        acted.append(time.monotonic() - began)
    return [
        Figure(f"webhook with {BODY:,} alerts in one body, answered: worst of {BODIES}",
               max(answered), "s", 1.0, f"median {np.median(answered):.3f} s"),
        Figure("the same, until a round of the control loop has them all: worst",
               max(acted), "s", 1.0, f"median {np.median(acted):.3f} s"),
    ]  # fmt: skip


def _body(turn: int) -> dict[str, object]:
    alerts = [
        {
            "status": "firing",
            "labels": {
                "alertname": AlertName.LATENCY_DEGRADE, "action": "degrade_media",
                "severity": "action", "table": "latency", "milestone": "first_token",
                "version": f"of-turn-{turn}-{i}",
            },
            "annotations": {"summary": "too slow", "description": "d" * 200},
            "startsAt": "2026-01-01T00:00:00Z",
            "endsAt": "0001-01-01T00:00:00Z",
            "generatorURL": "http://127.0.0.1/graph",
            "fingerprint": f"{i:016x}",
        }
        for i in range(BODY)
    ]  # fmt: skip
    return {"version": "4", "status": "firing", "receiver": "r", "alerts": alerts,
            "truncatedAlerts": 0}  # fmt: skip


async def _shows(control: httpx.AsyncClient, turn: int) -> bool:
    body = (await control.get("/api/status")).content
    return body.count(f'"version":"of-turn-{turn}-'.encode()) >= BODY
