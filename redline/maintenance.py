"""`redline maintenance`: let notices wake nobody for a while. Actions and rollbacks go on."""

from datetime import UTC, datetime, timedelta
from typing import Annotated

import msgspec
import typer

from redline.options import Actor, StateDir, duration_of, stack_of
from redline.sentences import fail
from redline.settings import STATE_DIR, Stack


class Matcher(msgspec.Struct, frozen=True, rename="camel"):
    """One matcher of a silence, as Alertmanager's API v2 has it."""

    name: str
    value: str
    is_regex: bool
    is_equal: bool = True


class Silence(msgspec.Struct, frozen=True, rename="camel"):
    """What is posted to Alertmanager."""

    matchers: list[Matcher]
    starts_at: datetime
    ends_at: datetime
    created_by: str
    comment: str


class Status(msgspec.Struct, frozen=True):
    state: str  # active, pending or expired


class Known(msgspec.Struct, frozen=True, rename="camel"):
    """A silence that Alertmanager holds."""

    id: str
    matchers: list[Matcher]
    ends_at: datetime
    created_by: str
    comment: str
    status: Status


class Made(msgspec.Struct, frozen=True):
    silence_id: str = msgspec.field(name="silenceID")


class Config(msgspec.Struct, frozen=True):
    original: str  # YAML


class Running(msgspec.Struct, frozen=True):
    """What Alertmanager says of itself."""

    config: Config


class NoAlertmanager(RuntimeError):
    """There is none to silence; the message says what that means."""


def command(
    for_: Annotated[
        str | None, typer.Option("--for", help="How long notices wake nobody: 30m, 2h.")
    ] = None,
    reason: Annotated[str | None, typer.Option(help="Why; people will read it.")] = None,
    end: Annotated[bool, typer.Option("--end", help="End it now.")] = False,
    actor: Actor = "operator",
    state_dir: StateDir = STATE_DIR,
) -> None:
    """Begin, list or end a maintenance: notices wake nobody, actions and rollbacks go on.

    With --for and --reason it begins, with --end every one ends, alone it lists them.
    """
    from redline.client import ClientError

    if end and (for_ is not None or reason is not None):
        fail("--end takes neither --for nor --reason: it ends every one", 2)
    if for_ is None and reason is not None:
        fail("--reason: say how long, as --for 2h", 2)
    stack = stack_of(state_dir)
    try:
        if end:
            lines = end_all(stack)
        elif for_ is not None:
            lines = [
                begin(stack, duration_of(for_, "--for"), _why(reason), actor, datetime.now(UTC))
            ]
        else:
            lines = listing(stack)
    except (ClientError, NoAlertmanager) as err:
        fail(err)
    for line in lines:
        typer.echo(line)


def _why(reason: str | None) -> str:
    return reason or fail('--reason: say why, as --reason "moving to new disks"', 2)


def matchers() -> list[Matcher]:
    """Notices alone: never an alert with an action, nor the Watchdog's beat, nor one that says
    that an action failed."""
    from alerts.routing import ALWAYS_HEARD
    from monitors.labels import Action, Severity

    people = f"{Severity.PAGE}|{Severity.TICKET}"
    return [
        Matcher("action", Action.NONE.value, is_regex=False),
        Matcher("severity", people, is_regex=True),
        Matcher("alertname", "|".join(ALWAYS_HEARD), is_regex=True, is_equal=False),
    ]


def begin(stack: Stack, seconds: float, reason: str, actor: str, now: datetime) -> str:
    """Silence notices for `seconds`; what to tell. Raises `ClientError`, `NoAlertmanager`."""
    from redline.client import ask

    ends = now + timedelta(seconds=seconds)
    silence = Silence(matchers(), now, ends, actor, reason)
    made = ask(stack, "POST", f"{_api(stack)}/silences", Made, silence)
    return f"notices wake nobody until {_clock(ends)} ({made.silence_id}); actions go on"


def active(stack: Stack) -> list[Known]:
    """Maintenances that have not ended, those of other matchers left alone."""
    from redline.client import ask

    known = ask(stack, "GET", f"{_api(stack)}/silences", list[Known])
    ours = {(m.name, m.value, m.is_equal) for m in matchers()}
    return [
        silence
        for silence in known
        if silence.status.state != "expired"
        and {(m.name, m.value, m.is_equal) for m in silence.matchers} == ours
    ]


def listing(stack: Stack) -> list[str]:
    """A line for each. Raises `ClientError`, `NoAlertmanager`."""
    by_hand = [
        f"until {_clock(each.ends_at)}, by {each.created_by}: {each.comment} ({each.id})"
        for each in active(stack)
    ]
    every_week = [f"every week, by the policy: {name}" for name in weekly(stack)]
    if not every_week:
        return by_hand or ["no maintenance: notices wake people"]
    none = "none by hand: notices wake people outside the policy's windows"
    return [*(by_hand or [none]), *every_week]


def weekly(stack: Stack) -> list[str]:
    """The policy's windows by name, which says why, of the configuration that Alertmanager runs
    with. Raises `ClientError`, `NoAlertmanager`."""
    import yaml

    from alerts.maintenance import NAMED
    from redline.client import ask

    running = ask(stack, "GET", f"{_api(stack)}/status", Running)
    intervals = yaml.safe_load(running.config.original).get("time_intervals", [])
    return [each["name"] for each in intervals if each["name"].startswith(NAMED)]


def end_all(stack: Stack) -> list[str]:
    """End each of them. Raises `ClientError`, `NoAlertmanager`."""
    from redline.client import tell

    ended = active(stack)
    for each in ended:
        tell(stack, "DELETE", f"{_api(stack)}/silence/{each.id}")
    return [f"ended: {each.comment} ({each.id})" for each in ended] or ["there was none"]


def _api(stack: Stack) -> str:
    if stack.alertmanager_url is None:
        raise NoAlertmanager(
            "this stack has no Alertmanager, so no notice wakes anybody and there is nothing to "
            "silence; for one of your own set REDLINE_ALERTMANAGER_URL"
        )
    return f"{stack.alertmanager_url}/api/v2"


def _clock(when: datetime) -> str:
    return f"{when.astimezone():%Y-%m-%d %H:%M:%S}"
