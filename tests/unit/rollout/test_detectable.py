"""Whether the sensitivity that is promised before a rollout is true."""

import msgspec
import numpy as np
import pytest

from monitors.client_key import CanaryClients, digest_of
from monitors.redlines import RedLines
from rollout.audience import Audience
from rollout.detectable import clean_requests_to_pass, detectable, requests_to_call
from rollout.plan import make_plan
from rollout.proposal import detectable_at
from rollout.sequential import LineTest, Verdict
from tests.unit.rollout.test_sequential import stop_times

PLAN = make_plan(RedLines(), stable="b", canary="a", version="v2")


@pytest.mark.parametrize("rate", [0.02, 0.05, 0.2, 0.5])
def test_the_median_that_is_promised_is_the_median_that_is_simulated(rate: float) -> None:
    promised = requests_to_call(PLAN.faults, rate)
    draws = np.random.default_rng(3).random((120, int(2.5 * promised)))
    stop = stop_times(PLAN.faults, (draws < rate).astype(float), restart_every=10_000)
    assert np.median(np.where(stop == 0, draws.shape[1], stop)) == pytest.approx(promised, rel=0.3)


def test_less_traffic_detects_less_and_none_detects_nothing() -> None:
    rates = [detectable(PLAN, rps).fault_rate for rps in (333.0, 20.0, 1.0)]
    assert rates[0] is not None
    assert rates[1] is not None
    assert rates[2] is not None
    assert 0.005 < rates[0] < rates[1] < rates[2]
    assert detectable(PLAN, 0.001).fault_rate is None


def test_what_the_allowed_clients_ask_is_unknown_and_so_is_what_it_would_show() -> None:
    assert detectable_at(PLAN, 333.0) == detectable(PLAN, 330.0)
    assert detectable_at(PLAN, None) is None
    for clients, known in (
        (CanaryClients(allow=(digest_of("ada"),)), False),
        (CanaryClients(deny=(digest_of("bob"),)), True),
    ):
        plan = msgspec.structs.replace(PLAN, audience=Audience(clients=clients))
        assert (detectable_at(plan, 333.0) is not None) is known


def test_clean_requests_to_pass_is_exact() -> None:
    needed, test = clean_requests_to_pass(PLAN.faults), LineTest(PLAN.faults)
    for i in range(needed - 1):
        test.observe(0.0, f"s{i}")
    assert test.verdict is Verdict.INCONCLUSIVE
    test.observe(0.0, "last")
    assert test.verdict is Verdict.PASS
    assert not detectable(PLAN, (needed - 1) / 30.0).can_pass
    assert detectable(PLAN, (needed + 1) / 30.0).can_pass


@pytest.mark.parametrize("share", [0.05, 0.10, 0.50])
def test_the_median_promised_for_a_latency_share_is_the_one_that_is_simulated(share: float) -> None:
    line = next(each.line for each in PLAN.latency if each.line.limit == 0.01)
    promised = requests_to_call(line, share)
    draws = np.random.default_rng(4).random((150, int(2.5 * promised) + 5))
    stop = stop_times(line, (draws < share).astype(float), restart_every=10_000)
    assert np.median(np.where(stop == 0, draws.shape[1], stop)) == pytest.approx(promised, rel=0.35)


def test_each_latency_line_has_a_smallest_share_of_its_own_and_none_without_traffic() -> None:
    seen = detectable(PLAN, 333.0)
    assert seen.first_packet_exceedance is not None
    assert seen.degrade_exceedance is not None
    assert 0.01 < seen.degrade_exceedance < 0.05 < seen.first_packet_exceedance < 1.0
    few = detectable(PLAN, 10.0)
    assert few.degrade_exceedance is not None
    assert few.degrade_exceedance > seen.degrade_exceedance
    nothing = detectable(PLAN, 0.001)
    assert (nothing.first_packet_exceedance, nothing.degrade_exceedance) == (None, None)
