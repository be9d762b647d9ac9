"""Every metric Redline exports, typed in one place: nothing outside it reaches `/metrics`.

Names follow OpenMetrics (base units, `_total` on counters). Ratios and quantiles are not
exported: they are recording rules (`monitors/recorded.py`). An unknown value is an absent series.
"""

from monitors.metric import Kind, Label, Metric, Table, Unit
from monitors.redlines import RedLines

_V, _L, _M = Label.VERSION, Label.LAYER, Label.MODALITY

# ------------------------------------------------------------------ table 1: cache (S4.1)
ENTROPY_THRESHOLD = Metric(
    "redline_kv_entropy_threshold_nats", Kind.GAUGE,
    "Reuse threshold on the cross-modal attention entropy; absent where reuse is off.",
    (_V, _L, _M), Table.CACHE, "entropy_th", unit=Unit.NATS,
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
    (_V, _L, _M), Table.CACHE, "gpu_mem_gb", unit=Unit.BYTES,
)  # fmt: skip
EVICTABLE_BYTES = Metric(
    "redline_kv_evictable_bytes", Kind.GAUGE,
    "Bytes of device pages that only the prefix cache holds.", (_V, _M), unit=Unit.BYTES,
)  # fmt: skip
HOST_BYTES = Metric(
    "redline_kv_host_bytes", Kind.GAUGE, "Bytes of pages in host memory.", (_V, _M), unit=Unit.BYTES
)
RESERVED_BYTES = Metric(
    "redline_kv_reserved_bytes",
    Kind.GAUGE,
    "Bytes the pool holds allocated in all.",
    (_V,),
    unit=Unit.BYTES,
)
DEVICE_BYTES = Metric(
    "redline_kv_device_bytes", Kind.GAUGE,
    "Bytes the engine holds of its accelerator, by the device's own allocator.", (_V,),
    unit=Unit.BYTES,
)  # fmt: skip
TABLE_ENTRIES = Metric(
    "redline_kv_table_entries", Kind.GAUGE, "Page-table entries of running requests.", (_V,)
)
ALIAS_PAGES = Metric(
    "redline_kv_alias_pages", Kind.GAUGE,
    "Page-table entries that point at the layer below (S1.2).", (_V, _L, _M),
)  # fmt: skip
ENTROPY_SUM = Metric(
    "redline_kv_entropy_nats_total", Kind.COUNTER,
    "Sum of the cross-modal attention entropy over computed tokens.", (_V, _L, _M), unit=Unit.NATS,
)  # fmt: skip
ENTROPY_COUNT = Metric(
    "redline_kv_entropy_tokens_total", Kind.COUNTER,
    "Computed tokens whose cross-modal attention entropy was defined.", (_V, _L, _M),
    unit=Unit.TOKENS,
)  # fmt: skip
TOKEN_ENTROPY_SUM = Metric(
    "redline_kv_token_entropy_nats_total", Kind.COUNTER,
    "Sum of the entropy of attention to other modalities' tokens over sampled tokens.",
    (_V, _M), unit=Unit.NATS,
)  # fmt: skip
TOKEN_ENTROPY_COUNT = Metric(
    "redline_kv_token_entropy_tokens_total", Kind.COUNTER,
    "Sampled tokens whose entropy of attention to other modalities' tokens was defined.",
    (_V, _M), unit=Unit.TOKENS,
)  # fmt: skip
PREFIX_HIT_TOKENS = Metric(
    "redline_kv_prefix_hit_tokens_total", Kind.COUNTER,
    "Prompt tokens restored from the prefix cache.", (_V,), unit=Unit.TOKENS,
)  # fmt: skip
PREFIX_LOOKUP_TOKENS = Metric(
    "redline_kv_prefix_lookup_tokens_total", Kind.COUNTER,
    "Prompt tokens looked up in the prefix cache.", (_V,), unit=Unit.TOKENS,
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
    "redline_kv_block_fill_ratio",
    Kind.GAUGE,
    "Share of the slots of live blocks in use.",
    (_V,),
    unit=Unit.RATIO,
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
    "redline_kv_shadow_nats_total", Kind.COUNTER,
    "Sum of those answers' mean divergences from full KV.", (_V,), unit=Unit.NATS,
)  # fmt: skip
SHADOW_TOKENS = Metric(
    "redline_kv_shadow_tokens_total",
    Kind.COUNTER,
    "Tokens of those answers.",
    (_V,),
    unit=Unit.TOKENS,
)
SHADOW_AGREED = Metric(
    "redline_kv_shadow_agreed_tokens_total", Kind.COUNTER,
    "Of those tokens, the ones that are the likeliest on full KV too.", (_V,), unit=Unit.TOKENS,
)  # fmt: skip
SHADOW_TRIPS = Metric(
    "redline_kv_shadow_trips_total", Kind.COUNTER,
    "Times that the shadow check turned reuse off.", (_V,),
)  # fmt: skip

# ------------------------------------------------------------------ table 2: latency (S4.2)
FIRST_OUTPUT = Metric(
    "redline_first_output_seconds", Kind.HISTOGRAM,
    "From the last input byte a first output depends on to its first byte leaving the socket.",
    (_V, Label.MILESTONE), Table.LATENCY, "count", unit=Unit.SECONDS,
)  # fmt: skip
OVERDUE = Metric(
    "redline_first_output_overdue_total", Kind.COUNTER,
    "Requests past the degrade line, counted when they cross it, with or without the output.",
    (_V, Label.MILESTONE), Table.LATENCY, "over",
)  # fmt: skip

# ------------------------------------------------------------------ table 3: faults (S4.3)
FAULTS = Metric(
    "redline_faults_total", Kind.COUNTER, "Faults found: those of one rule once for each look.",
    (_V, Label.FAULT, Label.GRADE, Label.ORIGIN), Table.FAULTS, "count",
)  # fmt: skip
REQUESTS = Metric(
    "redline_requests_total", Kind.COUNTER,
    "Finished requests by outcome, also of those that ended before they reached a resident.",
    (_V, Label.OUTCOME), Table.FAULTS, "answered",
)  # fmt: skip
SERVED_REQUESTS = Metric(
    "redline_served_requests_total", Kind.COUNTER,
    "Finished requests that had reached a resident: what went into the ring.",
    (_V,), Table.FAULTS, "finished",
)  # fmt: skip
FAULTED_REQUESTS = Metric(
    "redline_faulted_requests_total", Kind.COUNTER,
    "Of those, the ones with a hard fault of ours, failed or lost: what burns the error budget.",
    (_V,),
)  # fmt: skip
FAULT_WINDOW_REQUESTS = Metric(
    "redline_fault_window_requests", Kind.GAUGE,
    "Requests in the ring of the last 10,000 finished ones.", (_V,), Table.FAULTS, "requests",
)  # fmt: skip
FAULT_WINDOW_FAULTED = Metric(
    "redline_fault_window_faulted", Kind.GAUGE,
    "Requests in that ring by the worst that was found of them; hard: failed and lost ones too.",
    (_V, Label.MARK), Table.FAULTS, "faulted, soft, input_only",
)  # fmt: skip
FAULT_WINDOW_BY_FAULT = Metric(
    "redline_fault_window_faults", Kind.GAUGE,
    "Requests in that ring by the worst that was found of them of this fault.",
    (_V, Label.FAULT, Label.MARK), Table.FAULTS, "faulted, soft, input_only",
)  # fmt: skip
FAULT_WINDOW_BOUND = Metric(
    "redline_fault_window_bound_ratio", Kind.GAUGE,
    "Ends of the exact 95 % interval of the hard rate that the ring is a sample of (ADR 25).",
    (_V, Label.BOUND), Table.FAULTS, "rate_low, rate_high", unit=Unit.RATIO,
)  # fmt: skip
FAULT_WINDOW_BOUND_BY_FAULT = Metric(
    "redline_fault_window_fault_bound_ratio", Kind.GAUGE,
    "The same of each fault.",
    (_V, Label.FAULT, Label.BOUND), Table.FAULTS, "rate_low, rate_high", unit=Unit.RATIO,
)  # fmt: skip

DETECTOR_JUDGEMENTS = Metric(
    "redline_detector_judgements_total", Kind.COUNTER,
    "What each detector said of each item it examined; abstained: it could not tell; failed: it "
    "is broken.",
    (Label.DETECTOR, Label.JUDGEMENT),
)  # fmt: skip
DETECTOR_CPU = Metric(
    "redline_detector_cpu_seconds_total",
    Kind.COUNTER,
    "Processor time that each detector took.",
    (Label.DETECTOR,),
    unit=Unit.SECONDS,
)

# ------------------------------------------------------------------ data plane
BUILD_INFO = Metric("redline_build", Kind.INFO, "The running build.", (Label.BUILD,))
RESIDENT_INFO = Metric(
    "redline_resident", Kind.INFO,
    "Join on version for name, role, weights, pool epoch and rung.",
    (_V, Label.RESIDENT, Label.ROLE, Label.DIGEST, Label.EPOCH, Label.RUNG),
)  # fmt: skip
SHOWS_TABLE = Metric(
    "redline_resident_shows_table", Kind.GAUGE,
    "1 where the resident's engine can show the table, 0 where not; absent until it is ready.",
    (_V, Label.TABLE),
)  # fmt: skip
RESIDENT_UP = Metric("redline_resident_up", Kind.GAUGE, "1 while the resident is ready.", (_V,))
RESIDENT_RESTARTS = Metric(
    "redline_resident_restarts_total", Kind.COUNTER, "Engine processes restarted.", (_V,)
)
WEIGHT = Metric(
    "redline_route_weight_ratio",
    Kind.GAUGE,
    "Share of new sessions a resident gets.",
    (_V,),
    unit=Unit.RATIO,
)
ROUTE_EPOCH = Metric("redline_route_epoch", Kind.GAUGE, "Raised by each change of route.")
LEVEL = Metric(
    "redline_ladder_level",
    Kind.GAUGE,
    "The ladder's level, 0 is full.",
    (_V, Label.PART, Label.SESSION_CLASS),
)
IN_FLIGHT = Metric("redline_requests_in_flight", Kind.GAUGE, "Requests being served.", (_V,))
WAITING = Metric("redline_engine_waiting", Kind.GAUGE, "Requests waiting in lanes.", (_V,))
BUSY = Metric(
    "redline_engine_busy_seconds_total",
    Kind.COUNTER,
    "Time spent in engine steps.",
    (_V,),
    unit=Unit.SECONDS,
)
STEPS = Metric("redline_engine_steps_total", Kind.COUNTER, "Engine steps.", (_V,))
SPEECH_SECONDS = Metric(
    "redline_speech_seconds_total",
    Kind.COUNTER,
    "Speech sent to clients.",
    (_V,),
    unit=Unit.SECONDS,
)
UNDERRUN_SECONDS = Metric(
    "redline_playout_underrun_seconds_total", Kind.COUNTER,
    "Silence a listener to streamed speech, 0.1 s in store, would have heard.", (_V,),
    unit=Unit.SECONDS,
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
NOTICES = Metric(
    "redline_control_notices_total", Kind.COUNTER,
    "Notices of rollouts: taken by a receiver, to be repeated, or given up (refused).",
    (Label.RESULT,),
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
WAY_BACK = Metric(
    "redline_rollout_way_back_ready", Kind.GAUGE,
    "0 while the version that a rollback would give everybody cannot serve; "
    "absent unless a rollout has given everybody to another.",
)  # fmt: skip
JOURNAL_WRITABLE = Metric(
    "redline_control_journal_writable", Kind.GAUGE,
    "0 where the journal took no write when last tried; absent before the first try.",
)  # fmt: skip
RULES_EMBEDDED = Metric(
    "redline_control_rules_embedded", Kind.GAUGE,
    "1 while the rules are evaluated by the control plane: Prometheus is absent or silent.",
)  # fmt: skip
HEARTBEAT_AGE = Metric(
    "redline_control_watchdog_age_seconds", Kind.GAUGE,
    "Since the last Watchdog alert came; absent before the first.", unit=Unit.SECONDS,
)  # fmt: skip

DATA_PLANE: tuple[Metric, ...] = (
    ENTROPY_THRESHOLD, RESIDENCY_HIT_MASS, RESIDENCY_LOOKUP_MASS, LIVE_BYTES, EVICTABLE_BYTES,
    HOST_BYTES, RESERVED_BYTES, DEVICE_BYTES, TABLE_ENTRIES, ALIAS_PAGES, ENTROPY_SUM,
    ENTROPY_COUNT, TOKEN_ENTROPY_SUM, TOKEN_ENTROPY_COUNT, PREFIX_HIT_TOKENS,
    PREFIX_LOOKUP_TOKENS, PREFIX_EVICTIONS, ENCODER_HITS, ENCODER_LOOKUPS, BLOCK_FILL, POOL_EPOCH,
    REUSE_ON, SHADOW_CHECKS, SHADOW_NATS, SHADOW_TOKENS, SHADOW_AGREED, SHADOW_TRIPS, FIRST_OUTPUT,
    OVERDUE, FAULTS, REQUESTS, SERVED_REQUESTS, FAULTED_REQUESTS, FAULT_WINDOW_REQUESTS,
    FAULT_WINDOW_FAULTED, FAULT_WINDOW_BY_FAULT, FAULT_WINDOW_BOUND, FAULT_WINDOW_BOUND_BY_FAULT,
    DETECTOR_JUDGEMENTS, DETECTOR_CPU, BUILD_INFO, RESIDENT_INFO, SHOWS_TABLE, RESIDENT_UP,
    RESIDENT_RESTARTS, WEIGHT, ROUTE_EPOCH, LEVEL, IN_FLIGHT, WAITING, BUSY, STEPS,
    SPEECH_SECONDS, UNDERRUN_SECONDS, TRACE_SPANS_DROPPED,
)  # fmt: skip
CONTROL_PLANE: tuple[Metric, ...] = (
    LEADER_EPOCH, WEBHOOKS, NOTICES, TRANSITIONS, ROLLOUT_PHASE, ROLLBACKS, ROLLBACK_INCOMPLETE,
    WAY_BACK, JOURNAL_WRITABLE, HEARTBEAT_AGE, RULES_EMBEDDED,
)  # fmt: skip
ALL: tuple[Metric, ...] = DATA_PLANE + CONTROL_PLANE


_BASE_BOUNDS = (0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.15, 0.2, 0.234, 0.25, 0.3, 0.35, 0.4,
                0.5, 0.7, 1.0, 2.0, 5.0, 10.0)  # fmt: skip


def latency_bounds(lines: RedLines) -> tuple[float, ...]:
    """Histogram bounds, seconds: the usual 0.25 -> 0.5 jump is filled, every line is a bound."""
    extra = {lines.latency.first_packet_s, lines.latency.degrade_s}
    return tuple(sorted({*_BASE_BOUNDS, *extra}))


def bound_label(seconds: float) -> str:
    """A bound as Prometheus writes it in `le`, so that rules name the very same series."""
    return str(float(seconds))
