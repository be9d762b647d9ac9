"""Faults injected into the engine itself, to watch the system answer. They end by themselves."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from msgspec import structs

from monitors.contract import DrillKind, DrillOrder, DrillReport, Name
from runtime.kv.cache import KvCache
from runtime.kv.formats import PAGE_TOKENS
from runtime.kv.records import Pages
from runtime.kv.slabs import PoolExhausted
from runtime.kv.tokens import TEXT
from runtime.model.prompt import Prompt, Segment
from runtime.residents.port import VideoPart

_BALLAST_ROUND = 32  # pages pinned between two looks at the live share


@dataclass(frozen=True)
class _Running:
    amount: float
    until: float


class Drills:
    """`die` ends the process at once. `clock`: monotonic seconds."""

    def __init__(
        self, name: Name, cache: KvCache, clock: Callable[[], float], die: Callable[[], None]
    ) -> None:
        self._name = name
        self._cache = cache
        self._clock = clock
        self._die = die
        self._running: dict[DrillKind, _Running] = {}
        self._ballast: Pages = np.zeros(0, np.int64)

    def start(self, order: DrillOrder) -> DrillReport:
        """Start one, or end it with `seconds` 0. Raises `ValueError` for an unusable amount."""
        _check_amount(order)
        self.end(order.kind)
        detail = "ended"
        if order.seconds > 0:
            self._running[order.kind] = _Running(order.amount, self._clock() + order.seconds)
            detail = self._act(order)
        return DrillReport(
            resident=self._name,
            kind=order.kind,
            running=order.kind in self._running,
            detail=detail,
        )

    def expire(self) -> None:
        """End what has run its time."""
        for kind in [k for k, drill in self._running.items() if self._clock() >= drill.until]:
            self.end(kind)

    def on(self, kind: DrillKind) -> bool:
        return kind in self._running

    def amount(self, kind: DrillKind) -> float:
        """The running drill's amount; 0 when it is not running."""
        drill = self._running.get(kind)
        return 0.0 if drill is None else drill.amount

    def end(self, kind: DrillKind) -> None:
        """End one now; nothing happens where it is not running."""
        if self._running.pop(kind, None) is not None and kind is DrillKind.PRESSURE:
            self._cache.pool.unpin(self._ballast)
            self._ballast = np.zeros(0, np.int64)

    def _act(self, order: DrillOrder) -> str:
        if order.kind is DrillKind.KILL:
            self._die()
        if order.kind is DrillKind.PRESSURE:
            self._pin_ballast(order.amount)
            return f"{len(self._ballast)} pages pinned, {self._cache.pool.live_share():.0%} live"
        return f"running for {order.seconds:g} s"

    def _pin_ballast(self, share: float) -> None:
        """Pinned pages, spread over the layers, until `share` of the pool is live, or as full
        as it gets: the report says how much is live."""
        pages: list[int] = []
        while self._cache.pool.live_share() < share and self._pin_round(pages):
            pass
        self._ballast = np.array(pages, np.int64)

    def _pin_round(self, pages: list[int]) -> bool:
        pool = self._cache.pool
        for _ in range(_BALLAST_ROUND):
            try:
                page = np.array([self._cache.new_page(len(pages) % pool.layers, TEXT)])
            except PoolExhausted:
                return False
            pool.records.fill[page], pool.records.sealed[page] = PAGE_TOKENS, True
            pool.pin(page)
            pool.release(page)
            pages.append(int(page[0]))
        return True


def _check_amount(order: DrillOrder) -> None:
    if order.kind is DrillKind.SLOW and not 0 < order.amount <= 10:
        raise ValueError(f"slow: {order.amount:g} s a step; choose above 0 and at most 10")
    if order.kind is DrillKind.PRESSURE and not 0 < order.amount <= 1:
        raise ValueError(f"pressure: a share of {order.amount:g}; choose above 0 and at most 1")


def damage(prompt: Prompt) -> Prompt:
    """The prompt as a broken transport would deliver it: frames damaged, and so not the media
    that its digests name, lest the cache mixes the two up."""
    return replace(prompt, segments=tuple(_damage(segment) for segment in prompt.segments))


def _damage(segment: Segment) -> Segment:
    """The lower half of every frame turns green, as when a decoder loses its planes."""
    if not isinstance(segment.part, VideoPart) or segment.media is None:
        return segment
    frames = segment.media.copy()
    frames[:, frames.shape[1] // 2 :] = (0, 135, 0)
    part = structs.replace(segment.part, digest=f"{segment.part.digest}!damaged")
    return replace(segment, part=part, media=frames)
