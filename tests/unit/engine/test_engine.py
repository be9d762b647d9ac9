"""The engine on a real tiny checkpoint: streams, cache, failures, flush and drills."""

from collections.abc import Callable
from pathlib import Path

import pytest

from monitors.contract import DrillKind, DrillOrder, KvRung, Shed
from monitors.labels import Modality
from monitors.redlines import RedLines
from runtime.engine import worker
from runtime.engine.speech import FIRST_PACKET_FRAMES, PACKET_FRAMES, TRUNCATED_FRAMES, Speech
from runtime.kv.reuse import AtRandom, ReusePolicy, off
from runtime.model.checkpoint import Checkpoint
from runtime.model.processor import Processor
from runtime.residents.port import (
    AudioDelta,
    Failed,
    Finished,
    TextDelta,
    VideoPrefilled,
)
from tests.support.asking import ask
from tests.unit.engine.driving import Driver, Killed

Drive = Callable[..., Driver]
SAMPLES_PER_FRAME = 480


def order(kind: DrillKind, amount: float = 0.0, seconds: float = 60.0) -> DrillOrder:
    return DrillOrder(kind=kind, amount=amount, seconds=seconds)


def live_bytes(driver: Driver) -> int:
    return sum(cell.live_bytes for cell in driver.engine.snapshot().cells)


def mass(driver: Driver, kind: str) -> float:
    return sum(getattr(cell, kind) for cell in driver.engine.snapshot().cells)


# ---------------------------------------------------------------- streams
def test_a_clip_gives_video_prefilled_then_text_then_sound_then_the_end(drive: Drive) -> None:
    driver = drive()
    finished = driver.run(ask("r", media=2, speech=True))
    kinds = [type(e) for e in driver.log]
    firsts = [kinds.index(k) for k in (VideoPrefilled, TextDelta, AudioDelta, Finished)]
    assert firsts == sorted(firsts)
    assert kinds.count(VideoPrefilled) == kinds.count(Finished) == 1
    assert (finished.text_reason, finished.speech_reason) == ("length", "stop")
    assert finished.completion_tokens == 8 == sum(e.tokens for e in driver.of("r", TextDelta))
    assert finished.av_offset_ms == pytest.approx(0.0, abs=40.0)
    assert {r.modality for r in finished.residency} >= {Modality.AUDIO, Modality.VIDEO}
    assert all(r.hit_mass == r.lookup_mass > 0 for r in finished.residency)


def test_text_and_sound_come_while_the_thinker_still_writes(drive: Drive) -> None:
    driver = drive()
    driver.run(ask("r", speech=True, max_tokens=16))
    kinds = [type(e) for e in driver.log]
    last_text = len(kinds) - 1 - kinds[::-1].index(TextDelta)
    assert kinds.index(AudioDelta) < last_text


def test_packets_hold_two_frames_first_then_four_and_no_sample_is_lost(drive: Drive) -> None:
    driver = drive()
    finished = driver.run(ask("r", speech=True))
    frames = [e.frames for e in driver.of("r", AudioDelta)]
    assert frames[0] == FIRST_PACKET_FRAMES
    assert set(frames[1:-1]) <= {PACKET_FRAMES}
    assert sum(frames) == finished.codec_frames > 0
    assert finished.samples == finished.codec_frames * SAMPLES_PER_FRAME
    assert len(driver.pcm("r")) == 2 * finished.samples


def test_a_text_turn_never_touches_the_talker(
    drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Speech, "__init__", lambda *_: pytest.fail("the Talker was opened"))
    finished = drive().run(ask("r", media=2))
    assert (finished.speech_reason, finished.codec_frames, finished.samples) == (None, 0, 0)


def test_requests_together_answer_as_each_does_alone(drive: Drive) -> None:
    requests = [ask(f"r{i}", f"Question {i}?", media=i % 3, seed=i, speech=True) for i in range(4)]
    alone = drive()
    for request in requests:
        alone.run(request)
    together = drive()
    for request in requests:
        together.submit(request)
    packed = [
        len({e.request_id for e in together.step() if isinstance(e, TextDelta)}) for _ in range(20)
    ]
    assert max(packed) > 1  # tokens of several requests came of one step
    together.settle()
    for i in range(4):
        assert together.text(f"r{i}") == alone.text(f"r{i}")
        assert together.pcm(f"r{i}") == alone.pcm(f"r{i}")


def test_a_long_prompt_is_prefilled_in_slices_that_let_others_in(drive: Drive) -> None:
    driver = drive()
    driver.submit(ask("long", "word " * 700))
    driver.step()
    driver.submit(ask("spoken", media=1, video=False))
    driver.settle()
    ends = [e.request_id for e in driver.log if isinstance(e, Finished)]
    assert ends == ["spoken", "long"]


def test_deltas_hold_whole_characters_only(drive: Drive, loaded: Checkpoint) -> None:
    driver = drive()
    name = driver.submit(ask("r", max_tokens=40))
    driver.settle()
    texts = [e.text for e in driver.of(name, TextDelta)]
    assert not any(text.endswith("\N{REPLACEMENT CHARACTER}") for text in texts[:-1])


# ---------------------------------------------------------------- the cache
def test_asking_again_finds_the_prompt_in_the_cache_and_answers_the_same(drive: Drive) -> None:
    driver = drive()
    cold = driver.run(ask("cold", media=4, speech=True))
    warm = driver.run(ask("warm", media=4, speech=True))
    assert cold.cached_tokens == 0
    assert warm.cached_tokens > 0.7 * warm.prompt_tokens
    assert driver.text("warm") == driver.text("cold")
    assert driver.pcm("warm") == driver.pcm("cold")
    assert len(driver.of("warm", VideoPrefilled)) == 1


def test_every_request_is_sampled_once_however_rarely_steps_are(drive: Drive) -> None:
    driver = drive(observe_every=10**9)
    for name in ("cold", "warm"):
        finished = driver.run(ask(name, media=4))
        assert sum(r.lookup_mass for r in finished.residency) > 0
    layers = 4
    assert mass(driver, "token_entropy_count") == 2 * layers  # of the last token of each prompt
    assert mass(driver, "entropy_count") > 100 * layers  # of every token


def test_another_question_about_a_clip_reuses_the_clip(drive: Drive) -> None:
    driver = drive()
    driver.run(ask("one", "What is it?", media=2))
    finished = driver.run(ask("two", "How many are there?", media=2))
    assert finished.cached_tokens > 20
    other = driver.run(ask("three", "What is it?", media=2, seed=1))
    assert other.cached_tokens < 20


def test_a_probe_reads_the_cache_and_leaves_no_trace(drive: Drive) -> None:
    driver = drive()
    driver.run(ask("probe", media=2, cache_write=False))
    assert mass(driver, "evictable_bytes") == 0
    assert driver.engine.count_stale(99).encoder_outputs == 0
    driver.run(ask("r", media=2))
    assert driver.run(ask("again", media=2, cache_write=False)).cached_tokens > 0


def test_everything_is_given_back_at_the_end(drive: Drive) -> None:
    driver = drive()
    driver.run(ask("r", media=2, speech=True))
    snapshot = driver.engine.snapshot()
    assert (snapshot.running, snapshot.waiting, snapshot.live_sequences) == (0, 0, 0)
    assert live_bytes(driver) == 0
    assert snapshot.block_fill is None
    assert snapshot.reuse == "off: uncalibrated"
    assert snapshot.steps > 0


def test_more_requests_than_fit_wait_for_their_turn(drive: Drive) -> None:
    driver = drive(pool_bytes=1_400_000)
    for i in range(5):
        driver.submit(ask(f"r{i}", "word " * 60, seed=i))
    driver.step()
    assert driver.engine.snapshot().waiting > 0
    driver.settle()
    assert sum(isinstance(e, Finished) for e in driver.log) == 5


def test_int8_makes_live_bytes_fall_and_the_request_goes_on(drive: Drive) -> None:
    driver = drive()
    driver.submit(ask("r", "word " * 200, max_tokens=40))
    driver.step(5)
    before = live_bytes(driver)
    assert driver.engine.set_kv(KvRung.INT8) > 0
    driver.step(10)
    assert live_bytes(driver) < 0.6 * before
    driver.settle()
    assert driver.of("r", Finished)
    assert driver.engine.snapshot().kv is KvRung.INT8
    assert driver.run(ask("again", "word " * 200)).cached_tokens > 0


# ---------------------------------------------------------------- failures
@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (ask("r", "word " * 9000), "send less"),
        (ask("r", speech=True, voice="nobody"), "choose one of"),
        (ask("r", max_tokens=0), "at least 1"),
        ((ask("r", media=1)[0], []), "array"),
    ],
    ids=["too long", "unknown voice", "no tokens", "missing array"],
)
def test_a_bad_request_fails_in_words_and_nothing_is_kept(
    drive: Drive, request_: tuple, words: str
) -> None:
    driver = drive()
    driver.submit(request_)
    driver.settle()
    failed = driver.failure("r")
    assert failed.kind == "bad_request"
    assert words in failed.message
    assert driver.engine.snapshot().live_sequences == 0


def test_an_error_in_one_requests_work_fails_that_request_alone(
    drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = drive()
    advance = Speech.advance

    def broken(self: Speech, *args: object, **more: object) -> AudioDelta | None:
        if self._request_id == "bad":
            raise RuntimeError("the Talker fell over")
        return advance(self, *args, **more)

    monkeypatch.setattr(Speech, "advance", broken)
    for name in ("bad", "good"):
        driver.submit(ask(name, name, speech=True))
    driver.settle()
    assert driver.failure("bad").kind == "engine"
    assert "the Talker fell over" in driver.failure("bad").message
    assert driver.of("good", Finished)
    assert live_bytes(driver) == 0


def test_a_prompt_that_cannot_be_built_fails_that_request_alone(
    drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = drive()
    with monkeypatch.context() as patch:
        patch.setattr(Processor, "prompt", lambda *_, **__: 1 // 0)
        driver.submit(ask("bad"))
    driver.submit(ask("good"))
    driver.settle()
    assert driver.failure("bad").kind == "engine"
    assert driver.of("good", Finished)


@pytest.mark.parametrize("steps", [0, 1, 3, 6])
def test_a_cancelled_request_releases_everything(drive: Drive, steps: int) -> None:
    driver = drive()
    driver.submit(ask("r", media=2, speech=True, max_tokens=30))
    driver.step(steps)
    driver.engine.cancel("r")
    driver.engine.cancel("r")
    driver.settle()
    assert driver.failure("r").kind == "cancelled"
    assert live_bytes(driver) == 0
    assert not driver.of("r", Finished)


def test_an_id_in_flight_is_refused(drive: Drive) -> None:
    driver = drive()
    driver.submit(ask("r"))
    with pytest.raises(ValueError, match="in flight"):
        driver.submit(ask("r"))


# ---------------------------------------------------------------- flush
def test_a_flush_empties_all_and_the_same_prompt_misses(drive: Drive) -> None:
    driver = drive()
    driver.run(ask("done", media=2))
    driver.submit(ask("running", media=2, seed=3, max_tokens=30))
    driver.step(4)
    receipt = driver.engine.flush(5)
    assert receipt.complete
    assert (receipt.old_epoch, receipt.new_epoch) == (0, 5)
    assert receipt.invalidated_at < receipt.emptied_at
    assert min(receipt.pages, receipt.encoder_outputs, receipt.talker_states, receipt.bytes) > 0
    stale = driver.engine.count_stale(5)
    assert (stale.pages, stale.host_pages, stale.encoder_outputs, stale.talker_states) == (0,) * 4
    driver.settle()
    assert driver.failure("running").kind == "lost"
    assert driver.run(ask("again", media=2)).cached_tokens == 0


def test_a_flush_repeated_empties_nothing_of_the_new_epoch(drive: Drive) -> None:
    driver = drive()
    driver.engine.flush(2)
    driver.run(ask("r", media=2))
    receipt = driver.engine.flush(2)
    assert (receipt.new_epoch, receipt.pages, receipt.complete) == (2, 0, True)
    assert driver.run(ask("again", media=2)).cached_tokens > 0


# ---------------------------------------------------------------- drills
def test_a_slow_drill_sleeps_in_each_step_and_ends_by_itself(drive: Drive) -> None:
    driver = drive()
    driver.engine.drill(order(DrillKind.SLOW, 0.2, seconds=1.0))
    driver.run(ask("r", max_tokens=30))
    assert set(driver.clock.slept) == {0.2}
    assert 3 <= len(driver.clock.slept) <= 6


def test_a_truncating_drill_loses_samples_and_says_length(drive: Drive) -> None:
    driver = drive()
    driver.engine.drill(order(DrillKind.TRUNCATE))
    finished = driver.run(ask("r", speech=True, max_tokens=12))
    assert finished.speech_reason == "length"
    assert finished.codec_frames == TRUNCATED_FRAMES
    assert finished.samples < finished.codec_frames * SAMPLES_PER_FRAME
    driver.engine.drill(order(DrillKind.TRUNCATE, seconds=0))
    assert driver.run(ask("s", speech=True, max_tokens=12)).speech_reason == "stop"


def test_a_desync_drill_shifts_audio_on_the_models_clock(drive: Drive) -> None:
    driver = drive()
    driver.engine.drill(order(DrillKind.DESYNC, 0.4))
    finished = driver.run(ask("r", media=2))
    assert finished.av_offset_ms == pytest.approx(400, abs=40)
    assert finished.clock_error is not None
    assert finished.clock_error.error_ms == pytest.approx(400, abs=40)


def test_a_corrupting_drill_shows_in_the_pixels_and_never_in_the_cache(drive: Drive) -> None:
    driver = drive()
    driver.run(ask("before", media=2))
    driver.engine.drill(order(DrillKind.CORRUPT))
    hurt = driver.run(ask("hurt", media=2))
    driver.engine.drill(order(DrillKind.CORRUPT, seconds=0))
    driver.run(ask("after", media=2))
    errors = [driver.of(n, VideoPrefilled)[0].mean_abs_error for n in ("before", "hurt", "after")]
    assert errors[0] == errors[2] == 0
    assert errors[1] is not None
    assert errors[1] > 1.5
    assert hurt.cached_tokens < 20
    assert driver.text("after") == driver.text("before")


def test_a_pressure_drill_pins_until_the_share_is_live_and_lets_go(drive: Drive) -> None:
    driver = drive()
    report = driver.engine.drill(order(DrillKind.PRESSURE, 0.6, seconds=1.0))
    assert report.running
    pool = driver.engine.ready().pool_pages * driver.engine.ready().page_bytes
    assert 0.6 * pool <= live_bytes(driver) < 0.65 * pool
    driver.engine.set_kv(KvRung.INT8)
    for _ in range(20):
        driver.step()
    assert live_bytes(driver) < 0.3 * pool
    driver.clock.sleep(2.0)
    driver.step()
    assert live_bytes(driver) == 0


def test_pressure_sends_running_pages_to_the_host_and_the_hit_rate_falls(drive: Drive) -> None:
    driver = drive(pool_bytes=3_000_000, observe_every=1)
    driver.submit(ask("r", "word " * 150, max_tokens=60))
    driver.step(3)
    driver.engine.drill(order(DrillKind.PRESSURE, 1.0))
    driver.step(3)
    assert mass(driver, "host_bytes") > 0
    driver.settle()
    (finished,) = driver.of("r", Finished)
    (text,) = finished.residency
    assert text.hit_mass < 0.9 * text.lookup_mass


def test_the_engine_goes_by_the_red_lines_that_its_gateway_gives_it(
    drive: Drive, tmp_path: Path
) -> None:
    lines = RedLines.model_validate({"cache": {"pressure_share": 0.5}, "entropy": {"text": 0.1}})
    file = tmp_path / "lines.json"
    file.write_text(lines.model_dump_json())
    told = "--name a --socket s --checkpoint c --version v --min-epoch 1 --pool-mb 8 --lines"
    settings = worker._settings(worker._parse([*told.split(), str(file)]))
    assert settings.lines == lines
    assert drive(lines=lines).engine._cache.tiers.limits.share == 0.5


def test_a_flush_ends_a_pressure_drill_and_leaves_nothing(drive: Drive) -> None:
    driver = drive()
    driver.engine.drill(order(DrillKind.PRESSURE, 0.5))
    assert driver.engine.flush(1).complete
    assert live_bytes(driver) == 0


def test_a_kill_drill_ends_the_process(drive: Drive) -> None:
    with pytest.raises(Killed):
        drive().engine.drill(order(DrillKind.KILL))


def test_a_lying_flush_says_done_and_keeps_everything(drive: Drive) -> None:
    driver = drive()
    driver.run(ask("r", media=2))
    driver.engine.drill(order(DrillKind.LYING_FLUSH))
    receipt = driver.engine.flush(7)
    assert (receipt.complete, receipt.new_epoch) == (True, 7)
    assert driver.engine.count_stale(7).pages > 0
    assert driver.run(ask("probe", media=2)).cached_tokens > 0
    driver.engine.drill(order(DrillKind.LYING_FLUSH, seconds=0))
    assert driver.engine.flush(7).complete
    assert driver.engine.count_stale(7).pages == 0


@pytest.mark.parametrize(
    ("kind", "amount"), [(DrillKind.SLOW, 0.0), (DrillKind.SLOW, 99.0), (DrillKind.PRESSURE, 1.5)]
)
def test_an_unusable_drill_is_refused_in_words(
    drive: Drive, kind: DrillKind, amount: float
) -> None:
    with pytest.raises(ValueError, match="choose above 0"):
        drive().engine.drill(order(kind, amount))


# ---------------------------------------------------------------- shedding
def test_shedding_drops_text_only_and_only_when_asked(drive: Drive) -> None:
    lines = RedLines.model_validate(
        {"scheduler": {"shed_utilisation": 0.01, "resume_utilisation": 0.005}}
    )
    driver = drive(lines=lines)
    for name in ("text", "spoken"):
        driver.submit(ask(name, max_tokens=40, speech=name == "spoken"))
    driver.step(5)
    assert not any(isinstance(e, Failed) for e in driver.log)
    driver.engine.set_shed(Shed.ON)
    driver.settle()
    assert driver.failure("text").kind == "shed"
    assert driver.of("spoken", Finished)


@pytest.mark.parametrize("reuse", [off("uncalibrated"), ReusePolicy("on", AtRandom(0.5), (1,))])
def test_any_prompt_longer_than_the_engine_says_leaves_blocks_in_the_cache(
    drive: Drive, reuse: ReusePolicy
) -> None:
    driver, hits = drive(reuse=reuse), dict[int, int]()
    for words in range(1, 90, 4):
        text = " ".join(["one"] * words)
        for again in ("first", "second"):
            found = driver.run(ask(f"{words} {again}", text, salt=f"{words}", max_tokens=1))
        hits[found.prompt_tokens] = found.cached_tokens
    limit = driver.engine.ready().uncached_tokens
    assert all(cached > 0 for tokens, cached in hits.items() if tokens > limit)
    assert any(cached == 0 for tokens, cached in hits.items() if tokens > limit - 16)
