"""`redline explain REQUEST_ID`: what happened to one request."""

from typing import Annotated

import typer

from redline.options import StateDir, stack_of
from redline.sentences import fail
from redline.settings import STATE_DIR

RequestId = Annotated[
    str, typer.Argument(help="As `send`, X-Redline-Request, a log line or a trace tells it.")
]


def command(
    request_id: RequestId,
    as_json: Annotated[bool, typer.Option("--json", help="The whole record as JSON.")] = False,
    state_dir: StateDir = STATE_DIR,
) -> None:
    """Where a request's time went, what was found, how it ended and where its trace is."""
    import msgspec

    from redline import request_story
    from redline.client import ClientError

    try:
        record = request_story.fetch(stack_of(state_dir), request_id)
    except ClientError as err:
        fail(err)
    said = msgspec.json.encode(record).decode() if as_json else request_story.story(record)
    typer.echo(said)
