"""Media that a request only names by its address: fetched from the open internet, if at all.

Off by default (`remote_media`): a server that fetches what strangers name can be made to knock at
doors that only it can reach. So each address is resolved here, every answer must be a public one,
and the connection goes to that very answer, however the name resolves a moment later.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence

import httpx

from runtime.openai_errors import ApiError, bad_request

TIMEOUT_S = 10.0  # for all media of one request
MAX_REDIRECTS = 3

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolve = Callable[[str], Awaitable[Sequence[Address]]]

# An IPv4 address in here, of any kind, is reached through somebody's translator.
_TRANSLATED = tuple(map(ipaddress.ip_network, ("64:ff9b::/96", "2001::/32", "2002::/16")))


def is_public(address: Address) -> bool:
    """Whether it is out in the open: not this machine, its network or a cloud's own services."""
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return is_public(address.ipv4_mapped)
    translated = any(address in network for network in _TRANSLATED)
    return address.is_global and not address.is_multicast and not translated


async def resolve(host: str) -> Sequence[Address]:
    """Every address of a host, by the system's resolver. Raises `OSError`."""
    name = host.encode("ascii")  # as text it would be encoded once more, and some refused
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(name, None, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    return [ipaddress.ip_address(str(where[0]).partition("%")[0]) for *_, where in found]


class RemoteMedia:
    """Fetches media by address. `allowed`: which addresses may be connected to."""

    def __init__(
        self,
        max_bytes: int,
        *,
        resolve: Resolve = resolve,
        allowed: Callable[[Address], bool] = is_public,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._max_bytes = max_bytes
        self._resolve = resolve
        self._allowed = allowed
        self._timeout_s = timeout_s
        self._client = httpx.AsyncClient(
            timeout=timeout_s,
            trust_env=False,  # a proxy would resolve the name once more, by its own lights
            # Connections are opened to addresses: none may serve another host of the same one.
            limits=httpx.Limits(max_keepalive_connections=0),
        )

    async def fetch(self, wanted: Mapping[str, str]) -> dict[str, bytes]:
        """What is at each URL of `wanted`, which maps it to the request's field that names it.

        `max_bytes` is for all of them together. Raises `ApiError` (400 or 413) for the first
        that cannot be had.
        """
        fetched: dict[str, bytes] = {}
        try:
            async with asyncio.timeout(self._timeout_s):
                for url, param in wanted.items():
                    left = self._max_bytes - sum(map(len, fetched.values()))
                    fetched[url] = await self._follow(url, param, left)
        except TimeoutError as err:
            missing = [param for url, param in wanted.items() if url not in fetched]
            raise _failure(
                missing[0], f"was not there within {self._timeout_s:g} s", "remote_media_timeout"
            ) from err
        return fetched

    async def close(self) -> None:
        await self._client.aclose()

    async def _follow(self, url: str, param: str, max_bytes: int) -> bytes:
        """The body, over a few redirects: each is checked like the first address."""
        at = _parsed(url, param)
        for _ in range(MAX_REDIRECTS + 1):
            try:
                got = await self._get(at, param, max_bytes)
            except (httpx.HTTPError, httpx.InvalidURL, OSError) as err:
                raise _failure(param, f"cannot be fetched: {err or type(err).__name__}") from err
            if isinstance(got, bytes):
                return got
            if got.scheme != at.scheme and got.scheme != "https":
                raise _failure(param, f"redirects from {at.scheme} to {got.scheme or 'nowhere'}")
            at = _parsed(str(got), param)
        raise _failure(param, f"redirects more than {MAX_REDIRECTS} times")

    async def _get(self, url: httpx.URL, param: str, max_bytes: int) -> bytes | httpx.URL:
        """The body at one address, or where it redirects to."""
        connect_to = await self._checked(url, param)
        request = self._client.build_request(
            "GET",
            url.copy_with(host=str(connect_to)),
            headers={"Host": url.netloc.decode("ascii"), "Accept-Encoding": "identity"},
            extensions={"sni_hostname": _host(url)},  # certificates are checked for the name
        )
        answer = await self._client.send(request, stream=True)
        try:
            if answer.has_redirect_location:
                return url.join(answer.headers["location"])
            if answer.status_code != httpx.codes.OK:
                raise _failure(param, f"cannot be fetched: the answer is {answer.status_code}")
            return await _body(answer, param, max_bytes)
        finally:
            await answer.aclose()

    async def _checked(self, url: httpx.URL, param: str) -> Address:
        """The address to connect to. One that is not allowed among them, and none is."""
        found = await self._resolve(_host(url))
        refused = [address for address in found if not self._allowed(address)]
        if refused or not found:
            raise _failure(
                param,
                f"{_host(url)!r} is not a public host: only such are fetched from",
                "remote_media_refused",
            )
        return found[0]


async def _body(answer: httpx.Response, param: str, max_bytes: int) -> bytes:
    """As it came: what is packed would be unpacked without a limit."""
    body = bytearray()
    async for piece in answer.aiter_raw():
        body += piece
        if len(body) > max_bytes:
            message = f"{param}: with it, media is larger than limits.body_bytes: send less"
            raise ApiError(413, message, code="body_too_large", param=param)
    return bytes(body)


def _parsed(url: str, param: str) -> httpx.URL:
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as err:
        raise _failure(param, f"is not an address: {err}", "invalid_url") from err
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise _failure(param, "is not an http or https address with a host", "invalid_url")
    return parsed


def _host(url: httpx.URL) -> str:
    """As DNS and certificates write it."""
    return url.raw_host.decode("ascii")


def _failure(param: str, why: str, code: str = "remote_media_failed") -> ApiError:
    return bad_request(f"{param}: {why}", param=param, code=code)
