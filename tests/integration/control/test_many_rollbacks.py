"""Two hundred rollbacks under load, of random causes at random moments (S4.4, S4.5)."""

import random
from pathlib import Path

import pytest

from bench.rollback_load import Load, Rolled, Sent, hits_across_epochs, standing, started_on_a_after
from bench.rollout import RANDOM, under_load
from monitors.contract import Evidence, Level, RequestFinished
from monitors.labels import Outcome
from rollout.plan import Cause

MOST_S = 160.0  # on a machine that is too busy for all of them, as many as go in this time
FEWEST = 25


@pytest.mark.slow
async def test_after_any_rollback_nothing_starts_on_a_and_nothing_of_its_cache_is_hit(
    tmp_path: Path,
) -> None:
    async with standing(tmp_path) as stand:
        load = Load(stand.gateway, random.Random(23))
        rolled = await under_load(stand, load, RANDOM, MOST_S)
        late, sent = started_on_a_after(rolled, load.sent)
        across, hits = hits_across_epochs(stand.evidence, load.sent)
    assert len(rolled) >= FEWEST
    assert {each.cause for each in rolled} == set(Cause)
    assert sum(each.in_flight > 0 for each in rolled) > len(rolled) / 4
    assert (late, across) == (0, 0)
    assert sent > 10 * len(rolled)
    assert hits > len(rolled)
    assert all(each.breach <= each.decided <= each.on_stable <= each.verified for each in rolled)


# ---------------------------------------------------------------- the two counts, tried
ROLLED = Rolled(
    cause=Cause.FAULTS, breach=1.0, decided=1.1, on_stable=2.0, verified=3.0, in_flight=0, ended=4.0
)


def test_a_request_that_a_answers_after_the_cut_over_is_counted() -> None:
    sent = [
        Sent("p", at=1.9, id="1", version="v2"),  # it may: the cut over was not acknowledged yet
        Sent("p", at=2.1, id="2", version="v1"),
        Sent("p", at=2.1, id="3", version=None),  # refused
        Sent("p", at=2.2, id="4", version="v2"),
        Sent("p", at=4.1, id="5", version="v2"),  # another rollout
    ]
    assert started_on_a_after([ROLLED], sent) == (1, 2)


def finished(request: str, epoch: int, cached: int | None) -> Evidence:
    return Evidence(
        seq=1, wall=0.0, resident="a", version="v2", session="s", request_id=request,
        pool_epoch=epoch, route_epoch=1, level=Level(), operator=False,
        body=RequestFinished(outcome=Outcome.OK, faulted=False, cached_tokens=cached),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("cached", "across"),
    [([0, 5, 5], 0), ([5, 0], 0), ([5, 5], 2), ([None, 5], 0), ([0], 0), ([5], 1)],
)
def test_a_hit_that_nothing_of_its_epoch_explains_is_counted(
    cached: list[int | None], across: int
) -> None:
    sent = [Sent("p", 0.0, str(n), "v2") for n in range(len(cached))]
    older = Sent("p", 0.0, "older", "v2")
    evidence = [finished(str(n), 2, tokens) for n, tokens in enumerate(cached)]
    found = hits_across_epochs([finished("older", 1, 0), *evidence], [older, *sent])
    assert found == (across, sum(bool(tokens) for tokens in cached))
