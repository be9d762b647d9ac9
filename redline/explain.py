"""`redline explain [REQUEST_ID]`: what happened to one request, or which ones to ask about."""

from typing import Annotated

import typer

from monitors.labels import Keep
from redline.options import StateDir, stack_of
from redline.sentences import fail
from redline.settings import STATE_DIR

RequestId = Annotated[
    str | None,
    typer.Argument(
        help="As `send`, X-Redline-Request, a log line or a trace tells it. Without one: the last "
        "requests with something wrong."
    ),
]
Why = Annotated[Keep | None, typer.Option("--why", help="Without an id: only those.")]


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

    stack = stack_of(state_dir)
    try:
        if request_id is None:
            found = stories.fetch_wrong(stack, why)
            said = stories.listing(found)
        else:
            found = stories.fetch(stack, request_id)
            said = stories.story(found)
    except ClientError as err:
        fail(err)
    typer.echo(msgspec.json.encode(found).decode() if as_json else said)
