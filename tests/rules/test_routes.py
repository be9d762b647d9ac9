"""Who hears of what: the compiled routes and inhibitions as data, and Debian's own Alertmanager."""

import json
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from alerts.alert import Alert
from alerts.compile import alerts
from alerts.maintenance import Weekday, Window, time_intervals
from alerts.names import AlertName
from alerts.policy import make
from alerts.receiver import MOST_ALERTS
from alerts.routing import ALWAYS_HEARD, MUTES, Mute, render_alertmanager
from monitors.labels import Action, Severity
from monitors.redlines import RedLines
from redline import maintenance
from redline.settings import Stack
from tests.support.ports import free_ports
from tests.support.promtool import run

ALL_WEEK = {
    "days": [day.value for day in Weekday],
    "from": "00:00",
    "to": "24:00",
    "zone": "Europe/Berlin",
    "reason": "always",
}
OWN = {
    "table": "latency",
    "when": ["over_share > 0.5"],
    "for": "1m",
    "severity": "page",
    "runbook": "https://wiki.example/own",
    "summary": "{value} on {version}",
}
OWN_RULES = {
    "OwnNotice": {**OWN, "action": "none"},
    "OwnAction": {**OWN, "action": "shed"},
}
POLICY = make(RedLines(), OWN_RULES, [ALL_WEEK])
ALERTS = alerts(POLICY)
_MATCHER = re.compile(r'(\w+)(=~|!~|!=|=)"(.*)"')


def labels_of(alert: Alert) -> dict[str, str]:
    """As it comes to Alertmanager, of version v1."""
    labels = {"alertname": str(alert.name), "severity": alert.severity, "action": alert.action}
    if alert.table is not None:
        labels["table"] = alert.table
    versioned = "version" in alert.summary
    return {**labels, **({"version": "v1"} if versioned else {}), **dict(alert.labels)}


def matches(matchers: tuple[str, ...], labels: dict[str, str]) -> bool:
    return all(_matches(matcher, labels) for matcher in matchers)


def _matches(matcher: str, labels: dict[str, str]) -> bool:
    parts = _MATCHER.fullmatch(matcher)
    assert parts is not None, matcher
    value = labels.get(parts[1], "")
    same = value == parts[3] if "~" not in parts[2] else bool(re.fullmatch(parts[3], value))
    return same is not parts[2].startswith("!")


def muted_by(target: Alert) -> set[str]:
    """The alerts that mute it while they fire."""
    return {str(source.name) for mute in MUTES for source in ALERTS if _mutes(mute, source, target)}


def _mutes(mute: Mute, source: Alert, target: Alert) -> bool:
    one, other = labels_of(source), labels_of(target)
    agree = all(one.get(label) == other.get(label) for label in mute.equal)
    return matches(mute.source, one) and matches(mute.target, other) and agree and one != other


def alert(name: str, severity: str | None = None) -> Alert:
    return next(a for a in ALERTS if a.name == name and severity in (None, a.severity))


# ---------------------------------------------------------------- inhibition (ADR 12)
@pytest.mark.parametrize("each", ALERTS, ids=lambda a: f"{a.name}-{a.severity}-{a.table}")
def test_an_action_is_never_muted_for_that_would_mute_the_actuator(each: Alert):
    if each.action is not Action.NONE or each.severity is Severity.HEARTBEAT:
        assert muted_by(each) == set()


def test_every_target_says_that_it_is_a_notice():
    assert all('action="none"' in mute.target for mute in MUTES)


def test_a_notice_is_muted_while_what_it_says_is_answered_or_somebody_is_up_for_it():
    answering = {AlertName.FAULT_RATE, AlertName.LATENCY_DEGRADE, AlertName.LADDER_EXHAUSTED}
    assert muted_by(alert("OwnNotice")) == answering
    assert muted_by(alert(AlertName.FIRST_PACKET_SLOW)) == answering
    assert AlertName.FIRST_PACKET_SHED not in answering  # it fires whenever that does


def test_absent_data_is_heard_beside_everything_but_what_explains_it():
    down = {AlertName.DATA_PLANE_DOWN, AlertName.RESIDENT_DOWN}
    assert muted_by(alert(AlertName.NO_DATA)) == down
    assert muted_by(alert(AlertName.NO_TRAFFIC)) == down


def test_a_budget_is_one_page_and_no_ticket_while_its_own_line_pages():
    def of(severity: str, table: str) -> set[str]:
        [found] = [
            a
            for a in ALERTS
            if (a.name, a.severity, a.table) == (AlertName.ERROR_BUDGET_BURN, severity, table)
        ]
        return muted_by(found)

    burn = AlertName.ERROR_BUDGET_BURN
    assert of("page", "latency") == of("page", "faults") == set(), "a version's page is one's own"
    assert of("ticket", "latency") == {AlertName.FIRST_PACKET_SLOW, burn}
    assert of("ticket", "faults") == {AlertName.FAULT_RATE, burn}
    assert of("page", "cache") == set()


# ---------------------------------------------------------------- maintenance windows
@pytest.mark.parametrize(
    "windows", [[], [ALL_WEEK], [ALL_WEEK, {**ALL_WEEK, "zone": "UTC", "reason": 'disks: "new"'}]]
)
def test_amtool_takes_the_windows(tmp_path: Path, windows: list[dict[str, Any]]):
    config = tmp_path / "alertmanager.yml"
    policy = make(RedLines(), {}, windows)
    config.write_text(render_alertmanager(policy, webhook_url="http://a/", credentials_file="/t"))
    assert "SUCCESS" in run("amtool", "check-config", config)
    assert config.read_text().count("mute_time_intervals") == min(len(windows), 1)
    names = [f"maintenance {n}: {each['reason']}" for n, each in enumerate(windows, 1)]
    assert all(config.read_text().count(name) == 2 for name in names), "defined, and muted in"


def test_a_window_past_midnight_is_two_stretches_of_two_days():
    window = Window.model_validate(
        {"days": ["saturday", "sunday"], "from": 1380, "to": "02:00", "reason": "backups"}
    )
    [interval] = time_intervals((window,))
    assert interval["time_intervals"] == [
        {
            "times": [{"start_time": "23:00", "end_time": "24:00"}],
            "weekdays": ["saturday", "sunday"],
            "location": "UTC",
        },
        {
            "times": [{"start_time": "00:00", "end_time": "02:00"}],
            "weekdays": ["sunday", "monday"],
            "location": "UTC",
        },
    ]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"days": ["someday"]}, "maintenance.0.days.0"),
        ({"days": []}, "maintenance.0.days"),
        ({"from": "25:00"}, "25:00 is no time of day"),
        ({"from": "24:00"}, "from 00:00 at the earliest"),
        ({"to": "00:00"}, "to 24:00 at the latest"),
        ({"zone": "Mars/Olympus"}, "Mars/Olympus is no time zone"),
        ({"zone": "../../etc/passwd"}, "is no time zone"),
        ({"reason": ""}, "maintenance.0.reason"),
        ({"until": "x"}, "maintenance.0.until"),
    ],
)
def test_a_window_that_cannot_be_is_refused(change: dict[str, Any], says: str):
    with pytest.raises(ValueError, match=re.escape(says)):
        make(RedLines(), {}, [{**ALL_WEEK, **change}])


def test_a_webhook_has_as_many_alerts_as_the_control_plane_takes_at_once():
    config = yaml.safe_load(
        render_alertmanager(POLICY, webhook_url="http://a/", credentials_file="/t")
    )
    [hook] = config["receivers"][0]["webhook_configs"]
    assert 0 < hook["max_alerts"] <= MOST_ALERTS


# ---------------------------------------------------------------- Debian's Alertmanager
class Sink(ThreadingHTTPServer):
    """Both receivers: what was told of, by path."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Hear)
        self.heard: dict[str, set[str]] = {"/alerts": set(), "/oncall": set()}


class _Hear(BaseHTTPRequestHandler):
    server: Sink

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.heard[self.path] |= {a["labels"]["alertname"] for a in body["alerts"]}
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Silent."""


@pytest.fixture(scope="module")
def sink() -> Iterator[Sink]:
    with Sink() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def stack(sink: Sink, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """An Alertmanager in an endless maintenance window."""
    folder = tmp_path_factory.mktemp("alertmanager")
    url, [port] = f"http://127.0.0.1:{sink.server_port}", free_ports(1)
    (folder / "token").write_text("t\n")
    config = render_alertmanager(
        POLICY,
        webhook_url=f"{url}/alerts",
        credentials_file=str(folder / "token"),
        oncall_url=f"{url}/oncall",
    )
    (folder / "alertmanager.yml").write_text(config)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                "prometheus-alertmanager",
                f"--config.file={folder}/alertmanager.yml",
                f"--storage.path={folder}/data",
                f"--web.listen-address=127.0.0.1:{port}",
                "--cluster.listen-address=",
            ],
            stdout=log,
            stderr=log,
        )
    try:
        found = Stack(
            runtime_url=url, control_url=url, token="t", alertmanager_url=f"http://127.0.0.1:{port}"
        )
        wait_for(lambda: _answers(f"{found.alertmanager_url}/-/ready"))
        yield found
    finally:
        process.terminate()
        process.wait(20)


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=2, trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False


def wait_for(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.05)


def api(stack: Stack, method: str, path: str, body: object = None) -> Any:
    url = f"{stack.alertmanager_url}/api/v2/{path}"
    answer = httpx.request(method, url, json=body, timeout=10, trust_env=False)
    answer.raise_for_status()
    return answer.json() if answer.content else None


def raise_all(stack: Stack) -> None:
    post(stack, [labels_of(each) for each in ALERTS])


def post(stack: Stack, alerts: Iterable[dict[str, str]], **more: str) -> None:
    api(stack, "POST", "alerts", [{"labels": labels, **more} for labels in alerts])


def states(stack: Stack, key: str) -> dict[tuple[str, str], bool]:
    """By name and severity, whether each alert is `inhibitedBy` or `silencedBy` something."""
    found = api(stack, "GET", "alerts")
    return {
        (a["labels"]["alertname"], a["labels"]["severity"]): bool(a["status"][key]) for a in found
    }


ACTIONS = {str(a.name) for a in ALERTS if a.action is not Action.NONE}


def test_alertmanager_lets_actions_through_every_window_and_mutes_what_it_should(
    stack: Stack, sink: Sink
):
    raise_all(stack)
    wait_for(lambda: sink.heard["/alerts"] >= {*ACTIONS, AlertName.WATCHDOG})
    pages = {str(a.name) for a in ALERTS if a.name in ACTIONS and a.severity is Severity.PAGE}
    wait_for(lambda: sink.heard["/oncall"] >= {*pages, *ALWAYS_HEARD})
    time.sleep(1.5)  # a notice that got through would be there by now
    assert sink.heard["/oncall"] == {*pages, *ALWAYS_HEARD}
    assert AlertName.FAULT_RATE in pages
    inhibited = states(stack, "inhibitedBy")
    assert not any(inhibited[str(a.name), a.severity] for a in ALERTS if a.name in ACTIONS)
    assert inhibited["OwnNotice", "page"]
    assert inhibited[AlertName.NO_DATA, "ticket"]  # the data plane is down
    assert not inhibited[AlertName.WATCHDOG, "heartbeat"]


def test_what_is_muted_or_no_page_mutes_no_page(stack: Stack):
    """A canary's slow first packet is answered, and so muted; a policy made some a ticket."""
    raise_all(stack)
    first_packet, fault_rate, exhausted, degrade, own = (
        labels_of(alert(name))
        for name in (AlertName.FIRST_PACKET_SLOW, AlertName.FAULT_RATE,
                     AlertName.LADDER_EXHAUSTED, AlertName.LATENCY_DEGRADE, "OwnNotice")
    )  # fmt: skip
    quiet = {"severity": "ticket"}
    others = [
        {**degrade, "version": "v2"},
        {**first_packet, **quiet, "version": "v2"},
        {**fault_rate, **quiet, "version": "v3"},
        {**own, "version": "v3"},
        {**exhausted, **quiet, "version": "v4"},
        {**own, "version": "v4"},
    ]
    post(stack, others)

    def muted() -> dict[tuple[str, ...], bool]:
        found = api(stack, "GET", "alerts")
        keys = ("alertname", "severity", "version", "slo")
        return {
            tuple(a["labels"].get(key, "") for key in keys): bool(a["status"]["inhibitedBy"])
            for a in found
        }

    burn = AlertName.ERROR_BUDGET_BURN
    wait_for(lambda: muted()[AlertName.FIRST_PACKET_SLOW, "ticket", "v2", ""])
    assert all(muted()[burn, "ticket", "", slo] for slo in ("first_packet", "faults"))
    heard = [(burn, "page", "", "first_packet"), (burn, "page", "", "faults"),
             ("OwnNotice", "page", "v3", ""), ("OwnNotice", "page", "v4", "")]  # fmt: skip
    assert [key for key in heard if muted()[key]] == []
    post(stack, others, endsAt=datetime.now(UTC).isoformat())  # for the tests after this one
    wait_for(lambda: heard[-1] not in muted())


def test_a_maintenance_silences_notices_alone_is_listed_and_ends(stack: Stack):
    raise_all(stack)
    window = "every week, by the policy: maintenance 1: always"
    none, listed = maintenance.listing(stack)
    assert (none[:12], listed) == ("none by hand", window)
    told = maintenance.begin(stack, 7200, "moving disks", "eve", datetime.now(UTC))
    assert "notices wake nobody until" in told
    by_hand, listed = maintenance.listing(stack)
    assert "by eve: moving disks" in by_hand
    assert listed == window
    notices = {
        (str(a.name), a.severity)
        for a in ALERTS
        if a.action is Action.NONE
        and a.severity is not Severity.HEARTBEAT
        and a.name not in ALWAYS_HEARD
    }

    def silenced() -> set[tuple[str, str]]:
        return {key for key, is_so in states(stack, "silencedBy").items() if is_so}

    wait_for(lambda: silenced() == notices)
    [ended] = maintenance.end_all(stack)
    assert ended.startswith("ended: moving disks")
    wait_for(lambda: silenced() == set())
    assert maintenance.end_all(stack) == ["there was none"]


def test_somebody_elses_silence_is_left_alone(stack: Stack):
    now = datetime.now(UTC)
    other = {
        "matchers": [{"name": "alertname", "value": "X", "isRegex": False, "isEqual": True}],
        "startsAt": now.isoformat(),
        "endsAt": (now + timedelta(hours=1)).isoformat(),
        "createdBy": "bob",
        "comment": "mine",
    }
    api(stack, "POST", "silences", other)
    assert maintenance.active(stack) == []
    assert maintenance.end_all(stack) == ["there was none"]


def test_without_an_alertmanager_it_says_what_that_means(stack: Stack):
    alone = stack.model_copy(update={"alertmanager_url": None})
    with pytest.raises(maintenance.NoAlertmanager, match="no notice wakes anybody"):
        maintenance.listing(alone)
