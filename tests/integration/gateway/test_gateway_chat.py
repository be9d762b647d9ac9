"""Answers over real sockets and a real engine process: whole and streamed, text and speech."""

import asyncio
import base64
import io
import json
import wave
from typing import Any

import numpy as np
import pytest

from monitors.labels import Milestone
from tests.support import media
from tests.support.gateway import B, Gateway, events_of, until

pytestmark = pytest.mark.asyncio(loop_scope="package")

SPEECH = {"modalities": ["text", "audio"], "audio": {"voice": "ethan"}}
USAGE = {"stream": True, "stream_options": {"include_usage": True}}


def deltas(events: list[Any]) -> list[dict[str, Any]]:
    return [event["choices"][0]["delta"] for event in events if event["choices"]]


async def test_a_whole_answer_has_text_usage_and_who_gave_it(shared: Gateway) -> None:
    answer = await shared.chat("hello you", max_tokens=3)
    assert answer.status_code == 200
    body = answer.json()
    choice = body["choices"][0]
    assert choice["message"]["content"] == "v1 w1 w2 "
    assert choice["finish_reason"] == "stop"
    assert "audio" not in choice["message"]
    assert body["usage"]["completion_tokens"] == 3
    assert answer.headers["X-Redline-Version"] == "v1"
    assert answer.headers["X-Redline-Level"] == "full"
    assert body["redline"]["request_id"] == answer.headers["X-Redline-Request"]
    assert body["redline"]["first_output_s"]["first_token"] > 0.0
    assert body["redline"]["first_output_s"]["first_audio_packet"] is None


async def test_a_whole_answer_with_speech_carries_a_wav_file(shared: Gateway) -> None:
    body = (await shared.chat("speak", max_tokens=3, **SPEECH)).json()
    message = body["choices"][0]["message"]
    with wave.open(io.BytesIO(base64.b64decode(message["audio"]["data"]))) as file:
        assert (file.getframerate(), file.getnchannels(), file.getnframes()) == (24_000, 1, 2_880)
    assert message["audio"]["transcript"] == message["content"]


async def test_a_stream_gives_text_and_pcm_deltas_then_a_reason_usage_and_done(
    shared: Gateway,
) -> None:
    answer = await shared.chat("speak", max_tokens=3, **USAGE, **SPEECH)
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = events_of(answer.text)
    said = deltas(events)
    assert said[0]["role"] == "assistant"
    assert "".join(delta.get("content", "") for delta in said) == "v1 w1 w2 "
    sound = b"".join(base64.b64decode(delta["audio"]["data"]) for delta in said if "audio" in delta)
    pcm = np.frombuffer(sound, "<i2")
    assert len(pcm) == 3 * 2 * 480
    assert np.abs(pcm).max() > 7_000
    reasons = [e["choices"][0]["finish_reason"] for e in events if e["choices"]]
    assert [reason for reason in reasons if reason] == ["stop"]
    assert events[-1]["choices"] == []
    assert events[-1]["usage"]["total_tokens"] == 1 + 3
    times = events[-1]["redline"]["first_output_s"]
    assert times["first_token"] > 0.0
    assert times["first_audio_packet"] >= times["first_token"]


async def test_usage_is_left_out_of_a_stream_unless_it_is_asked_for(shared: Gateway) -> None:
    events = events_of((await shared.chat("hello", stream=True)).text)
    assert all("usage" not in event for event in events)


async def test_an_answer_cut_at_its_limit_says_length(shared: Gateway) -> None:
    body = (await shared.chat("go @long")).json()
    assert body["choices"][0]["finish_reason"] == "length"


async def test_the_same_prompt_again_is_found_in_the_cache(shared: Gateway) -> None:
    cached = [
        (await shared.chat("a prompt of its own")).json()["usage"]["prompt_tokens_details"]
        for _ in range(2)
    ]
    assert [details["cached_tokens"] for details in cached] == [0, 5]


async def test_clients_with_other_credentials_do_not_share_the_cache(shared: Gateway) -> None:
    for key in ("one", "two"):
        answer = await shared.chat("a secret", headers={"Authorization": f"Bearer {key}"})
        assert answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


async def test_a_multipart_upload_reaches_the_engine_with_its_video_milestone(
    shared: Gateway,
) -> None:
    content = [
        {"type": "video_url", "video_url": {"url": "attachment:clip.mp4"}},
        {"type": "text", "text": "What do you see?"},
    ]
    request = {"model": "redline", "messages": [{"role": "user", "content": content}], **USAGE}
    files = {"file": ("clip.mp4", media.clip(seconds=2.0, width=160, height=120))}
    answer = await shared.client.post(
        "/v1/chat/completions", files=files, data={"request": json.dumps(request)}
    )
    assert answer.status_code == 200, answer.text
    times = events_of(answer.text)[-1]["redline"]["first_output_s"]
    assert times["first_video_frame"] is not None
    assert times["first_video_frame"] <= times["first_token"]


async def test_low_latency_is_the_clients_own_wish(shared: Gateway) -> None:
    url = f"data:image/png;base64,{base64.b64encode(media.png(640, 480)).decode()}"
    picture = [{"type": "image_url", "image_url": {"url": url}}]
    body = {"model": "redline", "messages": [{"role": "user", "content": picture}]}
    for wish in ("full", "low_latency"):
        answer = await shared.client.post(
            "/v1/chat/completions", json=body, headers={"X-Redline-Fidelity": wish}
        )
        # Another fidelity is another picture to the engine: it cannot be in its cache.
        assert answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


async def test_the_evidence_has_each_milestone_and_one_ending(shared: Gateway) -> None:
    answer = await shared.chat("evidence", **SPEECH, headers={"X-Redline-Session": "s-1"})
    request_id = answer.headers["X-Redline-Request"]
    batch = (await shared.client.get("/evidence")).json()
    mine = [e for e in batch["entries"] if e["request_id"] == request_id]
    assert {e["session"] for e in mine} == {"s-1"}
    assert {e["version"] for e in mine} == {"v1"}
    reached = [e["body"]["milestone"] for e in mine if e["body"]["type"] == "milestone"]
    assert sorted(reached) == [Milestone.FIRST_AUDIO_PACKET, Milestone.FIRST_TOKEN]
    (ending,) = [e["body"] for e in mine if e["body"]["type"] == "finished"]
    assert (ending["outcome"], ending["prompt_tokens"]) == ("ok", 1)


async def test_the_long_poll_answers_when_something_happens(shared: Gateway) -> None:
    log = shared.plane.book.evidence
    query = {"incarnation": log.incarnation, "after": log.newest_seq, "wait": 20}
    polling = asyncio.create_task(shared.client.get("/evidence", params=query))
    await asyncio.sleep(0.05)
    assert not polling.done()
    await shared.chat("wake up")
    batch = (await asyncio.wait_for(polling, 5)).json()
    assert batch["entries"][0]["seq"] == query["after"] + 1


async def test_tables_and_metrics_hold_the_requests(shared: Gateway) -> None:
    await shared.chat("count me", **SPEECH)
    tables = (await shared.client.get("/tables")).json()
    counts = {r["milestone"]: r["count"] for r in tables["latency"] if r["version"] == "v1"}
    assert counts["first_token"] >= 1
    assert counts["first_audio_packet"] >= 1
    assert [r["modal"] for r in tables["cache"]] == ["text", "text"]
    exposed = (await shared.client.get("/metrics")).text
    for line in (
        'redline_requests_total{outcome="ok",version="v1"}',
        'redline_first_output_seconds_bucket{le="0.4",milestone="first_token",version="v1"}',
        'redline_resident_up{version="v2"} 1.0',
        'redline_route_weight_ratio{version="v1"} 1.0',
        'redline_ladder_level{part="media",session_class="batch",version="v1"} 0.0',
        'redline_resident_info{epoch="1",resident="b",role="stable",rung="full",version="v1"',
        'redline_resident_shows_table{table="cache",version="v1"} 1.0',
    ):
        assert line in exposed, line


async def test_the_views_say_what_is_served(shared: Gateway) -> None:
    models = (await shared.client.get("/v1/models")).json()
    assert [card["id"] for card in models["data"]] == ["redline"]
    assert (await shared.client.get("/healthz")).status_code == 200
    assert (await shared.client.get("/readyz")).status_code == 200


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_cancels_its_request_and_nothing_stays(
    shared: Gateway, stream: bool
) -> None:
    before = len(shared.bodies("finished"))
    task = asyncio.create_task(shared.chat("say a lot", max_tokens=200, stream=stream))
    await until(lambda: shared.plane.in_flight(B) == 1)
    await asyncio.sleep(0.05)
    task.cancel()
    await until(lambda: shared.plane.in_flight(B) == 0)
    (ending,) = shared.bodies("finished")[before:]
    assert ending.body.outcome == "cancelled"
    assert not ending.body.faulted
    resident = shared.plane.supervisors[B].resident
    await until_idle(resident)


async def test_a_client_that_leaves_a_hung_engine_is_noticed_too(shared: Gateway) -> None:
    task = asyncio.create_task(shared.chat("@hang", stream=True))
    await until(lambda: shared.plane.in_flight(B) == 1)
    await asyncio.sleep(0.02)
    task.cancel()
    await until(lambda: shared.plane.in_flight(B) == 0)
    await until_idle(shared.plane.supervisors[B].resident)


async def until_idle(resident: Any) -> None:
    """Until the engine itself says that it runs nothing."""
    async with asyncio.timeout(10):
        while (await resident.observe()).running:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def test_many_streams_at_once_do_not_mix(shared: Gateway) -> None:
    lengths = [2, 5, 9, 3, 7, 4]
    answers = await asyncio.gather(*(shared.chat(f"s{n}", max_tokens=n, **USAGE) for n in lengths))
    for count, answer in zip(lengths, answers, strict=True):
        events = events_of(answer.text)
        text = "".join(delta.get("content", "") for delta in deltas(events))
        assert text == "v1 " + "".join(f"w{i} " for i in range(1, count))
        assert len({event["id"] for event in events}) == 1
