"""Minutes of video through a pool that could not hold them: bounds, invariants and neighbours."""

import pytest

from bench.kv_long_video import long_request
from bench.models import shipped
from runtime.kv.formats import Format
from runtime.residents.port import Failed, Finished
from tests.support.asking import ask
from tests.unit.engine.driving import Driver


def until_done(driver: Driver, *names: str) -> None:
    """Step until these requests have ended; both tiers keep their bounds at every step."""
    cache, ended = driver.engine._cache, set[str]()
    pool = cache.pool
    while not ended.issuperset(names):
        for event in driver.step():
            assert not isinstance(event, Failed), event
            ended |= {event.request_id} if isinstance(event, Finished) else set()
        assert cache.check() == ()
        assert pool.live_bytes() <= pool.arena.books.peak_bytes <= pool.arena.nbytes
        assert pool.host.books.used_bytes <= pool.host.nbytes <= pool.host.limit


def native_bytes(driver: Driver, tokens: int) -> int:
    shape, layers = driver.engine._cache.pool.shape, driver.engine._cache.pool.layers
    return tokens // 16 * layers * shape.native_bytes


@pytest.mark.parametrize("form", [Format.SUBSPACE, Format.INT8])
def test_two_minutes_of_video_stay_within_a_pool_of_a_sixth_of_their_size(form: Format) -> None:
    driver = Driver(shipped(), pool_bytes=1_200_000, host_bytes=2_400_000, storage=form)
    driver.submit(long_request(2))
    until_done(driver, "long")
    (finished,) = driver.of("long", Finished)
    assert finished.completion_tokens > 0
    assert finished.prompt_tokens > 3000
    assert native_bytes(driver, finished.prompt_tokens) > 6 * driver.engine._cache.pool.arena.nbytes


def test_short_requests_find_room_beside_a_long_one_and_end_before_it() -> None:
    driver = Driver(shipped(), pool_bytes=1_500_000, host_bytes=2_400_000, storage=Format.INT8)
    driver.submit(long_request(2))
    driver.step(4)
    assert driver.engine._cache.live_sequences == 1
    names = [f"short {n}" for n in range(3)]
    for n, name in enumerate(names):
        driver.submit(ask(name, "hello", media=n % 2, max_tokens=4))
    driver.step()
    assert driver.engine._cache.live_sequences == 4  # while it is still being read
    until_done(driver, *names)
    assert driver.of("long", Finished) == []
    until_done(driver, "long")


def test_a_video_that_even_the_host_cannot_hold_is_refused_in_words() -> None:
    driver = Driver(shipped(), pool_bytes=1_200_000, host_bytes=300_000, storage=Format.INT8)
    driver.submit(long_request(2))
    driver.settle()
    failed = driver.failure("long")
    assert failed.kind == "bad_request"
    assert "send less" in failed.message


@pytest.mark.slow
@pytest.mark.parametrize(
    ("form", "pool_bytes"), [(Format.SUBSPACE, 2_500_000), (Format.INT8, 8_000_000)]
)
def test_ten_minutes_of_video_stay_within_their_bounds(form: Format, pool_bytes: int) -> None:
    driver = Driver(shipped(), pool_bytes=pool_bytes, host_bytes=pool_bytes, storage=form)
    driver.submit(long_request(10))
    until_done(driver, "long")
    (finished,) = driver.of("long", Finished)
    assert native_bytes(driver, finished.prompt_tokens) > 5 * driver.engine._cache.pool.arena.nbytes
