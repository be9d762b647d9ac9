"""Media fetched by address: from public hosts alone, within limits, and refused in words."""

import asyncio
import ipaddress
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime import remote
from runtime.openai_errors import ApiError
from runtime.remote import Address, RemoteMedia, is_public
from tests.support import media

PNG = media.png()
LOOPBACK = ipaddress.ip_address("127.0.0.1")
FIELD = "messages.0.content.0.image_url"

Answer = Callable[[str], bytes]


def answer(status: str, body: bytes = b"", **headers: str) -> bytes:
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    head = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *lines]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


def moved(to: str) -> bytes:
    return answer("302 Found", Location=to)


class Site:
    """A web server on the loopback address that keeps what it was asked."""

    def __init__(self, answers: dict[str, bytes]) -> None:
        self.answers = answers
        self.asked: list[str] = []
        self.ended = asyncio.Semaphore(0)
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.asked.append(request)
        path = request.split(" ")[1]
        if path == "/hang":
            await reader.read()
        else:
            writer.write(self.answers.get(path, answer("404 Not Found")))
        writer.close()
        self.ended.release()

    async def wait_ended(self) -> None:
        """Until every connection is closed here too."""
        for _ in self.asked:
            await self.ended.acquire()


@asynccontextmanager
async def a_site(**answers: bytes) -> AsyncIterator[Site]:
    site = Site({f"/{name}": what for name, what in answers.items()})
    server = await asyncio.start_server(site.serve, "127.0.0.1", 0)
    async with server:
        site.port = server.sockets[0].getsockname()[1]
        yield site
        await site.wait_ended()


async def to_loopback(host: str) -> Sequence[Address]:
    return [LOOPBACK]


async def fetched(
    *urls: str, max_bytes: int = 1_000_000, resolve: Any = to_loopback, **options: Any
) -> dict[str, bytes]:
    given = {"resolve": resolve, "allowed": lambda address: address == LOOPBACK, **options}
    fetcher = RemoteMedia(max_bytes, **given)
    try:
        return await fetcher.fetch(dict.fromkeys(urls, FIELD))
    finally:
        await fetcher.close()


async def refusal(*urls: str, **options: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        await fetched(*urls, **options)
    assert caught.value.param == FIELD
    assert FIELD in caught.value.message
    return caught.value


async def test_a_public_address_is_fetched_under_its_own_name() -> None:
    async with a_site(a=answer("200 OK", PNG), b=answer("200 OK", b"b")) as site:
        base = f"http://media.example:{site.port}"
        assert await fetched(f"{base}/a", f"{base}/b") == {f"{base}/a": PNG, f"{base}/b": b"b"}
        assert f"host: media.example:{site.port}" in site.asked[0].lower()


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.9.9.9", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1",
        "169.254.169.254", "100.64.0.1", "224.0.0.1", "255.255.255.255", "::1", "::", "fe80::1",
        "fc00::1", "ff02::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1",
        "2002:7f00:1::", "2001:0:7f00:1::",
    ],
)  # fmt: skip
def test_an_address_that_only_we_can_reach_is_not_public(address: str) -> None:
    assert not is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize("address", ["93.184.215.14", "2606:4700::1111", "::ffff:8.8.8.8"])
def test_an_address_of_the_open_internet_is_public(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "2130706433", "[::1]", "0x7f000001", "localhost", "a..b", "a" * 70]
)
async def test_no_spelling_of_this_machine_is_fetched_from(host: str) -> None:
    async with a_site(a=answer("200 OK", PNG)) as site:
        url = f"http://{host}:{site.port}/a"
        error = await refusal(url, resolve=remote.resolve, allowed=is_public)
        assert error.status == 400
        assert site.asked == []


async def test_a_name_with_one_private_address_among_public_ones_is_refused() -> None:
    async def both(host: str) -> Sequence[Address]:
        return [LOOPBACK, ipaddress.ip_address("10.0.0.1")]

    async with a_site(a=answer("200 OK", PNG)) as site:
        error = await refusal(f"http://media.example:{site.port}/a", resolve=both)
        assert (error.status, error.code) == (400, "remote_media_refused")
        assert "'media.example' is not a public host" in error.message
        assert site.asked == []


async def test_a_name_that_resolves_to_another_place_the_second_time_is_asked_only_once() -> None:
    answers = iter([[LOOPBACK]])

    async def rebinding(host: str) -> Sequence[Address]:
        return next(answers)

    async with a_site(a=answer("200 OK", PNG)) as site:
        assert await fetched(f"http://media.example:{site.port}/a", resolve=rebinding)


async def test_a_redirect_is_followed_and_checked_like_the_first_address() -> None:
    async def by_name(host: str) -> Sequence[Address]:
        inside = ipaddress.ip_address("10.0.0.1")
        return [LOOPBACK if host.endswith(".example") else inside]

    async with a_site(a=moved("/b"), b=answer("200 OK", PNG), c=moved("http://inside/b")) as site:
        base = f"http://media.example:{site.port}"
        assert await fetched(f"{base}/a", resolve=by_name) == {f"{base}/a": PNG}
        assert (await refusal(f"{base}/c", resolve=by_name)).code == "remote_media_refused"


@pytest.mark.parametrize(
    ("location", "words"),
    [
        ("file:///etc/passwd", "redirects from http to file"),
        ("ftp://media.example/a", "redirects from http to ftp"),
        ("/again", "redirects more than 3 times"),
        ("http://[", "cannot be fetched"),
    ],
)
async def test_a_redirect_that_leads_elsewhere_is_not_followed(location: str, words: str) -> None:
    async with a_site(again=moved(location)) as site:
        error = await refusal(f"http://media.example:{site.port}/again")
        assert (error.status, words in error.message) == (400, True)


@pytest.mark.parametrize("url", ["http://", "http:///x", "ftp://a/x", "http://a:port/"])
async def test_what_is_no_http_address_is_refused(url: str) -> None:
    assert (await refusal(url)).code == "invalid_url"


async def nowhere(host: str) -> Sequence[Address]:
    raise OSError("Name or service not known")


NOWHERE = RemoteMedia(1_000, resolve=nowhere)


@given(rest=st.text(max_size=30))
@settings(max_examples=150, deadline=None)
def test_whatever_stands_in_a_url_is_an_error_to_the_client(rest: str) -> None:
    with pytest.raises(ApiError) as caught:
        asyncio.run(NOWHERE.fetch({f"http://{rest}": FIELD}))
    assert caught.value.status == 400


async def test_another_answer_than_ok_is_told() -> None:
    async with a_site() as site:
        error = await refusal(f"http://media.example:{site.port}/none")
        assert (error.status, "the answer is 404" in error.message) == (400, True)


async def test_a_host_that_cannot_be_found_or_reached_is_told() -> None:
    assert "Name or service" in (await refusal("http://nowhere.example/a", resolve=nowhere)).message
    async with a_site() as site:
        port = site.port
    assert (await refusal(f"http://media.example:{port}/a")).code == "remote_media_failed"


async def test_media_beyond_the_limit_is_not_read_to_its_end() -> None:
    async with a_site(a=answer("200 OK", PNG), b=answer("200 OK", PNG)) as site:
        base = f"http://media.example:{site.port}"
        error = await refusal(f"{base}/a", f"{base}/b", max_bytes=2 * len(PNG) - 1)
        assert (error.status, error.code) == (413, "body_too_large")
        assert "limits.body_bytes" in error.message


async def test_a_host_that_says_nothing_is_waited_for_only_so_long() -> None:
    async with a_site() as site:
        error = await refusal(f"http://media.example:{site.port}/hang", timeout_s=0.2)
        assert error.code in ("remote_media_timeout", "remote_media_failed")


async def test_a_proxy_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    async with a_site(a=answer("200 OK", PNG)) as site:
        assert await fetched(f"http://media.example:{site.port}/a")
