"""Errors in OpenAI's form, for every route that clients call."""

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from pydantic import ValidationError
from starlette.exceptions import HTTPException

_TYPES = {429: "rate_limit_error", 401: "authentication_error", 403: "permission_error"}
INTERNAL_ERROR = "internal_error"


class ApiError(Exception):
    """An answer that is an error. `retry_after_s`: the same request may be sent again after so
    long; None: it would fail again."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str,
        param: str | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.param = param
        self.retry_after_s = retry_after_s

    def body(self, request_id: str | None = None) -> Mapping[str, Mapping[str, Any]]:
        """`{"error": {"message", "type", "param", "code"}}`, and our own id of the request.

        Where it may be sent again the error also has `"retryable": true` and `retry_after_s`: in
        the middle of a stream there is no header any more.
        """
        kind = _TYPES.get(
            self.status, "server_error" if self.status >= 500 else "invalid_request_error"
        )
        error: dict[str, Any] = {
            "message": self.message,
            "type": kind,
            "param": self.param,
            "code": self.code,
        }
        if self.retry_after_s is not None:
            error |= {"retryable": True, "retry_after_s": self.retry_after_s}
        if request_id is None:
            return {"error": error}
        return {"error": error, "redline": {"request_id": request_id}}

    def response(self, request_id: str | None = None) -> JSONResponse:
        headers = {} if self.retry_after_s is None else {"Retry-After": str(self.retry_after_s)}
        headers |= {} if request_id is None else id_headers(request_id)
        return JSONResponse(self.body(request_id), self.status, headers)


def id_headers(request_id: str) -> dict[str, str]:
    """What `redline explain` is asked for; OpenAI's clients show the second."""
    return {"X-Redline-Request": request_id, "X-Request-Id": request_id}


def bad_request(message: str, *, param: str | None = None, code: str = "invalid_value") -> ApiError:
    """A 400: the client can mend it."""
    return ApiError(400, message, code=code, param=param)


def from_validation(err: ValidationError) -> ApiError:
    """The first complaint about a request's JSON, with the field it is about."""
    first = err.errors(include_url=False, include_context=False, include_input=False)[0]
    if first["type"] == "json_invalid":
        return bad_request(f"the body is not JSON: {first['msg']}", code="invalid_json")
    param = ".".join(str(part) for part in first["loc"]) or None
    message = f"{param}: {first['msg']}" if param else first["msg"]
    if first["type"] == "extra_forbidden":
        return bad_request(
            f"{param}: not supported here; remove it", param=param, code="unknown_parameter"
        )
    return bad_request(message, param=param)


def install(app: FastAPI) -> None:
    """Answer every error of this app in OpenAI's form."""

    async def api(request: Request, err: Exception) -> JSONResponse:
        assert isinstance(err, ApiError)
        return err.response(_id_of(request))

    async def http(request: Request, err: Exception) -> JSONResponse:
        assert isinstance(err, HTTPException)
        message = f"{request.method} {request.url.path}: {err.detail}"
        code = {404: "not_found", 405: "method_not_allowed"}.get(err.status_code, "http_error")
        answer = ApiError(err.status_code, message, code=code).response()
        answer.headers.update(err.headers or {})
        return answer

    async def unforeseen(request: Request, err: Exception) -> JSONResponse:
        message = "an error of the server's own; its log has the details"
        return ApiError(500, message, code=INTERNAL_ERROR).response(_id_of(request))

    app.add_exception_handler(ApiError, api)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(Exception, unforeseen)


def _id_of(request: Request) -> str | None:
    """The request's id, where the route gave it one."""
    return getattr(request.state, "request_id", None)
