"""Table 1: residency over a window, through restarts, without ever going negative."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitors.cache_table import COUNTERS, STALE_S, CacheCell, CacheRow, CacheSummary, CacheTable
from monitors.labels import Modality
from monitors.redlines import RedLines

AUDIO, VIDEO = Modality.AUDIO, Modality.VIDEO


def cell(
    hit: float,
    lookup: float,
    *,
    layer: int = 0,
    modality: Modality = AUDIO,
    live_bytes: int = 0,
    entropy_th: float | None = None,
) -> CacheCell:
    return CacheCell(
        layer=layer,
        modality=modality,
        entropy_th=entropy_th,
        hit_mass=hit,
        lookup_mass=lookup,
        entropy_sum=lookup / 4,
        entropy_count=int(lookup),
        token_entropy_sum=2 * lookup,
        token_entropy_count=int(lookup),
        live_bytes=live_bytes,
        evictable_bytes=7,
        host_bytes=8,
        alias_pages=9,
    )


def table(window_s: float = 30.0) -> CacheTable:
    return CacheTable(RedLines(), window_s)


def test_a_row_has_the_columns_of_the_article() -> None:
    cache = table()
    cache.update("v1", [cell(0, 0, layer=3)], 0.0)
    cache.update("v1", [cell(9, 10, layer=3, live_bytes=2_500_000_000, entropy_th=0.35)], 1.0)
    assert cache.rows(1.0) == (
        CacheRow(
            version="v1", layer_id=3, modal=AUDIO, entropy_th=0.35, hit_rate=0.9, gpu_mem_gb=2.5
        ),
    )


def test_rows_stand_in_order_of_layer_and_modality() -> None:
    cache = table()
    cache.update(
        "v1", [cell(0, 0, layer=1), cell(0, 0, modality=VIDEO), cell(0, 0, modality=AUDIO)], 0.0
    )
    assert [(r.layer_id, r.modal) for r in cache.rows(0.0)] == [(0, AUDIO), (0, VIDEO), (1, AUDIO)]


def test_without_a_lookup_in_the_window_the_hit_rate_is_unknown() -> None:
    cache = table()
    cache.update("v1", [cell(50, 100)], 0.0)
    assert cache.rows(0.0)[0].hit_rate is None  # how old these counts are cannot be known
    cache.update("v1", [cell(50, 100)], 1.0)
    assert cache.rows(1.0)[0].hit_rate is None
    assert cache.summaries(1.0)[0].hit_rate is None


def test_the_hit_rate_forgets_what_is_older_than_the_window() -> None:
    cache = table(window_s=10.0)
    cache.update("v1", [cell(0, 0)], 0.0)
    cache.update("v1", [cell(0, 100)], 1.0)  # a bad second
    for second in range(2, 11):
        cache.update("v1", [cell(100.0 * (second - 1), 100.0 * second)], float(second))
    assert cache.rows(10.0)[0].hit_rate == 0.9
    cache.update("v1", [cell(1_000, 1_100)], 11.0)
    assert cache.rows(11.0)[0].hit_rate == 1.0


def test_an_engine_restart_counts_from_zero_again() -> None:
    cache = table()
    cache.update("v1", [cell(0, 0), cell(0, 0, layer=1)], 0.0)
    cache.update("v1", [cell(90, 100), cell(90, 100, layer=1)], 1.0)
    cache.lost_sight("v1")
    # After the restart layer 1 has overtaken its old counters already.
    cache.update("v1", [cell(5, 10), cell(100, 110, layer=1)], 2.0)
    rates = [row.hit_rate for row in cache.rows(2.0)]
    assert rates == [pytest.approx(95 / 110), pytest.approx(190 / 210)]


def test_a_sum_that_falls_by_rounding_is_no_restart() -> None:
    cache = table(window_s=1.5)
    cache.update("v1", [cell(0, 0), cell(0, 0, layer=1)], 0.0)
    cache.update("v1", [cell(49_500, 50_000), cell(49_500, 50_000, layer=1)], 1.0)
    steady = cell(49_500, 50_000)
    fallen = msgspec.structs.replace(steady, entropy_sum=steady.entropy_sum - 2.4e-7)
    cache.update("v1", [fallen, cell(49_550, 50_100, layer=1)], 31.0)
    cache.update("v1", [steady, cell(49_600, 50_200, layer=1)], 32.0)
    assert [row.hit_rate for row in cache.rows(32.5)] == [None, 0.5]
    (state,) = cache.cells(32.0)
    assert state.totals[0].tolist() == [getattr(steady, name) for name in COUNTERS]


def test_the_summary_weighs_by_attention_mass_and_adds_up_memory() -> None:
    cache = table()
    cache.update("v1", [cell(0, 0), cell(0, 0, modality=VIDEO)], 0.0)
    cells = [
        cell(0, 10, live_bytes=10**9),
        cell(90, 90, modality=VIDEO, live_bytes=2 * 10**9),
    ]
    cache.update("v1", cells, 1.0)
    assert cache.summaries(1.0) == (CacheSummary(version="v1", hit_rate=0.9, gpu_mem_gb=3.0),)


def test_a_version_that_fell_silent_has_no_rows() -> None:
    cache = table(window_s=30.0)
    cache.update("v1", [cell(0, 0)], 0.0)
    cache.update("v2", [cell(0, 0)], 10.0)
    assert {row.version for row in cache.rows(STALE_S)} == {"v1", "v2"}
    assert {row.version for row in cache.rows(STALE_S + 0.1)} == {"v2"}
    assert {summary.version for summary in cache.summaries(STALE_S + 0.1)} == {"v2"}


def test_a_rule_that_holds_shorter_than_updates_are_apart_still_has_its_table() -> None:
    """An engine with a large pool tells its numbers every 5 s."""
    cache = table(window_s=2.0)
    for now, hit in ((0.0, 0.0), (5.0, 90.0), (10.0, 140.0)):
        cache.update("v1", [cell(hit, 20.0 * now)], now)
    for now in (10.0, 12.0, 14.9):
        assert [row.hit_rate for row in cache.rows(now)] == [0.5]
        assert [summary.hit_rate for summary in cache.summaries(now)] == [0.5]


def test_the_window_is_by_default_as_long_as_the_cache_rule_holds() -> None:
    hold_s = RedLines().cache.hold_s
    cache = CacheTable(RedLines())
    for now, hit in ((0.0, 0.0), (1.0, 0.0), (hold_s, 90.0)):
        cache.update("v1", [cell(hit, 100.0 * now)], now)
    assert cache.rows(hold_s)[0].hit_rate == pytest.approx(0.9 / hold_s)
    assert cache.rows(hold_s + 1.0)[0].hit_rate == pytest.approx(0.9 / (hold_s - 1.0))


def test_what_a_dead_engine_held_is_unknown_at_once_and_its_counts_are_kept() -> None:
    cache = table()
    cache.update("v1", [cell(0, 0)], 0.0)
    cache.update("v1", [cell(50, 100)], 1.0)
    cache.lost_sight("v1")
    cache.lost_sight("v2")  # was never seen
    assert cache.rows(1.0) == cache.summaries(1.0) == cache.cells(1.0) == ()
    cache.update("v1", [cell(80, 120)], 2.0)  # more than the old one had: it did start from 0
    (state,) = cache.cells(2.0)
    assert state.totals[0, :2].tolist() == [130.0, 220.0]
    assert cache.rows(2.0)[0].hit_rate == pytest.approx(130 / 220)


STEP = st.tuples(st.floats(0.0, 1.0), st.floats(0.0, 50.0), st.booleans(), st.floats(0.0, 9.0))


@settings(max_examples=120, deadline=None)
@given(st.lists(STEP, min_size=1, max_size=40))
def test_totals_never_fall_and_rates_stay_between_0_and_1(
    steps: list[tuple[float, float, bool, float]],
) -> None:
    """(share of hits, mass looked up, engine restarted first, seconds passed) in any order."""
    cache = table(window_s=10.0)
    now = hit = lookup = 0.0
    last = (0.0,) * 6
    for share, mass, restarted, passed in steps:
        now += passed
        if restarted:
            hit = lookup = 0.0
            cache.lost_sight("v1")
        hit, lookup = hit + share * mass, lookup + mass
        cache.update("v1", [cell(hit, lookup)], now)
        (state,) = cache.cells(now)
        totals = state.totals[0].tolist()
        rate = cache.rows(now)[0].hit_rate
        assert all(total >= before for total, before in zip(totals, last, strict=True))
        assert rate is None or 0.0 <= rate <= 1.0
        assert cache.summaries(now)[0].hit_rate == rate
        last = totals


def test_the_summary_tells_what_the_engine_last_said_of_reuse() -> None:
    cache = CacheTable(RedLines())
    for now, state in enumerate(("on", "off: shadow check tripped")):
        cache.update("v1", [cell(0, 0)], float(now), state)
        assert [summary.reuse for summary in cache.summaries(now)] == [state]
