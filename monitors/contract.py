"""The wire types between data plane and control plane: desired state, leases, acks, evidence.

Both planes import these and nothing of each other. Every type is frozen and refuses unknown
fields, so a message either means exactly one thing or is an error. Durations are seconds and
run on the receiver's monotonic clock; only `wall` fields are calendar time, for people.
"""

from enum import IntEnum, StrEnum
from typing import Annotated

import msgspec

from monitors.client_key import EVERYBODY, CanaryClients
from monitors.labels import (
    Detector,
    Fault,
    Grade,
    Milestone,
    Modality,
    Origin,
    Outcome,
    ResidentState,
)
from monitors.preparing import Loading
from monitors.reports import DrainReport as DrainReport
from monitors.reports import FlushReceipt as FlushReceipt
from monitors.reports import ProbeReport as ProbeReport
from monitors.wire import Count, Epoch, Lease, Name, Percent, Wire


# ---------------------------------------------------------------- the ladder's vector (DESIGN 7)
class MediaRung(IntEnum):
    """Input fidelity, full first. The lower (worse) of client's wish and ladder wins."""

    FULL = 0
    P360_8K = 1  # S4.2: 720p -> 360p, 16 kHz -> 8 kHz
    P160_8K = 2  # S2.5: 160x160 and 8 kHz


class KvRung(IntEnum):
    """Storage format of newly written and live pages (S4.1)."""

    NATIVE = 0
    INT8 = 1


class Shed(IntEnum):
    """Whether low-lane work is dropped (S2.4)."""

    OFF = 0
    ON = 1


class Admission(IntEnum):
    """Whether new sessions are taken."""

    OPEN = 0
    LIMITED = 1


class Level(Wire, frozen=True):
    """One resident's fidelity: a vector, not a number; each alert moves its own part only."""

    media: MediaRung = MediaRung.FULL
    kv: KvRung = KvRung.NATIVE
    shed: Shed = Shed.OFF
    admission: Admission = Admission.OPEN


class SessionClass(StrEnum):
    """What a session is to its user. Media and admission may differ by class; KV and shedding are
    the engine's, and of all."""

    INTERACTIVE = "interactive"  # somebody waits for the answer
    BATCH = "batch"  # nobody does


ALL_CLASSES: tuple[SessionClass, ...] = tuple(SessionClass)


# ---------------------------------------------------------------- desired state
class Route(Wire, frozen=True):
    """Who serves: `canary_weight` percent of the sessions of `clients` to `canary`, the rest to
    `stable`.

    Of `mirror_weight` percent of `clients`' sessions on `stable`, the canary is given copies of the
    requests, whose answers nobody gets. Both weights are a lease: when `lease_s` passes without a
    renewal they are 0.

    `takes_back`: it ends a promotion, in favour of whoever was stable before. Nothing holds that
    up: neither that they are not ready nor a disk that takes no fence. It gives no weight.
    """

    leader_epoch: Epoch
    route_epoch: Epoch
    stable: Name
    canary: Name | None = None
    canary_weight: Percent = 0
    lease_s: Lease = 10.0
    clients: CanaryClients = EVERYBODY
    mirror_weight: Percent = 0
    takes_back: bool = False


class LadderOrder(Wire, frozen=True):
    """A desired level for the sessions of one resident that are of `classes`, held for `lease_s`;
    then one step back at a time. There is always a class: an empty selector never means all.

    An operation id belongs to one level: repeated, it renews the lease and changes nothing.
    `sequence` grows with what a leader decides: an order older than one that was taken, of any of
    its classes, is refused. None, an order by hand, holds at once and until the leader's next.
    `evidence`: the values that moved it. `by_hand`: the parts that a human holds; of an order by
    hand, all.
    """

    leader_epoch: Epoch
    operation_id: str
    resident: Name
    classes: Annotated[tuple[SessionClass, ...], msgspec.Meta(min_length=1)]
    level: Level
    lease_s: Lease
    actor: str
    reason: str
    evidence: str = ""
    sequence: Epoch | None = None
    by_hand: tuple[str, ...] = ()


class DrainMode(StrEnum):
    """What happens to streams in flight when a resident is cut over (DESIGN 8)."""

    FINISH = "finish"  # latency, cache: to the end of the turn
    ABORT = "abort"  # faults: replay on the stable one before any output, else a typed error


class DrainOrder(Wire, frozen=True):
    """Empty a resident of work; answers when nothing is in flight or `timeout_s` has passed."""

    leader_epoch: Epoch
    mode: DrainMode
    timeout_s: Lease


class FlushOrder(Wire, frozen=True):
    """Raise the resident's minimum pool epoch and empty every tier of older ones."""

    leader_epoch: Epoch
    min_pool_epoch: Epoch


class ProbeOrder(Wire, frozen=True):
    """Ask again for what the resident had cached before its flush; it must miss."""

    leader_epoch: Epoch
    pool_epoch: Epoch


class DrillKind(StrEnum):
    """Faults injected into the engine itself, never into a metric."""

    SLOW = "slow"  # every engine step takes `amount` seconds longer
    TRUNCATE = "truncate"  # the Talker stops early and its last samples are lost
    DESYNC = "desync"  # audio positions shift by `amount` seconds against the video's
    CORRUPT = "corrupt"  # frames reach the vision encoder damaged
    PRESSURE = "pressure"  # ballast pages are pinned until `amount` of the pool is live
    KILL = "kill"  # the engine process dies
    LYING_FLUSH = "lying_flush"  # a flush reports success and empties nothing


class DrillOrder(Wire, frozen=True):
    """Start a drill on one resident; it ends by itself after `seconds`. 0 ends it now."""

    kind: DrillKind
    amount: float = 0.0
    seconds: Annotated[float, msgspec.Meta(ge=0.0, le=3600.0)] = 60.0


# ---------------------------------------------------------------- observed state
class ResidentStatus(Wire, frozen=True):
    """What the gateway knows of one resident now. `None` is unknown, never zero.

    `level` is that of interactive sessions, `apart` that of classes at another one. `busy_share`:
    of the latency window, how much the engine worked. `live_native_bytes`: what its live KV would
    take, were none of it quantised by order.
    """

    name: Name
    version: str
    state: ResidentState
    weight: Percent
    level: Level
    min_pool_epoch: Epoch
    pool_epoch: Epoch | None = None
    weights_digest: str | None = None
    in_flight: Count = 0
    restarts: Count = 0
    pid: int | None = None
    detail: str = ""
    apart: dict[SessionClass, Level] = msgspec.field(default_factory=dict[SessionClass, Level])
    busy_share: float | None = None
    live_native_bytes: Count | None = None
    checkpoint: str | None = None  # the folder of its model
    loading: Loading | None = None

    def level_of(self, session_class: SessionClass) -> Level:
        """What sessions of a class are served at."""
        return self.apart.get(session_class, self.level)


class MirrorStatus(Wire, frozen=True):
    """Copies of requests since the data plane started: those that run now, all that were started,
    and those given up, as one of the residents had no time to spare for them."""

    running: Count = 0
    started: Count = 0
    dropped: Count = 0


class Observed(Wire, frozen=True):
    """The data plane's answer to every order, and to `GET /control`: what is so now.

    The three epochs are on disk before this is sent.
    """

    incarnation: str
    leader_epoch: Epoch
    route_epoch: Epoch
    stable: Name
    canary: Name | None
    canary_weight: Percent  # as it is now: 0 once the lease has expired
    lease_left_s: float
    residents: tuple[ResidentStatus, ...]
    mirror_weight: Percent = 0  # as it is now
    mirror: MirrorStatus = MirrorStatus()


class DrillReport(Wire, frozen=True):
    """The drill as the engine took it."""

    resident: Name
    kind: DrillKind
    running: bool
    detail: str


# ---------------------------------------------------------------- evidence (DESIGN 4)
class MilestoneReached(Wire, frozen=True, tag="milestone"):
    """A first output left the gateway `seconds` after the last input byte it depends on."""

    milestone: Milestone
    seconds: float


class LineCrossed(Wire, frozen=True, tag="line"):
    """A request is past `line_s` without, or at, its milestone. Once per request and line."""

    milestone: Milestone
    line_s: float


class FaultFound(Wire, frozen=True, tag="fault"):
    """A detector's verdict with evidence a person can check: which rule, where, how much.

    `at_ms`: where on the item's own millisecond axis; `value` and `limit` in `unit`: what was
    measured and what the rule allows. None where the rule has no place, or no number.
    """

    fault: Fault
    grade: Grade
    origin: Origin
    detector: Detector
    rule: str
    detail: str
    at_ms: float | None = None
    value: float | None = None
    limit: float | None = None
    unit: str = ""


class RequestFinished(Wire, frozen=True, tag="finished"):
    """The unit of the fault table. `faulted`: a hard fault that did not come in with the input,
    or an outcome of FAILED or LOST."""

    outcome: Outcome
    faulted: bool
    cached_tokens: int | None = None
    prompt_tokens: int | None = None

    @property
    def tells(self) -> bool:
        """Whether it says anything of its version: it was served, and not moved by order before
        it was found faulty. One that was moved counts where it was begun again."""
        moved = self.outcome is Outcome.REPLAYED and not self.faulted
        return self.outcome is not Outcome.REFUSED and not moved


class ResidencySampled(Wire, frozen=True, tag="residency"):
    """One request's cache residency: attention mass found on the device in time (DESIGN 5)."""

    modality: Modality | None
    hit_mass: float
    lookup_mass: float
    warm: bool


class ResidentChanged(Wire, frozen=True, tag="resident"):
    """A resident became ready, died or changed its pool epoch or level: a new segment."""

    state: ResidentState
    pool_epoch: Epoch | None
    detail: str


EvidenceBody = (
    MilestoneReached
    | LineCrossed
    | FaultFound
    | RequestFinished
    | ResidencySampled
    | ResidentChanged
)


class Evidence(Wire, frozen=True):
    """One entry of the evidence log. `operator` traffic (pinned by hand) is never evidence.
    `mirror`: of a copy, whose answer no client got; it is evidence of its resident alone. `level`
    is that of sessions of `session_class`; a human holds its parts `by_hand`. `rehearsal`: no
    request was ever there; the id of the rehearsed breach that it is of, as operator traffic."""

    seq: Count
    wall: float
    resident: Name
    version: str
    session: str
    request_id: str
    pool_epoch: Epoch | None
    route_epoch: Epoch
    level: Level
    operator: bool
    body: EvidenceBody
    session_class: SessionClass = SessionClass.INTERACTIVE
    mirror: bool = False
    by_hand: tuple[str, ...] = ()
    rehearsal: str = ""


class EvidenceBatch(Wire, frozen=True):
    """Answer of the long poll. Entries before `oldest_seq` are gone: a reader that asked for
    older ones, or of another incarnation, knows that it missed some."""

    incarnation: str
    oldest_seq: Count
    next_seq: Count
    entries: tuple[Evidence, ...]


class Refusal(Wire, frozen=True):
    """Why an order was not taken, in words for the operator."""

    error: str
    leader_epoch: Epoch | None = None
    route_epoch: Epoch | None = None
