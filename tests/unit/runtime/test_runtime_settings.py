"""Settings that would only fail later stop the start, and say which they are."""

from typing import Any

import pytest
from pydantic import ValidationError

from runtime.settings import RuntimeSettings


def settings(resident: dict[str, Any] | None = None, **more: Any) -> RuntimeSettings:
    residents = [{"name": "b", "version": "v1", "checkpoint": "/c", **(resident or {})}]
    given = {"state_dir": "/s", "residents": residents, "stable": "b", **more}
    return RuntimeSettings.model_validate(given)


@pytest.mark.parametrize("endpoint", ["tempo:4318", "http://", "ftp://tempo", ""])
def test_a_trace_endpoint_that_is_no_http_url_is_named(endpoint: str) -> None:
    with pytest.raises(ValidationError, match=r"trace\.endpoint"):
        settings(trace={"endpoint": endpoint})
    assert settings(trace={"endpoint": "http://tempo:4318"}).trace.endpoint


def test_media_is_not_fetched_by_address_unless_somebody_says_so() -> None:
    assert settings().remote_media is False


@pytest.mark.parametrize("device", ["auto", "cpu", "cuda", "cuda:1"])
def test_a_resident_can_be_told_where_to_run(device: str) -> None:
    (resident,) = settings({"device": device}).residents
    assert resident.device == device


@pytest.mark.parametrize("device", ["gpu", "cuda:", "cuda:x", "CPU", "tpu", ""])
def test_a_device_that_no_engine_runs_on_is_named(device: str) -> None:
    with pytest.raises(ValidationError, match=r"residents\.0\.device"):
        settings({"device": device})


def test_an_engine_picks_its_device_unless_somebody_says_which() -> None:
    assert settings().residents[0].device == "auto"


def test_content_that_would_go_nowhere_stops_the_start() -> None:
    with pytest.raises(ValidationError, match="needs an endpoint"):
        settings(trace={"capture_content": True})
    assert not settings().trace.capture_content
