"""JSON logs, one line a record, for Loki. Never a prompt, media or an answer: ids only."""

import logging
from datetime import UTC, datetime
from typing import TextIO

import msgspec

CHATTY = {
    "httpx": logging.WARNING,  # a line for every call
    "apscheduler": logging.ERROR,  # ... and tick, and a warning for each that a long one delays
}
FIELDS = ("trace_id", "span_id", "request_id", "session", "resident")


class JsonFormatter(logging.Formatter):
    """`ts` (RFC 3339, UTC), `level`, `logger`, `message`, then those of `FIELDS` that are given.

    They are given as `logger.info("...", extra={"request_id": ...})`. Any other extra is left
    out, so that nothing a client said can slip into the logs by way of a field.
    """

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, str] = {
            "ts": _rfc3339(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line.update({f: str(v) for f in FIELDS if (v := getattr(record, f, None)) is not None})
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line).decode()


def configure(stream: TextIO, level: str = "INFO") -> None:
    """Send every logger of this process to `stream` as JSON. For composition roots only.

    `level` is a standard name; raises `ValueError` for another. Calling it again replaces the
    stream and level.
    """
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for name, lowest in CHATTY.items():
        logging.getLogger(name).setLevel(lowest)


def _rfc3339(seconds: float) -> str:
    moment = datetime.fromtimestamp(seconds, tz=UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
