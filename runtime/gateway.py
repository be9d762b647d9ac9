"""The gateway process: an OpenAI-compatible server over two residents. `serve` runs it."""

import argparse
import asyncio
import errno
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import FrameType

import msgspec
import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from pydantic import ValidationError

from monitors import logs
from monitors.labels import Keep
from monitors.requests import WRONG
from runtime import openai_errors
from runtime.chat import Chat
from runtime.control import Control
from runtime.fence import FenceError
from runtime.flights import Flights
from runtime.guard import Guard
from runtime.openai_api import MODEL
from runtime.openai_errors import ApiError, bad_request
from runtime.orders import Orders
from runtime.plane import DataPlane
from runtime.readiness import readiness
from runtime.remote import RemoteMedia
from runtime.requests import UnknownRequest
from runtime.residents.local import WORKER
from runtime.settings import RuntimeSettings

SHOWN = 20  # requests, where their reader names no limit
FINISH_S = 2.0  # for streams in flight, once the server is to stop
CLOSE_S = 3  # then connections are closed, whatever runs on them
CANNOT_START = 2


def create_app(
    settings: RuntimeSettings,
    *,
    clock: Callable[[], float] = time.monotonic,
    wall: Callable[[], float] = time.time,
    worker: Sequence[str] = WORKER,
    remote: RemoteMedia | None = None,
) -> FastAPI:
    """The app; its engines live as long as its lifespan. `worker`: the engine's command;
    `remote`: fetches media by address, if not as `settings` say.

    Raises `FenceError` where the fence on disk cannot be used. `app.state.plane` is its
    `DataPlane`.
    """
    plane = DataPlane(settings, clock=clock, wall=wall, worker=worker)
    if remote is None and settings.remote_media:
        remote = RemoteMedia(settings.limits.body_bytes)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        plane.start()
        try:
            yield
        finally:
            await plane.stop()
            if remote is not None:
                await remote.close()

    app = FastAPI(title="Redline", lifespan=lifespan, openapi_url=None)
    flights = Flights(plane)
    app.state.plane, app.state.flights = plane, flights
    openai_errors.install(app)
    guard = Guard(settings.control_token)
    chat = Chat(plane, flights, guard, remote)
    app.add_api_route("/v1/chat/completions", chat.__call__, methods=["POST"], response_model=None)
    app.include_router(Control(plane, Orders(plane, flights), guard).router())
    _add_views(app, plane, guard)
    return app


def _add_views(app: FastAPI, plane: DataPlane, guard: Guard) -> None:
    started = int(plane.wall())

    @app.get("/v1/models")
    async def models() -> Response:
        card = {"id": MODEL, "object": "model", "created": started, "owned_by": "redline"}
        return JSONResponse({"object": "list", "data": [card]})

    @app.get("/healthz")
    async def healthz() -> Response:
        return JSONResponse({"status": "ok"})

    @app.get("/readyz")
    async def readyz(request: Request) -> Response:
        stable = plane.router.route.stable
        said = readiness(plane.supervisors, stable)
        if not guard.may_see_details(request):
            said = said.without_details()
        body = msgspec.json.encode(said)
        headers = {"Content-Type": "application/json"}
        if plane.is_ready(stable):
            return Response(body, headers=headers)
        if not plane.supervisors[stable].refused:
            headers["Retry-After"] = "1"
        return Response(body, 503, headers)

    @app.get("/metrics")
    async def metrics(request: Request) -> Response:
        body, content_type = plane.render_metrics(request.headers.get("accept"))
        return Response(body, headers={"Content-Type": content_type})

    @app.get("/tables")
    async def tables() -> Response:
        return Response(plane.book.tables().to_json(), media_type="application/json")

    @app.get("/requests")
    async def wrong(request: Request) -> Response:
        guard.require_operator(request)
        found = plane.requests.wrong(_why(request), _limit(request))
        return Response(msgspec.json.encode(found), media_type="application/json")

    @app.get("/requests/{request_id}")
    async def explained(request: Request, request_id: str) -> Response:
        guard.require_operator(request)
        try:
            record = plane.requests.find(request_id)
        except UnknownRequest as err:
            raise ApiError(404, str(err), code="unknown_request") from err
        return Response(msgspec.json.encode(record), media_type="application/json")


def _why(request: Request) -> Keep | None:
    why = request.query_params.get("why")
    kinds = [kind for kind in Keep if kind is not Keep.SAMPLED]
    if why is not None and why not in kinds:
        raise bad_request(f"why: {why!r} is not one of {', '.join(kinds)}", param="why")
    return None if why is None else Keep(why)


def _limit(request: Request) -> int:
    limit = request.query_params.get("limit", str(SHOWN))
    if not (limit.isdecimal() and 1 <= int(limit[:9]) <= WRONG):
        raise bad_request(f"limit: {limit!r} is no number from 1 to {WRONG}", param="limit")
    return int(limit)


class _Server(uvicorn.Server):
    """Stops cleanly, so with exit code 0, when it is told to by a signal."""

    def __init__(self, config: uvicorn.Config, plane: DataPlane, flights: Flights) -> None:
        super().__init__(config)
        self._plane = plane
        self._flights = flights

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._plane.stopping.set()  # lets long polls go, which would hold up the end
        async with asyncio.TaskGroup() as both:
            both.create_task(self._flights.end(FINISH_S))
            both.create_task(super().shutdown(sockets))


def serve(settings: RuntimeSettings, *, worker: Sequence[str] = WORKER) -> int:
    """Run until SIGTERM or SIGINT; the exit code. 2: it could not start, and said why."""
    logs.configure(sys.stderr)
    # With the protocol said, or asyncio leaves Nagle's algorithm on: 40 ms on every answer.
    listener = socket.socket(proto=socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    with listener:
        try:
            listener.bind((settings.host, settings.port))
            app = create_app(settings, worker=worker)
        except (OSError, FenceError) as err:
            return _cannot_start(settings, err)
        config = uvicorn.Config(
            app,
            ws="none",
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=CLOSE_S,
        )
        _Server(config, app.state.plane, app.state.flights).run(sockets=[listener])
    return 0


def _cannot_start(settings: RuntimeSettings, err: OSError | FenceError) -> int:
    message = str(err)
    if isinstance(err, OSError) and err.errno == errno.EADDRINUSE:
        message = (
            f"port {settings.port} of {settings.host} is taken by another program; free it or "
            "choose another (the setting is `port`)"
        )
    sys.stderr.write(f"redline runtime: {message}\n")
    return CANNOT_START


def main() -> int:
    """`python -m runtime.gateway --settings FILE.json`"""
    parser = argparse.ArgumentParser(description="Run the data plane.")
    parser.add_argument("--settings", type=Path, required=True, help="RuntimeSettings as JSON")
    path = parser.parse_args().settings
    try:
        settings = RuntimeSettings.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as err:
        sys.stderr.write(f"redline runtime: {path} cannot be used: {err}\n")
        return CANNOT_START
    return serve(settings)


if __name__ == "__main__":
    sys.exit(main())
