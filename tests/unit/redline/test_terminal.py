"""What operators read in a terminal of 80 columns: status, rollout, journal, tables."""

import msgspec
import pytest
from rich.console import Console

from alerts.firing import Firing, Source
from monitors.cache_table import CacheRow, CacheSummary
from monitors.contract import Admission, Level, MediaRung, SessionClass, Shed
from monitors.fault_table import FaultRow
from monitors.labels import Action, Fault, Milestone, Modality, Phase
from monitors.latency_table import LatencyRow
from monitors.tables import Lines, Tables, lines_shown, windows
from redline import operate, tables_view
from redline.client import ClientError
from redline.control.api import (
    ControlStatus,
)
from rollout.capacity import Capacity
from rollout.rehearsal import AlarmProof
from rollout.sequential import Verdict
from tests.support.http_server import Server, recording_server
from tests.unit.redline.samples import LINES, NUMBERS, resident, rollout, serve, status


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "80")
    with recording_server() as running:
        yield running


def show(server: Server, capsys: pytest.CaptureFixture[str], shown: ControlStatus) -> str:
    operate.show_status(serve(server, "/api/status", shown))
    return capsys.readouterr().out


# ---------------------------------------------------------------- status
def test_the_status_fits_80_columns_and_cuts_nothing(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    out = show(server, capsys, status())
    lines = [line.rstrip() for line in out.splitlines()]
    assert max(map(len, lines)) <= 80
    assert "…" not in out
    assert lines == [
        "leader epoch 3, rules evaluated by prometheus, ladder live",
        "name  version      state  share  level                        epoch    in flight",
        "b     tiny-omni-1  ready  95 %   media=160x160+8k kv=int8     12       10",
        "                                 admission=limited",
        "a     tiny-omni-2  dead   5 %    full                         unknown  0",
        "  a: exit [3]",
        "firing: nothing",
        "rollout: canary for 61 s",
        "  A is tiny-omni-2 (a), B is b",
        "  A is [warm]",
        "  A's share: 5 % -> 25 % -> 50 % -> 100 %",
        "  verdict on A: inconclusive",
        "line on A                   verdict       crossed        limit   breach  pass",
        *(
            f"{n.line:26s}  inconclusive  123.5 of 1234  {n.limit:<6.2%}  0 %     39 %"
            for n in NUMBERS
        ),
    ]


@pytest.mark.parametrize(
    ("level", "apart", "words"),
    [
        (Level(shed=Shed.ON), {}, "shed=on"),
        (Level(admission=Admission.LIMITED), {}, "admission=limited"),
        (
            Level(),
            {SessionClass.BATCH: Level(media=MediaRung.P160_8K)},
            "full; batch: media=160x160+8k",
        ),
    ],
)
def test_the_status_shows_whatever_is_less_than_full(
    server: Server,
    capsys: pytest.CaptureFixture[str],
    level: Level,
    apart: dict[SessionClass, Level],
    words: str,
) -> None:
    one = resident("b", "v1", level=level, apart=apart)
    seen = msgspec.structs.replace(status().data_plane, residents=(one,))
    assert f" {words} " in show(server, capsys, status(data_plane=seen))


def test_a_long_version_goes_on_below(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    name = "qwen3-omni-30b-a3b-instruct-2026-01-31-int8-calibrated"
    seen = msgspec.structs.replace(status().data_plane, residents=(resident("b", name),))
    out = show(server, capsys, status(data_plane=seen))
    assert max(len(line.rstrip()) for line in out.splitlines()) <= 80
    assert name in "".join(line[6:].split("  ")[0] for line in out.splitlines()[2:5])


def test_what_fires_is_told_in_its_own_words(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    firing = Firing(
        alert="RedlineFaultRate", action=Action.ROLL_BACK, version="v2", labels={}, starts_at=0.0,
        summary="0.6% [red]of[/] the last", runbook="https://w.example/[x]",
    )  # fmt: skip
    out = show(server, capsys, status(firing=(firing,)))
    assert "firing RedlineFaultRate v2: 0.6% [red]of[/] the last" in out
    assert "says prometheus)" in " ".join(out.split())
    assert "\n  https://w.example/[x]\n" in out, "a rule of somebody's own has a page of its own"


def test_what_may_fire_soon_is_told_and_is_not_said_to_fire(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    waits = Firing(
        alert="RedlineCacheBelowFloor", action=Action.QUANTISE_KV, version="v1", labels={},
        starts_at=0.0, summary="low", source=Source.EMBEDDED,
    )  # fmt: skip
    out = show(server, capsys, status(firing=(), pending=(waits,)))
    assert "firing: nothing" in out
    assert "pending RedlineCacheBelowFloor v1: low" in out


def test_where_the_tables_cannot_be_read_more_may_fire_than_is_known(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    out = show(server, capsys, status(firing=(), watched=False))
    assert "firing: unknown" in out
    assert "nothing" not in out


def test_unknown_is_said_and_is_not_nothing(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    unknown = status(firing=None, data_plane=None, rollout=None, leader_epoch=None)
    out = show(server, capsys, unknown)
    assert "leader epoch unknown" in out
    assert "residents: unknown, the data plane does not answer" in out
    assert "firing: unknown" in out


def test_entries_that_wait_for_a_full_disk_are_told(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    out = show(server, capsys, status(rollout=rollout(unjournalled=2)))
    assert "2 entries wait for a journal that cannot be written" in out


def test_a_control_plane_that_stands_by_says_whom_to_ask(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    operate.show_rollout(serve(server, "/api/status", status(rollout=None)))
    assert "ask the one that leads" in capsys.readouterr().out


# ---------------------------------------------------------------- commands and journal
def test_a_rollout_shows_its_way_the_proof_of_its_alarm_and_what_b_could_take(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = rollout(
        phase=Phase.PROMOTING,
        weight=25,
        capacity=Capacity(stable="b", busy_share=0.2, served=75, all=100, limit=0.75),
        alarm=AlarmProof(rehearsal="r", requests=6, seconds=0.04),
    )
    operate.show_rollout(serve(server, "/api/status", status(rollout=shown)))
    out = " ".join(capsys.readouterr().out.split())
    assert "A's share: 5 % -> 25 % -> 50 % -> 100 %" in out
    assert "'b' would be 27% busy with all of the traffic, under 75%" in out
    assert "the alarm path is proved: 6 rehearsed faults" in out


def test_what_a_freeze_hides_and_a_missing_way_back_are_said(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = rollout(phase=Phase.FROZEN, covered=Phase.BAKE, way_back=False)
    operate.show_rollout(serve(server, "/api/status", status(rollout=shown)))
    out = capsys.readouterr().out
    assert "rollout: frozen (bake) for 61 s" in out
    assert "there is no way back: B is not ready" in out


def test_a_rollback_that_is_not_proved_is_no_success(server: Server) -> None:
    unproved = rollout(phase=Phase.ROLLING_BACK, rollback_incomplete=True)
    stack = serve(server, "/api/rollout/rollback", unproved)
    with pytest.raises(ClientError, match="not proved complete"):
        operate.command(stack, "rollback", "ann", "odd")
    operate.command(serve(server, "/api/freeze", unproved), "freeze", "ann", "")


@pytest.mark.parametrize(
    ("verb", "path"), [("freeze", "/api/freeze"), ("promote", "/api/rollout/promote")]
)
def test_a_command_goes_to_its_route(
    server: Server, capsys: pytest.CaptureFixture[str], verb: str, path: str
) -> None:
    operate.command(serve(server, path, rollout()), verb, "ann", "")
    assert "rollout: canary" in capsys.readouterr().out
    assert server.seen[0].path == path


# ---------------------------------------------------------------- tables
TABLES = Tables(
    wall=0.0,
    windows=windows(LINES),
    lines=lines_shown(LINES),
    cache=(
        CacheRow(version="v1", layer_id=3, modal=Modality.AUDIO, entropy_th=0.35, hit_rate=0.5,
                 gpu_mem_gb=1.5),
        CacheRow(version="v1", layer_id=4, modal=Modality.TEXT, entropy_th=None, hit_rate=None,
                 gpu_mem_gb=0.0),
    ),
    cache_summary=(
        CacheSummary(version="v1", hit_rate=0.899, gpu_mem_gb=1.5, reuse="off: uncalibrated"),
        CacheSummary(version="v2", hit_rate=None, gpu_mem_gb=None),
    ),
    latency=(
        LatencyRow(version="v1", milestone=Milestone.FIRST_TOKEN, count=7, over=1, requests=100,
                   p50_s=0.1, p95_s=0.3, p99_s=0.41, over_share=0.02, slow_share=0.04),
        LatencyRow(version="v1", milestone=Milestone.FIRST_AUDIO_PACKET, count=0, over=0,
                   requests=0, p50_s=None, p95_s=None, p99_s=None, over_share=None,
                   slow_share=None),
    ),
    faults=(
        FaultRow(version="tiny-omni-1", fault=None, finished=20_000, answered=19_900,
                 requests=10000,
                 faulted=60, rate=0.006,
                 rate_low=0.00458, rate_high=0.00772, soft=3, input_only=7),
        FaultRow(version="tiny-omni-1", fault=Fault.SPEECH_TRUNCATED, finished=20_000,
                 answered=19_900,
                 requests=10000, faulted=0, rate=0.0, rate_low=0.0, rate_high=0.00037,
                 soft=0, input_only=0),
    ),
)  # fmt: skip


def drawn(columns: int = 80, tables: Tables = TABLES) -> str:
    console = Console(width=columns, force_terminal=True, color_system="standard")
    with console.capture() as capture:
        console.print(tables_view.draw(tables))
    return capture.get()


def test_the_tables_are_read_from_the_gateway(server: Server) -> None:
    assert tables_view.fetch(serve(server, "/tables", TABLES)) == TABLES


def test_each_value_has_the_colour_of_its_red_line() -> None:
    red, green = "\x1b[31m", "\x1b[32m"
    shown = drawn()
    for bad in ("89.9%", "0.410", "0.60%", "2.00%"):
        assert f"{red}{bad}" in shown, bad
    for good in ("0.100", "0.300", "4.00%", "0.00%"):
        assert f"{green}{good}" in shown, good


def test_headings_and_colours_are_of_the_lines_that_the_gateway_judged_by() -> None:
    red, green = "\x1b[31m", "\x1b[32m"
    own = Lines(
        hit_rate_floor=0.8,
        first_packet_s=0.3,
        first_packet_exceedance=0.03,
        degrade_s=0.6,
        degrade_exceedance=0.025,
        fault_rate=0.01,
    )
    shown = drawn(tables=msgspec.structs.replace(TABLES, lines=own))
    assert ">600ms" in shown
    assert ">300ms" in shown
    for good in ("89.9%", "0.410", "0.60%", "2.00%"):
        assert f"{green}{good}" in shown, good
    assert f"{red}4.00%" in shown


def test_unknown_values_are_unknown_and_cells_never_used_are_left_out() -> None:
    shown = drawn()
    assert shown.count("unknown") == 5 + 2  # quantiles and shares; v2's cache
    assert "audio" in shown
    assert " 4 " not in shown


def test_the_cache_table_says_why_reuse_is_off_where_the_engine_told() -> None:
    shown = drawn()
    assert "v1: reuse off: uncalibrated" in shown
    assert "v2: reuse" not in shown


WIDEST = Tables(
    wall=0.0,
    windows=windows(LINES),
    lines=lines_shown(LINES),
    cache=(
        CacheRow(version="tiny-omni-1", layer_id=127, modal=Modality.IMAGE, entropy_th=0.35,
                 hit_rate=1.0, gpu_mem_gb=140.123456),
    ),
    cache_summary=(CacheSummary(version="tiny-omni-1", hit_rate=1.0, gpu_mem_gb=140.123456),),
    latency=tuple(
        LatencyRow(version="tiny-omni-1", milestone=milestone, count=10**7, over=10**6,
                   requests=30_000, p50_s=12.345, p95_s=23.456, p99_s=p99_s, over_share=1.0,
                   slow_share=slow_share)
        for milestone in Milestone for p99_s, slow_share in ((34.567, 1.0), (None, None))
    ),
    faults=tuple(
        FaultRow(version="tiny-omni-1", fault=fault, finished=20_000,
                 answered=19_900, requests=10_000,
                 faulted=10_000, rate=1.0,
                 rate_low=0.99963, rate_high=1.0, soft=10_000, input_only=10_000)
        for fault in (None, *Fault)
    ),
)  # fmt: skip


def test_at_80_columns_every_cell_of_the_widest_rows_stands_whole_on_its_line() -> None:
    console = Console(width=80, force_terminal=False)
    with console.capture() as capture:
        console.print(tables_view.draw(WIDEST))
    lines = {" ".join(line.split()) for line in capture.get().splitlines()}
    v, quantiles = "tiny-omni-1", "30000 12.345 23.456"
    expected = {f"{v} all all 100.0% 140.123456", f"{v} 127 image 0.35 100.0% 140.123456"}
    for milestone in Milestone:
        expected.add(f"{v} {milestone} {quantiles} 34.567 100.00% 100.00%")
        expected.add(f"{v} {milestone} {quantiles} unknown 100.00% unknown")
    for fault in ("any", *Fault):
        expected.add(f"{v} {fault} 10000 10000 10000 10000 100.00% 99.96%-100.00%")
    assert expected - lines == set()


def test_a_version_too_long_for_80_columns_is_folded_and_nothing_is_cut() -> None:
    long = "tiny-omni-1-int8-2026-11-30"
    rows = tuple(msgspec.structs.replace(row, version=long) for row in WIDEST.latency[:1])
    console = Console(width=80, force_terminal=False)
    with console.capture() as capture:
        console.print(tables_view.draw(msgspec.structs.replace(WIDEST, latency=rows)))
    shown = capture.get()
    assert "…" not in shown
    first, *more = shown[: shown.index("first_token: ")].split("─")[-1].strip().splitlines()
    part, whole = first.split(maxsplit=1)
    assert whole.split() == [
        "first_token", "30000", "12.345", "23.456", "34.567", "100.00%", "100.00%",
    ]  # fmt: skip
    assert part + "".join(line.strip() for line in more) == long


def test_the_table_with_many_rows_comes_last() -> None:
    shown = drawn()
    assert shown.index("latency") < shown.index("faults") < shown.index("cache (S4.1)")


def test_a_stable_version_that_is_past_its_own_line_is_said(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    breach = msgspec.structs.replace(NUMBERS[0], verdict=Verdict.BREACH)
    operate.show_rollout(serve(server, "/api/status", status(rollout=rollout(stable=(breach,)))))
    assert "B itself is past its line: faults" in " ".join(capsys.readouterr().out.split())
