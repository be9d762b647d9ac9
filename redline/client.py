"""HTTP from the command line to a running stack, with errors a person can act on."""

from collections.abc import Mapping
from typing import Any

import httpx
import msgspec

from redline.settings import Stack


class ClientError(RuntimeError):
    """The stack did not answer, or refused; the message says which and what to do."""


def call(
    stack: Stack,
    method: str,
    url: str,
    body: "msgspec.Struct | Mapping[str, Any] | None" = None,
    timeout_s: float = 30.0,
) -> bytes:
    """The answer's body. Raises `ClientError` where there is none or it is a refusal."""
    content = None if body is None else msgspec.json.encode(body)
    headers = {"Authorization": f"Bearer {stack.token}", "Content-Type": "application/json"}
    try:
        answer = httpx.request(method, url, content=content, headers=headers, timeout=timeout_s)
    except httpx.HTTPError as err:
        raise ClientError(
            f"{url} does not answer ({err}); is the stack up? `redline up` starts one"
        ) from err
    if answer.status_code >= 400:
        raise ClientError(f"refused ({answer.status_code}): {reason(answer)}")
    return answer.content


class _Worded(msgspec.Struct):
    message: str


class _Failure(msgspec.Struct):
    """Both forms of an error: OpenAI's, and the control routes' `Refusal`."""

    error: _Worded | str


def reason(answer: httpx.Response) -> str:
    """Why the stack refused, in its own words."""
    try:
        error = msgspec.json.decode(answer.content, type=_Failure).error
    except msgspec.DecodeError:
        return answer.text[:500]
    return error if isinstance(error, str) else error.message
