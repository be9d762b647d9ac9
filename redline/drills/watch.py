"""Looks at every part of a stack several times a second, each by a thread of its own.

A part that hangs (a drill may have stopped it) so holds up nobody's look at the others.
"""

import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar

import httpx
import msgspec

from monitors.contract import Observed
from monitors.tables import Tables
from redline.client import ClientError
from redline.control.api import ControlStatus, JournalLine
from redline.settings import Stack

T = TypeVar("T")
PERIOD_S = 0.2
_TIMEOUT_S = 2.0
_NEWEST = 300  # entries of the journal that a look asks for: far more than come between two


class PrometheusAlert(msgspec.Struct, frozen=True):
    """One alert of `/api/v1/alerts`; `activeAt`: when its expression began to hold."""

    labels: dict[str, str]
    state: str
    active_at: datetime = msgspec.field(name="activeAt")


class AlertmanagerAlert(msgspec.Struct, frozen=True):
    """One alert of `/api/v2/alerts`; `startsAt`: when it began to fire."""

    labels: dict[str, str]
    starts_at: datetime = msgspec.field(name="startsAt")


class _Alerts(msgspec.Struct):
    alerts: tuple[PrometheusAlert, ...]


class _PrometheusAnswer(msgspec.Struct):
    data: _Alerts


@dataclass(frozen=True)
class Sight:
    """What was so when each part was last asked, about `wall` seconds. None: it did not answer.

    `journal`: the entries since the watch began, oldest first, kept while nobody answers.
    """

    wall: float
    tables: Tables | None
    observed: Observed | None
    control: ControlStatus | None
    journal: tuple[JournalLine, ...]
    prometheus: tuple[PrometheusAlert, ...] | None
    alertmanager: tuple[AlertmanagerAlert, ...] | None


class _Part(Generic[T]):
    """One part's newest answer."""

    def __init__(self, client: httpx.Client, url: str | None, answer: type[T]) -> None:
        self._client, self._url = client, url
        self._decoder = msgspec.json.Decoder(answer)
        self.newest: T | None = None

    def look(self) -> T | None:
        if self._url is None:
            return None
        try:
            answer = self._client.get(self._url)
            answer.raise_for_status()
            return self._decoder.decode(answer.content)
        except (httpx.HTTPError, msgspec.DecodeError):
            return None  # shown as what it is: nobody answers there

    def follow(self, stop: threading.Event) -> None:
        while not stop.is_set():
            self.newest = self.look()
            stop.wait(PERIOD_S)


class Watch:
    """`sight()` is what is known now. Use `watching`, which starts and ends the threads.

    Raises `ClientError` where nobody tells what the journal has already.
    """

    def __init__(self, stack: Stack, client: httpx.Client) -> None:
        control, prometheus, alertmanager = (
            stack.control_url,
            stack.prometheus_url,
            stack.alertmanager_url,
        )
        journal = f"{control}/api/journal?told=true&newest={_NEWEST}"
        self._tables = _Part(client, f"{stack.runtime_url}/tables", Tables)
        self._observed = _Part(client, f"{stack.runtime_url}/control", Observed)
        self._control = _Part(client, f"{control}/api/status", ControlStatus)
        self._journal = _Part(client, journal, tuple[JournalLine, ...])
        self._prometheus = _Part(
            client, prometheus and f"{prometheus}/api/v1/alerts", _PrometheusAnswer
        )
        self._alertmanager = _Part(
            client, alertmanager and f"{alertmanager}/api/v2/alerts", tuple[AlertmanagerAlert, ...]
        )
        self.parts = (
            self._tables, self._observed, self._control, self._journal, self._prometheus,
            self._alertmanager,
        )  # fmt: skip
        self._lines: dict[int, JournalLine] = {}
        newest = self._journal.look()
        if newest is None:
            raise ClientError(f"{control} does not answer; is the stack up?")
        self._before = max((line.id for line in newest), default=0)

    def sight(self) -> Sight:
        """All of it, as each part last told it."""
        for line in self._journal.newest or ():
            if line.id > self._before:
                self._lines[line.id] = line
        prometheus = self._prometheus.newest
        return Sight(
            wall=time.time(),
            tables=self._tables.newest,
            observed=self._observed.newest,
            control=self._control.newest,
            journal=tuple(self._lines.values()),
            prometheus=None if prometheus is None else prometheus.data.alerts,
            alertmanager=self._alertmanager.newest,
        )


@contextmanager
def watching(stack: Stack) -> Generator[Watch]:
    """A watch on the stack, until the block ends."""
    headers = {"Authorization": f"Bearer {stack.token}"}
    # No proxy of the environment's: it would be shown the token.
    with httpx.Client(headers=headers, timeout=_TIMEOUT_S, trust_env=False) as client:
        watch, stop = Watch(stack, client), threading.Event()
        threads = [_thread(part.follow, stop) for part in watch.parts]
        try:
            yield watch
        finally:
            stop.set()
            for thread in threads:
                thread.join()


def _thread(follow: Callable[[threading.Event], None], stop: threading.Event) -> threading.Thread:
    thread = threading.Thread(target=follow, args=(stop,), daemon=True)
    thread.start()
    return thread
