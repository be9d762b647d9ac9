"""A real Prometheus server and the evaluator here over the same random traffic, in real time."""

import random
import time
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import httpx

from alerts.evaluator import Evaluator
from alerts.firing import Firing
from alerts.names import AlertName
from alerts.policy import make
from monitors.redlines import CacheLines, FaultLines, LadderLines, LatencyLines, RedLines
from tests.support.http_server import Answer, recording_server
from tests.support.prometheus import SCRAPE_S, needs_prometheus, prometheus
from tests.support.random_traffic import Segment, Traffic

pytestmark = needs_prometheus

EVALUATION_S = 1.0  # Prometheus'
LOOK_S = 0.25  # the evaluator's
STEP_S = 0.1
RUN_S = 12.0
# One evaluation step: by then Prometheus has looked again, at what it scraped shortly before.
APART_S = EVALUATION_S + SCRAPE_S
STALL_S = 0.75  # of a machine that others use too
LINES = RedLines(
    cache=CacheLines(hold_s=2.0),
    latency=LatencyLines(
        window_s=2.0, min_count=20, degrade_exceedance=0.2, first_packet_exceedance=0.2
    ),
    faults=FaultLines(rate=0.2, window_requests=40, min_count=20, recent_s=3.0),
    ladder=LadderLines(dwell_s=1.0),
)
POLICY = make(LINES)
VERSIONS = ("v1", "v2", "v3", "v4")
GOOD = Segment(
    seconds=0, fast=6, slow=0, late=0, hung=0, lookups=16, hits=8, live_gb=26.0, finished=4,
    faulted=0,
)  # fmt: skip
BAD = Segment(
    seconds=0, fast=2, slow=2, late=2, hung=2, lookups=16, hits=4, live_gb=26.0, finished=4,
    faulted=3,
)  # fmt: skip
QUIET = Segment(
    seconds=0, fast=0, slow=0, late=0, hung=0, lookups=0, hits=8, live_gb=24.0, finished=0,
    faulted=0,
)  # fmt: skip

Alert = tuple[str, str, str, str]  # name, version, milestone, state
Seen = dict[Alert, list[float]]  # the times at which each was in its state


def test_a_real_server_and_the_evaluator_change_their_minds_within_one_evaluation(
    tmp_path: Path,
) -> None:
    with (
        recording_server() as server,
        prometheus(tmp_path, server.server_port, LINES, evaluation_s=EVALUATION_S) as client,
    ):
        server.answers["/metrics"] = Answer(b"up_and_empty 1\n", kind="text/plain")
        wait_until_scraped(client)
        ours, began, ended = drive(server.answers)
        theirs = alerts_of(client)
    for alert in sorted(ours.keys() | theirs.keys()):
        unmatched(alert, ours[alert], theirs[alert], began, ended)
    names = {name for name, _, _, state in ours if state == "firing"}
    assert names == {rule.name for rule in POLICY.rules} | {AlertName.LADDER_EXHAUSTED}


def wait_until_scraped(client: httpx.Client) -> None:
    deadline = time.monotonic() + 30.0
    while time.monotonic() < deadline:
        with suppress(httpx.TransportError):
            answer = client.get("/api/v1/query", params={"query": "up_and_empty"})
            if answer.is_success and answer.json()["data"]["result"]:
                return
        time.sleep(0.1)
    raise TimeoutError("Prometheus scrapes nothing")


def drive(answers: dict[str, Answer]) -> tuple[Seen, float, float]:
    """Random phases of each version, shown to both; what the evaluator said at each look."""
    draw = random.Random(3)
    plane = Traffic(LINES, VERSIONS)
    plane.now = time.time()
    evaluator = Evaluator(POLICY)
    phase: dict[str, Segment | None] = {}
    phase.update(dict.fromkeys(VERSIONS, GOOD))
    until = dict.fromkeys(VERSIONS, 0.0)
    seen: Seen = defaultdict(list)
    began = next_look = time.time()
    while (now := time.time()) < began + RUN_S:
        for version in VERSIONS:
            if now >= until[version]:
                phase[version] = draw.choice(
                    [s for s in (GOOD, BAD, BAD, QUIET) if s is not phase[version]]
                )
                until[version] = now + draw.uniform(1.0, 7.0)
        plane.step(phase, now - plane.now)
        answers["/metrics"] = Answer(plane.scrape().encode(), kind="text/plain")
        if now >= next_look:
            next_look += LOOK_S
            found = evaluator.tick(plane.tables(), None, now, now)
            note(seen, found.firing, "firing", now)
            note(seen, found.pending, "pending", now)
        time.sleep(max(0.0, now + STEP_S - time.time()))
    return seen, began, time.time()


def note(seen: Seen, alerts: Iterable[Firing], state: str, now: float) -> None:
    for each in alerts:
        if each.version is not None:
            milestone = each.labels.get("milestone", "")
            seen[each.alert, each.version, milestone, state].append(now)


def alerts_of(client: httpx.Client) -> Seen:
    """Every sample of `ALERTS` of the run, of the alerts that name a version."""
    query = {"query": f'ALERTS{{version!=""}}[{RUN_S + 10:.0f}s]'}
    found = client.get("/api/v1/query", params=query).json()["data"]["result"]
    seen: Seen = defaultdict(list)
    for series in found:
        labels = series["metric"]
        alert = labels["alertname"], labels["version"], labels.get("milestone", "")
        seen[*alert, labels["alertstate"]] = [at for at, _ in series["values"]]
    return seen


def unmatched(alert: Alert, ours: list[float], theirs: list[float], began: float, ended: float):
    """Whoever says so, the other one says the same at some time within a step."""
    for who, mine, others in (("here", ours, theirs), ("Prometheus", theirs, ours)):
        late = [
            at - began
            for at in mine
            if began + APART_S < at < ended - APART_S
            and not any(abs(at - other) <= APART_S + STALL_S for other in others)
        ]
        assert late == [], f"{alert}: said {who} only, so many seconds after the start"
