"""How a rollout is begun: what it can detect is told, and asked; then A's loading is followed."""

import time
from collections.abc import Callable
from http import HTTPStatus

from rich.console import Console
from rich.markup import escape

from monitors.labels import Phase
from monitors.preparing import LoadStage
from redline.client import ClientError, RefusedError, ask
from redline.control.api import ControlStatus, ProposalAnswer, StartAnswer, StartOrder
from redline.settings import Stack
from rollout.detectable import Detectable
from rollout.lines import DEGRADE, FIRST_PACKET
from rollout.phases import refuses_model
from rollout.plan import ALL, RolloutPlan
from rollout.status import RolloutStatus

_LOOK_S = 0.5


class ModelRefused(RuntimeError):
    """The model is not loaded, A is as it was; the message says why."""


class NotGoneOn(ClientError):
    """The rollout is over while A loads: somebody called it off, or the weights are barred."""


class OutOfSight(RuntimeError):
    """A rollout that has begun and goes on, unwatched; the message says how to look again."""


def start_rollout(stack: Stack, order: StartOrder, confirm: Callable[[str], bool]) -> bool:
    """Show what today's traffic can detect, and begin if `confirm` says so; whether it began.

    Returns once A has its model. Raises `ModelRefused`, `OutOfSight` and `ClientError`.
    """
    console = Console()
    url = f"{stack.control_url}/api/rollout"
    told = ask(stack, "POST", f"{url}/propose", ProposalAnswer, order)
    _tell(console, told.plan, told.detectable)
    if not confirm("Begin?"):
        return False
    begun = _begun(stack, f"{url}/start", order)
    if begun.plan.model is not None:
        _watched(console, stack, begun.status)
    console.print("begun; watch it: redline rollout status --watch")
    return True


def _begun(stack: Stack, url: str, order: StartOrder) -> StartAnswer:
    """Raises `ModelRefused` where it is the model that the data plane will not have."""
    try:
        return ask(stack, "POST", url, StartAnswer, order)
    except RefusedError as err:
        if order.model is not None and err.status == HTTPStatus.UNPROCESSABLE_ENTITY:
            raise ModelRefused(str(err)) from err
        raise


def _tell(console: Console, plan: RolloutPlan, detectable: Detectable | None) -> None:
    if plan.model is not None:
        console.print(f"{plan.canary} loads {escape(plan.model.checkpoint)} first")
    console.print(
        f"{plan.version} ({plan.canary}) gets {plan.weight} % of new sessions beside "
        f"{plan.stable} for {plan.bake_s:.0f} s"
    )
    shares = (plan.weight, *(step.weight for step in plan.steps), ALL)
    console.print(f"then, step by step: {' -> '.join(f'{share} %' for share in shares)}")
    if plan.audience.words:
        console.print(f"its audience: {plan.audience.words}")
    console.print(_smallest(plan, detectable))


def _smallest(plan: RolloutPlan, detectable: Detectable | None) -> str:
    if plan.audience.clients.allow is not None:
        return "how much the allowed clients ask is not known, nor what a bake can detect"
    if detectable is None:
        return "no traffic was seen lately: what a bake can detect is unknown"
    effects = (
        ("a fault rate of {:.1%}", detectable.fault_rate),
        (_past(plan, FIRST_PACKET), detectable.first_packet_exceedance),
        (_past(plan, DEGRADE), detectable.degrade_exceedance),
    )
    called = [form.format(share) for form, share in effects if share is not None]
    enough = "enough" if detectable.can_pass else "[red]not enough[/]"
    return (
        f"at today's traffic A gets about {detectable.canary_requests:.0f} requests in the bake: "
        f"{', '.join(called) or 'nothing'} or more would be called; "
        f"{detectable.clean_requests_to_pass} clean ones are needed to promote: {enough}"
    )


def _past(plan: RolloutPlan, name: str) -> str:
    """A share of requests past a latency line, to be filled in."""
    seconds = next(each.seconds for each in plan.latency if each.line.name.startswith(name))
    return f"{{:.1%}} past {1000 * seconds:.0f} ms"


def _watched(console: Console, stack: Stack, status: RolloutStatus) -> None:
    """What ends this command ends no rollout."""
    again = "the rollout has begun and goes on: redline rollout status --watch"
    try:
        _follow(console, stack, status)
    except NotGoneOn:
        raise
    except KeyboardInterrupt:
        raise OutOfSight(again) from None
    except ClientError as err:
        raise OutOfSight(f"{err}; {again}") from err


def _follow(console: Console, stack: Stack, status: RolloutStatus) -> None:
    """Until A has its model, or will not get it. Raises `ModelRefused` and `NotGoneOn`."""
    told: LoadStage | None = None
    while True:
        reasons = "; ".join(status.reasons)
        if status.phase is Phase.IDLE and refuses_model(status.reasons):
            raise ModelRefused(reasons)
        if status.phase in (Phase.IDLE, Phase.QUARANTINED):
            raise NotGoneOn(reasons)
        if not status.loads:
            return
        if status.loading is not None and status.loading.stage is not told:
            told = status.loading.stage
            console.print(f"{told}: {escape(status.loading.checkpoint)}")
        time.sleep(_LOOK_S)
        status = _rollout(stack) or status


def _rollout(stack: Stack) -> RolloutStatus | None:
    return ask(stack, "GET", f"{stack.control_url}/api/status", ControlStatus).rollout
