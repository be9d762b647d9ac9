"""Alertmanager's configuration: every alert to the control plane, some to people as well."""

from dataclasses import dataclass
from itertools import starmap
from typing import Any

from alerts.burn import SLO
from alerts.maintenance import interval_name, time_intervals
from alerts.names import AlertName
from alerts.policy import Policy
from alerts.promql import duration
from alerts.receiver import MOST_IN_BODY
from alerts.rules import to_yaml
from monitors.labels import Action, Severity
from monitors.metric import Label
from monitors.redlines import AlertLines

CONTROL_PLANE, ON_CALL = "control-plane", "on-call"
PEOPLE = f'severity=~"{Severity.PAGE}|{Severity.TICKET}"'
NOTICE = f'{Label.ACTION}="{Action.NONE}"'
# Says that an action failed: no window and no silence may hide it.
ALWAYS_HEARD = (AlertName.ROLLBACK_INCOMPLETE,)


@dataclass(frozen=True)
class Mute:
    """While an alert of `source` fires, those of `target` that agree on `equal` wake nobody.

    Alertmanager mutes an alert for every receiver, the control plane too, so a target is always a
    notice: an action is never muted (ADR 12).
    """

    source: tuple[str, ...]
    target: tuple[str, ...]
    equal: tuple[str, ...] = ()


def _named(*names: AlertName) -> str:
    return f'alertname=~"{"|".join(names)}"'


def _action(*actions: Action) -> str:
    return f'{Label.ACTION}=~"{"|".join(actions)}"'


_UNSEEN = (_named(AlertName.NO_DATA, AlertName.NO_TRAFFIC), NOTICE)
_PAGES, _TICKETS = f'severity="{Severity.PAGE}"', f'severity="{Severity.TICKET}"'
# Absent data, and what the whole service promises, are no alerts of one version, and are heard
# beside any of those: of the budgets, one version's page stands for the tickets alone (below).
_OF_TABLES = (
    NOTICE,
    PEOPLE,
    f'{Label.TABLE}=~".+"',
    f'alertname!~"{AlertName.NO_DATA}|{AlertName.ERROR_BUDGET_BURN}"',
)
# An alert that is muted mutes all the same. So whoever mutes pages because somebody is up is a page
# itself, or acts and has one behind it (`alerts.rule.BACKED`).
MUTES: tuple[Mute, ...] = (
    # Rollback over degrade over notice: what is being answered needs no second word.
    Mute((_action(Action.ROLL_BACK), _PAGES), _OF_TABLES, (Label.VERSION,)),
    Mute(
        (_action(Action.DEGRADE_MEDIA, Action.QUANTISE_KV),),
        _OF_TABLES,
        (Label.VERSION, Label.TABLE),
    ),
    # Somebody is already up for it.
    Mute((_named(AlertName.LADDER_EXHAUSTED), _PAGES), _OF_TABLES, (Label.VERSION,)),
    Mute(
        (_named(AlertName.FAULT_RATE, AlertName.FIRST_PACKET_SLOW), _PAGES),
        (_named(AlertName.ERROR_BUDGET_BURN), NOTICE, _TICKETS),
        (Label.TABLE,),
    ),
    Mute(
        (_named(AlertName.ERROR_BUDGET_BURN), _PAGES),
        (_named(AlertName.ERROR_BUDGET_BURN), NOTICE, _TICKETS),
        (SLO,),
    ),
    # What is down shows nothing, and does not answer.
    Mute(
        (_named(AlertName.DATA_PLANE_DOWN),),
        (_named(AlertName.NO_DATA, AlertName.NO_TRAFFIC, AlertName.RESIDENT_DOWN), NOTICE),
    ),
    Mute((_named(AlertName.RESIDENT_DOWN),), _UNSEEN, (Label.VERSION,)),
    Mute(
        (_named(AlertName.CONTROL_PLANE_DOWN),),
        (_named(AlertName.JOURNAL_UNWRITABLE), NOTICE),
    ),
)


def render_alertmanager(
    policy: Policy,
    *,
    webhook_url: str,
    credentials_file: str,
    oncall_url: str | None = None,
) -> str:
    """Alertmanager's configuration.

    `credentials_file` holds the bearer token of `webhook_url`. `oncall_url` is a webhook that
    wakes people; without one, alerts for them show in Alertmanager only.
    """
    windows = policy.maintenance
    return to_yaml(
        {
            "route": _routes(policy.lines.alerts, [*starmap(interval_name, enumerate(windows))]),
            **({"time_intervals": time_intervals(windows)} if windows else {}),
            "inhibit_rules": [_inhibit(mute) for mute in MUTES],
            "receivers": [
                {
                    "name": CONTROL_PLANE,
                    "webhook_configs": [_control_webhook(webhook_url, credentials_file)],
                },
                {
                    "name": ON_CALL,
                    "webhook_configs": [{"url": oncall_url}] if oncall_url else [],
                },
            ],
        }
    )


def _routes(beats: AlertLines, muted_in: list[str]) -> dict[str, Any]:
    """The root catches what nothing else does, so that no alert is lost."""
    return {
        "receiver": ON_CALL,
        "group_by": ["..."],
        "group_wait": "0s",
        "group_interval": "1s",
        "repeat_interval": "4h",
        "routes": [
            {
                "receiver": CONTROL_PLANE,
                "matchers": [f'alertname="{AlertName.WATCHDOG}"'],
                "repeat_interval": duration(beats.heartbeat_s),
            },
            {
                "receiver": CONTROL_PLANE,
                "matchers": [f'{Label.ACTION}=~".+"'],  # every alert of ours says one
                "repeat_interval": duration(beats.repeat_s),
                "continue": True,  # to the next sibling, which must therefore exist
            },
            *_people(muted_in),
        ],
    }


def _people(muted_in: list[str]) -> list[dict[str, Any]]:
    """In a maintenance window notices are muted, here and nowhere else."""
    if not muted_in:
        return [{"receiver": ON_CALL, "matchers": [PEOPLE]}]
    return [
        {"receiver": ON_CALL, "matchers": [PEOPLE, f'{Label.ACTION}!="{Action.NONE}"']},
        {"receiver": ON_CALL, "matchers": [PEOPLE, _named(*ALWAYS_HEARD)]},
        {"receiver": ON_CALL, "matchers": [PEOPLE], "mute_time_intervals": muted_in},
    ]


def _control_webhook(url: str, credentials_file: str) -> dict[str, Any]:
    return {
        "url": url,
        "send_resolved": True,
        "max_alerts": MOST_IN_BODY,
        "http_config": {"authorization": {"type": "Bearer", "credentials_file": credentials_file}},
    }


def _inhibit(mute: Mute) -> dict[str, Any]:
    return {
        "source_matchers": list(mute.source),
        "target_matchers": list(mute.target),
        "equal": [str(label) for label in mute.equal],
    }
