"""Whatever comes, in any order: every request ends once, and no page is lost."""

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from monitors.contract import DrillKind, DrillOrder, KvRung
from runtime.engine.shadow import ShadowSettings
from runtime.kv.reuse import AtRandom, ReusePolicy
from runtime.residents.port import Failed, Finished
from tests.support.asking import ask
from tests.unit.engine.driving import Driver

STEPS = 150


def disturb(driver: Driver, chance: random.Random, names: list[str]) -> None:
    """One thing or nothing: a request, a cancellation, a flush, a fallback, pressure."""
    match chance.choices(range(6), [12, 4, 2, 2, 2, 78])[0]:
        case 0:
            names.append(f"r{len(names)}")
            text = "word " * chance.choice([1, 20, 150])
            more = {"speech": chance.random() < 0.4, "max_tokens": chance.choice([1, 4, 20])}
            clip = {"media": chance.choice([0, 0, 1, 2]), "seed": chance.randrange(4)}
            driver.submit(ask(names[-1], text, **clip, **more))
        case 1 if names:
            driver.engine.cancel(chance.choice(names))
        case 2:
            epoch = driver.engine.snapshot().pool_epoch
            assert driver.engine.flush(epoch + chance.choice([0, 1])).complete
        case 3:
            driver.engine.set_kv(chance.choice(list(KvRung)))
        case 4:
            amount, seconds = chance.choice([0.5, 0.9, 1.0]), chance.choice([0.0, 0.05, 0.2])
            driver.engine.drill(DrillOrder(kind=DrillKind.PRESSURE, amount=amount, seconds=seconds))
        case _:
            pass


CHECKED = {"reuse": ReusePolicy("on", AtRandom(0.7), (1,)), "shadow": ShadowSettings(1.0, 3)}


@pytest.mark.parametrize(
    ("seed", "pool_bytes", "more"),
    [(1, 3_000_000, {}), (2, 8_000_000, {}), (3, 8_000_000, CHECKED)],
)
def test_every_request_ends_once_and_gives_back_what_it_took(
    drive: Callable[..., Driver], seed: int, pool_bytes: int, more: dict[str, Any]
) -> None:
    driver, chance, names = drive(pool_bytes=pool_bytes, **more), random.Random(seed), list[str]()
    for _ in range(STEPS):
        disturb(driver, chance, names)
        driver.step()
        assert driver.engine.snapshot().faults == ()
    driver.engine.drill(DrillOrder(kind=DrillKind.PRESSURE, amount=1.0, seconds=0.0))
    driver.settle()
    ends = Counter(e.request_id for e in driver.log if isinstance(e, Failed | Finished))
    assert ends == dict.fromkeys(names, 1)
    assert [f.message for f in driver.log if isinstance(f, Failed) and f.kind == "engine"] == []
    left = driver.engine.snapshot()
    assert left.live_sequences == sum(cell.live_bytes for cell in left.cells) == 0
