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
            given = request.headers.get("authorization", "").encode()
            if not hmac.compare_digest(given, f"Bearer {self._token}".encode()):
                message = "this needs the control token: Authorization: Bearer TOKEN"
                raise ApiError(401, message, code="unauthorized")
        elif request.client is None or not _is_loopback(request.client.host):
            message = "without a control token this answers to loopback only; set control_token"
            raise ApiError(403, message, code="forbidden")
        elif "origin" in request.headers:
            message = "this is not for web pages; set control_token to use it from elsewhere"
            raise ApiError(403, message, code="forbidden")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
