"""JSON logs, one line a record, for Loki. Never a prompt, media or an answer: ids only."""

import logging
import traceback
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import TextIO

import msgspec

CHATTY = {
    "httpx": logging.WARNING,  # a line for every call
    "apscheduler": logging.ERROR,  # ... and tick, and a warning for each that a long one delays
}
FIELDS = ("trace_id", "span_id", "request_id", "session", "resident")
# Errors whose words are the system's own. Any other may quote what it choked on.
QUOTES_NOTHING = (OSError, MemoryError)
QUOTE_NOTHING = frozenset({"OutOfMemoryError", "AcceleratorError", "PoolExhausted"})  # by name
LEFT_OUT = "(its words are left out: they may quote the request)"

_about: ContextVar[Callable[[], Mapping[str, str]] | None] = ContextVar("about", default=None)


def about(fields: Callable[[], Mapping[str, str]]) -> None:
    """From here on, lines of this task and of those it starts carry what `fields` gives then."""
    _about.set(fields)


class JsonFormatter(logging.Formatter):
    """`ts` (RFC 3339, UTC), `level`, `logger`, `message`, then those of `FIELDS` that are known.

    They are known from `logger.info("...", extra={"request_id": ...})`, from `about`, or for the
    whole process from `always`. Any other extra is left out, so that nothing a client said can
    slip into the logs by way of a field; and on a line about a request, an exception shows where
    it was raised and its kind, but its words only where they cannot quote the request.
    """

    def __init__(self, always: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self._always = always or {}

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, str] = {
            "ts": _rfc3339(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= self._known(record)
        if record.exc_info and record.exc_info[1] is not None:
            whole = "request_id" not in line
            line["exception"] = (
                self.formatException(record.exc_info) if whole else _guarded(record.exc_info[1])
            )
        return msgspec.json.encode(line).decode()

    def _known(self, record: logging.LogRecord) -> dict[str, str]:
        fields = _about.get()
        known = {**self._always, **({} if fields is None else fields())}
        known |= {f: str(v) for f in FIELDS if (v := getattr(record, f, None)) is not None}
        return {field: known[field] for field in FIELDS if field in known}


def configure(stream: TextIO, level: str = "INFO", **always: str) -> None:
    """Send every logger of this process, and its warnings, to `stream` as JSON. For composition
    roots only. `always`: those of `FIELDS` that hold for all of its lines.

    `level` is a standard name; raises `ValueError` for another. Calling it again replaces the
    stream, level and fields.
    """
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter(always))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.captureWarnings(True)
    for name, lowest in CHATTY.items():
        logging.getLogger(name).setLevel(lowest)


def _guarded(err: BaseException) -> str:
    """A traceback with the errors' own words only where they are the system's."""
    lines: list[str] = []
    cause = err.__cause__ or (None if err.__suppress_context__ else err.__context__)
    if cause is not None:
        lines += [_guarded(cause), "which led to:\n"]
    lines += traceback.format_tb(err.__traceback__)
    kind = type(err).__name__
    safe = isinstance(err, QUOTES_NOTHING) or kind in QUOTE_NOTHING
    return "".join([*lines, f"{kind}: {err if safe else LEFT_OUT}\n"])


def _rfc3339(seconds: float) -> str:
    moment = datetime.fromtimestamp(seconds, tz=UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
