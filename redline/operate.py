"""What an operator asks and commands, as text in a terminal."""

import time
from datetime import datetime

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from alerts.firing import Firing
from alerts.promql import parse_duration as parse_duration
from monitors.contract import Observed
from redline.client import ClientError, ask
from redline.control.api import (
    ControlStatus,
    VerbOrder,
    level_words,
)
from redline.rollout_view import rollout_shown
from redline.settings import Stack
from rollout.status import RolloutStatus


def show_status(stack: Stack) -> None:
    """Who serves, at which level, what fires, where the rollout is."""
    status = _status(stack)
    console = Console()
    console.print(
        f"leader epoch {_known(status.leader_epoch)}, rules evaluated by {status.rule_source}, "
        f"ladder {_known(status.ladder_mode)}"
    )
    _print_residents(console, status.data_plane)
    for ladder in status.ladders:
        if ladder.override is not None:
            until = datetime.fromtimestamp(ladder.override.until).strftime("%H:%M:%S")
            console.print(f"  {ladder.resident} is held by hand until {until}: redline ladder")
    _print_alerts(console, status)
    if status.rollout is not None:
        console.print(rollout_shown(status.rollout))


def _print_alerts(console: Console, status: ControlStatus) -> None:
    """What fires, who says so and since when; then what may fire soon."""
    if status.firing is None or not status.watched:
        console.print("firing: unknown, nobody can tell at the moment")
    elif not status.firing:
        console.print("firing: nothing")
    for alert in status.firing or ():
        console.print(f"[red]firing[/] {escape(_alert(alert))}")
        if alert.runbook is not None:
            console.print(f"  {escape(alert.runbook)}")
    for alert in status.pending:
        console.print(f"pending {escape(_alert(alert))}")


def _alert(alert: Firing) -> str:
    since = datetime.fromtimestamp(alert.starts_at).astimezone().strftime("%H:%M:%S")
    who = f"{alert.alert} {alert.version or ''}".strip()
    return f"{who}: {alert.summary} (since {since}, says {alert.source})"


def _print_residents(console: Console, data_plane: Observed | None) -> None:
    if data_plane is None:
        console.print("[red]residents: unknown, the data plane does not answer[/]")
        return
    table = _table("name", "version", "state", "share", "level", "epoch", "in flight")
    for r in data_plane.residents:
        table.add_row(
            r.name,
            r.version,
            r.state,
            f"{r.weight} %",
            level_words(r),
            _known(r.pool_epoch),
            str(r.in_flight),
        )
    console.print(table)
    copies = data_plane.mirror
    if copies.started or copies.dropped:
        console.print(f"copies to A: {copies.started} started, {copies.dropped} given up")
    for r in data_plane.residents:
        if r.detail:
            console.print(f"  {r.name}: {escape(r.detail)}")


def _table(*heads: str) -> Table:
    """A table for a terminal of 80 columns: what is too long goes on below, nothing is cut."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for head in heads:
        table.add_column(head, overflow="fold")
    return table


def show_rollout(stack: Stack) -> None:
    """Phase and evidence of the rollout."""
    Console().print(_rollout(stack))


def watch_rollout(stack: Stack, period_s: float = 1.0) -> None:
    """The same, redrawn every `period_s` until Ctrl-C."""
    with Live(_rollout(stack), refresh_per_second=4) as live:
        while True:
            time.sleep(period_s)
            live.update(_rollout(stack))


def _rollout(stack: Stack) -> Group:
    status = _status(stack).rollout
    if status is None:
        return Group("this control plane stands by: ask the one that leads")
    return rollout_shown(status)


def command(stack: Stack, verb: str, actor: str, argument: str) -> None:
    """One of the short commands; prints where the rollout is afterwards.

    Raises `ClientError`, also for a rollback that is not proved.
    """
    room = "" if verb in ("freeze", "unfreeze") else "rollout/"
    order = VerbOrder(actor=actor, argument=argument)
    url = f"{stack.control_url}/api/{room}{verb}"
    status = ask(stack, "POST", url, RolloutStatus, order, timeout_s=60.0)
    Console().print(rollout_shown(status))
    if verb == "rollback" and status.rollback_incomplete:
        raise ClientError("the rollback is not proved complete: Redline goes on trying")


def _status(stack: Stack) -> ControlStatus:
    return ask(stack, "GET", f"{stack.control_url}/api/status", ControlStatus)


def _known(value: object) -> str:
    return "unknown" if value is None else str(value)
