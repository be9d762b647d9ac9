"""HTTP from the command line to a running stack, with errors a person can act on."""

from typing import TypeVar

import httpx
import msgspec

from redline.settings import Stack

T = TypeVar("T")


class ClientError(RuntimeError):
    """The stack did not answer, or refused; the message says which and what to do."""


class RefusedError(ClientError):
    """The stack answered that it will not: nothing was done. `status`: HTTP's."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(f"refused ({status}): {reason}")
        self.status = status


def ask(
    stack: Stack,
    method: str,
    url: str,
    answer: type[T],
    body: msgspec.Struct | None = None,
    timeout_s: float = 30.0,
) -> T:
    """The answer as an `answer`. Raises `ClientError` where there is none or it is a refusal."""
    found = _accepted(stack, method, url, body, timeout_s)
    try:
        return msgspec.json.decode(found.content, type=answer)
    except msgspec.DecodeError as err:
        raise ClientError(f"{url} is no Redline of this version: {err}") from err


def tell(
    stack: Stack,
    method: str,
    url: str,
    body: msgspec.Struct | None = None,
    timeout_s: float = 30.0,
) -> None:
    """For an answer without a body. Raises `ClientError` where there is none or it is a refusal."""
    _accepted(stack, method, url, body, timeout_s)


def _accepted(
    stack: Stack, method: str, url: str, body: msgspec.Struct | None, timeout_s: float
) -> httpx.Response:
    found = _call(stack, method, url, body, timeout_s)
    if found.status_code >= 400:
        raise RefusedError(found.status_code, reason(found))
    return found


def _call(
    stack: Stack, method: str, url: str, body: msgspec.Struct | None, timeout_s: float
) -> httpx.Response:
    content = None if body is None else msgspec.json.encode(body)
    headers = {"Authorization": f"Bearer {stack.token}", "Content-Type": "application/json"}
    try:
        # No proxy of the environment's: it would be shown the token.
        return httpx.request(
            method, url, content=content, headers=headers, timeout=timeout_s, trust_env=False
        )
    except httpx.TimeoutException as err:
        raise ClientError(
            f"{url} has not answered within {timeout_s:.0f} s and may still be at it: "
            "see `redline status`"
        ) from err
    except (httpx.HTTPError, httpx.InvalidURL) as err:
        raise ClientError(
            f"{url} does not answer ({err}); is the stack up? `redline up` starts one"
        ) from err


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
