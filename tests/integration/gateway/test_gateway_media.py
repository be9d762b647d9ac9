"""Media on its way through the gateway: fetched by address where allowed, held within bounds."""

import asyncio
import base64
import ipaddress
from pathlib import Path
from typing import Any

import httpx

from runtime.remote import RemoteMedia
from runtime.settings import MediaLimits
from tests.support import media
from tests.support.gateway import B, Gateway, running_gateway, settings_for, until

PNG = media.png(64, 64)
SLOW_S = 0.6  # longer than every latency line
PICTURE_BYTES = 64 * 64 * 3


def picture(url: str) -> list[dict[str, Any]]:
    content = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "hi"}]
    return [{"role": "user", "content": content}]


def inline() -> str:
    return f"data:image/png;base64,{base64.b64encode(PNG).decode()}"


async def ask(gateway: Gateway, url: str, **more: Any) -> httpx.Response:
    body = {"model": "redline", "messages": picture(url), **more}
    return await gateway.client.post("/v1/chat/completions", json=body)


async def serve_slowly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    await asyncio.sleep(SLOW_S)
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(PNG)}\r\nConnection: close\r\n\r\n"
    writer.write(head.encode() + PNG)
    writer.close()
    await writer.wait_closed()


async def test_media_named_by_its_address_is_fetched_and_no_resident_is_blamed_for_the_wait(
    tmp_path: Path,
) -> None:
    loopback = ipaddress.ip_address("127.0.0.1")
    remote = RemoteMedia(1_000_000, allowed=lambda address: address == loopback)
    site = await asyncio.start_server(serve_slowly, "127.0.0.1", 0)
    port = site.sockets[0].getsockname()[1]
    async with site, running_gateway(settings_for(tmp_path), remote=remote) as gateway:
        answer = await ask(gateway, f"http://127.0.0.1:{port}/a.png", max_tokens=1)
        assert answer.status_code == 200, answer.text
        assert answer.json()["usage"]["prompt_tokens"] == 2, "a word and a picture"
        assert answer.json()["redline"]["first_output_s"]["first_token"] < SLOW_S
        assert gateway.bodies("line") == []


async def test_with_the_setting_only_public_hosts_are_fetched_from(tmp_path: Path) -> None:
    async with running_gateway(settings_for(tmp_path, remote_media=True)) as gateway:
        port = gateway.client.base_url.port
        answer = await ask(gateway, f"http://127.0.0.1:{port}/metrics")
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "remote_media_refused")
        assert answer.json()["error"]["param"] == "messages.0.content.0.image_url"
        assert gateway.plane.in_flight(B) == 0


async def test_decoded_media_in_flight_is_bounded_and_uploads_are_let_go(tmp_path: Path) -> None:
    limits = MediaLimits(held_bytes=2 * PICTURE_BYTES)
    async with running_gateway(settings_for(tmp_path, limits=limits)) as gateway:
        await gateway.drill(B, "slow", amount=30.0)
        held = [asyncio.create_task(ask(gateway, inline(), stream=True)) for _ in range(2)]
        flights = gateway.app.state.flights
        await until(lambda: [f.held_bytes for f in flights.on(B)] == [PICTURE_BYTES] * 2)
        assert all(not f.ask.files and not f.ask.chat.messages for f in flights.on(B))
        crowded = await ask(gateway, inline())
        assert (crowded.status_code, crowded.json()["error"]["code"]) == (503, "overloaded")
        assert "limits.held_bytes" in crowded.json()["error"]["message"]
        assert "Retry-After" in crowded.headers
        for task in held:
            task.cancel()
        await until(lambda: gateway.plane.in_flight(B) == 0)
        await gateway.drill(B, "slow", seconds=0.0)
        assert (await ask(gateway, inline())).status_code == 200
