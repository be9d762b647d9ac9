"""The engine dashboard: how loaded the engines are, and what their KV pools hold."""

from grafana_foundation_sdk.models import dashboard

from dashboards.page import Row, cell_variables, page, version_variable
from dashboards.panels import (
    AMBER,
    BYTES,
    GREEN,
    NATS,
    PER_SECOND,
    PLAIN,
    SECONDS,
    SHARE,
    Column,
    Panel,
    below,
    chosen,
    curves,
    everything,
    figure,
    names,
    over_time,
    rows_by,
)
from monitors import catalog
from monitors.detectors.playout import PREBUFFER_S
from monitors.labels import Judgement
from monitors.metric import Label, Metric
from monitors.redlines import RedLines

UID = "redline-engine"


def build(lines: RedLines) -> dashboard.Dashboard:
    """The page of whoever tunes an engine or sizes its pool."""
    return page(
        UID,
        "Redline: engine",
        "How loaded the engines are, what their KV pools hold, and what reuse finds.",
        [
            Row("Load", [utilisation(lines), steps(), requests()]),
            Row(
                "What the pool holds",
                [tiers(), prefix_hits(), encoder_hits(), evictions(), fill(), reuse()],
            ),
            Row("What reuse finds", [entropy(), aliases(), shadow()]),
            Row("What listeners hear", [underruns(), restarts()]),
            Row("What the detectors say", [detectors()]),
        ],
        [version_variable(), *cell_variables()],
    )


# ---------------------------------------------------------------- load
def utilisation(lines: RedLines) -> Panel:
    shed, resume = lines.scheduler.shed_utilisation, lines.scheduler.resume_utilisation
    return curves(
        "Utilisation",
        "Busy step time over wall time. Low-priority work is shed above "
        f"{shed:.0%} until it is back under {resume:.0%} (S2.4).",
        [over_time(_rate("version", catalog.BUSY), "{{version}}")],
        SHARE,
        below(shed, resume),
        width=8,
    ).max(1)


def steps() -> Panel:
    return curves(
        "Engine steps",
        "Steps a second. Busy with few steps: long prefills, or a slow engine.",
        [over_time(_rate("version", catalog.STEPS), "{{version}}")],
        PER_SECOND,
        width=8,
    )


def requests() -> Panel:
    return curves(
        "Requests in the engine",
        "Being served, and waiting in the lanes for their turn.",
        [
            over_time(_sum("version", catalog.IN_FLIGHT), "in flight {{version}}", "A"),
            over_time(_sum("version", catalog.WAITING), "waiting {{version}}", "B"),
        ],
        PLAIN,
        width=8,
    )


# ---------------------------------------------------------------- the pool
def tiers() -> Panel:
    parts = (
        ("live", catalog.LIVE_BYTES),
        ("evictable", catalog.EVICTABLE_BYTES),
        ("on the host", catalog.HOST_BYTES),
        ("reserved", catalog.RESERVED_BYTES),
    )
    return curves(
        "KV bytes",
        "Live pages are in use or pinned; evictable ones only the prefix cache holds; reserved is "
        "all that the pool holds allocated. A chosen layer narrows live bytes alone.",
        [
            over_time(_sum("version", metric), f"{part} {{{{version}}}}", ref)
            for ref, (part, metric) in zip("ABCD", parts, strict=True)
        ],
        BYTES,
    )


def prefix_hits() -> Panel:
    return curves(
        "Prefix hits",
        "Share of the prompt tokens that came from the prefix cache. Not part of the hit rate of "
        "table 1, which is residency.",
        [
            over_time(
                _ratio("version", catalog.PREFIX_HIT_TOKENS, catalog.PREFIX_LOOKUP_TOKENS),
                "{{version}}",
            )
        ],
        SHARE,
    ).max(1)


def encoder_hits() -> Panel:
    return curves(
        "Encoder outputs found",
        "Share of the media slices asked for whose encoder output was kept: a new question about "
        "an old clip spares its encoders.",
        [
            over_time(
                _ratio("version", catalog.ENCODER_HITS, catalog.ENCODER_LOOKUPS), "{{version}}"
            )
        ],
        SHARE,
    ).max(1)


def evictions() -> Panel:
    return curves(
        "Evictions",
        "Blocks a second that the prefix cache gave up for room, those worth least first.",
        [over_time(_rate("version", catalog.PREFIX_EVICTIONS), "{{version}}")],
        PER_SECOND,
    )


def fill() -> Panel:
    expr = f"min by (version) ({chosen(catalog.BLOCK_FILL)})"
    return curves(
        "Slots of live blocks in use",
        "Blocks hold one modality each: short runs leave them part-filled.",
        [over_time(expr, "{{version}}")],
        SHARE,
        width=18,
        height=6,
    ).max(1)


def reuse() -> Panel:
    expr = f"min ({chosen(catalog.REUSE_ON)})"
    return figure(
        "Entropy-driven reuse",
        "Off where a checkpoint is not calibrated for sharing, or the shadow check tripped it.",
        expr,
        PLAIN,
        width=6,
        height=6,
    ).mappings(names({0: ("off somewhere", AMBER), 1: ("on", GREEN)}))


# ---------------------------------------------------------------- reuse
def entropy() -> Panel:
    by = "version, modality"
    threshold = f"max by ({by}) ({chosen(catalog.ENTROPY_THRESHOLD)})"
    return curves(
        "Cross-modal attention entropy",
        "Mean over computed tokens, beside the threshold under which a token's K/V may be reused "
        "(S1.2, S1.3). No threshold: reuse is off.",
        [
            over_time(
                _ratio(by, catalog.ENTROPY_SUM, catalog.ENTROPY_COUNT),
                "{{modality}} {{version}}",
                "A",
            ),
            over_time(threshold, "threshold {{modality}} {{version}}", "B"),
        ],
        NATS,
    )


def aliases() -> Panel:
    by = "version, modality"
    share = (
        f"{_sum(by, catalog.ALIAS_PAGES)}"
        f" / on (version) group_left () {_sum('version', catalog.TABLE_ENTRIES)}"
    )
    return curves(
        "Alias rate",
        "Share of all page-table entries of running requests that point at the layer below (S1.2).",
        [over_time(share, "{{modality}} {{version}}")],
        SHARE,
    )


def shadow() -> Panel:
    return curves(
        "Shadow check",
        "How far answers under reuse are from full KV, in nats a token, over the answers that were "
        "computed again; and how often that turned reuse off.",
        [
            over_time(
                _ratio("version", catalog.SHADOW_NATS, catalog.SHADOW_CHECKS),
                "divergence {{version}}",
                "A",
            ),
            over_time(_sum("version", catalog.SHADOW_TRIPS), "trips {{version}}", "B"),
        ],
        NATS,
        width=24,
        height=6,
    )


# ---------------------------------------------------------------- output
def underruns() -> Panel:
    return curves(
        "Silence heard in speech",
        "Seconds of underrun in streamed answers for each second of speech sent, for a listener "
        f"with {PREBUFFER_S:g} s in store.",
        [
            over_time(
                _ratio("version", catalog.UNDERRUN_SECONDS, catalog.SPEECH_SECONDS), "{{version}}"
            )
        ],
        SHARE,
    )


def restarts() -> Panel:
    expr = f"max by (version) ({chosen(catalog.RESIDENT_RESTARTS)})"
    return curves(
        "Engine restarts",
        "Engine processes that died and were started again, since the gateway started.",
        [over_time(expr, "{{version}}")],
        PLAIN,
    )


def detectors() -> Panel:
    """Table 3 trusts them: one that only abstains, or that is silent, proves nothing."""
    said = everything(catalog.DETECTOR_JUDGEMENTS)
    examined = f"sum by (detector) (increase({said}[$__range]))"
    cpu = f"sum by (detector) (increase({everything(catalog.DETECTOR_CPU)}[$__range]))"
    return rows_by(
        "Detectors",
        "Items examined in the chosen time, by what was said of them. Abstained: it could not tell "
        "(a clip too short, a voice it was never fitted to); that is not clean. Failed: it is "
        "broken, and the log says where; requests go on without it.",
        {"detector": "detector"},
        [
            *(
                Column(judgement, _said(judgement), PLAIN, 0)
                for judgement in (
                    Judgement.HARD,
                    Judgement.SOFT,
                    Judgement.ABSTAINED,
                    Judgement.FAILED,
                )
            ),
            Column("examined", examined, PLAIN, 0),
            Column("processor time of each", f"{cpu} / ({examined} > 0)", SECONDS, 4),
        ],
        width=24,
        height=8,
    )


# ---------------------------------------------------------------- expressions
def _said(judgement: Judgement) -> str:
    matcher = f'{Label.JUDGEMENT}="{judgement}"'
    said = everything(catalog.DETECTOR_JUDGEMENTS, matcher)
    return f"sum by (detector) (increase({said}[$__range]))"


def _sum(by: str, metric: Metric) -> str:
    return f"sum by ({by}) ({chosen(metric)})"


def _rate(by: str, metric: Metric) -> str:
    return f"sum by ({by}) (rate({chosen(metric)}[$__rate_interval]))"


def _ratio(by: str, part: Metric, whole: Metric) -> str:
    """Nothing where `whole` did not move: an idle engine's ratio is unknown, not 0."""
    return f"{_rate(by, part)} / ({_rate(by, whole)} > 0)"
