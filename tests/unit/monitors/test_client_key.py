"""A client's key: never itself, always the same digest, and lists of them that mean one thing."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitors.client_key import CanaryClients, digest_of, of_headers
from monitors.contract import Route

ROUTE = {"leader_epoch": 1, "route_epoch": 1, "stable": "b", "canary": "a"}


@given(st.text(), st.text())
def test_a_digest_is_the_same_for_one_key_and_another_for_another(one: str, other: str) -> None:
    assert (digest_of(one) == digest_of(other)) is (one == other)
    clients = CanaryClients(allow=(digest_of(one),))
    assert msgspec.json.decode(msgspec.json.encode(clients), type=CanaryClients) == clients


@pytest.mark.parametrize(
    ("header", "key"),
    [
        ("Bearer sk-1", "sk-1"),
        ("bearer   sk-1 ", "sk-1"),
        ("Bearer ", None),
        ("Bearer", None),
        ("Basic abc", None),
        ("", None),
    ],
)
def test_a_key_is_what_the_client_shows_as_a_bearer(header: str, key: str | None) -> None:
    assert of_headers({"authorization": header}) == (None if key is None else digest_of(key))


def test_without_the_header_there_is_no_key() -> None:
    assert of_headers({}) is None


@pytest.mark.parametrize(
    "lists",
    [
        {"allow": []},  # an empty selector never means all
        {"allow": ["sk-in-clear"]},
        {"deny": [digest_of("x").upper()]},
        {"deny": [digest_of(str(i)) for i in range(501)]},
        {"block": []},
    ],
)
def test_lists_that_could_mean_something_else_are_refused_and_never_quoted(lists: Any) -> None:
    body = msgspec.json.encode({**ROUTE, "clients": lists})
    with pytest.raises(msgspec.ValidationError) as refused:
        msgspec.json.decode(body, type=Route)
    assert "sk-in-clear" not in str(refused.value)


def test_a_route_without_lists_is_for_everybody() -> None:
    route = msgspec.json.decode(msgspec.json.encode(ROUTE), type=Route)
    assert route.clients.admit(None)
    assert route.clients.admit(digest_of("anybody"))
