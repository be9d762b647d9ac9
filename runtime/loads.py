"""Loads a new model into a resident that serves nobody, beside one that serves (DESIGN 8).

Everything that can be checked is checked by a process of its own before the old engine is touched;
the new engine loads in the background of all else that runs here. A model that is refused leaves
the resident as it was.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import msgspec
import psutil
from pydantic import ValidationError

from monitors.contract import Name
from monitors.preparing import Loading, LoadOrder, LoadStage
from runtime.flights import Flights
from runtime.plane import DataPlane
from runtime.residents.local import command
from runtime.residents.port import ResidentError
from runtime.residents.refusal import REFUSED_EXIT
from runtime.router import OrderRefused
from runtime.settings import ResidentSpec

_CONFIG = "config.json"
_WORDS = 8192  # of the check's last line

log = logging.getLogger(__name__)


class ModelRefused(ValueError):
    """A checkpoint that this data plane will not load; the message says why."""


class Read(msgspec.Struct, frozen=True):
    """A line of the check: how many of the weights' bytes it has read, or at its end their digest,
    as `Ready` gives it."""

    read: int = 0
    of: int = 0
    digest: str | None = None


class Loads:
    """`raise_epoch`: fences a resident's pool, on disk when it returns."""

    def __init__(
        self, plane: DataPlane, flights: Flights, raise_epoch: Callable[[Name], Awaitable[None]]
    ) -> None:
        self._plane = plane
        self._flights = flights
        self._raise_epoch = raise_epoch
        self._newest = {
            name: Loading(
                load=one.load,
                checkpoint=str(one.spec.checkpoint),
                version=one.spec.version,
                stage=LoadStage.LOADED,
            )
            for name, one in plane.models.loaded.items()
        }
        plane.loading = self._newest.get

    def begin(self, name: Name, order: LoadOrder) -> None:
        """Begin to load. `Loading` in the resident's status tells how it goes on.

        Raises `OrderRefused` while the resident serves or loads, and `ModelRefused` for a folder
        that holds no checkpoint or a version that another resident has.
        """
        newest = self._newest.get(name)
        if newest is not None and newest.load == order.load:
            return
        if newest is not None and newest.stage in (LoadStage.CHECKING, LoadStage.STARTING):
            raise OrderRefused(f"{name!r} is loading {newest.checkpoint} already: wait for its end")
        self._require_idle(name)
        spec = self._spec(name, order)
        self._newest[name] = Loading(
            load=order.load,
            checkpoint=order.checkpoint,
            version=spec.version,
            stage=LoadStage.CHECKING,
        )
        if not order.hurry:
            self._plane.throttled.add(name)
        task = asyncio.create_task(self._load(spec, order.load), name=f"load {name}")
        self._plane.work.add(task)
        task.add_done_callback(self._plane.work.discard)

    def _require_idle(self, name: Name) -> None:
        """Raises `OrderRefused`."""
        weight, in_flight = self._plane.router.weight(name), len(self._flights.on(name))
        if name == self._plane.router.route.stable or weight:
            raise OrderRefused(
                f"{name!r} has {weight} % of the traffic: only a resident that serves nobody can "
                "be given another model"
            )
        if in_flight:
            raise OrderRefused(f"{name!r} has {in_flight} streams in flight: drain it first")

    def _spec(self, name: Name, order: LoadOrder) -> ResidentSpec:
        """What the resident is to be. Raises `ModelRefused`."""
        folder, others = Path(order.checkpoint), dict(self._plane.versions)
        del others[name]
        if not folder.is_absolute():
            raise ModelRefused(f"{folder}: give the whole path, as the data plane sees it")
        if not (folder / _CONFIG).is_file():
            raise ModelRefused(
                f"{folder}: no checkpoint folder that the data plane can see (it has no {_CONFIG})"
            )
        if order.version in others.values():
            raise ModelRefused(
                f"{folder}: version {order.version} is another resident's; rename the folder"
            )
        spec = self._plane.specs[name]
        try:
            return ResidentSpec.model_validate(
                {**spec.model_dump(), "checkpoint": folder, "version": order.version}
            )
        except ValidationError as err:
            raise ModelRefused(f"{folder}: {err}") from err

    # ------------------------------------------------------------ the work
    async def _load(self, spec: ResidentSpec, load: str) -> None:
        try:
            digest = await self._check(spec)
            self._require_idle(spec.name)
            await self._swap(spec, load, digest)
        except (ModelRefused, OrderRefused, ResidentError, OSError) as err:
            log.warning("the model is refused: %s", err, extra={"resident": spec.name})
            self._tell(spec.name, LoadStage.REFUSED, str(err))
        except Exception as err:  # else it would be "loading" for ever
            log.exception("the model could not be loaded", extra={"resident": spec.name})
            self._tell(spec.name, LoadStage.REFUSED, f"{type(err).__name__}: {err}")
        finally:
            self._plane.throttled.discard(spec.name)

    def _tell(self, name: Name, stage: LoadStage, detail: str = "") -> None:
        self._newest[name] = msgspec.structs.replace(
            self._newest[name], stage=stage, detail=detail, read=None
        )

    async def _check(self, spec: ResidentSpec) -> str:
        """Configuration, files, digest and memory, as the engine would; the weights' digest.

        Raises `ModelRefused`.
        """
        process = await asyncio.create_subprocess_exec(
            *command(self._plane.worker, spec, self._plane.lines_file, "", 0),
            *(("--check", "--throttled") if spec.name in self._plane.throttled else ("--check",)),
            *("--freed-host", str(await asyncio.to_thread(self._host_bytes, spec.name))),
            *("--freed-device", str(self._device_bytes(spec.name))),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        try:
            words, digest = await asyncio.gather(
                _last_line(process), self._follow(spec.name, process)
            )
            code = await process.wait()
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        if code == REFUSED_EXIT:
            raise ModelRefused(words)
        if code:
            raise ModelRefused(f"{spec.checkpoint}: its check ended with code {code}: {words}")
        if digest is None:
            raise ModelRefused(f"{spec.checkpoint}: its check did not say its digest: {words}")
        return digest

    async def _follow(self, name: Name, process: asyncio.subprocess.Process) -> str | None:
        """Show how much the check has read; the digest that it says, if it does."""
        if process.stdout is None:
            return None
        digest: str | None = None
        async for line in process.stdout:
            seen = msgspec.json.decode(line, type=Read)
            digest = seen.digest or digest
            if seen.of:
                share = seen.read / seen.of
                self._newest[name] = msgspec.structs.replace(self._newest[name], read=share)
        return digest

    def _host_bytes(self, name: Name) -> int:
        """Memory of its own that the present engine gives back."""
        pid = self._plane.supervisors[name].pid
        if pid is None:
            return 0
        try:
            memory = psutil.Process(pid).memory_info()
        except psutil.Error:
            return 0
        return max(0, memory.rss - getattr(memory, "shared", memory.rss))

    def _device_bytes(self, name: Name) -> int:
        snapshot = self._plane.snapshots.get(name)
        return 0 if snapshot is None else snapshot.device_bytes or 0

    async def _swap(self, spec: ResidentSpec, load: str, digest: str) -> None:
        """End the old engine and start the new one; the old again where that does not come up, is
        another one than was checked, or cannot be noted on disk. Raises `ModelRefused`.
        """
        plane, name = self._plane, spec.name
        old = plane.specs[name]
        plane.withheld.add(name)
        try:
            await self._raise_epoch(name)
            await plane.verdicts.settled(name)
            self._tell(name, LoadStage.STARTING)
            try:
                await self._come_up(spec, digest)
                await asyncio.to_thread(plane.models.store, spec, load)
            except (ModelRefused, ResidentError, OSError) as err:
                plane.respec(name, old)
                with suppress(ResidentError):  # its supervisor goes on trying, and says so
                    await plane.supervisors[name].restart(even_loading=True)
                raise ModelRefused(f"{err}; {name!r} is {old.version} again") from err
            self._tell(name, LoadStage.LOADED)
        finally:
            plane.withheld.discard(name)

    async def _come_up(self, spec: ResidentSpec, digest: str) -> None:
        """Raises `ResidentError`, and `ModelRefused` for other weights than were checked."""
        self._plane.respec(spec.name, spec)
        # A present life that still loads was begun with the old model: it is not to be waited for.
        ready = await self._plane.supervisors[spec.name].restart(even_loading=True)
        if ready.weights_digest != digest:
            raise ModelRefused(
                f"{spec.checkpoint}: its weights are others than those that were checked "
                f"({ready.weights_digest}, not {digest})"
            )


async def _last_line(process: asyncio.subprocess.Process) -> str:
    last = b""
    if process.stderr is not None:
        async for line in process.stderr:
            last = line.strip() or last
    return last[:_WORDS].decode(errors="replace") or "it said nothing"
