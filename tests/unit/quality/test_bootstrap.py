"""Intervals, against scipy's own."""

import numpy as np
import pytest
from scipy import stats

from runtime.quality.bootstrap import RESAMPLES, bootstrap, difference, share

DRAWN = np.random.default_rng(3)


@pytest.mark.parametrize(
    "values",
    [DRAWN.exponential(2.0, 200), (DRAWN.random(200) < 0.93).astype(float), DRAWN.normal(size=12)],
    ids=["skewed", "shares", "few"],
)
def test_the_bootstrap_is_scipys(values: np.ndarray) -> None:
    found = bootstrap(values)
    oracle = stats.bootstrap(
        (values,),
        np.mean,
        n_resamples=50_000,
        method="percentile",
        rng=np.random.default_rng(0),
    ).confidence_interval
    noise = 4 * values.std() / np.sqrt(len(values)) / np.sqrt(RESAMPLES)
    assert found.value == values.mean()
    assert found.low == pytest.approx(oracle.low, abs=3 * noise)
    assert found.high == pytest.approx(oracle.high, abs=3 * noise)
    assert not found.exact


def test_the_same_values_have_the_same_interval() -> None:
    values = [0.0, 1.0, 1.0, 0.5]
    assert bootstrap(values) == bootstrap(values)


def test_no_samples_have_no_interval() -> None:
    with pytest.raises(ValueError, match="at least one"):
        bootstrap([])


@pytest.mark.parametrize("n", [1, 20, 200])
@pytest.mark.parametrize("all_right", [True, False])
def test_where_all_samples_agree_the_interval_is_clopper_pearsons(n: int, all_right: bool) -> None:
    found = share([all_right] * n)
    oracle = stats.binomtest(n * all_right, n).proportion_ci(method="exact")
    assert found.exact
    assert (found.low, found.high) == pytest.approx((oracle.low, oracle.high))


def test_a_paired_difference_is_narrower_than_the_two_shares() -> None:
    before = DRAWN.random(300) < 0.8
    after = before.copy()
    after[:3] = ~after[:3]
    found = difference(before.tolist(), after.tolist())
    assert found.value == pytest.approx(after.mean() - before.mean())
    alone = share(before.tolist())
    assert found.high - found.low < (alone.high - alone.low) / 2


def test_no_difference_in_few_samples_is_no_proof_of_none() -> None:
    few, many = (difference([True] * n, [True] * n) for n in (20, 2000))
    assert few.value == many.value == 0.0
    assert few.low < -0.1 < 0.1 < few.high
    assert -0.003 < many.low < many.high < 0.003
