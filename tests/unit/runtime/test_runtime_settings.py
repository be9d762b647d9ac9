"""Settings that would only fail later stop the start, and say which they are."""

from typing import Any

import pytest
from pydantic import ValidationError

from runtime.settings import RuntimeSettings


def settings(**more: Any) -> RuntimeSettings:
    resident = {"name": "b", "version": "v1", "checkpoint": "/c"}
    given = {"state_dir": "/s", "residents": [resident], "stable": "b", **more}
    return RuntimeSettings.model_validate(given)


@pytest.mark.parametrize("endpoint", ["tempo:4318", "http://", "ftp://tempo", ""])
def test_a_trace_endpoint_that_is_no_http_url_is_named(endpoint: str) -> None:
    with pytest.raises(ValidationError, match=r"trace\.endpoint"):
        settings(trace={"endpoint": endpoint})
    assert settings(trace={"endpoint": "http://tempo:4318"}).trace.endpoint


def test_media_is_not_fetched_by_address_unless_somebody_says_so() -> None:
    assert settings().remote_media is False
