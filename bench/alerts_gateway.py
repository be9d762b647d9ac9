"""A data plane for the bench of alerts: HTTP, real books and tables, and no engines behind them."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain, product

import msgspec
import uvicorn
from fastapi import FastAPI, Request, Response

from monitors.cache_table import CacheCell
from monitors.contract import (
    EvidenceBatch,
    KvRung,
    LadderOrder,
    Level,
    MediaRung,
    Observed,
    RequestFinished,
    ResidentStatus,
    Route,
    Wire,
)
from monitors.labels import Milestone, Modality, Outcome, ResidentState
from monitors.redlines import RedLines
from monitors.tables import Tables
from runtime.book import Book
from runtime.residents.port import Snapshot
from runtime.stamp import Stamp

PER_BOOK = 4  # versions that one data plane shows
EVERY_S = 0.1  # a request of each version
TELLS_S = 1.0  # each engine tells of its cache
OVERDUE = 30  # requests that hang at a latency breach
LOOKUPS = 1_000.0  # of attention mass in a second; at a cache breach as much as in a whole window


class Breach(StrEnum):
    """What crosses its line; the part of a level that must then move."""

    LATENCY = "latency"  # `for: 0s`
    CACHE = "cache"  # `for`: cache.hold_s


@dataclass
class Resident:
    """One of many, with a version of its own."""

    name: str
    version: str
    book: Book
    level: Level = field(default_factory=Level)
    hit_mass: float = 0.0
    lookup_mass: float = 0.0
    hits: float = 0.99

    @property
    def stamp(self) -> Stamp:
        return Stamp(self.name, self.version, "s", "r", 1, 1, Level())


class Gateway:
    """Residents under steady traffic, one of which breaches when told; notes when it is helped."""

    def __init__(self, lines: RedLines, residents: int, layers: int = 1) -> None:
        self._lines = lines
        self._layers = layers
        books = [Book(lines, f"bench-{i}") for i in range(-(-residents // PER_BOOK))]
        self.books = books
        self.residents = {
            f"r{i}": Resident(f"r{i}", f"v{i}", books[i // PER_BOOK]) for i in range(residents)
        }
        self.breached: dict[tuple[str, Breach], float] = {}  # monotonic seconds
        self.helped: dict[tuple[str, Breach], float] = {}
        self._leader = 0
        for each in self.residents.values():
            each.book.open(each.version)

    # ------------------------------------------------------------ traffic
    async def serve_traffic(self) -> None:
        """For ever: requests of every version, evenly spread, and engines that tell."""
        step = 0
        each_tells = round(TELLS_S / EVERY_S)
        began = time.monotonic()
        while True:
            for place, each in enumerate(self.residents.values()):
                each.book.reached(each.stamp, Milestone.FIRST_TOKEN, 0.05)
                if (step + place) % each_tells == 0:
                    self._tell(each, LOOKUPS)
            step += 1
            await asyncio.sleep(max(0.0, began + step * EVERY_S - time.monotonic()))

    def fill(self, each: Resident, requests: int) -> None:
        """So many requests at once, each with all first outputs, and an engine that tells."""
        for place in range(requests):
            for milestone in Milestone:
                each.book.reached(each.stamp, milestone, 0.05 + place / requests / 4)
        ending = RequestFinished(outcome=Outcome.OK, faulted=False)
        each.book.finished(each.stamp, ending, ())
        self._tell(each, LOOKUPS)

    def breach(self, name: str, what: Breach) -> None:
        """The tables are over the line when this returns."""
        each = self.residents[name]
        if what is Breach.LATENCY:
            for _ in range(OVERDUE):
                line_s = self._lines.latency.degrade_s
                each.book.crossed(each.stamp, Milestone.FIRST_TOKEN, line_s)
        else:
            each.hits = 0.3
            self._tell(each, LOOKUPS * self._lines.cache.hold_s / TELLS_S)
        self.breached[name, what] = time.monotonic()

    def _tell(self, each: Resident, lookups: float) -> None:
        each.lookup_mass += lookups
        each.hit_mass += lookups * each.hits
        each.book.snapshot(each.version, _snapshot(each.hit_mass, each.lookup_mass, self._layers))

    # ------------------------------------------------------------ what it shows
    def tables(self) -> Tables:
        """Those of all books as one."""
        each = [book.tables() for book in self.books]
        return msgspec.structs.replace(
            each[0],
            cache=tuple(chain.from_iterable(t.cache for t in each)),
            cache_summary=tuple(chain.from_iterable(t.cache_summary for t in each)),
            latency=tuple(chain.from_iterable(t.latency for t in each)),
            faults=tuple(chain.from_iterable(t.faults for t in each)),
        )

    def metrics(self) -> bytes:
        return b"\n".join(self._samples()) + b"\n"

    def _samples(self) -> Iterator[bytes]:
        for book in self.books:
            for line in book.exposition.render(None)[0].splitlines():
                if not line.startswith(b"#"):
                    yield line

    def observed(self) -> Observed:
        return Observed(
            incarnation="bench", leader_epoch=self._leader, route_epoch=1, stable="r0",
            canary=None, canary_weight=0, lease_left_s=0.0,
            residents=tuple(
                ResidentStatus(
                    name=r.name, version=r.version, state=ResidentState.READY,
                    weight=100 if r.name == "r0" else 0, level=r.level, min_pool_epoch=1,
                    pool_epoch=1, weights_digest=f"sha256:{r.version}",
                )
                for r in self.residents.values()
            ),
        )  # fmt: skip

    # ------------------------------------------------------------ orders
    def route(self, route: Route) -> Observed:
        self._leader = route.leader_epoch
        return self.observed()

    def level(self, order: LadderOrder) -> Observed:
        """Takes effect at once; the first help of each kind is noted."""
        self._leader = order.leader_epoch
        self.residents[order.resident].level = order.level
        for what, helps in (
            (Breach.LATENCY, order.level.media is not MediaRung.FULL),
            (Breach.CACHE, order.level.kv is not KvRung.NATIVE),
        ):
            if helps:
                self.helped.setdefault((order.resident, what), time.monotonic())
        return self.observed()


def app(gateway: Gateway) -> FastAPI:
    """The part of the data plane's HTTP that a control plane and Prometheus ask."""
    made = FastAPI()

    @made.get("/tables")
    async def tables() -> Response:
        return _json(gateway.tables())

    @made.get("/metrics")
    async def metrics() -> Response:
        return Response(gateway.metrics(), media_type="text/plain; version=0.0.4")

    @made.get("/control")
    async def control() -> Response:
        return _json(gateway.observed())

    @made.put("/control/route")
    async def route(request: Request) -> Response:
        return _json(gateway.route(msgspec.json.decode(await request.body(), type=Route)))

    @made.put("/control/levels/{resident}")
    async def level(resident: str, request: Request) -> Response:
        del resident
        return _json(gateway.level(msgspec.json.decode(await request.body(), type=LadderOrder)))

    @made.get("/evidence")
    async def evidence(wait: float) -> Response:
        await asyncio.sleep(wait)
        return _json(EvidenceBatch(incarnation="bench", oldest_seq=0, next_seq=0, entries=()))

    return made


@asynccontextmanager
async def serving(gateway: Gateway, port: int) -> AsyncGenerator[None]:
    """The traffic, and the HTTP on 127.0.0.1, while the block runs."""
    server = uvicorn.Server(
        uvicorn.Config(
            app(gateway), host="127.0.0.1", port=port, log_config=None, timeout_graceful_shutdown=1
        )
    )
    logging.getLogger("uvicorn.error").setLevel(
        logging.CRITICAL + 1
    )  # polls are cut off at the end
    work = [asyncio.create_task(each) for each in (server._serve(), gateway.serve_traffic())]
    try:
        yield
    finally:
        server.should_exit = True
        work[1].cancel()
        await asyncio.gather(*work, return_exceptions=True)


def _json(body: Wire) -> Response:
    return Response(msgspec.json.encode(body), media_type="application/json")


def _snapshot(hit_mass: float, lookup_mass: float, layers: int) -> Snapshot:
    """The masses spread over so many layers; of one, all is sound."""
    modalities = [Modality.AUDIO] if layers == 1 else list(Modality)
    places = list(product(range(layers), modalities))
    cells = tuple(
        CacheCell(
            layer=layer, modality=modality, entropy_th=0.35, hit_mass=hit_mass / len(places),
            lookup_mass=lookup_mass / len(places), entropy_sum=0.0, entropy_count=0,
            token_entropy_sum=0.0, token_entropy_count=0,
            live_bytes=26_000_000_000 // len(places), evictable_bytes=0, host_bytes=0,
            alias_pages=0,
        )
        for layer, modality in places
    )  # fmt: skip
    return Snapshot(
        pool_epoch=1, kv=KvRung.NATIVE, cells=cells, prefix_hit_tokens=0,
        prefix_lookup_tokens=0, prefix_evictions=0, encoder_hits=0, encoder_lookups=0,
        reserved_bytes=0, device_bytes=None, table_entries=0, block_fill=None, running=0,
        waiting=0, busy_s=0.0, steps=0, reuse="on", live_sequences=0,
    )  # fmt: skip
