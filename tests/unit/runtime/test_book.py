"""The book of measurements: what is shown before anything happened, and after an end."""

from dataclasses import replace

import msgspec
import pytest

from monitors import catalog
from monitors.contract import FaultFound, KvRung, Level, RequestFinished
from monitors.detectors.finding import Abstained, Finding
from monitors.labels import Detector, Fault, Grade, Milestone, Origin, Outcome
from monitors.redlines import RedLines
from runtime.book import WARM_AFTER, Book, Stamp
from runtime.residents.port import Capabilities, ShadowCount, Snapshot

CORRUPT = FaultFound(
    fault=Fault.VIDEO_CORRUPT,
    grade=Grade.SOFT,
    origin=Origin.PIPELINE,
    detector=Detector.BITSTREAM,
    rule="r",
    detail="",
)
LOST = RequestFinished(outcome=Outcome.LOST, faulted=True)


@pytest.fixture
def book() -> Book:
    return Book(RedLines(), "inc", clock=lambda: 0.0)


def stamp(pool_epoch: int | None) -> Stamp:
    return Stamp("a", "v2", "s", "r", pool_epoch, 1, Level())


def shown(book: Book) -> str:
    return book.exposition.render(None)[0].decode()


def test_a_versions_counters_are_there_before_their_first_step(book: Book) -> None:
    book.open("v2")
    for counter in (
        catalog.SERVED_REQUESTS,
        catalog.FAULTED_REQUESTS,
        catalog.SPEECH_SECONDS,
        catalog.UNDERRUN_SECONDS,
    ):
        assert f'{counter.name}{{version="v2"}} 0.0' in shown(book)
    assert f'{catalog.REQUESTS.name}{{outcome="lost",version="v2"}} 0.0' in shown(book)


def test_a_pool_is_warm_once_it_has_served_and_cold_again_when_its_engine_is_gone(
    book: Book,
) -> None:
    for _ in range(WARM_AFTER):
        assert not book.is_warm(stamp(3))
        book.finished(stamp(3), LOST, ())
    assert book.is_warm(stamp(3))
    assert not book.is_warm(stamp(4))
    book.lost_sight("v2")
    assert not book.is_warm(stamp(3))


def test_who_left_before_the_resident_is_counted_by_outcome_alone(book: Book) -> None:
    book.open("v2")
    book.finished(stamp(3), LOST, ())
    for ending in (Outcome.CANCELLED, Outcome.FAILED, Outcome.REFUSED):
        book.unserved("v2", ending)
    assert f'{catalog.REQUESTS.name}{{outcome="cancelled",version="v2"}} 1.0' in shown(book)
    assert f'{catalog.SERVED_REQUESTS.name}{{version="v2"}} 1.0' in shown(book)
    assert book.faults.rows()[0].finished == 1


def test_a_request_with_a_fault_burns_the_error_budget_once(book: Book) -> None:
    book.open("v2")
    book.finished(stamp(3), LOST, ())
    book.finished(stamp(3), RequestFinished(outcome=Outcome.OK, faulted=False), ())
    book.finished(replace(stamp(3), operator=True), LOST, ())
    book.unserved("v2", Outcome.FAILED)
    assert f'{catalog.FAULTED_REQUESTS.name}{{version="v2"}} 1.0' in shown(book)
    assert f'{catalog.SERVED_REQUESTS.name}{{version="v2"}} 2.0' in shown(book)


def test_after_a_flush_table_three_is_unknown_until_a_request_ends(book: Book) -> None:
    book.judged(stamp(3), Finding(Detector.BITSTREAM, (CORRUPT,), 0.25))
    book.finished(stamp(3), LOST, ())
    book.flushed("v2")
    assert book.faults.rows() == ()
    assert catalog.FAULT_WINDOW_REQUESTS.name + "{" not in shown(book)
    assert f'{catalog.REQUESTS.name}{{outcome="lost",version="v2"}} 1.0' in shown(book)
    book.finished(stamp(4), LOST, ())
    assert book.faults.rows()[0].requests == 1


def test_what_the_shadow_check_found_is_counted_and_table_one_says_why_reuse_is_off(
    book: Book,
) -> None:
    found = ShadowCount(checks=3, nats=0.25, tokens=12, agreed=11, trips=1)
    snapshot = Snapshot(
        pool_epoch=1,
        kv=KvRung.NATIVE,
        cells=(),
        prefix_hit_tokens=0,
        prefix_lookup_tokens=0,
        prefix_evictions=0,
        encoder_hits=0,
        encoder_lookups=0,
        reserved_bytes=0,
        device_bytes=None,
        table_entries=0,
        block_fill=None,
        running=0,
        waiting=0,
        busy_s=0.0,
        steps=0,
        reuse="off: shadow check tripped",
        live_sequences=0,
        shadow=found,
    )
    book.snapshot("v2", snapshot)
    counters = (
        catalog.SHADOW_CHECKS,
        catalog.SHADOW_NATS,
        catalog.SHADOW_TOKENS,
        catalog.SHADOW_AGREED,
        catalog.SHADOW_TRIPS,
    )
    for metric, value in zip(counters, (3, 0.25, 12, 11, 1), strict=True):
        assert f'{metric.name}{{version="v2"}} {float(value)}' in shown(book)
    assert [row.reuse for row in book.tables().cache_summary] == ["off: shadow check tripped"]


def test_what_the_caches_did_is_shown_as_the_engine_counted_it(book: Book) -> None:
    book.open("v2")
    snapshot = Snapshot(
        pool_epoch=1, kv=KvRung.NATIVE, cells=(), prefix_hit_tokens=11, prefix_lookup_tokens=12,
        prefix_evictions=13, encoder_hits=14, encoder_lookups=15, reserved_bytes=0,
        device_bytes=7, table_entries=8, block_fill=None, running=0, waiting=0, busy_s=0.0,
        steps=0, reuse="on", live_sequences=0,
    )  # fmt: skip
    book.snapshot("v2", snapshot)
    for counter, total in (
        (catalog.PREFIX_HIT_TOKENS, 11.0),
        (catalog.PREFIX_LOOKUP_TOKENS, 12.0),
        (catalog.PREFIX_EVICTIONS, 13.0),
        (catalog.ENCODER_HITS, 14.0),
        (catalog.ENCODER_LOOKUPS, 15.0),
    ):
        assert f'{counter.name}{{version="v2"}} {total}' in shown(book)
    for gauge, value in ((catalog.DEVICE_BYTES, 7.0), (catalog.TABLE_ENTRIES, 8.0)):
        assert f'{gauge.name}{{version="v2"}} {value}' in shown(book)


def test_what_a_detector_said_and_took_is_counted_whoever_asked(book: Book) -> None:
    abstained = Finding(Detector.LIP_SYNC, Abstained("under 4 s"), 0.5)
    book.judged(replace(stamp(3), operator=True), abstained)
    assert (
        'redline_detector_judgements_total{detector="lip_sync",judgement="abstained"} 1.0'
        in shown(book)
    )
    assert 'redline_detector_cpu_seconds_total{detector="lip_sync"} 0.5' in shown(book)


@pytest.mark.parametrize(("observes", "shown_as"), [(True, "1.0"), (False, "0.0")])
def test_what_an_engine_cannot_show_is_told_until_it_is_gone(
    book: Book, observes: bool, shown_as: str
) -> None:
    able = Capabilities(
        flush=True,
        probe=True,
        quantise_kv=True,
        drills=True,
        observes_residency=observes,
        observes_video_prefill=False,
    )
    book.shows("v2", able)
    said = f'{catalog.SHOWS_TABLE.name}{{table="cache",version="v2"}}'
    assert f"{said} {shown_as}" in shown(book)
    assert shown(book).count(catalog.SHOWS_TABLE.name + "{") == 1  # the others are never lacking
    book.lost_sight("v2")
    assert catalog.SHOWS_TABLE.name not in shown(book)


def test_a_flood_of_broken_uploads_is_shown_and_is_no_evidence(book: Book) -> None:
    broken = msgspec.structs.replace(CORRUPT, grade=Grade.HARD, origin=Origin.INPUT)
    for _ in range(300):
        book.judged(stamp(3), Finding(Detector.BITSTREAM, (broken,), 0.0))
        book.finished(stamp(3), RequestFinished(outcome=Outcome.OK, faulted=False), [broken])
    rows = {row.fault: row for row in book.faults.rows()}
    assert (rows[None].faulted, rows[None].input_only, rows[None].rate) == (0, 300, 0.0)
    assert rows[Fault.VIDEO_CORRUPT].input_only == 300


def test_an_engine_without_cells_has_no_memory_that_is_known(book: Book) -> None:
    book.cache.update("v2", (), 0.0)
    (summary,) = book.tables().cache_summary
    assert summary.gpu_mem_gb is summary.hit_rate is None


def test_what_was_judged_on_another_resident_is_noted_and_not_counted_as_work(book: Book) -> None:
    finding = Finding(Detector.BITSTREAM, (CORRUPT,), 0.5)
    book.judged(stamp(3), finding)
    assert book.brought(replace(stamp(4), version="v1"), finding) == (CORRUPT,)
    assert 'judgements_total{detector="bitstream",judgement="soft"} 1.0' in shown(book)
    assert 'redline_detector_cpu_seconds_total{detector="bitstream"} 0.5' in shown(book)


def test_versions_that_gave_their_place_away_make_room_for_others(book: Book) -> None:
    for number in range(8):  # of more than may be live at once
        version = f"v{number}"
        book.open(version)
        book.finished(replace(stamp(3), version=version), LOST, ())
        book.reached(replace(stamp(3), version=version), Milestone.FIRST_TOKEN, 0.1)
        if number:
            book.close(f"v{number - 1}")
    assert "v7" in shown(book)
    assert [n for n in range(7) if f'"v{n}"' in shown(book)] == []
    assert {row.version for row in book.latency.rows()} == {"v7"}
