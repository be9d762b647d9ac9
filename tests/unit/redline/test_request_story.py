"""`redline explain`: one request's story in a terminal, or as JSON; an unknown id in a sentence."""

import re

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from monitors.contract import KvRung, Level, MediaRung, RequestFinished
from monitors.labels import Keep, Outcome
from monitors.requests import RequestRecord, Told, TraceNote
from redline import request_story
from redline.cli import app
from tests.support.http_server import Answer, Server, recording_server
from tests.support.records import CUT, END, LATE, RESIDENCY, SPAN, TOKEN, a_leg, a_record

LOST = RequestFinished(outcome=Outcome.LOST, faulted=True)


def said(record: RequestRecord) -> str:
    return request_story.story(record)


def row(at: str, what: str) -> str:
    return f"{at:>12s}  {what}"


def test_the_timeline_tells_everything_in_the_order_in_which_it_happened() -> None:
    record = a_record(TOKEN, LATE, CUT, END)
    lines = said(record).split("\n\n")[1].splitlines()
    assert lines == [
        row("0 ms", "received"),
        row("10 ms", "routed to b (v1)"),
        row("20 ms", "its media was decoded: 70 ms"),
        row("100 ms", "handed to b"),
        row("100 ms", "prefill: 200 ms, of which 150 ms work"),
        row("300 ms", "decode loop: 200 ms, of which 100 ms work"),
        row("300 ms", "told its client 200"),
        row("350 ms", "Talker: 200 ms, of which 100 ms work"),
        row("500 ms", "first_token: 100 ms after the last input byte"),
        row("500 ms", "PAST THE LINE of 250 ms: first_audio_packet"),
        row("500 ms", "HARD FAULT speech_truncated (samples_lost)"),
        row("500 ms", "b was done with it: ok"),
        row("610 ms", "over"),
    ]


def test_the_facts_tell_fidelity_cache_and_what_the_client_was_told() -> None:
    facts = said(a_record(RESIDENCY)).split("\n\n")[0]
    given = dict(re.split(r"\s{2,}| (?=[^ ]*$)", line, maxsplit=1) for line in facts.splitlines())
    assert given["outcome"] == "ok, after 610 ms"
    assert given["served by"] == "v1 on b, route epoch 4, pool epoch 1"
    assert given["level"] == "media full, kv native, shed off, admission open"
    assert given["fidelity"] == "asked full; media 360p+8k; KV native"
    assert given["tokens"] == "146 in, 96 of them from the cache; 12 out, then stop"
    assert given["residency, audio"] == "90.0%: 9.00 of 10.00 attention mass"
    assert given["client was told"] == "200"
    assert given["trace"] == f"{'ab' * 16}, kept for: sampled; open it in Tempo by this id"


def test_a_fault_comes_with_evidence_and_a_detector_that_abstained_with_its_reason() -> None:
    found = said(a_record(CUT)).split("\n\n")[2].splitlines()
    assert found == [
        "hard speech_truncated, origin output, by speech",
        (
            "  samples_lost: 480 samples never came (at 1,230 ms, measured 480 samples, "
            "limit 0 samples)"
        ),
        "detectors on b: lip_sync abstained (under 4 s)",
    ]


def test_a_cut_over_tells_of_both_residents() -> None:
    left = a_leg(LOST, resident="a", version="v2", left_s=0.2, kv=None, pool_epoch=None)
    record = a_record(legs=(left, a_leg(END, level=Level(media=MediaRung.P360_8K))))
    words = said(record)
    assert "v2 on a, route epoch 4, pool epoch unknown" in words
    assert "a was done with it: lost, counted as faulted" in words
    assert "media 360p+8k, kv native" in words


@pytest.mark.parametrize(
    ("trace", "words"),
    [
        (None, "tracing is off here; `redline up --otlp URL` turns it on"),
        (TraceNote(trace_id="ab" * 16, span_id=SPAN), "kept or not when the request has ended"),
        (TraceNote(trace_id="ab" * 16, span_id=SPAN, keep=()), "not kept: nothing was wrong"),
        (
            TraceNote(trace_id="ab" * 16, span_id=SPAN, keep=(Keep.LINE, Keep.FAULT)),
            "kept for: line, fault",
        ),
    ],
)
def test_where_the_trace_is(trace: TraceNote | None, words: str) -> None:
    assert words in said(a_record(trace=trace))


def test_what_is_not_known_is_said_and_not_made_up() -> None:
    record = a_record(
        legs=(), usage=None, told=None, outcome=None, ended_s=None, asked=None, media=None
    )
    words = said(record)
    assert "outcome            under way" in words
    assert "client was told    nothing yet" in words
    assert "asked unknown; media none was decoded; KV unknown" in words
    gone = a_record(told=Told(at_s=0.2, status=None), outcome=Outcome.CANCELLED)
    assert "client was told    nothing: it was gone" in said(gone)
    refused = a_record(told=Told(at_s=0.2, status=400, code="invalid_json"), operator=True)
    assert "client was told    400, error invalid_json" in said(refused)
    assert "no table and no verdict counts it" in said(refused)
    assert KvRung.NATIVE.name.lower() in said(a_record())


# ---------------------------------------------------------------- the command
def run(server: Server, *words: str) -> Result:
    where = {
        "REDLINE_RUNTIME_URL": server.url,
        "REDLINE_CONTROL_URL": server.url,
        "REDLINE_TOKEN": "t",
    }
    return CliRunner().invoke(app, ["explain", *words], env=where)


def test_the_command_prints_the_story_or_the_record() -> None:
    record = a_record(TOKEN, CUT, END)
    with recording_server() as server:
        server.answers["/requests/r1"] = Answer(msgspec.json.encode(record))
        told, raw = run(server, "r1"), run(server, "r1", "--json")
    assert (told.exit_code, raw.exit_code) == (0, 0)
    assert told.output == said(record) + "\n"
    assert msgspec.json.decode(raw.output, type=RequestRecord) == record
    assert server.seen[0].headers["authorization"] == "Bearer t"


def test_an_unknown_request_ends_the_command_with_the_gateways_sentence() -> None:
    body = b'{"error": {"message": "no request \'x\' is known here; it remembers 3", "code": "u"}}'
    with recording_server() as server:
        server.answers["/requests/x"] = Answer(body, 404)
        done = run(server, "x")
    assert done.exit_code == 1
    assert "no request 'x' is known here; it remembers 3" in done.output


def test_without_an_id_the_last_with_something_wrong_are_listed() -> None:
    faulty = a_record(CUT, CUT, wrong=(Keep.LINE, Keep.FAULT))
    refused = a_record(request_id="r2", legs=(), outcome=Outcome.REFUSED, wrong=(Keep.OUTCOME,))
    with recording_server() as server:
        server.answers["/requests"] = Answer(msgspec.json.encode([refused, faulty]))
        server.answers["/requests?why=fault"] = Answer(b"[]")
        listed, none = run(server), run(server, "--why", "fault")
    assert listed.exit_code == 0
    first, second = listed.output.splitlines()
    assert first.startswith("r2  ")
    assert first.endswith("  nowhere  refused  outcome")
    assert second.endswith("  v1  ok  line, fault (samples_lost)")
    assert none.output == "none that the gateway remembers\n"


@pytest.mark.parametrize("request_id", ["", ".", "..", "r1\n", "\x1b[2J", "r\u202e1"])
def test_what_can_be_no_id_is_refused_and_nobody_is_asked(request_id: str) -> None:
    with recording_server() as server:
        done = run(server, request_id)
    assert (done.exit_code, server.seen) == (2, [])
    assert done.output.startswith(f"redline: {request_id!r} is no request's id")


def test_an_id_leads_to_no_other_route_than_that_of_requests() -> None:
    with recording_server() as server:
        done = run(server, "../control?a=b#c")
    assert done.exit_code == 1
    assert [seen.path for seen in server.seen] == ["/requests/..%2Fcontrol%3Fa%3Db%23c"]


def test_an_id_and_a_choice_among_requests_do_not_go_together() -> None:
    with recording_server() as server:
        done = run(server, "r1", "--why", "fault")
        sampled = run(server, "--why", "sampled")
    assert (done.exit_code, sampled.exit_code, server.seen) == (2, 2, [])
    assert done.output == "redline: --why chooses among requests: give it without an id\n"
    assert "'sampled' is not one of" in sampled.output


@settings(deadline=None)
@given(st.text(st.characters(categories=["C", "Z"]), min_size=1))
def test_what_clients_chose_moves_no_cursor_and_adds_no_line(session: str) -> None:
    plain = said(a_record(session="s")).splitlines()
    lines = said(a_record(session=session, request_id=session)).splitlines()
    assert len(lines) == len(plain)
    assert all(line.isprintable() for line in lines)


def test_a_sessions_control_characters_are_shown_as_what_they_are() -> None:
    words = said(a_record(session="a\n\x1b[31mb\x00\N{SNOWMAN}"))
    assert "session            a\\n\\x1b[31mb\\x00\N{SNOWMAN}\n" in words


def test_json_for_a_terminal_is_plain_too() -> None:
    with recording_server() as server:
        record = a_record(session="\x1b\x9b\u202e")
        server.answers["/requests/r1"] = Answer(msgspec.json.encode(record))
        told = run(server, "r1", "--json").output
    assert told.rstrip("\n").isprintable()
    assert msgspec.json.decode(told, type=RequestRecord) == record


def test_times_of_day_name_their_zone() -> None:
    assert "received           2023-11-14 22:13:20.000 UTC" in said(a_record())
