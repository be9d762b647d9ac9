"""The data plane of the bench of alerts: a breach is one in the tables, of one version, at once."""

import pytest

from alerts.evaluator import Evaluator
from bench.alerts_gateway import LOOKUPS, Breach, Gateway
from bench.alerts_paths import ALERT, LINES, POLICY


@pytest.fixture
def gateway() -> Gateway:
    """Four versions after some seconds of steady traffic."""
    made = Gateway(LINES, 4)
    for each in made.residents.values():
        made.fill(each, 50)
        for _ in range(5):
            made._tell(each, LOOKUPS)
    return made


def crossed(gateway: Gateway) -> set[tuple[str, str | None]]:
    found = Evaluator(POLICY).tick(gateway.tables(), gateway.observed(), 0.0, 0.0)
    return {(each.alert, each.version) for each in (*found.firing, *found.pending)} & {
        (alert, each.version) for alert in ALERT.values() for each in gateway.residents.values()
    }


def test_steady_traffic_crosses_no_line(gateway: Gateway):
    assert crossed(gateway) == set()


@pytest.mark.parametrize("what", Breach)
def test_a_breach_is_over_its_line_as_soon_as_it_is_noted(gateway: Gateway, what: Breach):
    gateway.breach("r2", what)
    assert ("r2", what) in gateway.breached
    assert crossed(gateway) == {(ALERT[what], "v2")}
