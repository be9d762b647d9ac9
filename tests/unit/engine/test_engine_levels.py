"""What a rung is for: fewer bytes, fewer tokens, less work, and all of it back at full fidelity."""

import json
from collections.abc import Callable

import pytest

from monitors.contract import DrillKind, DrillOrder, KvRung, MediaRung, Shed
from monitors.redlines import LadderLines, RedLines
from runtime import turns
from runtime.media.fidelity import fidelity_of
from runtime.openai_api import parse
from runtime.residents.port import Failed, Finished, Generate
from runtime.settings import MediaLimits
from tests.support import media
from tests.support.asking import ask
from tests.unit.engine.driving import Driver

Drive = Callable[..., Driver]
LADDER = LadderLines(full_height=360, degraded_height=180, floor_side=96)
WORDS = "word " * 200


def live(driver: Driver) -> tuple[int, int]:
    """Live bytes, and what they would be in the native format."""
    snapshot = driver.engine.snapshot()
    assert snapshot.live_native_bytes is not None
    return sum(cell.live_bytes for cell in snapshot.cells), snapshot.live_native_bytes


def test_int8_takes_less_of_the_pool_and_says_what_native_would_take(drive: Drive) -> None:
    driver = drive()
    driver.submit(ask("r", WORDS, max_tokens=60))
    driver.step(5)
    native, same = live(driver)
    assert native == same
    driver.engine.set_kv(KvRung.INT8)
    driver.step(10)
    packed, as_native = live(driver)
    assert packed < 0.6 * native
    assert as_native == pytest.approx(native, rel=0.1), "it grew by a few tokens meanwhile"


def test_pages_written_after_the_recovery_are_native_again(drive: Drive) -> None:
    driver = drive()
    driver.engine.set_kv(KvRung.INT8)
    driver.run(ask("packed", WORDS))
    driver.engine.set_kv(KvRung.NATIVE)
    driver.submit(ask("r", "other " * 200, max_tokens=60))
    driver.step(5)
    held, as_native = live(driver)
    assert held == as_native


# ---------------------------------------------------------------- media
def request(name: str, rung: MediaRung, clip: bytes) -> tuple[Generate, list]:
    """A clip as the gateway hands it to an engine on this rung."""
    content = [
        {"type": "video_url", "video_url": {"url": "attachment:clip.mp4"}},
        {"type": "text", "text": "What do you see and hear?"},
    ]
    body = {"model": "redline", "messages": [{"role": "user", "content": content}]}
    limits = MediaLimits()
    how = turns.Decoding(
        limits=limits, fidelity=fidelity_of(rung, LADDER), fps=2.0, slices=RedLines().scheduler
    )
    prompt = turns.Prompt()
    turns.build(parse(json.dumps(body).encode(), limits), {"clip.mp4": clip}, how, prompt)
    asked = Generate(
        request_id=name, turns=prompt.turns, max_tokens=1, speech=False, voice="ethan", salt="s",
        session="s",
    )  # fmt: skip
    return asked, prompt.arrays


def test_a_rung_of_media_takes_fewer_tokens_and_full_fidelity_as_many_as_before(
    drive: Drive,
) -> None:
    driver, clip = drive(), media.clip(2.0, width=640, height=360)
    tokens = {
        name: driver.run(request(name, rung, clip)).prompt_tokens
        for name, rung in (
            ("full", MediaRung.FULL),
            ("half", MediaRung.P360_8K),
            ("floor", MediaRung.P160_8K),
            ("again", MediaRung.FULL),
        )
    }
    assert tokens["half"] < 0.5 * tokens["full"]
    assert tokens["floor"] < tokens["half"]
    assert tokens["again"] == tokens["full"]


# ---------------------------------------------------------------- shedding
def slow(driver: Driver) -> None:
    """Every step takes a fifth of a second: whatever there is to do, the engine is busy with."""
    driver.engine.drill(DrillOrder(kind=DrillKind.SLOW, amount=0.2, seconds=3600.0))


def test_an_engine_that_is_not_busy_sheds_nothing_however_it_is_ordered(drive: Drive) -> None:
    driver = drive()
    driver.engine.set_shed(Shed.ON)
    driver.submit(ask("r", max_tokens=20))
    for _ in range(40):
        driver.clock.now += 0.2  # of which it works a few milliseconds
        driver.step()
    assert driver.of("r", Finished)


def test_a_busy_engine_sheds_text_above_85_percent_and_nothing_that_is_heard_or_seen(
    drive: Drive,
) -> None:
    driver = drive()
    slow(driver)
    driver.engine.set_shed(Shed.ON)
    for name, more in (("text", {}), ("seen", {"media": 2}), ("spoken", {"speech": True})):
        driver.submit(ask(name, max_tokens=20, **more))
    driver.settle()
    told = driver.failure("text").message
    assert int(told.removeprefix("dropped: the engine is ").removesuffix("% busy")) > 85
    assert driver.of("seen", Finished)
    assert driver.of("spoken", Finished)


def test_shedding_that_is_over_drops_nothing_and_starts_afresh(drive: Drive) -> None:
    driver = drive()
    slow(driver)
    driver.engine.set_shed(Shed.ON)
    driver.submit(ask("shed", max_tokens=40))
    driver.settle()
    assert driver.failure("shed").kind == "shed"
    driver.engine.set_shed(Shed.OFF)
    driver.submit(ask("kept", max_tokens=40))
    driver.settle()
    assert driver.of("kept", Finished)
    driver.engine.drill(DrillOrder(kind=DrillKind.SLOW, amount=0.2, seconds=0.0))
    driver.clock.now += 0.2
    driver.step()  # idle: at 80 % one that sheds goes on, and none begins
    driver.engine.set_shed(Shed.ON)
    driver.submit(ask("calm", max_tokens=2))
    driver.step(3)
    assert not driver.of("calm", Failed)
