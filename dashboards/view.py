"""A dashboard file read back: the few fields that the lint and the queries look at."""

from collections.abc import Iterator
from typing import Any

import msgspec


class Json(msgspec.Struct, frozen=True, rename="camel"):
    """Base of the views: Grafana's camel case; everything that is not looked at is ignored."""


class Datasource(Json, frozen=True):
    type: str
    uid: str


class Target(Json, frozen=True):
    """One query of a panel."""

    ref_id: str
    expr: str
    datasource: Datasource
    instant: bool = False


class Grid(Json, frozen=True):
    """Columns `x .. x + w` of 24 and lines `y .. y + h`."""

    x: int
    y: int
    w: int
    h: int

    def overlaps(self, other: "Grid") -> bool:
        return (
            self.x < other.x + other.w
            and other.x < self.x + self.w
            and self.y < other.y + other.h
            and other.y < self.y + self.h
        )


class Step(Json, frozen=True):
    """One limit: `color` from `value` on; `None` is the colour below all limits."""

    color: str
    value: float | None = None


class Thresholds(Json, frozen=True):
    steps: list[Step] = msgspec.field(default_factory=lambda: list[Step]())


class Property(Json, frozen=True):
    id: str
    value: Any = None


class Override(Json, frozen=True):
    properties: list[Property]


class Defaults(Json, frozen=True):
    unit: str | None = None
    no_value: str | None = None
    thresholds: Thresholds | None = None


class FieldConfig(Json, frozen=True):
    defaults: Defaults = Defaults()
    overrides: list[Override] = msgspec.field(default_factory=lambda: list[Override]())


class Panel(Json, frozen=True):
    type: str
    id: int
    grid_pos: Grid
    title: str = ""
    description: str = ""
    datasource: Datasource | None = None
    targets: list[Target] = msgspec.field(default_factory=lambda: list[Target]())
    field_config: FieldConfig = FieldConfig()

    @property
    def is_row(self) -> bool:
        return self.type == "row"

    def limits(self) -> Iterator[tuple[str | None, float]]:
        """Each limit with the unit it is in, of the panel and of its columns."""
        defaults = self.field_config.defaults
        if defaults.thresholds is not None:
            yield from _values(defaults.unit, defaults.thresholds)
        for override in self.field_config.overrides:
            given = {p.id: p.value for p in override.properties}
            if "thresholds" in given:
                thresholds = msgspec.convert(given["thresholds"], Thresholds)
                yield from _values(given.get("unit", defaults.unit), thresholds)


def _values(unit: str | None, thresholds: Thresholds) -> Iterator[tuple[str | None, float]]:
    for step in thresholds.steps:
        if step.value is not None:
            yield unit, step.value


class Variable(Json, frozen=True):
    """`query` is a `label_values(...)`, or the kind of a data source variable."""

    type: str
    name: str
    query: str
    all_value: str | None = None
    datasource: Datasource | None = None


class Annotation(Json, frozen=True):
    name: str
    expr: str
    datasource: Datasource


class _Variables(Json, frozen=True):
    list: list[Variable]


class _Annotations(Json, frozen=True):
    list: list[Annotation]


class Dashboard(Json, frozen=True):
    uid: str
    title: str
    editable: bool
    panels: list[Panel]
    templating: _Variables
    annotations: _Annotations


def read(text: str) -> Dashboard:
    """Parse dashboard JSON. Raises `msgspec.ValidationError` naming what is missing."""
    return msgspec.json.decode(text, type=Dashboard)
