"""Every series that a recording rule derives: what tables show and alerts compare."""

from dataclasses import dataclass
from enum import StrEnum

from monitors.metric import Label, Table


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


class Objective(StrEnum):
    """A red line as what the service promises; its error budget is the share that may miss."""

    CACHE = "cache_hit_rate"
    FIRST_PACKET = "first_packet"
    FAULTS = "faults"


_TABLES = {
    Objective.CACHE: Table.CACHE,
    Objective.FIRST_PACKET: Table.LATENCY,
    Objective.FAULTS: Table.FAULTS,
}
BUDGET_WINDOWS = ("30m", "6h", "3d")  # over which every objective's budget is looked at
BURN_PAGES = 6.0  # times as fast as a budget lasts, over the first two of these windows


def missed(objective: Objective, window: str) -> Recorded:
    """The share of all that counts for an objective which missed it, over a window."""
    return Recorded(
        f"service:redline_{objective}_bad:ratio{window}",
        f"Share of the service's {objective} that missed, of {window}.",
        (), _TABLES[objective], "",
    )  # fmt: skip


_VM = (Label.VERSION, Label.MILESTONE)

HIT_RATE_BY_CELL = Recorded(
    "version_layer_modality:redline_kv_residency:ratio",
    "Attention mass found on the device in time, share of the mass looked up.",
    (Label.VERSION, Label.LAYER, Label.MODALITY), Table.CACHE, "hit_rate",
)  # fmt: skip
HIT_RATE = Recorded(
    "version:redline_kv_residency:ratio",
    "The same over all layers and modalities, weighted by attention mass: the floor's value.",
    (Label.VERSION,), Table.CACHE, "hit_rate",
)  # fmt: skip
LIVE_BYTES_BY_VERSION = Recorded(
    "version:redline_kv_live_bytes:sum",
    "Live device bytes over all layers and modalities: the memory line's value.",
    (Label.VERSION,), Table.CACHE, "gpu_mem_gb",
)  # fmt: skip
FIRST_OUTPUT_P50 = Recorded(
    "version_milestone:redline_first_output_seconds:p50",
    "Interpolated between the histogram's bounds, to look at; no alert compares it.",
    _VM, Table.LATENCY, "p50_s",
)  # fmt: skip
FIRST_OUTPUT_P95 = Recorded(
    "version_milestone:redline_first_output_seconds:p95",
    "Interpolated between the histogram's bounds, to look at; no alert compares it.",
    _VM, Table.LATENCY, "p95_s",
)  # fmt: skip
FIRST_OUTPUT_P99 = Recorded(
    "version_milestone:redline_first_output_seconds:p99",
    "Interpolated between the histogram's bounds, to look at; no alert compares it.",
    _VM, Table.LATENCY, "p99_s",
)  # fmt: skip
FIRST_OUTPUT_REQUESTS = Recorded(
    "version_milestone:redline_first_output:requests",
    "Requests that had their first output by the degrade line or crossed it, in the window; "
    "extrapolated to its ends, as `increase` does.",
    _VM, Table.LATENCY, "requests",
)  # fmt: skip
OVERDUE_SHARE = Recorded(
    "version_milestone:redline_first_output_overdue:ratio",
    "Share of those that crossed the degrade line, with or without their output.",
    _VM, Table.LATENCY, "over_share",
)  # fmt: skip
SLOW_SHARE = Recorded(
    "version_milestone:redline_first_output_slow:ratio",
    "Share of those without their output by the first-packet line.",
    _VM, Table.LATENCY, "slow_share",
)  # fmt: skip
FAULT_RATE = Recorded(
    "version:redline_faulted:ratio", "Faulted requests, share of the ring.",
    (Label.VERSION,), Table.FAULTS, "rate",
)  # fmt: skip
FAULT_RATE_BY_FAULT = Recorded(
    "version_fault:redline_faulted:ratio", "Requests with this hard fault, share of the ring.",
    (Label.VERSION, Label.FAULT), Table.FAULTS, "rate",
)  # fmt: skip
RECORDED: tuple[Recorded, ...] = (
    HIT_RATE_BY_CELL, HIT_RATE, LIVE_BYTES_BY_VERSION, FIRST_OUTPUT_P50, FIRST_OUTPUT_P95,
    FIRST_OUTPUT_P99, FIRST_OUTPUT_REQUESTS, OVERDUE_SHARE, SLOW_SHARE, FAULT_RATE,
    FAULT_RATE_BY_FAULT,
)  # fmt: skip
BUDGETS: tuple[Recorded, ...] = tuple(
    missed(objective, window) for objective in Objective for window in BUDGET_WINDOWS
)
