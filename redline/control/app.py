"""The control plane's HTTP: webhook in, status and commands, metrics, and one page for people."""

import asyncio
import logging
import socket
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, TypeVar

import msgspec
import uvicorn
from fastapi import FastAPI, Query, Request, Response
from fastapi.responses import HTMLResponse

from alerts.ladder import Mode
from alerts.overrides import OverrideError
from alerts.receiver import Received, WebhookError, is_authorised
from monitors import catalog, logs
from monitors.contract import Refusal, Wire
from monitors.handles import CounterHandle
from monitors.journal import Journal, JournalUnwritable, JournalUrlError, StaleLeader
from monitors.metric import CLOSED, Label
from redline.control.api import JournalLine, ProposalAnswer, StartAnswer, StartOrder, VerbOrder
from redline.control.ladder_api import HoldOrder, ReleaseOrder
from redline.control.ladder_keeper import LadderKeeper
from redline.control.plane import ControlPlane
from redline.control.settings import ControlSettings
from redline.control.stories import story
from rollout.commands import CommandRefused, ModelNotLoaded
from rollout.controller import RolloutController
from rollout.dataplane import DataPlaneError
from rollout.detectable import Detectable
from rollout.plan import PlanError, RolloutPlan
from rollout.proposal import Wishes
from rollout.status import RolloutStatus
from rollout.store import EVIDENCE_KIND

T = TypeVar("T")

_PAGE = Path(__file__).parent / "page.html"
_CANNOT_START = 2
_MOST_LINES = 10_000
_MOST_BYTES = 16 * 2**20  # of a webhook: some 20,000 alerts
_MOST_REASONS = 10

log = logging.getLogger(__name__)


class Refuse(RuntimeError):
    """Ends a call with a status and words."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status


def create_app(plane: ControlPlane) -> FastAPI:
    """The application around a plane; its lifespan runs the plane."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
        task = asyncio.create_task(plane.run())
        task.add_done_callback(plane.ended)
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await plane.close()

    app = FastAPI(title="Redline control plane", lifespan=lifespan, docs_url=None, redoc_url=None)
    app.add_exception_handler(Refuse, _refused)
    _add_health(app, plane)
    _add_reads(app, plane)
    _add_webhook(app, plane)
    _add_commands(app, plane)
    return app


def _add_health(app: FastAPI, plane: ControlPlane) -> None:
    @app.get("/healthz")
    async def healthz() -> Response:
        return Response("alive\n")

    @app.get("/readyz")
    async def readyz() -> Response:
        if plane.controller is None:
            return Response("standing by: another control plane leads\n", 503)
        return Response("leading\n")

    @app.get("/metrics")
    async def metrics(request: Request) -> Response:
        body, kind = plane.render_metrics(request.headers.get("accept"))
        return Response(body, media_type=kind)


def _add_reads(app: FastAPI, plane: ControlPlane) -> None:
    @app.get("/")
    async def page() -> Response:
        return HTMLResponse(_PAGE.read_text(encoding="utf-8"))

    @app.get("/api/status")
    async def status() -> Response:
        return _json(await plane.status())

    @app.get("/api/journal")
    async def journal(
        newest: Annotated[int, Query(ge=1, le=_MOST_LINES)] = _MOST_LINES, told: bool = False
    ) -> Response:
        """The newest entries, oldest first; `told`: only those that have a story."""
        lines = await _asked(asyncio.to_thread(_journal_lines, plane.journal, newest, told))
        return Response(msgspec.json.encode(lines), media_type="application/json")


def _journal_lines(journal: Journal, newest: int, told: bool) -> list[JournalLine]:
    """Runs on a thread: the loop must not wait for thousands of entries.

    Never the evidence that an earlier release journalled every few seconds: it would crowd out
    what was decided, by gigabytes.
    """
    lines = [
        JournalLine(
            id=entry.id,
            wall=entry.wall,
            leader_epoch=entry.leader_epoch,
            actor=entry.actor,
            kind=entry.kind,
            story=story(entry),
            body=entry.body,
        )
        for entry in journal.newest(newest, without=(EVIDENCE_KIND,))
    ]
    return [line for line in lines if line.story is not None or not told]


def _add_webhook(app: FastAPI, plane: ControlPlane) -> None:
    counter = plane.exposition.counter(catalog.WEBHOOKS)
    for result in CLOSED[Label.RESULT]:
        counter.start(result)

    @app.post("/alerts")
    async def alerts(request: Request) -> Response:
        try:
            _authorise(request, plane.settings.token)
            received = plane.receive(await _webhook_body(request))
        except (Refuse, WebhookError) as err:
            counter.inc("refused")
            log.warning("a webhook is refused: %s", err)
            raise err if isinstance(err, Refuse) else Refuse(400, str(err)) from err
        counter.inc("taken", by=received.taken)
        counter.inc("repeated", by=received.repeated)
        return _answer_to_webhook(received, counter)


def _answer_to_webhook(received: Received, counter: CounterHandle) -> Response:
    """200 though some are refused: a 5xx would come again for ever, and the others are taken."""
    lacking = len(received.refused) + received.truncated
    if not lacking:
        return Response(status_code=204)
    counter.inc("refused", by=lacking)
    words = f"{len(received.refused)} alerts cannot be used, {received.truncated} were left out"
    log.warning("of a webhook, %s: %s", words, received.refused[:_MOST_REASONS])
    return _json(Refusal(error="; ".join((words, *received.refused[:_MOST_REASONS]))))


async def _webhook_body(request: Request) -> bytes:
    """Raises `Refuse` where it is larger than any that Alertmanager could mean."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > _MOST_BYTES:
            raise Refuse(413, f"a webhook has at most {_MOST_BYTES} bytes: set max_alerts")
    return bytes(body)


def _add_commands(app: FastAPI, plane: ControlPlane) -> None:
    @app.post("/api/rollout/propose")
    async def propose(request: Request) -> Response:
        order = await _order(request, plane, StartOrder)
        _, controller = _leader(plane)

        async def told() -> ProposalAnswer:
            plan, smallest = await _proposed(controller, order)
            return ProposalAnswer(plan=plan, detectable=smallest)

        return _json(await _asked(told()))

    @app.post("/api/rollout/start")
    async def start(request: Request) -> Response:
        order = await _order(request, plane, StartOrder)
        _, controller = _leader(plane)

        async def begin() -> StartAnswer:
            plan, smallest = await _proposed(controller, order)
            status = await controller.start(plan, order.actor)
            return StartAnswer(plan=plan, detectable=smallest, status=status)

        return _json(await _asked(begin()))

    @app.post("/api/ladder/set")
    async def hold(request: Request) -> Response:
        order = await _order(request, plane, HoldOrder)
        keeper, _ = _leader(plane)
        return _json(await _asked(keeper.hold(order)))

    @app.post("/api/ladder/clear")
    async def release(request: Request) -> Response:
        order = await _order(request, plane, ReleaseOrder)
        keeper, _ = _leader(plane)
        return _json(await _asked(keeper.release(order)))

    @app.post("/api/rollout/{verb}")
    async def rollout(verb: str, request: Request) -> Response:
        order = await _order(request, plane, VerbOrder)
        _, controller = _leader(plane)
        verbs = _rollout_verbs(controller)
        if verb not in verbs:
            raise Refuse(404, f"no such command: {verb!r}; there are: {', '.join(verbs)}")
        return _json(await _asked(verbs[verb](order)))

    @app.post("/api/{verb}")
    async def mode(verb: str, request: Request) -> Response:
        order = await _order(request, plane, VerbOrder)
        verbs = _mode_verbs(*_leader(plane))
        if verb not in verbs:
            raise Refuse(404, f"no such command: {verb!r}; there are: {', '.join(verbs)}")
        return _json(await _asked(verbs[verb](order.actor)))


async def _proposed(
    controller: RolloutController, order: StartOrder
) -> tuple[RolloutPlan, Detectable | None]:
    wishes = Wishes(
        weight=order.weight,
        bake_s=order.bake_s,
        canary=order.canary,
        audience=order.audience,
        model=order.model,
        hurry=order.hurry,
    )
    return await controller.propose(wishes)


def _rollout_verbs(
    controller: RolloutController,
) -> dict[str, Callable[[VerbOrder], Awaitable[RolloutStatus]]]:
    return {
        "promote": lambda order: controller.promote(order.actor),
        "hold": lambda order: controller.hold(order.actor),
        "resume": lambda order: controller.resume(order.actor),
        "rollback": lambda order: controller.rollback(
            order.actor, order.argument or "an operator's decision"
        ),
        "clear-quarantine": lambda order: controller.clear_quarantine(order.argument, order.actor),
    }


def _mode_verbs(
    keeper: LadderKeeper, controller: RolloutController
) -> dict[str, Callable[[str], Awaitable[RolloutStatus]]]:
    """The kill switch stops both loops: the ladder stays, the rollout moves toward B only."""

    async def freeze(actor: str) -> RolloutStatus:
        """Both at once: each may wait, for the disk or the data plane, but not for the other."""
        ladder, rollout = keeper.set_mode(Mode.FROZEN, actor), controller.freeze(actor)
        return (await asyncio.gather(ladder, rollout))[1]

    async def unfreeze(actor: str) -> RolloutStatus:
        await keeper.set_mode(Mode.LIVE, actor)
        return await controller.unfreeze(actor)

    async def dry_run(actor: str) -> RolloutStatus:
        await keeper.set_mode(Mode.DRY_RUN, actor)
        return controller.status()

    return {"freeze": freeze, "unfreeze": unfreeze, "dry-run": dry_run}


def _leader(plane: ControlPlane) -> tuple[LadderKeeper, RolloutController]:
    if plane.keeper is None or plane.controller is None:
        raise Refuse(503, "standing by: another control plane leads; ask that one")
    return plane.keeper, plane.controller


async def _asked(action: Awaitable[T]) -> T:
    """The action's outcome, its refusals as HTTP. 422: it is the model that is refused."""
    try:
        return await action
    except ModelNotLoaded as err:
        raise Refuse(422, str(err)) from err
    except (CommandRefused, PlanError, OverrideError) as err:
        raise Refuse(409, str(err)) from err
    except DataPlaneError as err:
        raise Refuse(502, f"the data plane: {err}") from err
    except (JournalUnwritable, StaleLeader) as err:
        raise Refuse(503, str(err)) from err


async def _order(request: Request, plane: ControlPlane, kind: type[T]) -> T:
    _authorise(request, plane.settings.token)
    try:
        return msgspec.json.decode(await request.body(), type=kind)
    except msgspec.DecodeError as err:
        raise Refuse(422, f"the order cannot be read: {err}") from err


def _authorise(request: Request, token: str) -> None:
    if not is_authorised(request.headers.get("authorization"), token):
        raise Refuse(401, "give the control token as `Authorization: Bearer TOKEN`")


async def _refused(_: Request, error: Exception) -> Response:
    status = error.status if isinstance(error, Refuse) else 500
    return _json(Refusal(error=str(error)), status)


def _json(body: Wire, status: int = 200) -> Response:
    return Response(msgspec.json.encode(body), status, media_type="application/json")


class _Server(uvicorn.Server):
    """Ends with exit code 0 when a signal tells it to: that is no failure."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.should_exit = True


def serve(settings: ControlSettings) -> int:
    """Run until SIGINT or SIGTERM; the exit code. Binds its port before it asks for the lease.

    2: it could not start, and said why. 1: it led and leads no more.
    """
    logs.configure(sys.stderr)
    lost = False

    def deposed() -> None:
        nonlocal lost
        lost = server.should_exit = True

    # With the protocol said, or asyncio leaves Nagle's algorithm on: 40 ms on every answer.
    with socket.socket(proto=socket.IPPROTO_TCP) as listening:
        try:
            _bind(listening, settings)
            settings.state_dir.mkdir(parents=True, exist_ok=True)
            plane = ControlPlane(settings, deposed=deposed)
        except (OSError, JournalUnwritable, JournalUrlError) as err:
            print(f"redline: {err}", file=sys.stderr)  # noqa: T201
            return _CANNOT_START
        config = uvicorn.Config(
            create_app(plane), log_config=None, access_log=False, timeout_graceful_shutdown=3
        )
        server = _Server(config)
        server.run(sockets=[listening])
    return 1 if lost else 0


def _bind(listening: socket.socket, settings: ControlSettings) -> None:
    """Raises `OSError` with a sentence."""
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((settings.host, settings.port))
    except OSError as err:
        where = f"{settings.host}:{settings.port}"
        raise OSError(f"cannot listen on {where}: {err.strerror}; the setting is `port`") from err
