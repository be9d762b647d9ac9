"""Writes what is generated from the policy: rules, routes, and the head of each runbook."""

from pathlib import Path

from alerts.alert import Alert
from alerts.compile import alerts
from alerts.policy import Policy
from alerts.promql import duration
from alerts.routing import render_alertmanager
from alerts.rules import RUNBOOKS, render_prometheus, render_rules
from alerts.wording import fill
from monitors.labels import Action, Severity
from monitors.redlines import RedLines

BEGIN, END = "<!-- generated: redline generate -->\n", "<!-- end of generated -->\n"

_SEVERITY = {
    Severity.PAGE: "wakes somebody",
    Severity.TICKET: "opens a ticket",
    Severity.ACTION: "acts and wakes nobody",
    Severity.HEARTBEAT: "a heartbeat to the control plane",
}
_ACTION = {
    Action.SHED: "sheds the version's low-lane work while its engine is past "
    "{scheduler.shed_utilisation} busy",
    Action.LIMIT_ADMISSION: "refuses new sessions of the version for now (429); known ones go on",
    Action.QUANTISE_KV: "turns the version's KV pool to int8",
    Action.DEGRADE_MEDIA: "lowers the version's media a rung at a time",
    Action.ROLL_BACK: "rolls the version back where it is the canary",
    Action.NONE: "tells, and does nothing",
}


def write_all(root: Path, policy: Policy) -> list[Path]:
    """Write every generated file below `root`; what was written. Raises `OSError`, and
    `ValueError` for an alert without a runbook to put its head into."""
    texts = {
        root / "deploy/prometheus/rules.yml": render_rules(policy),
        root / "deploy/prometheus/prometheus.yml": render_prometheus(
            runtime="runtime:8080",
            control="control:8090",
            alertmanager="alertmanager:9093",
            rule_file="rules.yml",
        ),
        root / "deploy/alertmanager/alertmanager.yml": render_alertmanager(
            policy,
            webhook_url="http://control:8090/alerts",
            credentials_file="/run/secrets/control_token",
        ),
        **_runbooks(root / RUNBOOKS, policy),
    }
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return list(texts)


def _runbooks(folder: Path, policy: Policy) -> dict[Path, str]:
    every, lines = alerts(policy), policy.lines
    pages: dict[str, list[Alert]] = {}
    for alert in every:
        if alert.has_page:
            pages.setdefault(alert.runbook, []).append(alert)
    heads = {
        folder / page: "\n".join(runbook_head(alert, lines) for alert in of)
        for page, of in pages.items()
    }
    heads[folder / "README.md"] = runbook_index(every)
    return {path: _with_head(path, head) for path, head in heads.items()}


def _with_head(path: Path, head: str) -> str:
    """The page with its generated part renewed, the rest as it was written."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as err:
        raise ValueError(f"{path}: there is no such page: write it, with {BEGIN}{END}") from err
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{path}: no place for what is generated: put {BEGIN!r} and {END!r}")
    return f"{before}{BEGIN}{head}{END}{after}"


def runbook_index(every: tuple[Alert, ...]) -> str:
    """Markdown: every alert with its page."""
    rows = [
        f"| [{alert.name}]({alert.runbook}) | {alert.when} | `{alert.severity}` |\n"
        for alert in every
    ]
    return "| alert | fires when | severity |\n|---|---|---|\n" + "".join(rows)


def runbook_head(alert: Alert, lines: RedLines) -> str:
    """Markdown: when it fires, for how long, what it does, and the rule itself."""
    kept = (
        f"| fires on for | {duration(alert.keep_firing_s)} after |\n" if alert.keep_firing_s else ""
    )
    return (
        "| | |\n|---|---|\n"
        f"| fires when | {alert.when} |\n"
        f"| held for | {duration(alert.for_s)} |\n"
        f"{kept}"
        f"| severity | `{alert.severity}`: {_SEVERITY[alert.severity]} |\n"
        f"| Redline | {fill(_ACTION[alert.action], lines)} |\n\n"
        f"```promql\n{alert.expr}\n```\n"
    )
