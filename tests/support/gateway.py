"""A gateway in this process, on a free port, with scripted engines in processes of their own."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import uvicorn
from fastapi import FastAPI

from monitors.contract import ALL_CLASSES, Evidence, SessionClass
from runtime.gateway import create_app
from runtime.plane import DataPlane
from runtime.settings import ResidentSpec, RuntimeSettings
from tests.support.ports import free_ports

SCRIPTED = (sys.executable, str(Path(__file__).with_name("scripted_engine.py")))
A, B = "a", "b"  # S4.4: A the newest version, B the stable one
VERSIONS = {A: "v2", B: "v1"}
_FOLDER = Path(__file__).parent  # a scripted engine only asks that its checkpoint be a folder
ALONE: dict[str, Any] = {  # settings of a gateway with B alone: it starts in half the time
    "residents": (ResidentSpec(name=B, version=VERSIONS[B], checkpoint=_FOLDER),),
    "canary": None,
}


@dataclass
class Gateway:
    """A gateway that runs, a client for it, and the leader's side of its orders."""

    app: FastAPI
    plane: DataPlane
    client: httpx.AsyncClient
    since: int = 0  # evidence up to here is another test's

    async def chat(self, text: str | list[Any] = "hello", **more: Any) -> httpx.Response:
        headers = more.pop("headers", {})
        body = {"model": "redline", "messages": [{"role": "user", "content": text}], **more}
        answer = await self.client.post("/v1/chat/completions", json=body, headers=headers)
        await self.settled()
        return answer

    async def ask_about(self, clip: bytes, question: str, **more: Any) -> httpx.Response:
        """The answer to a question about a clip, in text and speech, as a stream."""
        content = [
            {"type": "video_url", "video_url": {"url": "attachment:clip.mp4"}},
            {"type": "text", "text": question},
        ]
        request = {
            "model": "redline",
            "messages": [{"role": "user", "content": content}],
            "modalities": ["text", "audio"],
            "max_tokens": 8,
            "stream": True,
            **more,
        }
        return await self.client.post(
            "/v1/chat/completions",
            files={"file": ("clip.mp4", clip)},
            data={"request": json.dumps(request)},
        )

    async def settled(self) -> None:
        """Verdicts on speech come a moment behind its last byte."""
        for name in VERSIONS:
            await self.plane.verdicts.settled(name)

    async def order(self, method: str, path: str, **body: Any) -> httpx.Response:
        """An order as its sender puts it."""
        return await self.client.request(method, f"/control{path}", json=body)

    async def led(self, method: str, path: str, **body: Any) -> httpx.Response:
        """An order of the leader."""
        leader = {"leader_epoch": self.plane.router.fence.leader_epoch}
        return await self.order(method, path, **{**leader, **body})

    async def route(self, weight: int = 0, **more: Any) -> httpx.Response:
        """The leader's next route."""
        epoch = self.plane.router.route.route_epoch + 1
        route = {"route_epoch": epoch, "stable": B, "canary": A, "canary_weight": weight}
        return await self.led("PUT", "/route", **{**route, **more})

    async def level(
        self,
        name: str,
        lease_s: float = 60.0,
        classes: list[SessionClass] | None = None,
        **parts: int,
    ) -> httpx.Response:
        level = {"media": 0, "kv": 0, "shed": 0, "admission": 0, **parts}
        names = {"operation_id": uuid4().hex, "resident": name, "actor": "test", "reason": "test"}
        classes = list(ALL_CLASSES) if classes is None else classes
        return await self.led(
            "PUT", f"/levels/{name}", **names, level=level, lease_s=lease_s, classes=classes
        )

    async def drill(self, name: str, kind: str, **more: Any) -> httpx.Response:
        return await self.order("POST", f"/residents/{name}/drill", kind=kind, **more)

    async def status(self, name: str) -> dict[str, Any]:
        observed = (await self.client.get("/control")).json()
        return next(r for r in observed["residents"] if r["name"] == name)

    def bodies(
        self, tag: str, resident: str | None = None, *, rehearsed: bool = False
    ) -> list[Evidence]:
        """This test's evidence of one kind, so far; or what was only rehearsed."""
        log = self.plane.book.evidence
        entries = log._batch(self.since, 100_000).entries  # pyright: ignore[reportPrivateUsage]
        return [
            e
            for e in entries
            if e.body.__struct_config__.tag == tag
            and resident in (None, e.resident)
            and bool(e.rehearsal) is rehearsed
        ]

    async def restore(self) -> None:
        """Leave B alone in traffic, at full fidelity, and no drill."""
        assert (await self.route(0)).status_code == 200
        for name in (A, B):
            assert (await self.level(name)).status_code == 200
            for kind in ("slow", "truncate", "desync", "lying_flush"):
                await self.drill(name, kind, seconds=0.0)


def settings_for(folder: Path, **more: Any) -> RuntimeSettings:
    """Two residents whose checkpoints are empty folders."""
    residents = []
    for name, version in VERSIONS.items():
        (folder / version).mkdir(exist_ok=True)
        residents.append(ResidentSpec(name=name, version=version, checkpoint=folder / version))
    given = {"state_dir": folder / "s", "residents": tuple(residents), "stable": B, "canary": A}
    return RuntimeSettings(**{**given, "drills": True, "default_max_tokens": 4, **more})


@asynccontextmanager
async def running_gateway(
    settings: RuntimeSettings, *, wait: bool = True, **options: Any
) -> AsyncIterator[Gateway]:
    """A gateway from its start to its end; with `wait`, both residents are ready."""
    (port,) = free_ports(1)
    app = create_app(settings, **{"worker": SCRIPTED, **options})
    config = uvicorn.Config(
        app, port=port, log_config=None, access_log=False, timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    server.capture_signals = nullcontext  # the signals of a test run are pytest's
    serving = asyncio.create_task(server.serve())
    url = f"http://127.0.0.1:{port}"
    plane: DataPlane = app.state.plane
    try:
        async with httpx.AsyncClient(base_url=url, timeout=30, trust_env=False) as client:
            await until(lambda: server.started)
            if wait:
                await until(lambda: len(plane.ready()) == len(settings.residents))
            yield Gateway(app, plane, client)
    finally:
        server.should_exit = True
        await serving


async def until(holds: Callable[[], Any], timeout_s: float = 30.0) -> Any:
    """The first true value of `holds`. Raises `TimeoutError`."""
    async with asyncio.timeout(timeout_s):
        while not (value := holds()):  # noqa: ASYNC110 - what is awaited has no event
            await asyncio.sleep(0.01)
        return value


def events_of(body: str) -> list[Any]:
    """The JSON events of a stream, `[DONE]` apart."""
    lines = [line[6:] for line in body.split("\n") if line.startswith("data: ")]
    assert lines[-1] == "[DONE]", lines
    return [json.loads(line) for line in lines[:-1]]
