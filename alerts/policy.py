"""The alert policy: the rules that ship, changed and added to by a `redline.yaml`."""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar, cast

import yaml
from pydantic import BaseModel, ValidationError

from alerts.maintenance import Window
from alerts.names import AlertName
from alerts.notify import Receiver, repeated
from alerts.promql import duration
from alerts.rule import Rule
from alerts.rule_text import MachineryText, RuleText, Wrong, resolve
from monitors import redlines
from monitors.labels import Action
from monitors.redlines import RedLines, RedLinesError

# What a shipped rule is, whatever its limits: with another of these it would be another rule.
_FIXED = ("table", "action", "milestone")
# The machinery's alerts that may be left out. Those that say that nothing is watched, that an
# action failed, or that the heart stopped may not: no data is not good news.
DISPENSABLE = frozenset({AlertName.NO_TRAFFIC, AlertName.ERROR_BUDGET_BURN})
_PARTS = ("rules", "maintenance", "notify")  # of a redline.yaml, beside the figures

M = TypeVar("M", bound=BaseModel)
_NOTHING: Mapping[str, Any] = MappingProxyType({})


class PolicyError(RedLinesError):
    """A policy that cannot be used; the message says where and what to do."""


@dataclass(frozen=True)
class Policy:
    """All that alerting is told. `given`: the `rules:` of the `redline.yaml`, to hand on."""

    lines: RedLines
    rules: tuple[Rule, ...]  # those that are enabled
    machinery: Mapping[str, MachineryText] = field(default_factory=dict[str, MachineryText])
    maintenance: tuple[Window, ...] = ()
    notify: tuple[Receiver, ...] = ()
    given: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def rule(self, name: str) -> Rule | None:
        """The enabled rule of that name."""
        return next((rule for rule in self.rules if rule.name == name), None)


def load(path: Path | None, base: RedLines | None = None) -> Policy:
    """The policy that ships, changed by the YAML file at `path` where one is given.

    `base`: the figures that the file changes; None: the article's. Raises `RedLinesError`.
    """
    if path is None:
        return make(base or RedLines())
    raw = redlines.read(path)
    # A key without a value says nothing; whatever else is no mapping, or no list, is a slip.
    given = {part: said for part in _PARTS if (said := raw.pop(part, None)) is not None}
    lines = redlines.parse(raw, str(path), base)
    return make(lines, **given, where=str(path))


def make(
    lines: RedLines,
    rules: object = _NOTHING,
    maintenance: object = (),
    notify: object = (),
    *,
    where: str = "the policy",
) -> Policy:
    """The policy at these red lines; its other parts as a `redline.yaml` has them.

    Raises `PolicyError` naming every rule, window and receiver that cannot be used.
    """
    wrong: list[str] = []
    given = _mapping(rules, wrong)
    machinery = {
        name: text
        for name in given
        if name in _machinery_names() and (text := _machinery(name, given[name], wrong)) is not None
    }
    own = [name for name in given if name not in _shipped() and name not in _machinery_names()]
    made = [
        rule
        for name in (*_shipped(), *own)
        if (rule := _rule(name, given.get(name, _NOTHING), lines, wrong)) is not None
    ]
    windows = _listed(Window, "maintenance", "{days: [sunday], ...}", maintenance, wrong)
    receivers = _listed(Receiver, "notify", "{name: on-call, ...}", notify, wrong)
    wrong.extend(f"  notify: {name} is there twice" for name in repeated(receivers))
    if wrong:
        raise PolicyError(f"{where}: please mend these keys\n" + "\n".join(wrong))
    return Policy(lines, tuple(made), machinery, windows, receivers, dict(given))


@cache
def _shipped() -> Mapping[str, Mapping[str, Any]]:
    text = files("alerts").joinpath("redline.yaml").read_text(encoding="utf-8")
    return MappingProxyType(yaml.safe_load(text)["rules"])


@cache
def _machinery_names() -> frozenset[str]:
    return frozenset(str(name) for name in AlertName) - _shipped().keys()


# ---------------------------------------------------------------- one rule
def _rule(name: str, given: object, lines: RedLines, wrong: list[str]) -> Rule | None:
    """The rule, or None with a complaint, or because it is left out."""
    shipped = _shipped().get(name)
    fields = _fields(name, given, wrong)
    if fields is None:
        return None
    meant = None if shipped else _meant(name)
    if meant is not None and not fields.keys() >= _required():
        said = f"did you mean {meant}? a rule of your own says all of it"
        wrong.append(_complaint(name, "", said))
        return None
    text = _checked(RuleText, name, {**(shipped or {}), **fields}, wrong, _hint(name, fields))
    if text is None:
        return None
    if shipped is not None:
        _keep_what_it_is(name, shipped, fields, text, wrong)
    if not text.enabled:
        return None
    try:
        rule = resolve(name, text, lines)
    except Wrong as err:
        wrong.append(_complaint(name, err.where, str(err)))
        return None
    if shipped is not None:
        _keep_it_able(rule, resolve(name, RuleText.model_validate(shipped), lines), lines, wrong)
    return rule


def _keep_what_it_is(
    name: str,
    shipped: Mapping[str, Any],
    fields: Mapping[str, Any],
    text: RuleText,
    wrong: list[str],
) -> None:
    wrong.extend(
        _complaint(name, fixed, f"stays {stays or 'unsaid'}; add a rule of your own for another")
        for fixed in _FIXED
        if fields.get(fixed, stays := shipped.get(fixed)) != stays
    )
    if not text.enabled:
        what = {
            Action.ROLL_BACK: "a rollback cannot be switched off",
            Action.NONE: "this is its red line's only page, which cannot be switched off",
        }.get(text.action, "it cannot be switched off; `redline freeze` stops the ladder's moves")
        wrong.append(_complaint(name, "enabled", what))


def _keep_it_able(rule: Rule, shipped: Rule, lines: RedLines, wrong: list[str]) -> None:
    """Its numbers may differ, but not so that it is switched off by them."""

    def compared(of: Rule) -> list[str]:
        return [f"{each.column.name} {each.comparison}" for each in of.conditions]

    if compared(rule) != compared(shipped):
        stays = " and ".join(compared(shipped))
        wrong.append(
            _complaint(rule.name, "when", f"goes on comparing {stays}: only limits differ")
        )
    longest = max(lines.rollout.bake_s, shipped.for_s)
    if rule.for_s > longest:
        most = f"at most {duration(longest)}, a rollout's bake: later is never"
        wrong.append(_complaint(rule.name, "for", most))


def _machinery(name: str, given: object, wrong: list[str]) -> MachineryText | None:
    fields = _fields(name, given, wrong)
    hint = "of this alert only enabled and severity can be said; its `for` is a red line"
    text = None if fields is None else _checked(MachineryText, name, fields, wrong, hint)
    if text is not None and not text.enabled and name not in DISPENSABLE:
        kept = "this alert cannot be switched off: its silence would look like health"
        wrong.append(_complaint(name, "enabled", kept))
    if text is not None and text.severity is not None and name == AlertName.WATCHDOG:
        wrong.append(_complaint(name, "severity", "the Watchdog is a heartbeat and stays one"))
    return text


def _meant(name: str) -> str | None:
    """The shipped alert that a name may be a slip for."""
    known = [*_shipped(), *sorted(_machinery_names())]
    return next(iter(difflib.get_close_matches(name, known, n=1, cutoff=0.8)), None)


def _hint(name: str, fields: Mapping[str, Any]) -> str:
    whole = name in _shipped() or fields.keys() >= _required()
    return "" if whole else "a rule of your own says all of it"


@cache
def _required() -> frozenset[str]:
    fields = RuleText.model_fields.items()
    return frozenset(of.alias or name for name, of in fields if of.is_required())


# ---------------------------------------------------------------- reading and complaining
def _mapping(given: object, wrong: list[str]) -> dict[str, object]:
    if not isinstance(given, Mapping):
        wrong.append("  rules: write the rules by name, as `MyRule: {table: ...}`")
        return {}
    return {str(name): each for name, each in cast("Mapping[object, object]", given).items()}


def _fields(name: str, given: object, wrong: list[str]) -> dict[str, Any] | None:
    if not isinstance(given, Mapping):
        wrong.append(_complaint(name, "", "write its fields, as `for: 20s`"))
        return None
    return dict(cast("Mapping[str, Any]", given))


def _checked(
    model: type[M], name: str, fields: Mapping[str, Any], wrong: list[str], hint: str
) -> M | None:
    try:
        return model.model_validate(fields)
    except ValidationError as err:
        if hint:
            wrong.append(_complaint(name, "", hint))
        wrong.extend(_complaint(name, _place(e["loc"]), _words(e["msg"])) for e in err.errors())
        return None


def _place(parts: Iterable[int | str]) -> str:
    return ".".join(map(str, parts))


def _words(message: str) -> str:
    """Without what pydantic puts before words of our own."""
    return message.removeprefix("Value error, ")


def _complaint(name: str, where: str, what: str) -> str:
    return f"  rules.{name}{'.' if where else ''}{where}: {what}"


def _listed(
    model: type[M], part: str, example: str, given: object, wrong: list[str]
) -> tuple[M, ...]:
    """Those of a list that can be used."""
    if not isinstance(given, Sequence) or isinstance(given, str):
        wrong.append(f"  {part}: write a list, as `- {example}`")
        return ()
    made: list[M] = []
    for place, each in enumerate(cast("Sequence[object]", given)):
        try:
            made.append(model.model_validate(each))
        except ValidationError as err:
            wrong.extend(
                f"  {part}.{_place((place, *e['loc']))}: {_words(e['msg'])}" for e in err.errors()
            )
    return tuple(made)
