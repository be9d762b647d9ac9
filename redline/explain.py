"""`redline explain [REQUEST_ID]`: what happened to one request, or which ones to ask about."""

import json
from enum import StrEnum
from typing import Annotated

import typer

from monitors.labels import Keep
from redline.options import StateDir, stack_of
from redline.sentences import fail
from redline.settings import STATE_DIR

BAD_USAGE = 2

RequestId = Annotated[
    str | None,
    typer.Argument(
        help="As `send`, X-Redline-Request, a log line or a trace tells it. Without one: the last "
        "requests with something wrong."
    ),
]


class Wrong(StrEnum):
    """What may be wrong with a request."""

    LINE = Keep.LINE.value
    FAULT = Keep.FAULT.value
    OUTCOME = Keep.OUTCOME.value


Why = Annotated[Wrong | None, typer.Option("--why", help="Without an id: only those.")]


def command(
    request_id: RequestId = None,
    why: Why = None,
    as_json: Annotated[bool, typer.Option("--json", help="The whole as JSON.")] = False,
    state_dir: StateDir = STATE_DIR,
) -> None:
    """Where a request's time went, what was found, how it ended and where its trace is."""
    import msgspec

    from redline import request_story as stories
    from redline.client import ClientError

    if request_id is not None and why is not None:
        fail("--why chooses among requests: give it without an id", code=BAD_USAGE)
    stack = stack_of(state_dir)
    try:
        if request_id is None:
            found = stories.fetch_wrong(stack, None if why is None else Keep(why))
            said = stories.listing(found)
        else:
            found = stories.fetch(stack, request_id)
            said = stories.story(found)
    except ClientError as err:
        fail(err)
    except ValueError as err:
        fail(err, code=BAD_USAGE)
    typer.echo(json.dumps(msgspec.to_builtins(found)) if as_json else said)
