"""`redline up`: both planes, Prometheus and Alertmanager here, as supervised children."""

import fcntl
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import httpx
import msgspec

from alerts import routing, rules
from alerts.policy import Policy, make
from monitors.labels import Storage
from monitors.redlines import RedLines
from redline.children import Child, marks_of, stop_all, watch
from redline.control.settings import ControlSettings
from redline.settings import (
    Ports,
    Stack,
    control_token,
    forget_stack,
    token_path,
    write_private,
)
from runtime.model.shipped import SHIPPED
from runtime.readiness import Readiness
from runtime.settings import ResidentSpec, RuntimeSettings, TraceSettings

Tell = Callable[[str], None]

HOST = "127.0.0.1"
STABLE, CANARY = "b", "a"  # S4.4: A is the newest version, B the stable one before it
EMBEDDED_VERSIONS = dict(zip((STABLE, CANARY), SHIPPED, strict=True))
EMBEDDED_POOL_MB = 24.0
_LIVE_SHARE_OF_LINE = 0.6  # the embedded memory line, as a share of the small pool


class UpError(RuntimeError):
    """The stack cannot be started; the message says what to do."""


@dataclass(frozen=True)
class Plan:
    """What `up` was asked for."""

    state_dir: Path
    ports: Ports = field(default_factory=Ports)
    policy: Policy | None = None  # None: what ships, at lines fitted to the small pool
    models: dict[str, Path] = field(default_factory=dict[str, Path])
    pool_mb: float = EMBEDDED_POOL_MB
    storage: Storage = Storage.NATIVE
    drills: bool = True
    prometheus: bool = True
    trace: TraceSettings = field(default_factory=TraceSettings)


def embedded_lines(pool_mb: float) -> RedLines:
    """The article's lines, with the memory line and minimum counts of a one-CPU pool."""
    lines = RedLines()
    memory = round(pool_mb * _LIVE_SHARE_OF_LINE / 1000, 6)
    return lines.model_copy(
        update={
            "cache": lines.cache.model_copy(update={"gpu_mem_gb": memory}),
            "latency": lines.latency.model_copy(update={"min_count": 5}),
        }
    )


def require_free(ports: Ports, *, prometheus: bool) -> None:
    """Raises `UpError` naming every port that is taken, and the flag that moves it."""
    wanted = {"runtime": ports.runtime, "control": ports.control}
    if prometheus:
        wanted |= {"prometheus": ports.prometheus, "alertmanager": ports.alertmanager}
    taken = [(name, port) for name, port in wanted.items() if not _is_free(port)]
    if taken:
        raise UpError(
            "\n".join(
                f"port {port} is taken by another program; free it or choose another with "
                f"--{name}-port"
                for name, port in taken
            )
        )


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def find_residents(plan: Plan) -> tuple[ResidentSpec, ...]:
    """The two residents; one that was given no model folder serves a checkpoint that ships.

    Raises `UpError` for a model folder that holds no checkpoint.
    """
    models = {name: SHIPPED[version] for name, version in EMBEDDED_VERSIONS.items()}
    models |= {name: _model(name, folder) for name, folder in plan.models.items()}
    return tuple(
        ResidentSpec(
            name=name,
            version=folder.name,
            checkpoint=folder,
            pool_mb=plan.pool_mb,
            storage=plan.storage,
            device="auto" if name in plan.models else "cpu",  # those that ship need no more
        )
        for name, folder in models.items()
    )


def _model(name: str, folder: Path) -> Path:
    """The folder that resident `name` was given."""
    folder = folder.resolve()
    if not (folder / "config.json").is_file():
        raise UpError(f"--model-{name}: {folder} holds no checkpoint (it has no config.json)")
    return folder


def _cli() -> list[str]:
    return [sys.executable, "-m", "redline.cli"]


@contextmanager
def only_stack_in(state_dir: Path) -> Generator[None]:
    """Hold the state folder. Raises `UpError` when another stack runs from it."""
    with (state_dir / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as err:
            raise UpError(
                f"another stack runs from {state_dir}/; stop it, or choose another --state-dir"
            ) from err
        yield


def find_prometheus(wanted: bool) -> bool:
    """Whether Prometheus and Alertmanager are both on PATH (and wanted)."""
    return wanted and all(shutil.which(p) for p in ("prometheus", "prometheus-alertmanager"))


def plan_children(
    plan: Plan, residents: tuple[ResidentSpec, ...], *, prometheus: bool
) -> tuple[Stack, list[Child]]:
    """Write every configuration file and name the processes, in starting order."""
    state, ports = plan.state_dir, plan.ports
    policy = plan.policy or make(embedded_lines(plan.pool_mb))
    token = control_token(state)
    stack = Stack(
        runtime_url=f"http://{HOST}:{ports.runtime}",
        control_url=f"http://{HOST}:{ports.control}",
        prometheus_url=f"http://{HOST}:{ports.prometheus}" if prometheus else None,
        alertmanager_url=f"http://{HOST}:{ports.alertmanager}" if prometheus else None,
        token=token,
        lines=policy.lines,
        rules=dict(policy.given),
    )
    runtime = RuntimeSettings(
        host=HOST,
        port=ports.runtime,
        state_dir=state / "runtime",
        residents=residents,
        stable=STABLE,
        canary=CANARY,
        control_token=token,
        drills=plan.drills,
        lines=policy.lines,
        trace=plan.trace,
    )
    control = ControlSettings(
        host=HOST,
        port=ports.control,
        state_dir=state / "control",
        runtime_url=stack.runtime_url,
        token=token,
        prometheus=prometheus,
        lines=policy.lines,
        rules=dict(policy.given),
        notify=policy.notify,
    )
    for folder in ("runtime", "control", "logs"):
        (state / folder).mkdir(parents=True, exist_ok=True)
    runtime_file, control_file = state / "runtime.json", state / "control.json"
    write_private(runtime_file, runtime.model_dump_json(indent=2))
    write_private(control_file, control.model_dump_json(indent=2))
    logs = state / "logs"
    children = [
        Child(
            "data plane",
            [*_cli(), "runtime", "--settings", str(runtime_file)],
            logs / "runtime.log",
        ),
        Child(
            "control plane",
            [*_cli(), "control", "--settings", str(control_file)],
            logs / "control.log",
        ),
    ]
    if prometheus:
        children += _prometheus_children(plan, policy, logs)
    return stack, children


def _prometheus_children(plan: Plan, policy: Policy, logs: Path) -> list[Child]:
    state, ports = plan.state_dir.resolve(), plan.ports
    rules_file, prometheus_file = state / "rules.yml", state / "prometheus.yml"
    alertmanager_file = state / "alertmanager.yml"
    rules_file.write_text(rules.render_rules(policy), encoding="utf-8")
    prometheus_file.write_text(
        rules.render_prometheus(
            runtime=f"{HOST}:{ports.runtime}",
            control=f"{HOST}:{ports.control}",
            alertmanager=f"{HOST}:{ports.alertmanager}",
            rule_file=str(rules_file),
        ),
        encoding="utf-8",
    )
    alertmanager_file.write_text(
        routing.render_alertmanager(
            policy,
            webhook_url=f"http://{HOST}:{ports.control}/alerts",
            credentials_file=str(token_path(plan.state_dir).resolve()),
        ),
        encoding="utf-8",
    )
    return [
        Child(
            "Alertmanager",
            [
                "prometheus-alertmanager",
                f"--config.file={alertmanager_file}",
                f"--storage.path={state / 'alertmanager'}",
                f"--web.listen-address={HOST}:{ports.alertmanager}",
                "--cluster.listen-address=",
            ],
            logs / "alertmanager.log",
            critical=False,
        ),
        Child(
            "Prometheus",
            [
                "prometheus",
                f"--config.file={prometheus_file}",
                f"--storage.tsdb.path={state / 'prometheus'}",
                f"--web.listen-address={HOST}:{ports.prometheus}",
                "--enable-feature=exemplar-storage",
                rules.retention(),
                *rules.prometheus_flags(policy.lines.alerts),
            ],
            logs / "prometheus.log",
            critical=False,
        ),
    ]


def wait_ready(
    stack: Stack, children: list[Child], tell: Tell, stop: threading.Event, timeout_s: float = 180.0
) -> None:
    """Until both planes answer ready and every resident has loaded, or failed once.

    Time does not run out while a resident loads for the first time: the data plane limits that,
    by the size of its weights. Raises `UpError` with a child's last words, or with the sentence
    of a resident that cannot serve.
    """
    waiting = ["data plane", "control plane"]
    deadline = time.monotonic() + timeout_s
    while waiting and not stop.is_set():
        for child in children:
            if child.critical and not child.running:
                raise UpError(f"{child.name} stopped at start:\n{child.last_words()}")
        seen = _readiness(stack.runtime_url)
        _require_served(seen)
        loads = any(resident.loads_first for resident in seen.residents)
        ready = {
            "data plane": seen.ready and not loads,
            "control plane": _answers(f"{stack.control_url}/readyz"),
        }
        for name in [name for name in waiting if ready[name]]:
            waiting.remove(name)
            tell(f"{name} is ready")
        if loads:
            deadline = time.monotonic() + timeout_s
        elif time.monotonic() > deadline:
            raise UpError(_late(waiting, seen, timeout_s))
        stop.wait(0.2)


def _require_served(seen: Readiness) -> None:
    """Raises `UpError` with the sentences of the residents that cannot serve."""
    refused = [resident.detail for resident in seen.residents if resident.refused]
    if refused:
        raise UpError("\n".join(refused))


def _late(waiting: list[str], seen: Readiness, timeout_s: float) -> str:
    why = [] if seen.ready else [": ".join(filter(None, (seen.status, seen.detail)))]
    late = f"{' and '.join(waiting)} not ready after {timeout_s:.0f} s"
    return "; ".join([late, *why, "see the logs folder"])


def _readiness(url: str) -> Readiness:
    """What the data plane at `url` says of itself; no residents while it says nothing."""
    try:
        answer = httpx.get(f"{url}/readyz", timeout=2.0, trust_env=False)
        return msgspec.json.decode(answer.content, type=Readiness)
    except (httpx.HTTPError, msgspec.DecodeError):
        return Readiness(status="does not answer", detail="", residents=())


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=2.0, trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False


def welcome(stack: Stack, prometheus: bool) -> str:
    """What listens where, and what to do next."""
    lines = [
        "",
        f"data plane     {stack.runtime_url}   (OpenAI API at /v1, /tables, /metrics)",
        f"control plane  {stack.control_url}   (status page)",
    ]
    if prometheus:
        lines += [
            f"Prometheus     {stack.prometheus_url}",
            f"Alertmanager   {stack.alertmanager_url}",
        ]
    else:
        lines += [
            "Prometheus and Alertmanager do not run: their rules are not evaluated yet;",
            "the control plane evaluates the three action rules itself.",
            "To have them: apt-get install prometheus prometheus-alertmanager",
        ]
    lines += [
        "",
        "next, in another terminal:",
        "  make clip",
        '  .venv/bin/redline send clip.mp4 --ask "What do you see?"',
        "  .venv/bin/redline tables",
        "Ctrl-C stops everything.",
    ]
    return "\n".join(f"  {line}".rstrip() for line in lines)


def run(plan: Plan, tell: Tell, ready: Callable[[Stack, bool], None]) -> int:
    """Start everything, call `ready`, keep it running until SIGINT or SIGTERM, stop it all."""
    plan.state_dir.mkdir(parents=True, exist_ok=True)
    stop = threading.Event()

    def asked_to_stop(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, asked_to_stop)
    with only_stack_in(plan.state_dir):
        return _run_children(plan, tell, ready, stop)


def _run_children(
    plan: Plan, tell: Tell, ready: Callable[[Stack, bool], None], stop: threading.Event
) -> int:
    prometheus = find_prometheus(plan.prometheus)
    require_free(plan.ports, prometheus=prometheus)
    residents = find_residents(plan)
    stack, children = plan_children(plan, residents, prometheus=prometheus)
    try:
        for child in children:
            tell(f"starting the {child.name}" if child.critical else f"starting {child.name}")
            child.start()
        wait_ready(stack, children, tell, stop)
        stack = stack.naming(marks_of(children), plan.state_dir)
        if not stop.is_set():
            ready(stack, prometheus)
        while not stop.wait(0.2):
            for child in children:
                watch(child, time.monotonic(), tell)
            stack = stack.naming(marks_of(children), plan.state_dir)
    finally:
        tell("stopping")
        stop_all(children)
        forget_stack(plan.state_dir)
    return 0
