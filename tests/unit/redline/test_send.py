"""`redline send` against a tiny server: what goes up, what comes of the stream, what goes wrong."""

import base64
import json
import wave
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from redline.cli import app
from redline.client import ClientError
from redline.send import SPEECH_HZ, Answer, part_of, send, summary
from redline.settings import Stack
from tests.support import http_server
from tests.support.http_server import Server, recording_server

PATH = "/v1/chat/completions"
PCM = bytes(range(200)) * 12
END = {
    "request_id": "r1",
    "version": "v1",
    "level": "media=0",
    "first_output_s": {"first_token": 0.0971, "first_audio_packet": None},
}


def stream(*events: Any, done: bool = True) -> http_server.Answer:
    lines = [f"data: {json.dumps(event)}\n\n" for event in events]
    body = "".join([": a comment\n\n", *lines, "data: [DONE]\n\n" if done else ""])
    return http_server.Answer(body.encode(), kind="text/event-stream")


def delta(**fields: Any) -> dict[str, Any]:
    return {"id": "x", "choices": [{"index": 0, "delta": fields}]}


SPOKEN = stream(
    delta(role="assistant", content="one "),
    delta(audio={"id": "a", "data": base64.b64encode(PCM).decode()}),
    delta(content="two"),
    {"choices": [], "usage": {"total_tokens": 3}, "redline": END},
)


def ask(server: Server, clips: list[Path], **more: Any) -> tuple[Answer, list[str]]:
    said: list[str] = []
    where = Stack(runtime_url=server.url, control_url=server.url, token="t")
    options = {"speech": True, "on_text": said.append, **more}
    return send(where, clips, "What?", **options), said


@pytest.fixture
def clip(tmp_path: Path) -> Path:
    path = tmp_path / "clip.mp4"
    path.write_bytes(b"not really a film")
    return path


def test_the_streams_text_speech_and_times_are_put_together(clip: Path, tmp_path: Path) -> None:
    with recording_server() as server:
        server.answers[PATH] = SPOKEN
        answer, said = ask(server, [clip], session="s1", low_latency=True, max_tokens=7)
        (seen,) = server.seen
    assert said == ["one ", "two"]
    assert (answer.text, bytes(answer.pcm)) == ("one two", PCM)
    assert (answer.request_id, answer.version, answer.level) == ("r1", "v1", "media=0")
    assert seen.headers["x-redline-session"] == "s1"
    assert seen.headers["x-redline-fidelity"] == "low_latency"
    assert seen.headers["content-type"].startswith("multipart/form-data")
    assert b"not really a film" in seen.body
    assert b'"attachment:clip.mp4"' in seen.body
    assert b'"max_tokens": 7' in seen.body
    answer.write_wav(tmp_path / "out.wav")
    with wave.open(str(tmp_path / "out.wav")) as speech:
        assert (speech.getnframes(), speech.getframerate()) == (len(PCM) // 2, SPEECH_HZ)


def test_a_question_without_a_clip_is_plain_json() -> None:
    with recording_server() as server:
        server.answers[PATH] = stream(delta(content="hi"), {"redline": END})
        answer, _ = ask(server, [], speech=False)
        request = json.loads(server.seen[0].body)
    assert request["modalities"] == ["text"]
    assert "audio" not in request
    assert request["messages"][0]["content"] == [{"type": "text", "text": "What?"}]
    assert not answer.pcm


def test_only_a_smoke_test_shows_the_token_and_says_that_it_counts_nowhere(tmp_path: Path) -> None:
    with recording_server() as server:
        server.answers[PATH] = stream(delta(content="hi"), {"redline": END})
        ask(server, [])
        answer, _ = ask(server, [], resident="a")
        users, pinned = (seen.headers for seen in server.seen)
    assert "authorization" not in users
    assert (pinned["x-redline-resident"], pinned["authorization"]) == ("a", "Bearer t")
    last = summary(answer, tmp_path / "a.wav").splitlines()[-1]
    assert last == "traffic            an operator's own, pinned to a: no verdict counts it"


def test_the_summary_says_what_came_and_what_did_not() -> None:
    answer = Answer(
        pcm=bytearray(2 * SPEECH_HZ), request_id="r1", version="v1", level="media=1",
        times={"first_token": 0.0971, "first_video_frame": None},
    )  # fmt: skip
    assert summary(answer, Path("a.wav")).splitlines() == [
        "speech             a.wav (1.00 s)",
        "first_token        97 ms",
        "first_video_frame  none",
        "answered by        v1, level media=1",
        "request            r1",
    ]


@pytest.mark.parametrize(
    ("name", "kind"),
    [("a.mp4", "video_url"), ("a.wav", "input_audio"), ("a.png", "image_url")],
)
def test_a_clip_is_what_its_name_says(name: str, kind: str) -> None:
    part = part_of(Path(name), b"bytes")
    assert part["type"] == kind
    assert part[kind]["digest"] == "sha-256=:J3CJ2RwL308uaGK6fkoHYFEZQx9dE/cm3TUrBvGyBqk=:"


def test_a_file_of_another_kind_is_refused_by_name() -> None:
    with pytest.raises(ClientError, match=r"notes\.txt: not a video, audio or image"):
        part_of(Path("notes.txt"), b"")


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (
            http_server.Answer(b'{"error":{"message":"the clip is too long","code":"x"}}', 413),
            "the clip is too long",
        ),
        (stream(delta(content="one"), {"error": {"message": "it died"}}), "it died"),
        (stream(delta(content="one"), done=False), "broke off"),
        (http_server.Answer(b"data: {", breaks_off=True), "is the stack up|does not stream"),
        (http_server.Answer(b"data: {\n\n", kind="text/event-stream"), "does not stream"),
        (stream(delta(audio={"data": "abc"})), "does not stream"),
    ],
)
def test_a_stream_that_goes_wrong_is_a_sentence(
    clip: Path, answer: http_server.Answer, says: str
) -> None:
    with recording_server() as server:
        server.answers[PATH] = answer
        with pytest.raises(ClientError, match=says):
            ask(server, [clip])


def test_nobody_there_is_a_sentence(clip: Path) -> None:
    where = Stack(runtime_url="http://127.0.0.1:1", control_url="http://127.0.0.1:1", token="t")
    with pytest.raises(ClientError, match="is the stack up"):
        send(where, [clip], "What?", speech=True, on_text=lambda _: None)


# ---------------------------------------------------------------- the command
def run(server: Server, clip: Path, out: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("REDLINE_RUNTIME_URL", server.url)
    monkeypatch.setenv("REDLINE_CONTROL_URL", server.url)
    monkeypatch.setenv("REDLINE_TOKEN", "t")
    arguments = ["send", str(clip), "--out", str(out), "--state-dir", str(clip.parent)]
    return CliRunner().invoke(app, arguments)


def test_the_command_writes_the_speech_and_ends_with_0(
    clip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with recording_server() as server:
        server.answers[PATH] = SPOKEN
        done = run(server, clip, tmp_path / "a.wav", monkeypatch)
    assert done.exit_code == 0, done.output
    assert done.output.startswith("one two\n\nspeech ")
    assert (tmp_path / "a.wav").stat().st_size > len(PCM)


def test_a_folder_for_the_speech_that_is_not_there_is_said_before_anything_is_sent(
    clip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with recording_server() as server:
        done = run(server, clip, tmp_path / "no" / "a.wav", monkeypatch)
        assert server.seen == []
    assert done.exit_code == 2
    assert "there is no such folder" in done.output


def test_a_refusal_ends_with_1_and_its_words(
    clip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with recording_server() as server:
        server.answers[PATH] = http_server.Answer(b'{"error":{"message":"no"}}', 503)
        done = run(server, clip, tmp_path / "a.wav", monkeypatch)
    assert done.exit_code == 1
    assert "redline: no" in done.output


def test_a_failure_names_the_request_to_ask_about() -> None:
    late = {"error": {"message": "the engine died"}, "redline": {"request_id": "r9"}}
    with recording_server() as server:
        server.answers[PATH] = stream(delta(content="one "), late)
        with pytest.raises(ClientError, match=r"the engine died \(see: redline explain r9\)"):
            ask(server, [])
