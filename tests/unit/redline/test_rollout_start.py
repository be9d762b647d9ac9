"""How a rollout is begun from a terminal, and how its model's loading is followed."""

import msgspec
import pytest
from typer.testing import CliRunner

from monitors.labels import Phase
from monitors.preparing import Loading, LoadStage
from redline import cli
from redline.control.api import ProposalAnswer, StartAnswer, StartOrder
from redline.rollout_start import ModelRefused, NotGoneOn, OutOfSight, start_rollout
from redline.settings import Stack
from rollout.detectable import Detectable
from rollout.plan import MOST_AT_FIRST, ModelToLoad
from tests.support.http_server import Server, recording_server
from tests.unit.redline.samples import PLAN, rollout, serve, status


@pytest.fixture
def server():
    with recording_server() as running:
        yield running


def test_a_start_says_what_todays_traffic_can_detect(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    few = Detectable(
        canary_requests=219.0, fault_rate=0.042, clean_requests_to_pass=768, can_pass=False,
        first_packet_exceedance=0.144, degrade_exceedance=0.057,
    )  # fmt: skip
    stack = serve(server, "/api/rollout/propose", ProposalAnswer(plan=PLAN, detectable=few))
    serve(server, "/api/rollout/start", StartAnswer(plan=PLAN, detectable=few, status=rollout()))
    order = StartOrder(actor="ann", weight=5, bake_s=60.0)
    assert not start_rollout(stack, order, lambda _: False)
    assert [seen.path for seen in server.seen] == ["/api/rollout/propose"], "asked, and not begun"
    assert start_rollout(stack, order, lambda _: True)
    out = " ".join(capsys.readouterr().out.split())
    assert "tiny-omni-2 (a) gets 5 % of new sessions beside b" in out
    assert (
        "a fault rate of 4.2%, 14.4% past 250 ms, 5.7% past 400 ms or more would be called" in out
    )
    assert "768 clean ones are needed to promote: not enough" in out
    assert "step by step: 5 % -> 25 % -> 50 % -> 100 %" in out
    assert [seen.path for seen in server.seen][-1] == "/api/rollout/start"
    assert msgspec.json.decode(server.seen[-1].body, type=StartOrder) == order


LOADING = Loading(load="l1", checkpoint="/m/v3", version="v3", stage=LoadStage.CHECKING)
WITH_MODEL = msgspec.structs.replace(PLAN, model=ModelToLoad(load="l1", checkpoint="/m/v3"))


def loading_of(server: Server) -> Stack:
    """A stack that takes any rollout of a model, and checks the model first."""
    serve(server, "/api/rollout/propose", ProposalAnswer(plan=WITH_MODEL, detectable=None))
    checking = rollout(phase=Phase.PREPARE, plan=WITH_MODEL, loading=LOADING)
    answer = StartAnswer(plan=WITH_MODEL, detectable=None, status=checking)
    return serve(server, "/api/rollout/start", answer)


ORDER = StartOrder(actor="ann", model="/m/v3")


def test_a_model_that_is_refused_while_it_is_checked_is_a_sentence(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    stack = loading_of(server)
    refused = rollout(phase=Phase.IDLE, reasons=("the new model is refused: damaged",))
    serve(server, "/api/status", status(rollout=refused))
    with pytest.raises(ModelRefused, match="the new model is refused: damaged"):
        start_rollout(stack, ORDER, lambda _: True)
    assert "checking: /m/v3" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("phase", "reason"),
    [
        (Phase.IDLE, "not today"),
        (Phase.QUARANTINED, "sha256:v3 is under quarantine; clear it by hand if it may serve"),
    ],
)
def test_a_rollout_that_ends_while_a_loads_has_not_begun(
    server: Server, phase: Phase, reason: str
) -> None:
    stack = loading_of(server)
    serve(server, "/api/status", status(rollout=rollout(phase=phase, reasons=(reason,))))
    with pytest.raises(NotGoneOn, match=reason):
        start_rollout(stack, ORDER, lambda _: True)


def test_a_rollout_that_is_followed_no_longer_goes_on_and_that_is_said(server: Server) -> None:
    stack = loading_of(server)  # and its status is a 404
    with pytest.raises(OutOfSight, match=r"begun and goes on: redline rollout status"):
        start_rollout(stack, ORDER, lambda _: True)


@pytest.mark.parametrize(
    ("weight", "words"),
    [(0, "equal to 1"), (MOST_AT_FIRST + 1, f"equal to {MOST_AT_FIRST}")],
)
def test_a_first_share_that_there_is_not_is_wrong_usage(weight: int, words: str) -> None:
    done = CliRunner().invoke(cli.app, ["rollout", "start", "--weight", str(weight)])
    assert done.exit_code == 2
    assert words in " ".join(done.output.replace("│", " ").split())
