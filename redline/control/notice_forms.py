"""A notice as its receivers take it: the body of one POST."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from alerts.notify import Form
from redline.control.notices import Notice

_MOST_TEXT = 2_900  # Slack takes 3,000 characters of a section, and 150 of a head
_MOST_HEAD = 145


def body(form: Form, notice: Notice) -> bytes:
    """JSON, whatever the form."""
    return msgspec.json.encode(_FORMS[form](notice))


def _plain(notice: Notice) -> dict[str, Any]:
    return {"source": "redline", **msgspec.structs.asdict(notice)}


def _slack(notice: Notice) -> dict[str, Any]:
    """`text` is what a phone shows of it, and all that a receiver without blocks does."""
    when = datetime.fromtimestamp(notice.wall, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    blocks = [
        {"type": "header", "text": {"type": "plain_text", "text": _cut(notice.title, _MOST_HEAD)}},
        *([_section("\n".join(f"• {each}" for each in notice.details))] if notice.details else []),
        {
            "type": "context",
            "elements": [
                _text(f"{notice.event} by {notice.actor}, {when}, entry {notice.id} of the journal")
            ],
        },
    ]
    return {"text": _escaped(notice.title), "blocks": blocks}


def _section(text: str) -> dict[str, Any]:
    return {"type": "section", "text": _text(text)}


def _text(text: str) -> dict[str, str]:
    return {"type": "mrkdwn", "text": _cut(_escaped(text), _MOST_TEXT)}


def _escaped(text: str) -> str:
    """Slack's three, or a reason that somebody gave could mention a channel."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."


_FORMS: dict[Form, Callable[[Notice], dict[str, Any]]] = {Form.JSON: _plain, Form.SLACK: _slack}
