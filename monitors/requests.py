"""What is remembered of each request: where its time went, what was found, how it ended.

Ids, times and findings only; never a word, a name of a file or a byte that a client sent.
"""

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from heapq import merge
from itertools import count, islice, product

import msgspec

from monitors.contract import (
    EvidenceBody,
    FaultFound,
    KvRung,
    Level,
    MediaRung,
    Name,
    Wire,
)
from monitors.labels import Detector, Judgement, Keep, Origin, Outcome, Stage

SERVED = 10_000
TURNED_AWAY = 1_000
RECORD_BYTES = 4_096  # there is room for so much of each on average; most need a third of it
WRONG = 200  # of those, the last with each kind of wrong are found without their ids
_WRONG = tuple(why for why in Keep if why is not Keep.SAMPLED)


class StageTime(Wire, frozen=True):
    """One stage. `busy_s`: how much of it was work on this request; None: it is all work, or all
    waiting."""

    stage: Stage
    began_s: float
    ended_s: float
    busy_s: float | None = None


class Noted(Wire, frozen=True):
    """One entry of the evidence log, at its moment of the request."""

    at_s: float
    body: EvidenceBody


class Examined(Wire, frozen=True):
    """A detector looked. `why`: it abstained."""

    detector: Detector
    judgement: Judgement
    why: str = ""


class Leg(Wire, frozen=True):
    """A request's stay on one resident; a cut-over before any output makes another.

    `kv`: the format that the engine last said it writes. `departed_s`: handed to the engine;
    None: it never was. `unnoted`: entries beyond the most that a leg keeps.
    """

    resident: Name
    version: str
    pool_epoch: int | None
    route_epoch: int
    level: Level
    kv: KvRung | None
    span_id: str
    boarded_s: float
    departed_s: float | None
    left_s: float | None
    stages: tuple[StageTime, ...]
    noted: tuple[Noted, ...]
    examined: tuple[Examined, ...]
    unnoted: int = 0


class Asked(Wire, frozen=True):
    """What kind of answer was asked for."""

    model: str
    max_tokens: int
    speech: bool
    stream: bool
    media: MediaRung  # the client's wish; the ladder may want less


class Told(Wire, frozen=True):
    """What the client was told. `code`: of the error; None: there was none. `status` None: the
    client was gone before there was an answer."""

    at_s: float
    status: int | None
    code: str | None = None


class Usage(Wire, frozen=True):
    """Tokens as the engine counted them, and why the text ended."""

    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    text_reason: str


class TraceNote(Wire, frozen=True):
    """Where the request's trace is. `keep` None: not decided yet; empty: not kept."""

    trace_id: str
    span_id: str
    keep: tuple[Keep, ...] | None = None


class RequestRecord(Wire, frozen=True):
    """One request. All `_s` are seconds after `received`, which is calendar time for people.

    `media`: the fidelity that its media was decoded at; None: nothing was decoded. `outcome`
    None: it is under way. `trace` None: tracing is off.
    """

    request_id: str
    received: float
    session: str | None
    operator: bool
    asked: Asked | None
    media: MediaRung | None
    trace: TraceNote | None
    stages: tuple[StageTime, ...]
    legs: tuple[Leg, ...]
    usage: Usage | None
    told: Told | None
    outcome: Outcome | None
    ended_s: float | None
    wrong: tuple[Keep, ...] = ()  # what was wrong with it, so far; never `SAMPLED`

    def noted(self) -> list[Noted]:
        """What was found on all legs, in time."""
        return sorted((n for leg in self.legs for n in leg.noted), key=lambda n: n.at_s)

    def faults(self) -> list[FaultFound]:
        return [n.body for n in self.noted() if isinstance(n.body, FaultFound)]

    @property
    def ordinary(self) -> bool:
        """Whether it tells nothing against us: nothing was wrong, or what its client did by
        itself, which may come in floods. It crossed no line, no fault but its input's was found,
        and neither its resident nor the gateway failed it."""
        ours = any(fault.origin is not Origin.INPUT for fault in self.faults())
        failed = self.outcome in (Outcome.FAILED, Outcome.LOST)
        return not (ours or failed or Keep.LINE in self.wrong)


class RequestRing:
    """The last requests, within bounds of number and of bytes.

    What was turned away, or left before it was handed to a resident, is apart: a flood of it
    pushes out none that was served; and what is wrong with many hides nothing of another kind, nor
    anything that tells against us. Kept as bytes, which cost the garbage collector nothing;
    `record_bytes`: room for each on average.
    """

    def __init__(
        self,
        served: int = SERVED,
        turned_away: int = TURNED_AWAY,
        record_bytes: int = RECORD_BYTES,
    ) -> None:
        self._served = _Ring(served, served * record_bytes)
        self._turned_away = _Ring(turned_away, turned_away * record_bytes)
        self._numbers = count()
        self._wrong = {
            (why, ordinary): deque[tuple[int, str]](maxlen=WRONG)
            for why, ordinary in product(_WRONG, (False, True))
        }

    def add(self, record: RequestRecord) -> None:
        """Remember a request that has ended."""
        ring = self._turned_away if _is_chaff(record) else self._served
        ring.add(record.request_id, _encoder.encode(record))
        number = next(self._numbers)
        for why in record.wrong:
            self._wrong[why, record.ordinary].append((number, record.request_id))

    def wrong(self, why: Keep | None, limit: int) -> tuple[RequestRecord, ...]:
        """The last requests with something wrong (None: anything). What tells against us comes
        before what clients did by themselves, of each the newest first."""
        kinds = _WRONG if why is None else (why,)
        ids = dict.fromkeys((*self._newest(kinds, False), *self._newest(kinds, True)))
        found = (self.get(request_id) for request_id in ids)
        return tuple(islice((record for record in found if record is not None), limit))

    def _newest(self, kinds: Iterable[Keep], ordinary: bool) -> Iterator[str]:
        lists = (reversed(self._wrong[kind, ordinary]) for kind in kinds)
        return (request_id for _, request_id in merge(*lists, reverse=True))

    def get(self, request_id: str) -> RequestRecord | None:
        """None: it never was, or is forgotten."""
        held = self._served.get(request_id) or self._turned_away.get(request_id)
        return None if held is None else _decoder.decode(held)

    def reach(self) -> "Reach":
        """How far back it goes."""
        return Reach(self._served.oldest(), len(self._served), len(self._turned_away))


class Reach(Wire, frozen=True):
    """When the oldest request served that is still here came, in calendar time, and how many
    there are of each kind."""

    oldest: float | None
    served: int
    turned_away: int


def _is_chaff(record: RequestRecord) -> bool:
    """What a client can send in floods at no cost to a resident."""
    left = record.outcome is Outcome.CANCELLED
    early = all(leg.departed_s is None for leg in record.legs)
    return record.outcome is Outcome.REFUSED or (left and early)


class _Ring:
    def __init__(self, capacity: int, capacity_bytes: int) -> None:
        if capacity < 1:
            raise ValueError(f"a ring of {capacity} remembers nothing: give at least 1")
        self._capacity = capacity
        self._capacity_bytes = capacity_bytes
        self._held: OrderedDict[str, bytes] = OrderedDict()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._held)

    def add(self, key: str, value: bytes) -> None:
        """The newest is held whatever its size."""
        self._bytes += len(value) - len(self._held.pop(key, b""))
        self._held[key] = value
        while len(self._held) > 1 and self._is_over():
            self._bytes -= len(self._held.popitem(last=False)[1])

    def _is_over(self) -> bool:
        return len(self._held) > self._capacity or self._bytes > self._capacity_bytes

    def get(self, key: str) -> bytes | None:
        return self._held.get(key)

    def oldest(self) -> float | None:
        first = next(iter(self._held.values()), None)
        return None if first is None else _decoder.decode(first).received


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(RequestRecord)
