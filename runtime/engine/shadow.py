"""The shadow check (DESIGN 5): some answers under reuse, run again on full KV while nothing waits.

A checked answer is fed, token by token as it was given, to a sequence of its own that aliases
nothing, and the two distributions behind each of its tokens are compared. When their mean
divergence over many answers is above the policy's budget, reuse goes off by itself.
"""

import hashlib
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from msgspec import structs
from torch import Tensor

from runtime.engine.forward import Forward
from runtime.engine.request import Request
from runtime.kv.cache import KvCache
from runtime.kv.sequence import Sequence as Cached
from runtime.kv.slabs import PoolExhausted
from runtime.residents.port import ShadowCount

PENDING = 2  # answers that wait for their check; more are not taken
MEDIA_BYTES = 64_000_000  # of one answer's prompt: longer clips are not checked
STARTS = 8  # a check that requests interrupt so often is given up
UNBOUNDED_NATS = 100.0  # stands for a divergence that is no number

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ShadowSettings:
    """`share` of the requests, chosen by their id. The mean is over the newest `window` answers
    and means nothing before `least` of them."""

    share: float = 0.01
    least: int = 20
    window: int = 200

    def samples(self, request_id: str) -> bool:
        """Alike for one id wherever it is asked."""
        drawn = hashlib.blake2b(request_id.encode(), digest_size=8).digest()
        return int.from_bytes(drawn, "little") < self.share * 2**64


@dataclass(frozen=True)
class Divergence:
    """Of one answer: mean nats over its tokens, and on how many of them the best token agrees."""

    nats: float
    tokens: int
    agreed: int


def divergence(full: Tensor, reused: Tensor) -> Divergence:
    """Kullback-Leibler, of logits `(tokens, vocabulary)` on full KV from those under reuse."""
    p, q = full.float().log_softmax(-1), reused.float().log_softmax(-1)
    nats = torch.where(p > -torch.inf, p.exp() * (p - q), 0.0).sum(-1)
    bounded = nats.nan_to_num(UNBOUNDED_NATS, UNBOUNDED_NATS).clamp_min(0.0)
    agreed = (full.argmax(-1) == reused.argmax(-1)).sum()
    return Divergence(float(bounded.mean()), len(nats), int(agreed))


@dataclass(eq=False, repr=False)
class _Check:
    """One answer, and how far its second run is. `trail` `(tokens, hidden)` is the first run's."""

    request: Request
    trail: Tensor
    starts: int = 0
    sequence: Cached | None = None
    hidden: Tensor | None = None  # (up to as many tokens as the trail, hidden), of the second run

    @property
    def answer(self) -> list[int]:
        """Tokens to feed: the last one of the trail is not followed by any."""
        return self.request.generated[: len(self.trail) - 1]


class ShadowCheck:
    """Holds `PENDING` answers at most, each with up to `MEDIA_BYTES` of media and `TRAIL_TOKENS`
    hidden states; while a check is under way, also the logits of two runs of that many tokens.

    Its pages are given back as soon as any request is there, so that none ever waits for them.
    """

    def __init__(
        self,
        forward: Forward,
        cache: KvCache,
        settings: ShadowSettings,
        logits: Callable[[Tensor], Tensor],
    ) -> None:
        self._forward = forward
        self._cache = cache
        self._settings = settings
        self._logits = logits
        self._pending: deque[_Check] = deque()
        self._newest: deque[float] = deque(maxlen=settings.window)
        self._count = ShadowCount()

    @property
    def count(self) -> ShadowCount:
        return self._count

    def samples(self, request_id: str) -> bool:
        """Whether this request's hidden states are to be kept."""
        return self._cache.reuse.on and self._settings.samples(request_id)

    def offer(self, request: Request) -> None:
        """A finished request, its sequence still open. Taken if reuse may have changed its answer,
        beside what the storage form always does: something is aliased, and nothing was quantised
        under pressure."""
        if not request.trail or not self._cache.reuse.on or len(self._pending) >= PENDING:
            return
        if self._changed_by_reuse(request) and _media_bytes(request) <= MEDIA_BYTES:
            asked = structs.replace(request.asked, cache_write=False)
            again = Request(asked, request.prompt, None, None, None, request.arrived)
            again.generated = list(request.generated)
            self._pending.append(_Check(again, torch.stack(request.trail)))

    def advance(self) -> bool:
        """One slice of the first check; false where none is left. Call it while idle."""
        if not self._pending:
            return False
        check = self._pending[0]
        try:
            self._run(check)
        except PoolExhausted:
            self._end(check)
        except Exception as err:
            log.exception("a shadow check failed", extra=check.request.log_fields)
            self._trip(f"a check failed with {type(err).__name__}: {err}")  # unwatched is unsafe
        return True

    def stand_back(self) -> None:
        """A request is there: give up the pages; the check starts anew when it is idle again."""
        for check in [check for check in self._pending if check.sequence is not None]:
            self._close(check)
            if check.starts >= STARTS:
                self._pending.remove(check)

    def drop(self) -> None:
        """Forget what is pending, as on a flush."""
        for check in list(self._pending):
            self._end(check)

    # ------------------------------------------------------------ inside
    def _changed_by_reuse(self, request: Request) -> bool:
        assert request.sequence is not None
        table, pool = request.sequence.table, self._cache.pool
        pages = table.matrix()
        aliased = bool((pages[1:] == pages[:-1]).any())
        usual = set(pool.records.form[pages].ravel().tolist()) <= self._cache.usual_forms
        return aliased and usual and table.epoch == pool.epoch

    def _run(self, check: _Check) -> None:
        if check.sequence is None:
            check.starts += 1
            check.sequence = self._cache.open_apart(check.request.tokens(), len(check.trail))
        if check.sequence is None:
            self._end(check)  # no room, though nobody else runs
            return
        hidden, over = self._forward.replay(check.request, check.sequence, check.answer)
        seen = hidden if check.hidden is None else torch.cat([check.hidden, hidden])
        check.hidden = full = seen[-len(check.trail) :].clone()
        if over:
            self._end(check)
            self._note(divergence(self._logits(full), self._logits(check.trail)))

    def _note(self, found: Divergence) -> None:
        old = self._count
        self._newest.append(found.nats)
        self._count = structs.replace(
            old,
            checks=old.checks + 1,
            nats=old.nats + found.nats,
            tokens=old.tokens + found.tokens,
            agreed=old.agreed + found.agreed,
        )
        mean, count = float(np.mean(self._newest)), len(self._newest)
        budget = self._cache.reuse.shadow_budget
        if self._cache.reuse.on and count >= self._settings.least and mean > budget:
            self._trip(f"{mean:.3g} nats over {count} requests, budget {budget:g}")

    def _trip(self, why: str) -> None:
        self._cache.stop_reuse(f"shadow check tripped: {why}")
        self._count = structs.replace(self._count, trips=self._count.trips + 1)
        self.drop()
        log.warning("reuse is off from now: %s", why)

    def _end(self, check: _Check) -> None:
        """A second call does nothing."""
        self._close(check)
        if check in self._pending:
            self._pending.remove(check)

    def _close(self, check: _Check) -> None:
        if check.sequence is not None:
            self._cache.close(check.sequence)
            check.sequence = check.hidden = check.request.embedding = None


def _media_bytes(request: Request) -> int:
    media = (segment.media for segment in request.prompt.segments)
    return sum(array.nbytes for array in media if array is not None)
