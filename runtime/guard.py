"""Who may steer the data plane: whoever has the token, or this machine where there is none."""

import hmac
import ipaddress

from fastapi import Request

from runtime.openai_errors import ApiError


class Guard:
    """Guards `/control` and `/evidence`. `token` None: loopback clients only."""

    def __init__(self, token: str | None) -> None:
        self._token = token

    def require_operator(self, request: Request) -> None:
        """Raises `ApiError` (401 or 403) for anybody else."""
        if self._token is not None:
            if not self._holds_token(request):
                message = "this needs the control token: Authorization: Bearer TOKEN"
                raise ApiError(401, message, code="unauthorized")
        elif not _on_loopback(request):
            message = "without a control token this answers to loopback only; set control_token"
            raise ApiError(403, message, code="forbidden")
        elif "origin" in request.headers:
            message = "this is not for web pages; set control_token to use it from elsewhere"
            raise ApiError(403, message, code="forbidden")

    def may_see_details(self, request: Request) -> bool:
        """Whether the client is on this machine's loopback or holds the control token."""
        return _on_loopback(request) or self._holds_token(request)

    def _holds_token(self, request: Request) -> bool:
        if self._token is None:
            return False
        given = request.headers.get("authorization", "").encode()
        return hmac.compare_digest(given, f"Bearer {self._token}".encode())


def _on_loopback(request: Request) -> bool:
    if request.client is None:
        return False
    try:
        return ipaddress.ip_address(request.client.host).is_loopback
    except ValueError:
        return False
