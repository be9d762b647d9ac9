"""`redline ladder`: what is asked of the control plane, and what a person reads."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from alerts.decide import Hold
from alerts.ladder import Move
from alerts.overrides import Override
from alerts.parts import RUNGS as RUNGS_OF
from alerts.parts import Part
from monitors.contract import ALL_CLASSES, KvRung, Level, MediaRung, Refusal, SessionClass
from monitors.rungs import RUNGS
from redline import cli, ladder
from redline.control.ladder_api import HoldOrder, LadderStatus, PartStatus, ReleaseOrder
from redline.settings import Stack
from tests.support.http_server import Answer, Server, recording_server
from tests.unit.redline.samples import status

BATCH = (SessionClass.BATCH,)
HELD = Override(
    at=1_800_000_000.0, until=1_800_001_800.0, version="tiny-omni-1", classes=BATCH,
    parts={Part.MEDIA: 2}, actor="ann", reason="a [fair]",
)  # fmt: skip


def part(part: Part, rung: int = 0, **more: Any) -> PartStatus:
    given = {
        "word": "full", "since": None, "why": "", "evidence": "", "dwell_left_s": 0.0,
        "forecast": "", "holds": (), "moves_left": 6,
    }  # fmt: skip
    return PartStatus(part=part, rung=rung, **{**given, **more})


LADDER = LadderStatus(
    resident="b",
    version="tiny-omni-1",
    level=Level(media=MediaRung.P360_8K, kv=KvRung.INT8),
    apart={SessionClass.BATCH: Level(media=MediaRung.P160_8K, kv=KvRung.INT8)},
    parts=(
        part(Part.SHED),
        part(
            Part.MEDIA, 1, word="360p+8k", since=1_800_000_000.0, why="RedlineLatencyDegrade",
            evidence="p99 520 ms, 40.0 requests/s, 93% busy", dwell_left_s=23.4,
            forecast="a queue without end", holds=(Hold.DWELL, Hold.FORECAST), moves_left=5,
        ),
    ),
    override=HELD,
    held="media at 160x160+8k",
)  # fmt: skip


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("COLUMNS", "80")
    with recording_server() as running:
        stack = Stack(runtime_url=running.url, control_url=running.url, token="t")
        monkeypatch.setattr(ladder, "stack_of", lambda _: stack)
        yield running


def run(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli.app, ["ladder", *words])
    return result.exit_code, result.output


def asked(server: Server, kind: type[Any]) -> Any:
    return msgspec.json.decode(server.seen[-1].body, type=kind)


# ---------------------------------------------------------------- what is shown
def test_the_ladders_say_where_they_stand_why_and_what_keeps_them_there(server: Server) -> None:
    server.answers["/api/status"] = Answer(msgspec.json.encode(status(ladders=(LADDER,))))
    code, out = run()
    assert code == 0
    text = " ".join(out.split())
    for words in (
        "ladder: live",
        "b tiny-omni-1: media=360p+8k kv=int8",
        "batch sessions: media=160x160+8k kv=int8",
        "media at 160x160+8k for batch sessions (ann: a [fair])",
        "RedlineLatencyDegrade",
        "seen then: p99 520 ms, 40.0 requests/s, 93% busy",
        "one rung better: a queue without end; the dwell is not over, 23 s left; the line would be",
        "moves left this hour: 5",
    ):
        assert words in text
    assert "shed" not in text, "what never moved is not told"


def test_nobody_who_leads_and_no_resident_are_said(server: Server) -> None:
    server.answers["/api/status"] = Answer(msgspec.json.encode(status(ladder_mode=None)))
    _, out = run()
    assert "unknown, nobody leads here" in out
    assert "no resident has been seen" in out


def test_a_dry_run_says_what_it_would_do(server: Server) -> None:
    move = Move(at=0.0, version="tiny-omni-1", part=Part.MEDIA, rung=2, reason="a [slow] one")
    shown = msgspec.structs.replace(LADDER, would=(move,))
    server.answers["/api/status"] = Answer(msgspec.json.encode(status(ladders=(shown,))))
    text = " ".join(run()[1].split())
    assert "dry run: media would go to 160x160+8k now: a [slow] one" in text


# ---------------------------------------------------------------- what is ordered
def test_every_rung_of_every_part_has_a_word_of_its_own() -> None:
    assert {part: list(words.values()) for part, words in ladder.WORDS.items()} == {
        part: list(range(len(rungs))) for part, rungs in RUNGS_OF.items()
    }


@pytest.mark.parametrize(
    ("words", "parts", "classes", "for_s"),
    [
        ("--media 360p --kv int8 --for 30m", {Part.MEDIA: 1, Part.KV: 1}, ALL_CLASSES, 1800.0),
        ("--media full --for 90s", {Part.MEDIA: 0}, ALL_CLASSES, 90.0),
        ("--media 160x160 --class batch --for 2h", {Part.MEDIA: 2}, BATCH, 7200.0),
        (
            "--rung 3 --admission limited --for 1m",
            {Part.MEDIA: 1, Part.KV: 1, Part.SHED: 1, Part.ADMISSION: 1},
            ALL_CLASSES,
            60.0,
        ),
        (
            "--rung 2 --media full --for 1m",
            {Part.MEDIA: 0, Part.KV: 0, Part.SHED: 1, Part.ADMISSION: 0},
            ALL_CLASSES,
            60.0,
        ),
    ],
)
def test_set_holds_what_is_named_for_as_long_as_is_said(
    server: Server,
    words: str,
    parts: dict[Part, int],
    classes: tuple[SessionClass, ...],
    for_s: float,
) -> None:
    server.answers["/api/ladder/set"] = Answer(msgspec.json.encode(LADDER))
    code, out = run("set", "-r", "b", *words.split(), "--reason", "a fair", "--actor", "ann")
    assert code == 0, out
    assert asked(server, HoldOrder) == HoldOrder(
        resident="b", classes=classes, parts=parts, for_s=for_s, actor="ann", reason="a fair"
    )
    assert "held by hand until" in out


def test_clear_ends_it(server: Server) -> None:
    done = msgspec.structs.replace(LADDER, override=None)
    server.answers["/api/ladder/clear"] = Answer(msgspec.json.encode(done))
    code, out = run("clear", "-r", "b", "--actor", "ann")
    assert code == 0
    assert asked(server, ReleaseOrder) == ReleaseOrder(resident="b", actor="ann")
    assert "by hand" not in out


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        ("set -r b --for 30m --reason x", 2, "hold something"),
        ("set -r b --media 360p --for soon --reason x", 2, "is not a duration"),
        ("set -r b --media 480p --for 30m --reason x", 2, "480p"),
        ("set -r b --media 360p --for 30m", 2, "--reason"),
        (f"set -r b --rung {len(RUNGS)} --for 30m --reason x", 2, "--rung"),
    ],
)
def test_what_cannot_be_meant_is_wrong_usage(
    server: Server, words: str, code: int, why: str
) -> None:
    found, out = run(*words.split())
    assert (found, why in out) == (code, True)
    assert server.seen == []


def test_a_refusal_is_told_in_the_control_planes_words(server: Server) -> None:
    body = msgspec.json.encode(Refusal(error="no resident is called 'x'; there are: a, b"))
    server.answers["/api/ladder/set"] = replace(Answer(body), status=409)
    code, out = run("set", "-r", "x", "--media", "360p", "--for", "1m", "--reason", "y")
    assert code == 1
    assert "no resident is called 'x'" in out


def test_the_figures_of_a_state_folder_are_needed(tmp_path: Path) -> None:
    code, out = run("--state-dir", str(tmp_path / "none"))
    assert code == 1
    assert "redline up" in out
