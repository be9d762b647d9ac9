"""Answers and reports made by hand."""

from collections.abc import Sequence
from typing import Any

from monitors.contract import KvRung, Level
from runtime.quality.score import Answer, KvUse, Report, score
from runtime.quality.tasks import Kind


def answer(
    number: int, text: str = "red", *, right: str = "red", nats: float = 0.1, spoken: Any = None
) -> Answer:
    return Answer(number=number, right=right, text=text, nats=nats, spoken=spoken)


def report(answers: Sequence[Answer], **changes: Any) -> Report:
    """Of one task, `Kind.IMAGE`."""
    use = KvUse(
        rule="off: native",
        eligible=None,
        aliased=0,
        aliased_share=None,
        bytes_per_token=2000.0,
        native_bytes_per_token=2000.0,
    )
    fields: dict[str, Any] = {
        "version": "v1",
        "weights_digest": "0123456789abcdef",
        "policy": "native",
        "kv": KvRung.NATIVE,
        "rung": 0,
        "level": Level(),
        "seconds": 8,
        "count": len(answers),
        "seed": 0,
        "speech": False,
        "kv_use": use,
        "tasks": (score(Kind.IMAGE, answers),),
    }
    return Report(**(fields | changes))
