"""The shadow check: what it finds, that it trips, and that nobody waits for it."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from monitors.contract import DrillKind, DrillOrder, KvRung, MediaRung
from monitors.labels import Modality
from monitors.redlines import RedLines
from runtime.engine import shadow
from runtime.engine.request import TRAIL_TOKENS
from runtime.engine.shadow import ShadowSettings, divergence
from runtime.kv.formats import Format
from runtime.kv.reuse import (
    SHADOW_BUDGET_NATS,
    AtRandom,
    Calibrated,
    CellRule,
    ReusePolicy,
    Sign,
    off,
)
from runtime.media.fidelity import fidelity_of
from runtime.model import checkpoint
from runtime.model.checkpoint import Checkpoint
from runtime.quality import asking
from runtime.quality.held_out import draw
from runtime.quality.tasks import Kind
from runtime.residents.port import Failed, ShadowCount
from tests.support.asking import ask
from tests.support.sharing import own_scale
from tests.unit.engine.driving import Driver

Drive = Callable[..., Driver]
ALL = ShadowSettings(share=1.0, least=3)


def reusing(share: float = 1.0, budget: float = 1e9) -> ReusePolicy:
    return ReusePolicy("on", AtRandom(share), (1,), shadow_budget=budget)


def checked(driver: Driver) -> ShadowCount:
    return driver.engine.snapshot().shadow


def clip(name: str, **more: object) -> tuple:
    """Long enough that blocks fall 64 tokens behind."""
    return ask(name, **({"media": 8, "seed": len(name), "max_tokens": 4} | more))


# ---------------------------------------------------------------- the figure
def test_divergence_is_kullback_leibler_from_the_full_run_averaged_over_tokens() -> None:
    full = torch.tensor([[0.0, 0.0, -math.inf], [2.0, 0.0, -math.inf]])
    reused = torch.tensor([[math.log(3.0), 0.0, -math.inf], [2.0, 0.0, -math.inf]])
    found = divergence(full, reused)
    by_hand = 0.5 * math.log(0.5 / 0.75) + 0.5 * math.log(0.5 / 0.25)
    assert found.nats == pytest.approx(by_hand / 2, rel=1e-5)
    assert (found.tokens, found.agreed) == (2, 2)
    assert divergence(reused, full).nats != pytest.approx(found.nats, rel=1e-3)
    assert divergence(full, full.flip(1)).agreed == 0


def test_no_number_counts_as_far_off_and_no_divergence_is_below_nothing() -> None:
    fine = torch.zeros(1, 3)
    assert divergence(fine, fine * math.nan).nats == shadow.UNBOUNDED_NATS
    torch.manual_seed(0)
    noise = torch.randn(500, 64)
    assert divergence(noise, noise + 1e-7).nats >= 0.0


def test_the_share_is_of_the_ids_and_an_id_is_always_drawn_alike() -> None:
    names = [f"request {n}" for n in range(20_000)]
    drawn = [ShadowSettings(0.01).samples(name) for name in names]
    assert 100 < sum(drawn) < 300
    assert drawn == [ShadowSettings(0.01).samples(name) for name in names]
    assert not any(ShadowSettings(0.0).samples(name) for name in names)
    assert all(ShadowSettings(1.0).samples(name) for name in names)


# ---------------------------------------------------------------- what is checked
def test_an_answer_under_reuse_is_run_again_and_found_to_differ(drive: Drive) -> None:
    driver = drive(reuse=reusing(), shadow=ALL)
    finished = driver.run(clip("r"))
    found = checked(driver)
    assert (found.checks, found.tokens) == (1, finished.completion_tokens)
    assert found.nats > 1e-3
    assert driver.engine.snapshot().reuse == "on"


@pytest.mark.parametrize("media", [8, 24])
def test_the_second_run_of_an_answer_on_full_kv_is_the_first(drive: Drive, media: int) -> None:
    """Of one that reuse did not touch: all but the aliases is alike, over several slices too."""
    driver = drive(reuse=reusing(0.0), shadow=ALL, pool_bytes=32_000_000)
    engine = driver.engine
    engine._shadow._changed_by_reuse = lambda request: True
    driver.run(clip("r", media=media, max_tokens=12))
    found = checked(driver)
    assert (found.checks, found.tokens, found.agreed) == (1, 12, 12)
    assert found.nats < 1e-6


@pytest.mark.parametrize(
    ("settings", "request_of"),
    [
        ({"reuse": off("uncalibrated"), "shadow": ALL}, clip("nothing is aliased anywhere")),
        ({"reuse": reusing(), "shadow": ShadowSettings(0.0)}, clip("it is not drawn")),
        ({"reuse": reusing(), "shadow": ALL}, ask("too short to alias")),
        ({"reuse": reusing(0.0), "shadow": ALL}, clip("nothing of it is aliased")),
    ],
)
def test_what_reuse_did_not_touch_is_not_checked(
    drive: Drive, settings: dict, request_of: tuple
) -> None:
    driver = drive(**settings)
    driver.run(request_of)
    assert checked(driver) == ShadowCount()


def test_quantised_pages_are_not_blamed_on_reuse(drive: Drive) -> None:
    driver = drive(reuse=reusing(), shadow=ALL)
    driver.engine.set_kv(KvRung.INT8)
    driver.run(clip("r"))
    assert checked(driver).checks == 0


@pytest.mark.parametrize("storage", [Format.NATIVE, Format.INT8, Format.INT4])
def test_answers_over_packed_pages_are_checked(drive: Drive, storage: Format) -> None:
    driver = drive(reuse=reusing(), shadow=ALL, storage=storage)
    driver.run(clip("r"))
    assert checked(driver).checks == 1


def test_what_is_kept_of_an_answer_has_a_bound(drive: Drive) -> None:
    driver = drive(reuse=reusing(), shadow=ALL)
    driver.run(clip("r", max_tokens=TRAIL_TOKENS + 20))
    assert checked(driver).tokens == TRAIL_TOKENS


def test_few_answers_and_no_large_ones_wait_for_their_check(
    drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = drive(reuse=reusing(), shadow=ALL, pool_bytes=32_000_000)
    for number in range(shadow.PENDING + 2):
        driver.submit(clip("r" * (number + 1)))
    driver.settle()
    assert checked(driver).checks == shadow.PENDING
    monkeypatch.setattr(shadow, "MEDIA_BYTES", 1000)
    driver.run(clip("large"))
    assert checked(driver).checks == shadow.PENDING


# ---------------------------------------------------------------- tripping
def test_a_harmful_policy_trips_by_itself_and_says_why(drive: Drive) -> None:
    driver = drive(reuse=reusing(0.9, budget=1e-4), shadow=ALL)
    before = driver.engine._cache.reuse.digest
    for name in ("one", "other", "another"):
        assert driver.engine.snapshot().reuse == "on"
        driver.run(clip(name))
    state = driver.engine.snapshot()
    assert state.reuse.startswith("off: shadow check tripped: ")
    assert state.reuse.endswith(" nats over 3 requests, budget 0.0001")
    assert state.shadow.trips == 1
    assert all(cell.entropy_th is None for cell in state.cells)
    assert driver.engine._cache.reuse.digest != before
    assert (
        driver.run(clip("again", seed=3)).cached_tokens == 0
    )  # what it aliased is not found again
    assert checked(driver).checks == 3
    assert driver.run(clip("more", seed=3)).cached_tokens > 0


def test_a_check_that_cannot_run_turns_reuse_off_and_says_why(
    drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reuse that nobody can watch is not safe; requests go on without it."""
    driver = drive(reuse=reusing(), shadow=ALL)

    def broken(*_: object) -> None:
        raise RuntimeError("no such thing")

    monkeypatch.setattr(driver.engine._forward, "replay", broken)
    driver.run(clip("r"))
    found = checked(driver)
    assert (found.checks, found.trips) == (0, 1)
    state = driver.engine.snapshot()
    assert (
        state.reuse == "off: shadow check tripped: a check failed with RuntimeError: no such thing"
    )
    assert (state.live_sequences, state.faults) == (0, ())
    assert driver.run(clip("more")).prompt_tokens > 0


def test_a_harmless_policy_does_not_trip(drive: Drive) -> None:
    harmless = Calibrated({(1, Modality.AUDIO): CellRule(Sign.BELOW, 0.0)})
    for policy in (reusing(0.9, budget=10.0), ReusePolicy("on", harmless, (1,))):
        driver = drive(reuse=policy, shadow=ALL)
        for seed in range(5):
            driver.run(clip(f"{seed}", seed=seed))
        assert (driver.engine.snapshot().reuse, checked(driver).trips) == ("on", 0)


@pytest.fixture
def shouted_at(tiny_checkpoint: Path) -> Checkpoint:
    """Loaded anew: the same answers, but an alias in it is far off."""
    loaded = checkpoint.load(tiny_checkpoint)
    own_scale(loaded)
    return loaded


def low_entropy(guard: float | None) -> ReusePolicy:
    """Takes whatever has an entropy, at the budget that holds where none was calibrated."""
    cells = {(1, modality): CellRule(Sign.BELOW, 9.0, guard) for modality in Modality}
    return ReusePolicy("on", Calibrated(cells), (1,))


def test_the_default_budget_is_broken_where_the_layers_have_nothing_to_share(
    shouted_at: Checkpoint,
) -> None:
    driver = Driver(shouted_at, reuse=low_entropy(None), shadow=ALL)
    for seed in range(3):
        driver.run(clip(f"{seed}", seed=seed))
    assert driver.engine.snapshot().reuse.startswith("off: shadow check tripped")
    assert checked(driver).agreed < checked(driver).tokens


def test_the_guard_keeps_such_a_model_from_harm_before_any_check(shouted_at: Checkpoint) -> None:
    driver = Driver(shouted_at, reuse=low_entropy(2.0), shadow=ALL)
    driver.run(clip("r"))
    assert checked(driver) == ShadowCount()  # nothing was aliased
    assert driver.engine.snapshot().reuse == "on"


def test_a_checkpoint_that_was_trained_for_it_keeps_to_the_default_budget(
    shipped_checkpoint: Path,
) -> None:
    driver = Driver(checkpoint.load(shipped_checkpoint), reuse=low_entropy(None), shadow=ALL)
    full = fidelity_of(MediaRung.FULL, RedLines().ladder)
    for number in range(ALL.least):
        sample = draw(Kind.PAIRS, 8, number, seed=0)
        asked = asking.ask(sample, full, 32, "ethan", speech=False)
        driver.run((asked.generate, list(asked.arrays)))
    found = checked(driver)
    assert found.checks == ALL.least
    assert found.nats / found.checks < SHADOW_BUDGET_NATS
    assert (driver.engine.snapshot().reuse, found.trips) == ("on", 0)


def test_too_few_answers_never_trip(drive: Drive) -> None:
    driver = drive(reuse=reusing(budget=1e-9), shadow=ShadowSettings(1.0, least=4))
    for seed in range(3):
        driver.run(clip(f"{seed}", seed=seed))
    assert (driver.engine.snapshot().reuse, checked(driver).checks) == ("on", 3)
    driver.run(clip("last", seed=9))
    assert driver.engine.snapshot().reuse != "on"


def test_old_answers_weigh_no_more_once_the_window_is_past_them(drive: Drive) -> None:
    driver = drive(reuse=reusing(budget=0.5), shadow=ShadowSettings(1.0, least=3, window=3))
    check = driver.engine._shadow
    for nats in [0.0] * 50 + [1.0, 1.0]:
        check._note(shadow.Divergence(nats, 1, 1))
    assert driver.engine.snapshot().reuse.startswith("off: shadow check tripped: 0.667 nats over 3")


def test_a_running_request_keeps_its_aliases_when_reuse_trips(drive: Drive) -> None:
    driver = drive(reuse=reusing(), shadow=ShadowSettings(0.0), pool_bytes=32_000_000)
    driver.submit(clip("r", max_tokens=100))
    driver.step(20)
    (running,) = driver.engine._cache._sequences
    aliased = sum(len(block.aliased) for block in running.table.blocks)
    driver.engine._cache.stop_reuse("tripped")
    driver.step(70)
    assert sum(len(block.aliased) for block in running.table.blocks) == aliased > 0
    driver.settle()
    assert not any(isinstance(e, Failed) for e in driver.log)


# ---------------------------------------------------------------- nobody waits for it
def under_way(driver: Driver) -> bool:
    """Whether a check holds pages now."""
    return driver.engine._cache.live_sequences > len(driver.engine._requests)


def until_under_way(driver: Driver) -> None:
    driver.submit(clip("long", media=24))
    while not under_way(driver):
        driver.step()


def test_a_check_gives_its_pages_back_when_a_request_comes_and_starts_anew(drive: Drive) -> None:
    driver = drive(reuse=reusing(), shadow=ALL, pool_bytes=32_000_000)
    until_under_way(driver)
    driver.submit(ask("next", "Say one."))
    driver.step()
    assert not under_way(driver)
    driver.settle()
    assert checked(driver).checks == 1


def test_a_check_that_is_always_interrupted_is_given_up(drive: Drive) -> None:
    driver = drive(reuse=reusing(), shadow=ALL, pool_bytes=32_000_000)
    until_under_way(driver)
    for number in range(shadow.STARTS):
        driver.submit(ask(f"next {number}", "Say one.", max_tokens=1))
        while driver.engine._requests:
            driver.step()
        driver.step()
    driver.settle()
    assert checked(driver).checks == 0
    assert not driver.engine._shadow._pending


def test_a_flush_drops_checks_and_is_complete(drive: Drive) -> None:
    driver = drive(reuse=reusing(), shadow=ALL, pool_bytes=32_000_000)
    until_under_way(driver)
    assert driver.engine.flush(5).complete
    assert not under_way(driver)
    driver.settle()
    assert checked(driver).checks == 0
    left = driver.engine.snapshot()
    assert sum(cell.live_bytes + cell.evictable_bytes for cell in left.cells) == 0


def test_a_cancelled_request_is_not_checked(drive: Drive) -> None:
    driver = drive(reuse=reusing(), shadow=ALL)
    driver.submit(clip("r", max_tokens=40))
    driver.step(10)
    driver.engine.cancel("r")
    driver.settle()
    assert checked(driver) == ShadowCount()


def test_a_check_leaves_no_trace(drive: Drive) -> None:
    states = []
    for settings in (ALL, ShadowSettings(0.0)):
        driver = drive(reuse=reusing(), shadow=settings)
        driver.run(clip("r", cache_write=False))
        found = driver.engine.snapshot()
        counts = (found.prefix_lookup_tokens, found.steps, found.live_sequences)
        states.append((found.cells, found.reserved_bytes, counts))
        assert (found.shadow.checks > 0) == (settings is ALL)
        assert driver.run(clip("s", cache_write=False)).cached_tokens == 0
    assert states[0] == states[1]


def test_a_check_that_finds_no_room_or_fails_is_dropped(
    drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = drive(reuse=reusing(), shadow=ALL)
    driver.submit(clip("r"))
    while driver.engine._requests:
        driver.step()
    driver.engine.drill(DrillOrder(kind=DrillKind.PRESSURE, amount=1.0, seconds=60.0))
    driver.settle()
    assert checked(driver).checks == 0
    driver.engine.drill(DrillOrder(kind=DrillKind.PRESSURE, amount=1.0, seconds=0.0))
    monkeypatch.setattr(shadow, "divergence", lambda full, reused: 1 / 0)
    driver.run(clip("other"))
    assert not driver.engine._shadow._pending
    assert checked(driver).checks == 0
