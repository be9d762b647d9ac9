"""One request's story as text, from what the gateway remembers of it."""

from collections.abc import Iterator
from datetime import UTC, datetime
from urllib.parse import quote

from monitors.contract import (
    FaultFound,
    Level,
    LineCrossed,
    MilestoneReached,
    RequestFinished,
    ResidencySampled,
)
from monitors.labels import Keep, Stage
from monitors.requests import Leg, RequestRecord, StageTime
from monitors.rungs import word
from redline.client import ask
from redline.settings import Stack

Row = tuple[float, str]  # seconds after the first byte, and what was then

_WORTH_TELLING_S = 0.001
_STAGES = {
    Stage.RECEIVE: "the body came in",
    Stage.FETCH: "its media was fetched",
    Stage.DECODER_QUEUE: "waited for a decoder",
    Stage.DECODE_MEDIA: "its media was decoded",
    Stage.QUEUE: "waited in the engine's lanes",
    Stage.ENCODE: "encoders",
    Stage.PREFILL: "prefill",
    Stage.DECODE: "decode loop",
    Stage.TALKER: "Talker",
    Stage.VOCODER: "vocoder",
}


def fetch(stack: Stack, request_id: str) -> RequestRecord:
    """What the gateway remembers. Raises `ClientError`, for an unknown id with how far back it
    remembers, and `ValueError` for what can be no id."""
    if request_id in ("", ".", "..") or not request_id.isprintable():
        raise ValueError(f"{request_id!r} is no request's id: see X-Redline-Request, or a log line")
    named = quote(request_id, safe="")  # whatever it is, it is asked of this route
    return ask(stack, "GET", f"{stack.runtime_url}/requests/{named}", RequestRecord)


def fetch_wrong(stack: Stack, why: Keep | None) -> list[RequestRecord]:
    """The last requests with something wrong, newest first. Raises `ClientError`."""
    query = "" if why is None else f"?why={why}"
    return ask(stack, "GET", f"{stack.runtime_url}/requests{query}", list[RequestRecord])


def listing(records: list[RequestRecord]) -> str:
    """A line each: the id, when, where, how it ended and what was wrong."""
    return "\n".join(map(_line, records)) or "none that the gateway remembers"


def _line(record: RequestRecord) -> str:
    where = record.legs[-1].version if record.legs else "nowhere"
    rules = ", ".join(dict.fromkeys(fault.rule for fault in record.faults()))
    wrong = ", ".join(record.wrong) + (f" ({rules})" if rules else "")
    words = (record.request_id, _moment(record.received), where, str(record.outcome), wrong)
    return _plain("  ".join(words))


def story(record: RequestRecord) -> str:
    """The whole of it as text."""
    facts = "\n".join(_plain(f"{name:18s} {value}") for name, value in _facts(record))
    rows = "\n".join(_plain(f"{_ms(at):>12s}  {what}") for at, what in timeline(record))
    found = "\n".join(map(_plain, _found(record)))
    return "\n\n".join(part for part in (facts, rows, found) if part)


def timeline(record: RequestRecord) -> list[Row]:
    """Everything that happened, in time."""
    rows = [(0.0, "received")]
    rows += map(_stage, record.stages)
    for leg in record.legs:
        rows += _leg_rows(leg)
    if record.told is not None:
        rows.append((record.told.at_s, f"told its client {_told(record)}"))
    if record.ended_s is not None:
        rows.append((record.ended_s, "over"))
    return sorted(rows, key=lambda row: row[0])


def _leg_rows(leg: Leg) -> Iterator[Row]:
    yield leg.boarded_s, f"routed to {leg.resident} ({leg.version})"
    if leg.departed_s is not None:
        yield leg.departed_s, f"handed to {leg.resident}"
    yield from map(_stage, leg.stages)
    for noted in leg.noted:
        words = _noted(noted.body, leg.resident)
        if words is not None:
            yield noted.at_s, words


def _stage(stage: StageTime) -> Row:
    took = stage.ended_s - stage.began_s
    all_of_it = stage.busy_s is None or took - stage.busy_s < _WORTH_TELLING_S
    busy = "" if all_of_it else f", of which {_ms(stage.busy_s or 0.0)} work"
    return stage.began_s, f"{_STAGES[stage.stage]}: {_ms(took)}{busy}"


def _noted(body: object, resident: str) -> str | None:
    match body:
        case MilestoneReached():
            return f"{body.milestone}: {_ms(body.seconds)} after the last input byte"
        case LineCrossed():
            return f"PAST THE LINE of {_ms(body.line_s)}: {body.milestone}"
        case FaultFound():
            return f"{body.grade.upper()} FAULT {body.fault} ({body.rule})"
        case RequestFinished():
            counted = ", counted as faulted" if body.faulted else ""
            return f"{resident} was done with it: {body.outcome}{counted}"
        case _:
            return None


# ---------------------------------------------------------------- facts
def _facts(record: RequestRecord) -> Iterator[tuple[str, str]]:
    yield "request", record.request_id
    if record.session is not None:
        yield "session", record.session
    yield "outcome", _ending(record)
    yield "received", _moment(record.received)
    if record.operator:
        yield "traffic", "an operator's own: no table and no verdict counts it"
    for leg in record.legs:
        yield "served by", f"{leg.version} on {leg.resident}, {_epochs(leg)}"
        yield "level", level_words(leg.level)
    yield "fidelity", _fidelity(record)
    yield from _cache(record)
    yield "client was told", _told(record)
    yield "trace", _trace(record)
    yield "log lines", f'those with its id; in Loki {{job="redline"}} |= "{record.request_id}"'


def _ending(record: RequestRecord) -> str:
    if record.outcome is None or record.ended_s is None:
        return "under way"
    return f"{record.outcome}, after {_ms(record.ended_s)}"


def _epochs(leg: Leg) -> str:
    pool = "unknown" if leg.pool_epoch is None else leg.pool_epoch
    return f"route epoch {leg.route_epoch}, pool epoch {pool}"


def level_words(level: Level) -> str:
    """All parts of the ladder's vector, by their names."""
    parts = level.__struct_fields__
    return ", ".join(f"{part} {word(getattr(level, part))}" for part in parts)


def _fidelity(record: RequestRecord) -> str:
    asked = "unknown" if record.asked is None else word(record.asked.media)
    media = "none was decoded" if record.media is None else word(record.media)
    kv = record.legs[-1].kv if record.legs else None
    return f"asked {asked}; media {media}; KV {'unknown' if kv is None else word(kv)}"


def _cache(record: RequestRecord) -> Iterator[tuple[str, str]]:
    usage = record.usage
    if usage is not None:
        yield (
            "tokens",
            (
                f"{usage.prompt_tokens} in, {usage.cached_tokens} of them from the cache; "
                f"{usage.completion_tokens} out, then {usage.text_reason}"
            ),
        )
    for noted in record.noted():
        body = noted.body
        if isinstance(body, ResidencySampled):
            name = "all" if body.modality is None else body.modality
            state = "" if body.warm else ", pool still cold"
            yield f"residency, {name}", f"{_share(body)}{state}"


def _share(sample: ResidencySampled) -> str:
    masses = f"{sample.hit_mass:.2f} of {sample.lookup_mass:.2f} attention mass"
    if not sample.lookup_mass:
        return masses
    return f"{sample.hit_mass / sample.lookup_mass:.1%}: {masses}"


def _told(record: RequestRecord) -> str:
    told = record.told
    if told is None:
        return "nothing yet"
    if told.status is None:
        return "nothing: it was gone"
    return f"{told.status}" if told.code is None else f"{told.status}, error {told.code}"


def _trace(record: RequestRecord) -> str:
    trace = record.trace
    if trace is None:
        return "tracing is off here; `redline up --otlp URL` turns it on"
    if trace.keep is None:
        return f"{trace.trace_id}, kept or not when the request has ended"
    if not trace.keep:
        return f"{trace.trace_id}, not kept: nothing was wrong, and it is not in the sample"
    return f"{trace.trace_id}, kept for: {', '.join(trace.keep)}; open it in Tempo by this id"


# ---------------------------------------------------------------- findings
def _found(record: RequestRecord) -> Iterator[str]:
    for fault in record.faults():
        yield f"{fault.grade} {fault.fault}, origin {fault.origin}, by {fault.detector}"
        yield f"  {fault.rule}: {fault.detail}{_evidence(fault)}"
    for leg in record.legs:
        if leg.examined:
            said = (f"{e.detector} {e.judgement}{_why(e.why)}" for e in leg.examined)
            yield f"detectors on {leg.resident}: {'; '.join(said)}"
        if leg.unnoted:
            yield f"{leg.unnoted} more entries on {leg.resident} are in /evidence alone"


def _evidence(fault: FaultFound) -> str:
    """Where, and how much of what is allowed."""
    unit = f" {fault.unit}" if fault.unit else ""
    known = [
        "" if fault.at_ms is None else f"at {fault.at_ms:,.0f} ms",
        "" if fault.value is None else f"measured {fault.value:g}{unit}",
        "" if fault.limit is None else f"limit {fault.limit:g}{unit}",
    ]
    words = ", ".join(word for word in known if word)
    return f" ({words})" if words else ""


def _why(why: str) -> str:
    return f" ({why})" if why else ""


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:,.0f} ms"


def _moment(wall: float) -> str:
    return datetime.fromtimestamp(wall, tz=UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + " UTC"


def _plain(line: str) -> str:
    """For a terminal: clients choose the names of their sessions, down to control characters."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in line)
