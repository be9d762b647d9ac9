"""Near misses made from breaches: each alert's series, and what becomes of it when one is amiss.

A breach is a set of series that fires its alert at `at`. Without any one of `needed` it must not
fire: what is unknown is no breach. When all end, it must end too, within `window_s`: a dead
series is no alert. `cured` says what changes, and by when it is over.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from alerts.names import AlertName
from tests.rules.scenarios import Rule, Run, Scenario, needed_by

_A = 'version="a"'
_CELL = f'{_A},layer_id="0",modality="video"'
_TOKEN = f'{_A},milestone="first_token"'
_AUDIO = f'{_A},milestone="first_audio_packet"'
HIT = f"redline_kv_residency_hit_mass_total{{{_CELL}}}"
LOOKUP = f"redline_kv_residency_lookup_mass_total{{{_CELL}}}"
LIVE = f"redline_kv_live_bytes{{{_CELL}}}"
IN_TIME = f'redline_first_output_seconds_bucket{{{_TOKEN},le="0.4"}}'
OVERDUE = f"redline_first_output_overdue_total{{{_TOKEN}}}"
FAST = f'redline_first_output_seconds_bucket{{{_AUDIO},le="0.25"}}'
SPOKEN = f'redline_first_output_seconds_bucket{{{_AUDIO},le="0.4"}}'
RING = f"redline_fault_window_requests{{{_A}}}"
FAULTED = f'redline_fault_window_faulted{{{_A},mark="hard"}}'
SERVED = f"redline_served_requests_total{{{_A}}}"
UP = f"redline_resident_up{{{_A}}}"
WEIGHT = f"redline_route_weight_ratio{{{_A}}}"
ANSWERED = f'redline_requests_total{{{_A},outcome="ok"}}'
CAME = f"redline_first_output_seconds_count{{{_TOKEN}}}"
BROKE = 'redline_detector_judgements_total{detector="speech",judgement="failed"}'
UNPROVED = 'redline_rollback_incomplete{instance="c",job="redline-control"}'
WAY_BACK = 'redline_rollout_way_back_ready{instance="c",job="redline-control"}'
WRITABLE = 'redline_control_journal_writable{instance="c",job="redline-control"}'


@dataclass(frozen=True)
class Breach:
    """`series`: values by second in promtool's notation, at least until `at` + 5 s."""

    alert: AlertName
    series: Mapping[str, str]
    at: int
    cured: Mapping[str, str]
    over: int  # the first second at which it no longer fires
    needed: tuple[str, ...]
    window_s: int = 0  # the rule's longest look back
    restarted: Mapping[str, str] = field(default_factory=dict[str, str])  # a reset, no breach


BREACHES = (
    Breach(
        AlertName.CACHE_BELOW_FLOOR,
        {HIT: "0+8x60", LOOKUP: "0+10x60", LIVE: "26e9x60"},
        at=31,
        cured={LIVE: "26e9x39 24e9x20"},
        over=40,
        needed=(HIT, LOOKUP, LIVE),
        window_s=30,
        restarted={HIT: "1900+19x14 0+19x45", LOOKUP: "2000+20x14 0+20x45"},
    ),
    Breach(
        AlertName.LATENCY_DEGRADE,
        {IN_TIME: "0+3x60", OVERDUE: "0x9 1x50"},
        at=10,
        cured={},
        over=40,  # the window forgets it
        needed=(IN_TIME, OVERDUE),
        window_s=30,
        restarted={IN_TIME: "5000+5x14 0+5x45", OVERDUE: "1000x14 0x45"},
    ),
    Breach(
        AlertName.FAULT_RATE,
        {RING: "10000x90", FAULTED: "0x9 51x80", SERVED: "0+1x90"},
        at=10,
        cured={FAULTED: "0x9 51x9 50x60"},  # on the line
        over=20,
        needed=(RING, FAULTED, SERVED),
        window_s=60,
        restarted={RING: "10000x9 0x80", FAULTED: "40x9 0x80", SERVED: "90000+9x9 0x80"},
    ),
    Breach(
        AlertName.FIRST_PACKET_SHED,
        {FAST: "0+4x60", SPOKEN: "0+5x60"},
        at=4,  # twenty answers
        cured={FAST: "0+4x9 40+5x50", SPOKEN: "0+5x59"},
        over=33,
        needed=(SPOKEN,),  # none within the line is what a breach is
        window_s=30,
        restarted={FAST: "4900+49x14 0+49x45", SPOKEN: "5000+50x14 0+50x45"},
    ),
    Breach(
        AlertName.FIRST_PACKET_SLOW,
        {FAST: "0+4x90", SPOKEN: "0+5x90"},
        at=34,
        cured={FAST: "0+4x40 165+5x50", SPOKEN: "0+5x90"},
        over=63,
        needed=(SPOKEN,),
        window_s=30,
        restarted={FAST: "4900+49x14 0+49x75", SPOKEN: "5000+50x14 0+50x75"},
    ),
    Breach(
        AlertName.NO_DATA,
        {UP: "1x60", ANSWERED: "0+1x60", CAME: "0x60", LIVE: "0x60"},
        at=31,
        cured={CAME: "0x39 0+1x20"},
        over=41,
        needed=(),  # its business is what is missing
        window_s=30,
        restarted={ANSWERED: "900+1x14 0+1x45", CAME: "900+1x14 0+1x45"},
    ),
    Breach(
        AlertName.DETECTOR_BROKEN,
        {BROKE: "0x9 1+1x40 41x400"},
        at=10,
        cured={BROKE: "0x9 1+1x9 10x400"},
        over=319,
        needed=(BROKE,),
        window_s=300,
        restarted={BROKE: "40x9 0x400"},
    ),
    Breach(
        AlertName.RESIDENT_DOWN,
        {UP: "1x9 0x50", WEIGHT: "0.05x60"},
        at=20,
        cured={UP: "1x9 0x29 1x20"},
        over=40,
        needed=(UP, WEIGHT),
    ),
    Breach(
        AlertName.NO_WAY_BACK,
        {WAY_BACK: "1x9 0x30"},
        at=20,
        cured={WAY_BACK: "1x9 0x19 1x9"},
        over=30,
        needed=(WAY_BACK,),
    ),
    Breach(
        AlertName.ROLLBACK_INCOMPLETE,
        {UNPROVED: "0x9 1x20"},
        at=10,
        cured={UNPROVED: "0x9 1x9 0x9"},
        over=20,
        needed=(UNPROVED,),
    ),
    Breach(
        AlertName.JOURNAL_UNWRITABLE,
        {WRITABLE: "1x9 0x30"},
        at=20,
        cured={WRITABLE: "1x9 0x19 1x9"},
        over=30,
        needed=(WRITABLE,),
    ),
)

SLOW_BREACHES = (  # evaluated every 5 s
    Breach(
        AlertName.LADDER_EXHAUSTED,
        {OVERDUE: "0x4 25+25x260"},
        at=185,
        cured={OVERDUE: "0x4 25+25x200 5025x70"},
        over=265,  # the window has forgotten it, and it has been away for as long
        needed=(OVERDUE,),
        window_s=60,
        restarted={OVERDUE: "900x100 0x160"},
    ),
    Breach(
        AlertName.NO_TRAFFIC,
        {WEIGHT: "0.05x700", ANSWERED: "0x700"},
        at=600,
        cured={ANSWERED: "0x620 0+1x80"},
        over=625,
        needed=(WEIGHT,),
        restarted={ANSWERED: "900+1x300 0+1x400"},
    ),
)


def _only(alert: AlertName) -> Callable[[Sequence[Rule]], list[Rule]]:
    return partial(needed_by, alert)


def _pausing() -> Iterator[Scenario]:
    """Ten requests a second, and each minute 27 that are overdue, one a second: the degrading alert
    fires for 50 s of the minute. Where they are 5 it fires for 32 s and is over for 28 s; of them
    in 70 s, it is over for longer than a pause may last, and each time begins anew."""
    alert = AlertName.LADDER_EXHAUSTED
    firing = f'count(ALERTS{{alertname="{alert}",alertstate="firing"}})'
    for overdue in (27, 5):
        series = _named(alert, "on time", f"{overdue} overdue a minute", _minutely(overdue, 60), [])
        asked = [_at(firing, 180, False), _at(firing, 190, True), _at(firing, 300, True)]
        yield {**series, "promql_expr_test": asked}
    rare = _minutely(5, 70)
    yield never(alert, "short", "five overdue, and again 70 s later", rare, 320)


def _minutely(overdue: int, every_s: int) -> dict[str, str]:
    bursts = (
        f"{n * overdue}+1x{overdue} {(n + 1) * overdue}x{every_s - overdue - 2}" for n in range(6)
    )
    return {IN_TIME: f"0+10x{6 * every_s}", OVERDUE: " ".join(bursts)}


def _by_hand() -> Iterator[tuple[AlertName, Scenario]]:
    """Of the first packet's two rules: exactly on the line, and too few."""
    for alert in (AlertName.FIRST_PACKET_SHED, AlertName.FIRST_PACKET_SLOW):
        on_the_line = {FAST: "0+95x60", SPOKEN: "0+100x60"}
        yield alert, never(alert, "on the line", "five in a hundred", on_the_line, 60)
        few = {FAST: "0x60", SPOKEN: "0 19x31 38x28"}
        yield alert, never(alert, "few", "nineteen in any window", few, 59)


def runs() -> list[Run]:
    """Every scenario that is made from a breach."""
    made = [
        Run([*_scenarios(breach, step)], every=f"{step}s", chosen=_only(breach.alert))
        for step, breaches in ((1, BREACHES), (5, SLOW_BREACHES))
        for breach in breaches
    ]
    made.append(Run([*_pausing()], every="5s", chosen=_only(AlertName.LADDER_EXHAUSTED)))
    return made + [Run([scenario], chosen=_only(alert)) for alert, scenario in _by_hand()]


def _scenarios(breach: Breach, step: int) -> Iterator[Scenario]:
    """On time, cured, without each series it needs, ended, and restarted."""
    yield _on_time(breach, step)
    yield _resolves(breach, step)
    for gone in breach.needed:
        rest = {name: values for name, values in breach.series.items() if name != gone}
        yield _never(breach, "missing", f"without {gone}", rest)
    if breach.alert is not AlertName.NO_DATA:  # for it, an end is the beginning
        yield _stale(breach, step)
    if breach.restarted:
        yield _never(breach, "restart", "counts from 0", {**breach.series, **breach.restarted})


def _on_time(breach: Breach, step: int) -> Scenario:
    asked = [_fires(breach, breach.at - step, False), _fires(breach, breach.at, True)]
    return _scenario(breach, "on time", "not one evaluation before", breach.series, asked)


def _resolves(breach: Breach, step: int) -> Scenario:
    series = {**breach.series, **breach.cured}
    asked = [_fires(breach, breach.over - step, True), _fires(breach, breach.over, False)]
    return _scenario(breach, "resolves", "once it is cured", series, asked)


def _stale(breach: Breach, step: int) -> Scenario:
    end = breach.at + 5
    ended = {name: _cut(values, end) for name, values in breach.series.items()}
    after = end + breach.window_s + step
    asked = [_fires(breach, end - step, True), _fires(breach, after - after % step + step, False)]
    return _scenario(breach, "stale", "its series have ended", ended, asked)


def _never(breach: Breach, kind: str, text: str, series: Mapping[str, str]) -> Scenario:
    return never(breach.alert, kind, text, series, until=_length(breach))


def never(
    alert: AlertName, kind: str, text: str, series: Mapping[str, str], until: int
) -> Scenario:
    """A scenario in which `alert` never fires until then, seconds."""
    ever = f'count_over_time(ALERTS{{alertname="{alert}",alertstate="firing"}}[{until}s])'
    asked = {"expr": f"count({ever})", "eval_time": f"{until}s", "exp_samples": list[Any]()}
    return _named(alert, kind, text, series, [asked])


def _fires(breach: Breach, at: int, whether: bool) -> dict[str, Any]:
    return _at(f'count(ALERTS{{alertname="{breach.alert}",alertstate="firing"}})', at, whether)


def _at(expr: str, at: int, whether: bool) -> dict[str, Any]:
    samples = [{"labels": "{}", "value": 1}] if whether else []
    return {"expr": expr, "eval_time": f"{at}s", "exp_samples": samples}


def _scenario(
    breach: Breach, kind: str, text: str, series: Mapping[str, str], asked: list[dict[str, Any]]
) -> Scenario:
    return _named(breach.alert, kind, text, series, asked)


def _named(
    alert: AlertName, kind: str, text: str, series: Mapping[str, str], asked: list[dict[str, Any]]
) -> Scenario:
    given = [{"series": name, "values": values} for name, values in series.items()]
    return {
        "name": f"{alert} | {kind} | {text}",
        "interval": "1s",
        "input_series": given,
        "promql_expr_test": asked,
    }


def _cut(values: str, seconds: int) -> str:
    """The first `seconds` values, and then the mark of a series that ended."""
    return " ".join([*_values(values)[:seconds], "stale"])


def _length(breach: Breach) -> int:
    return min(len(_values(values)) for values in breach.series.values()) - 1


def _values(notation: str) -> list[str]:
    """promtool's `0+8x3 5x1 _` as single values."""
    found: list[str] = []
    for word in notation.split():
        base, _, times = word.partition("x")
        start, _, step = base.partition("+")
        count = int(times) + 1 if times else 1
        found += [f"{float(start) + n * float(step or 0):g}" for n in range(count)]
    return found
