"""Whose fault it is, by how the bad requests fall."""

import msgspec
import numpy as np
import pytest
from scipy import stats

from rollout.attribution import (
    BASELINE,
    BLAME_ALPHA,
    RATIOS,
    SAME_CAUSE,
    Attribution,
    AttributionState,
    log_gains,
)


def fed(turns: list[tuple[bool, bool]], route_epoch: int = 1) -> Attribution:
    """Of (on A, bad) turns."""
    attribution = Attribution()
    for canary, bad in turns:
        attribution.take(canary=canary, bad=bad, route_epoch=route_epoch)
    return attribution


def drawn(seed: int, count: int, share: float, a: float, b: float) -> list[tuple[bool, bool]]:
    rng = np.random.default_rng(seed)
    on_a = rng.random(count) < share
    bad = rng.random(count) < np.where(on_a, a, b)
    return list(zip(on_a.tolist(), bad.tolist(), strict=True))


@pytest.mark.parametrize("share", [0.01, 0.05, 0.5, 0.95])
def test_a_gain_is_the_likelihood_ratio_of_where_a_fault_falls(share: float) -> None:
    def falls(ratio: float) -> float:
        return share * ratio / (share * ratio + 1.0 - share)

    for here in (True, False):
        expected = [
            stats.bernoulli.logpmf(here, falls(ratio))
            - stats.bernoulli.logpmf(here, falls(SAME_CAUSE))
            for ratio in RATIOS
        ]
        np.testing.assert_allclose(log_gains(share, here=here), expected, rtol=1e-9)


def test_a_rate_of_its_own_is_as_blame_after_a_handful_of_faults() -> None:
    attribution = fed(drawn(1, 800, 0.05, a=0.3, b=0.002))
    assert attribution.blames_canary
    assert not attribution.blames_stable


def test_swapped_arms_swap_the_blame() -> None:
    for seed, a, b in ((1, 0.3, 0.002), (2, 0.002, 0.3), (3, 0.2, 0.2)):
        turns = drawn(seed, 1_500, 0.3, a, b)
        one, other = fed(turns), fed([(not on_a, bad) for on_a, bad in turns])
        assert (one.blames_canary, one.blames_stable) == (
            other.blames_stable,
            other.blames_canary,
        )
        assert (one.blames_canary, one.blames_stable) == (a > b, b > a)


@pytest.mark.parametrize("share", [0.05, 0.5])
def test_a_cause_that_both_share_blames_nobody_whatever_its_rate_does(share: float) -> None:
    """A shock that hits both at once, A even half again as hard; the bound is that of Ville."""
    blamed = 0
    for seed in range(150):
        rng = np.random.default_rng(seed)
        shock = np.where((np.arange(1_500) // 250) % 3 == 1, 0.2, 0.002)
        on_a = rng.random(1_500) < share
        bad = rng.random(1_500) < shock * np.where(on_a, SAME_CAUSE, 1.0)
        blamed += fed(list(zip(on_a.tolist(), bad.tolist(), strict=True))).blames_canary
    assert blamed <= stats.binom.ppf(0.999, 150, BLAME_ALPHA)


def test_another_route_is_another_share_and_what_is_late_of_the_last_one_is_left_out() -> None:
    attribution = fed(drawn(4, 400, 0.05, 0.0, 0.0))
    assert attribution.canary_share == pytest.approx(0.05, abs=0.03)
    attribution.take(canary=True, bad=False, route_epoch=2)
    assert attribution.canary_share is None
    for i in range(BASELINE):
        attribution.take(canary=i % 2 == 0, bad=False, route_epoch=2)
    assert attribution.canary_share == pytest.approx(0.5, abs=0.1)
    before = attribution.save()
    attribution.take(canary=True, bad=True, route_epoch=1)
    assert attribution.save() == before


def test_before_the_share_is_known_nothing_is_bet() -> None:
    attribution = fed([(True, True)] * (BASELINE - 1))
    assert attribution.save().log_canary == Attribution().save().log_canary


def test_an_attribution_saved_in_mid_stream_goes_on_the_same_to_the_bit() -> None:
    turns = drawn(5, 600, 0.2, 0.1, 0.05)
    whole, first = fed(turns), fed(turns[:311])
    saved = msgspec.json.decode(msgspec.json.encode(first.save()), type=AttributionState)
    second = Attribution.restore(saved)
    for canary, bad in turns[311:]:
        second.take(canary=canary, bad=bad, route_epoch=1)
    assert second.save() == whole.save()
    with pytest.raises(ValueError, match="another grid"):
        Attribution.restore(msgspec.structs.replace(saved, log_canary=(0.0,)))
