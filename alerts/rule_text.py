"""Rules as a YAML file writes them, and what they resolve to at these red lines."""

import re
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictInt, StrictStr

from alerts.columns import column
from alerts.figures import figure
from alerts.promql import parse_duration
from alerts.rule import Comparison, Condition, Rule, RuleError
from alerts.wording import summary
from monitors.labels import Action, Milestone, Severity
from monitors.latency_table import MOST
from monitors.metric import Table
from monitors.redlines import RedLines

_CONDITION = re.compile(r"(?P<column>\w+)\s*(?P<comparison><=|>=|<|>)\s*(?P<limit>\S+)")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")
_PAGE = re.compile(r"[a-z0-9][a-z0-9-]*\.md|https?://\S+")


def _list(value: object) -> object:
    if isinstance(value, str):
        raise ValueError(f"write a list, as `when: [{value}]`")
    return value


def _with_unit(value: object) -> object:
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise ValueError(f"{value} of what? write {value}s")
    return value


class _Text(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class RuleText(_Text):
    """Every field of one rule, as written."""

    table: Table
    when: Annotated[tuple[StrictStr, ...], BeforeValidator(_list), Field(min_length=1)]
    for_: Annotated[StrictStr, BeforeValidator(_with_unit), Field(alias="for")]
    keep_firing_for: Annotated[StrictStr, BeforeValidator(_with_unit)] = "0s"
    min_count: StrictInt | StrictStr | None = None
    milestone: Milestone | None = None
    severity: Severity
    action: Action
    runbook: StrictStr
    summary: StrictStr
    enabled: bool = True


class MachineryText(_Text):
    """What may be said of an alert that is code: its `for` follows a red line."""

    severity: Literal[Severity.PAGE, Severity.TICKET] | None = None
    enabled: bool = True


class Wrong(ValueError):
    """A rule that cannot be used: where in it, and what to do."""

    def __init__(self, where: str, what: str) -> None:
        super().__init__(what)
        self.where = where


@contextmanager
def _at(where: str) -> Generator[None]:
    try:
        yield
    except ValueError as err:
        raise Wrong(where, str(err)) from err


def resolve(name: str, text: RuleText, lines: RedLines) -> Rule:
    """The rule at these red lines. Raises `Wrong` for the first field that cannot be used."""
    conditions = tuple(_conditions(text, lines))
    with _at("for"):
        for_s = _seconds(text.for_, lines)
    with _at("keep_firing_for"):
        keep_firing_s = _seconds(text.keep_firing_for, lines)
    with _at("min_count"):
        min_count = _count(text, lines)
    with _at("runbook"):
        runbook = _page(text.runbook)
    with _at("summary"):
        told = summary(text.summary, conditions, text.table, lines)
    with _at(""):
        return Rule(
            name=name,
            table=text.table,
            conditions=conditions,
            min_count=min_count,
            milestone=text.milestone,
            for_s=for_s,
            keep_firing_s=keep_firing_s,
            severity=text.severity,
            action=text.action,
            runbook=runbook,
            summary=told,
        )


def _conditions(text: RuleText, lines: RedLines) -> Iterator[Condition]:
    for place, said in enumerate(text.when):
        with _at(f"when.{place}"):
            yield _condition(said, text.table, lines)


def _condition(said: str, table: Table, lines: RedLines) -> Condition:
    parts = _CONDITION.fullmatch(said.strip())
    if parts is None:
        raise RuleError(f"{said!r} is no condition; write a column, <, <=, > or >=, and a limit")
    of = column(table, parts["column"])
    return Condition(of, Comparison(parts["comparison"]), _number(parts["limit"], lines))


def _number(said: str, lines: RedLines) -> float:
    return float(said) if _NUMBER.fullmatch(said) else figure(lines, said)


def _seconds(said: str, lines: RedLines) -> float:
    if "." in said and not said[0].isdigit():
        if not said.endswith("_s"):
            raise RuleError(f"{said} is no duration; red lines in seconds end in _s")
        return figure(lines, said)
    if said.isdigit():
        raise RuleError(f"{said} of what? write {said}s")
    return parse_duration(said)


def _count(text: RuleText, lines: RedLines) -> int | None:
    said = text.min_count
    if said is None or isinstance(said, int):
        number = said
    else:
        value = figure(lines, said)
        if value != int(value):
            raise RuleError(f"{said} is {value:g}: a count is a whole number")
        number = int(value)
    holds = {Table.FAULTS: lines.faults.window_requests, Table.LATENCY: MOST}
    most = holds.get(text.table)
    if number is not None and most is not None and number > most:
        raise RuleError(
            f"table {text.table} holds {most:,} requests, so {number:,} never come together"
        )
    return number


def _page(said: str) -> str:
    if not _PAGE.fullmatch(said):
        raise RuleError(
            f"{said!r} is no page; name a file of docs/runbooks, as my-rule.md, or an https:// URL"
        )
    return said
