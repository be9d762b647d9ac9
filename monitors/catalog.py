"""Every metric Redline exports, typed in one place: nothing outside it reaches `/metrics`.

Names follow OpenMetrics (base units, `_total` on counters). Ratios and quantiles are not
exported: they are recording rules (`alerts/rules.py`). An unknown value is an absent series.
"""

from dataclasses import dataclass
from enum import StrEnum

from monitors import labels
from monitors.redlines import RedLines


class Kind(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    INFO = "info"


class Label(StrEnum):
    """Label names. `VERSION` is the one open label: at most four live."""

    VERSION = "version"
    LAYER = "layer_id"
    MODALITY = "modality"
    TIER = "tier"
    MILESTONE = "milestone"
    FAULT = "fault"
    GRADE = "grade"
    ORIGIN = "origin"
    OUTCOME = "outcome"
    RESIDENT = "resident"
    ROLE = "role"
    STATE = "state"
    DIGEST = "weights_digest"
    PART = "part"
    ACTION = "action"
    PHASE = "phase"
    RESULT = "result"
    DETECTOR = "detector"
    JUDGEMENT = "judgement"


CLOSED: dict[Label, tuple[str, ...]] = {
    Label.MODALITY: tuple(labels.Modality),
    Label.TIER: tuple(labels.Tier),
    Label.MILESTONE: tuple(labels.Milestone),
    Label.FAULT: tuple(labels.Fault),
    Label.GRADE: tuple(labels.Grade),
    Label.ORIGIN: tuple(labels.Origin),
    Label.OUTCOME: tuple(labels.Outcome),
    Label.DETECTOR: tuple(labels.Detector),
    Label.JUDGEMENT: tuple(labels.Judgement),
    Label.ROLE: tuple(labels.Role),
    Label.STATE: tuple(labels.ResidentState),
    Label.PART: ("media", "kv", "shed", "admission"),
    Label.ACTION: tuple(labels.Action),
    Label.RESULT: ("taken", "repeated", "refused"),
    Label.PHASE: tuple(labels.Phase),
}


class Table(StrEnum):
    CACHE = "cache"
    LATENCY = "latency"
    FAULTS = "faults"


@dataclass(frozen=True)
class Metric:
    """One family. `column` names the table column it feeds, where it feeds one."""

    name: str
    kind: Kind
    help: str
    labels: tuple[Label, ...] = ()
    table: Table | None = None
    column: str | None = None


_V, _L, _M = Label.VERSION, Label.LAYER, Label.MODALITY

# ------------------------------------------------------------------ table 1: cache (S4.1)
ENTROPY_THRESHOLD = Metric(
    "redline_kv_entropy_threshold_nats", Kind.GAUGE,
    "Reuse threshold on the cross-modal attention entropy; absent where reuse is off.",
    (_V, _L, _M), Table.CACHE, "entropy_th",
)  # fmt: skip
RESIDENCY_HIT_MASS = Metric(
    "redline_kv_residency_hit_mass_total", Kind.COUNTER,
    "Attention mass found on the device in time, of sampled steps.",
    (_V, _L, _M), Table.CACHE, "hit_rate",
)  # fmt: skip
RESIDENCY_LOOKUP_MASS = Metric(
    "redline_kv_residency_lookup_mass_total", Kind.COUNTER,
    "Attention mass looked up, of sampled steps.",
    (_V, _L, _M), Table.CACHE, "hit_rate",
)  # fmt: skip
LIVE_BYTES = Metric(
    "redline_kv_live_bytes", Kind.GAUGE,
    "Bytes of live (referenced or pinned) device pages.",
    (_V, _L, _M), Table.CACHE, "gpu_mem_gb",
)  # fmt: skip
EVICTABLE_BYTES = Metric(
    "redline_kv_evictable_bytes", Kind.GAUGE,
    "Bytes of device pages that only the prefix cache holds.", (_V, _L, _M),
)  # fmt: skip
HOST_BYTES = Metric(
    "redline_kv_host_bytes", Kind.GAUGE, "Bytes of pages in host memory.", (_V, _L, _M)
)
RESERVED_BYTES = Metric(
    "redline_kv_reserved_bytes", Kind.GAUGE, "Bytes the pool holds allocated in all.", (_V,)
)
DEVICE_BYTES = Metric(
    "redline_kv_device_bytes", Kind.GAUGE,
    "Bytes the engine holds of its accelerator, by the device's own allocator.", (_V,),
)  # fmt: skip
TABLE_ENTRIES = Metric(
    "redline_kv_table_entries", Kind.GAUGE, "Page-table entries of running requests.", (_V,)
)
ALIAS_PAGES = Metric(
    "redline_kv_alias_pages", Kind.GAUGE,
    "Page-table entries that point at the layer below (S1.2).", (_V, _L, _M),
)  # fmt: skip
ENTROPY_SUM = Metric(
    "redline_kv_entropy_nats_sum_total", Kind.COUNTER,
    "Sum of the cross-modal attention entropy over computed tokens.", (_V, _L, _M),
)  # fmt: skip
ENTROPY_COUNT = Metric(
    "redline_kv_entropy_tokens_total", Kind.COUNTER,
    "Computed tokens whose cross-modal attention entropy was defined.", (_V, _L, _M),
)  # fmt: skip
TOKEN_ENTROPY_SUM = Metric(
    "redline_kv_token_entropy_nats_sum_total", Kind.COUNTER,
    "Sum of the entropy of attention to other modalities' tokens over sampled tokens.",
    (_V, _L, _M),
)  # fmt: skip
TOKEN_ENTROPY_COUNT = Metric(
    "redline_kv_token_entropy_tokens_total", Kind.COUNTER,
    "Sampled tokens whose entropy of attention to other modalities' tokens was defined.",
    (_V, _L, _M),
)  # fmt: skip
PREFIX_HIT_TOKENS = Metric(
    "redline_kv_prefix_hit_tokens_total", Kind.COUNTER,
    "Prompt tokens restored from the prefix cache.", (_V,),
)  # fmt: skip
PREFIX_LOOKUP_TOKENS = Metric(
    "redline_kv_prefix_lookup_tokens_total", Kind.COUNTER,
    "Prompt tokens looked up in the prefix cache.", (_V,),
)  # fmt: skip
PREFIX_EVICTIONS = Metric(
    "redline_kv_prefix_evictions_total", Kind.COUNTER,
    "Blocks that the prefix cache gave up for room.", (_V,),
)  # fmt: skip
ENCODER_HITS = Metric(
    "redline_kv_encoder_hits_total", Kind.COUNTER,
    "Media slices whose encoder output was kept.", (_V,),
)  # fmt: skip
ENCODER_LOOKUPS = Metric(
    "redline_kv_encoder_lookups_total", Kind.COUNTER,
    "Media slices whose encoder output was looked up.", (_V,),
)  # fmt: skip
BLOCK_FILL = Metric(
    "redline_kv_block_fill_ratio", Kind.GAUGE, "Share of the slots of live blocks in use.", (_V,)
)
POOL_EPOCH = Metric(
    "redline_kv_pool_epoch", Kind.GAUGE, "The pool's generation; a flush raises it.", (_V,)
)
REUSE_ON = Metric(
    "redline_kv_reuse_on", Kind.GAUGE,
    "1 where entropy-driven reuse is on, 0 where the checkpoint is uncalibrated or it tripped.",
    (_V,),
)  # fmt: skip
SHADOW_CHECKS = Metric(
    "redline_kv_shadow_checks_total", Kind.COUNTER,
    "Answers under reuse that were run again on full KV.", (_V,),
)  # fmt: skip
SHADOW_NATS = Metric(
    "redline_kv_shadow_nats_sum_total", Kind.COUNTER,
    "Sum of those answers' mean divergences from full KV.", (_V,),
)  # fmt: skip
SHADOW_TOKENS = Metric(
    "redline_kv_shadow_tokens_total", Kind.COUNTER, "Tokens of those answers.", (_V,)
)
SHADOW_AGREED = Metric(
    "redline_kv_shadow_agreed_tokens_total", Kind.COUNTER,
    "Of those tokens, the ones that are the likeliest on full KV too.", (_V,),
)  # fmt: skip
SHADOW_TRIPS = Metric(
    "redline_kv_shadow_trips_total", Kind.COUNTER,
    "Times that the shadow check turned reuse off.", (_V,),
)  # fmt: skip

# ------------------------------------------------------------------ table 2: latency (S4.2)
FIRST_OUTPUT = Metric(
    "redline_first_output_seconds", Kind.HISTOGRAM,
    "From the last input byte a first output depends on to its first byte leaving the socket.",
    (_V, Label.MILESTONE), Table.LATENCY, "p50, p95, p99",
)  # fmt: skip
OVERDUE = Metric(
    "redline_first_output_overdue_total", Kind.COUNTER,
    "Requests past the degrade line, counted when they cross it, with or without the output.",
    (_V, Label.MILESTONE), Table.LATENCY, "over",
)  # fmt: skip

# ------------------------------------------------------------------ table 3: faults (S4.3)
FAULTS = Metric(
    "redline_faults_total", Kind.COUNTER, "Detector verdicts.",
    (_V, Label.FAULT, Label.GRADE, Label.ORIGIN), Table.FAULTS, "count",
)  # fmt: skip
REQUESTS = Metric(
    "redline_requests_total", Kind.COUNTER, "Finished requests by outcome.",
    (_V, Label.OUTCOME), Table.FAULTS, "requests",
)  # fmt: skip
FAULT_WINDOW_REQUESTS = Metric(
    "redline_fault_window_requests", Kind.GAUGE,
    "Requests in the ring of the last 10,000 finished ones.", (_V,), Table.FAULTS, "requests",
)  # fmt: skip
FAULT_WINDOW_FAULTED = Metric(
    "redline_fault_window_faulted", Kind.GAUGE,
    "Requests in that ring with a hard fault that did not come in with the input.",
    (_V,), Table.FAULTS, "rate",
)  # fmt: skip
FAULT_WINDOW_BY_FAULT = Metric(
    "redline_fault_window_faults", Kind.GAUGE,
    "Requests in that ring with this hard fault, input faults apart.",
    (_V, Label.FAULT), Table.FAULTS, "rate",
)  # fmt: skip

DETECTOR_JUDGEMENTS = Metric(
    "redline_detector_judgements_total", Kind.COUNTER,
    "What each detector said of each item it examined; abstained: it could not tell.",
    (Label.DETECTOR, Label.JUDGEMENT),
)  # fmt: skip
DETECTOR_CPU = Metric(
    "redline_detector_cpu_seconds_total", Kind.COUNTER, "Its processor time.", (Label.DETECTOR,)
)

# ------------------------------------------------------------------ data plane
BUILD_INFO = Metric("redline_build", Kind.INFO, "The running build.", (Label.VERSION,))
RESIDENT_INFO = Metric(
    "redline_resident", Kind.INFO, "Join on version for role and weights.",
    (_V, Label.RESIDENT, Label.ROLE, Label.DIGEST),
)  # fmt: skip
RESIDENT_UP = Metric("redline_resident_up", Kind.GAUGE, "1 while the resident is ready.", (_V,))
RESIDENT_RESTARTS = Metric(
    "redline_resident_restarts_total", Kind.COUNTER, "Engine processes restarted.", (_V,)
)
WEIGHT = Metric(
    "redline_route_weight_ratio", Kind.GAUGE, "Share of new sessions a resident gets.", (_V,)
)
ROUTE_EPOCH = Metric("redline_route_epoch", Kind.GAUGE, "Raised by each change of route.")
LEVEL = Metric(
    "redline_ladder_level", Kind.GAUGE, "The ladder's level, 0 is full.", (_V, Label.PART)
)
IN_FLIGHT = Metric("redline_requests_in_flight", Kind.GAUGE, "Requests being served.", (_V,))
WAITING = Metric("redline_engine_waiting", Kind.GAUGE, "Requests waiting in lanes.", (_V,))
BUSY = Metric("redline_engine_busy_seconds_total", Kind.COUNTER, "Time in engine steps.", (_V,))
STEPS = Metric("redline_engine_steps_total", Kind.COUNTER, "Engine steps.", (_V,))
SPEECH_SECONDS = Metric(
    "redline_speech_seconds_total", Kind.COUNTER, "Speech sent to clients.", (_V,)
)
UNDERRUN_SECONDS = Metric(
    "redline_playout_underrun_seconds_total", Kind.COUNTER,
    "Silence a listener to streamed speech, 0.1 s in store, would have heard.", (_V,),
)  # fmt: skip
TRACE_SPANS_DROPPED = Metric(
    "redline_trace_spans_dropped_total", Kind.COUNTER, "Spans of kept traces that were not sent."
)

# ------------------------------------------------------------------ control plane
LEADER_EPOCH = Metric("redline_control_leader_epoch", Kind.GAUGE, "Epoch of the leader's lease.")
WEBHOOKS = Metric(
    "redline_control_webhook_alerts_total", Kind.COUNTER,
    "Alerts received from Alertmanager.", (Label.RESULT,),
)  # fmt: skip
TRANSITIONS = Metric(
    "redline_control_transitions_total", Kind.COUNTER, "Ladder moves.", (_V, Label.PART)
)
ROLLOUT_PHASE = Metric(
    "redline_rollout_phase", Kind.GAUGE, "1 for the phase the rollout is in.", (Label.PHASE,)
)
ROLLBACKS = Metric("redline_rollbacks_total", Kind.COUNTER, "Rollbacks, verified or not.")
ROLLBACK_INCOMPLETE = Metric(
    "redline_rollback_incomplete", Kind.GAUGE,
    "1 while a rollback could not be proved complete.",
)  # fmt: skip
JOURNAL_WRITABLE = Metric(
    "redline_control_journal_writable", Kind.GAUGE,
    "0 where the journal took no write when last tried; absent before the first try.",
)  # fmt: skip
HEARTBEAT_AGE = Metric(
    "redline_control_watchdog_age_seconds", Kind.GAUGE,
    "Since the last Watchdog alert came; absent before the first.",
)  # fmt: skip

DATA_PLANE: tuple[Metric, ...] = (
    ENTROPY_THRESHOLD, RESIDENCY_HIT_MASS, RESIDENCY_LOOKUP_MASS, LIVE_BYTES, EVICTABLE_BYTES,
    HOST_BYTES, RESERVED_BYTES, DEVICE_BYTES, TABLE_ENTRIES, ALIAS_PAGES, ENTROPY_SUM,
    ENTROPY_COUNT, TOKEN_ENTROPY_SUM, TOKEN_ENTROPY_COUNT, PREFIX_HIT_TOKENS,
    PREFIX_LOOKUP_TOKENS, PREFIX_EVICTIONS, ENCODER_HITS, ENCODER_LOOKUPS, BLOCK_FILL, POOL_EPOCH,
    REUSE_ON, SHADOW_CHECKS, SHADOW_NATS, SHADOW_TOKENS, SHADOW_AGREED, SHADOW_TRIPS, FIRST_OUTPUT,
    OVERDUE, FAULTS, REQUESTS, FAULT_WINDOW_REQUESTS, FAULT_WINDOW_FAULTED,
    FAULT_WINDOW_BY_FAULT, DETECTOR_JUDGEMENTS, DETECTOR_CPU, BUILD_INFO, RESIDENT_INFO,
    RESIDENT_UP, RESIDENT_RESTARTS, WEIGHT, ROUTE_EPOCH, LEVEL, IN_FLIGHT, WAITING, BUSY, STEPS,
    SPEECH_SECONDS, UNDERRUN_SECONDS, TRACE_SPANS_DROPPED,
)  # fmt: skip
CONTROL_PLANE: tuple[Metric, ...] = (
    LEADER_EPOCH, WEBHOOKS, TRANSITIONS, ROLLOUT_PHASE, ROLLBACKS, ROLLBACK_INCOMPLETE,
    JOURNAL_WRITABLE, HEARTBEAT_AGE,
)  # fmt: skip
ALL: tuple[Metric, ...] = DATA_PLANE + CONTROL_PLANE


# ------------------------------------------------------------------ recording rules
@dataclass(frozen=True)
class Recorded:
    """One series derived by a recording rule, `level:metric:operation`; alerts compare these.

    `labels` are all it carries. Absent is unknown: a window without traffic has no ratio.
    """

    name: str
    help: str
    labels: tuple[Label, ...]
    table: Table
    column: str


_VM = (_V, Label.MILESTONE)

HIT_RATE_BY_CELL = Recorded(
    "version_layer_modality:redline_kv_residency:ratio",
    "Attention mass found on the device in time, share of the mass looked up.",
    (_V, _L, _M), Table.CACHE, "hit_rate",
)  # fmt: skip
HIT_RATE = Recorded(
    "version:redline_kv_residency:ratio",
    "The same over all layers and modalities, weighted by attention mass: the floor's value.",
    (_V,), Table.CACHE, "hit_rate",
)  # fmt: skip
LIVE_BYTES_BY_VERSION = Recorded(
    "version:redline_kv_live_bytes:sum",
    "Live device bytes over all layers and modalities: the memory line's value.",
    (_V,), Table.CACHE, "gpu_mem_gb",
)  # fmt: skip
FIRST_OUTPUT_P50 = Recorded(
    "version_milestone:redline_first_output_seconds:p50",
    "Interpolated, to look at; no alert compares it.", _VM, Table.LATENCY, "p50",
)  # fmt: skip
FIRST_OUTPUT_P95 = Recorded(
    "version_milestone:redline_first_output_seconds:p95",
    "Interpolated, to look at; no alert compares it.", _VM, Table.LATENCY, "p95",
)  # fmt: skip
FIRST_OUTPUT_P99 = Recorded(
    "version_milestone:redline_first_output_seconds:p99",
    "Interpolated, to look at; no alert compares it.", _VM, Table.LATENCY, "p99",
)  # fmt: skip
FIRST_OUTPUT_REQUESTS = Recorded(
    "version_milestone:redline_first_output:requests",
    "Requests that had their first output by the degrade line or crossed it, in the window.",
    _VM, Table.LATENCY, "requests",
)  # fmt: skip
OVERDUE_SHARE = Recorded(
    "version_milestone:redline_first_output_overdue:ratio",
    "Share of those that crossed the degrade line, with or without their output.",
    _VM, Table.LATENCY, "over",
)  # fmt: skip
SLOW_SHARE = Recorded(
    "version_milestone:redline_first_output_slow:ratio",
    "Share of those without their output by the first-packet line.", _VM, Table.LATENCY, "slow",
)  # fmt: skip
FAULT_RATE = Recorded(
    "version:redline_faulted:ratio", "Faulted requests, share of the ring.",
    (_V,), Table.FAULTS, "rate",
)  # fmt: skip
FAULT_RATE_BY_FAULT = Recorded(
    "version_fault:redline_faulted:ratio", "Requests with this hard fault, share of the ring.",
    (_V, Label.FAULT), Table.FAULTS, "rate",
)  # fmt: skip
RECORDED: tuple[Recorded, ...] = (
    HIT_RATE_BY_CELL, HIT_RATE, LIVE_BYTES_BY_VERSION, FIRST_OUTPUT_P50, FIRST_OUTPUT_P95,
    FIRST_OUTPUT_P99, FIRST_OUTPUT_REQUESTS, OVERDUE_SHARE, SLOW_SHARE, FAULT_RATE,
    FAULT_RATE_BY_FAULT,
)  # fmt: skip

_BASE_BOUNDS = (0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.15, 0.2, 0.234, 0.25, 0.3, 0.35, 0.4,
                0.5, 0.7, 1.0, 2.0, 5.0, 10.0)  # fmt: skip


def latency_bounds(lines: RedLines) -> tuple[float, ...]:
    """Histogram bounds, seconds: the usual 0.25 -> 0.5 jump is filled, every line is a bound."""
    extra = {lines.latency.first_packet_s, lines.latency.degrade_s}
    return tuple(sorted({*_BASE_BOUNDS, *extra}))


def bound_label(seconds: float) -> str:
    """A bound as Prometheus writes it in `le`, so that rules name the very same series."""
    return str(float(seconds))
