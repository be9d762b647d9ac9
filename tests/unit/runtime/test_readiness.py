"""What `/readyz` says: the stable resident decides, and a refusal is told from a crash."""

import asyncio

import msgspec
import pytest

from monitors.labels import ResidentState
from runtime.readiness import Readiness, ResidentReadiness, readiness
from runtime.supervisor import Supervisor


async def a_supervisor(name: str, state: ResidentState, detail: str = "") -> Supervisor:
    def never() -> None:
        raise AssertionError("nothing is started here")

    clock = asyncio.get_running_loop().time
    supervisor = Supervisor(name, begin=never, changed=lambda _: None, clock=clock)  # type: ignore[arg-type]
    supervisor.state, supervisor.detail = state, detail
    return supervisor


async def test_the_detail_of_a_dead_stable_resident_is_told() -> None:
    stable = await a_supervisor("b", ResidentState.DEAD, "no such folder")
    stable.refused = True
    canary = await a_supervisor("a", ResidentState.READY)
    said = readiness({"b": stable, "a": canary}, "b")
    assert (said.status, said.detail, said.ready) == ("b is dead", "no such folder", False)
    assert [(r.name, r.refused) for r in said.residents] == [("b", True), ("a", False)]
    assert msgspec.json.decode(msgspec.json.encode(said), type=Readiness) == said


async def test_a_refused_canary_shows_while_the_stable_one_serves() -> None:
    canary = await a_supervisor("a", ResidentState.DEAD, "no such folder")
    canary.refused = True
    said = readiness({"b": await a_supervisor("b", ResidentState.READY), "a": canary}, "b")
    assert (said.status, said.detail, said.ready) == ("ready", "", True)
    assert said.residents[1].detail == "no such folder"


async def test_without_details_the_rest_is_the_same() -> None:
    dead = await a_supervisor("b", ResidentState.DEAD, "/models/b: no such folder")
    dead.refused = True
    told = readiness({"b": dead}, "b").without_details()
    assert (told.status, told.detail) == ("b is dead", "")
    assert told.residents == (
        ResidentReadiness(name="b", state=ResidentState.DEAD, refused=True, restarts=0, detail=""),
    )


@pytest.mark.parametrize(
    ("state", "restarts", "first"),
    [
        (ResidentState.LOADING, 0, True),
        (ResidentState.LOADING, 1, False),
        (ResidentState.DEAD, 0, False),
        (ResidentState.READY, 0, False),
    ],
)
def test_a_first_load_is_told_from_a_restart(
    state: ResidentState, restarts: int, first: bool
) -> None:
    resident = ResidentReadiness(name="a", state=state, refused=False, restarts=restarts, detail="")
    assert resident.loads_first is first
