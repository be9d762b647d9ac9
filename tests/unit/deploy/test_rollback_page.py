"""The page for a rollback by hand, pasted into a shell: whoever is stable, the bad version goes."""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from monitors.contract import DrainOrder, FlushOrder, Level, Observed, ProbeOrder, ResidentStatus
from monitors.contract import Route as RouteOrder
from monitors.labels import ResidentState
from tests.support.http_server import Answer, Server, recording_server

RUNBOOKS = Path(__file__).parents[3] / "docs/runbooks"


@pytest.fixture
def server() -> Iterator[Server]:
    with recording_server() as running:
        yield running


def blocks(text: str, *, rendered: bool = True) -> list[str]:
    """Those of a list are indented in the file, and are not where a browser shows them."""
    found = re.findall(r"^( *)```\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL)
    if not rendered:
        return [block for _, block in found]
    return [re.sub(rf"^{indent}", "", block, flags=re.MULTILINE) for indent, block in found]


def helpers() -> str:
    """`order` and `engines`, as the runbooks' first page has them pasted."""
    first = blocks((RUNBOOKS / "README.md").read_text(encoding="utf-8"))[0]
    return "\n".join(line for line in first.splitlines() if not line.startswith("export "))


def steps(bad: str, *, rendered: bool = True) -> str:
    """The steps of the page in their order, with the version that on-call calls bad."""
    text = (RUNBOOKS / "rollback.md").read_text(encoding="utf-8")
    by_hand = text.partition("## By hand")[2].partition("## Afterwards")[0]
    found = blocks(by_hand, rendered=rendered)
    shell = "\n".join(block for block in found if "redline rollout" not in block)
    return re.sub(r"(?m)^( *BAD=)\S+", rf"\g<1>{bad}", shell)


def resident(name: str, version: str, pool_epoch: int) -> ResidentStatus:
    return ResidentStatus(
        name=name, version=version, state=ResidentState.READY, weight=0, level=Level(),
        min_pool_epoch=pool_epoch - 1, pool_epoch=pool_epoch,
    )  # fmt: skip


def observed(stable: str, canary: str | None, weight: int) -> Observed:
    residents = (resident("a", "v2", 4), resident("b", "v3", 8))
    return Observed(
        incarnation="one", leader_epoch=3, route_epoch=6, stable=stable, canary=canary,
        canary_weight=weight, lease_left_s=0.0, residents=residents,
    )  # fmt: skip


def paste(
    server: Server, seen: Observed, bad: str, *, rendered: bool = True
) -> subprocess.CompletedProcess[str]:
    server.answers["/control"] = Answer(msgspec.json.encode(seen))
    given = {"RUNTIME": server.url, "AUTH": "Authorization: Bearer t", "PATH": os.environ["PATH"]}
    return subprocess.run(
        ["bash", "-c", f"{helpers()}\n{steps(bad, rendered=rendered)}"],
        env=given, capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("rendered", [True, False])
@pytest.mark.parametrize(
    ("stable", "canary", "weight", "bad", "goes", "serves"),
    [
        ("b", "a", 5, "v2", "a", "b"),  # a first rollout
        ("a", "b", 5, "v3", "b", "a"),  # the second: roles have swapped, residents have not
        ("a", "b", 0, "v3", "b", "a"),  # the same once its lease is over
        ("a", "b", 0, "v2", "a", "b"),  # after a promotion: the way back is in `canary`
        ("a", None, 0, "v2", "a", "b"),
        ("a", "b", 5, "b", "b", "a"),  # by the resident's name
    ],
)
def test_the_bad_version_goes_and_the_other_one_serves_whoever_is_stable(
    server: Server,
    stable: str,
    canary: str | None,
    weight: int,
    bad: str,
    goes: str,
    serves: str,
    *,
    rendered: bool,
) -> None:
    done = paste(server, observed(stable, canary, weight), bad, rendered=rendered)
    assert done.stderr == ""
    assert f"{goes} goes, {serves} serves" in done.stdout
    orders = {each.path.rpartition("/")[2]: each for each in server.seen if each.body}
    route = msgspec.json.decode(orders["route"].body, type=RouteOrder)
    assert (route.stable, route.canary, route.canary_weight) == (serves, goes, 0)
    assert (route.leader_epoch, route.route_epoch) == (4, 7)
    for verb in ("drain", "flush", "probe"):
        assert orders[verb].path == f"/control/residents/{goes}/{verb}"
    above = {"a": 5, "b": 9}[goes]
    flush = msgspec.json.decode(orders["flush"].body, type=FlushOrder)
    assert flush.min_pool_epoch == above
    assert msgspec.json.decode(orders["probe"].body, type=ProbeOrder).pool_epoch == above
    assert msgspec.json.decode(orders["drain"].body, type=DrainOrder).leader_epoch == 4


def test_a_version_that_nobody_has_gives_no_order_that_could_be_taken(server: Server) -> None:
    done = paste(server, observed("b", "a", 5), "v9")
    assert "no resident is v9" in done.stderr
    for each in server.seen:
        if each.path.endswith("/route"):
            with pytest.raises(msgspec.DecodeError):
                msgspec.json.decode(each.body, type=RouteOrder)


def test_one_that_cannot_serve_is_said_before_everybody_is_sent_there(server: Server) -> None:
    seen = observed("b", "a", 5)
    down = msgspec.structs.replace(seen.residents[1], state=ResidentState.DEAD)
    seen = msgspec.structs.replace(seen, residents=(seen.residents[0], down))
    assert "b is dead" in paste(server, seen, "v2").stderr
