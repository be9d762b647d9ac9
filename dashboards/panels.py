"""What every panel is made of: selectors, queries, limits, and the five kinds of panel."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.builders import dashboard as dashboard_builders
from grafana_foundation_sdk.builders import logs, loki, prometheus, stat, statetimeline, table
from grafana_foundation_sdk.builders import timeseries as timeseries_builders
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import common, dashboard, units
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from monitors.metric import Label, Metric
from monitors.recorded import Recorded

Panel = Builder[dashboard.Panel]
Series = Metric | Recorded

METRICS = common.DataSourceRef(type_val="prometheus", uid="${datasource}")
LOGS = common.DataSourceRef(type_val="loki", uid="${logs}")

GREEN, AMBER, RED, BLUE, GREY = "green", "orange", "red", "blue", "#6e7079"
UNKNOWN = "unknown"
SHARE, SECONDS, BYTES, PLAIN = units.PercentUnit, units.Seconds, units.BytesSI, units.NoUnit
PER_SECOND, SINCE, NATS = units.OpsPerSecond, units.DateTimeFromNow, "suffix:nats"

# A metric that carries one of these labels is narrowed to what is chosen on the page.
VARIABLE_OF = {Label.VERSION: "version", Label.MODALITY: "modality", Label.LAYER: "layer"}


def chosen(series: Series, *matchers: str, suffix: str = "") -> str:
    """A selector of one series name, narrowed by the page's variables and by `matchers`."""
    variables = [
        f'{label}=~"${VARIABLE_OF[label]}"' for label in series.labels if label in VARIABLE_OF
    ]
    return everything(series, *variables, *matchers, suffix=suffix)


def everything(series: Series, *matchers: str, suffix: str = "") -> str:
    """A selector of one series name, whatever is chosen on the page."""
    return f"{series.name}{suffix}" + (f"{{{','.join(matchers)}}}" if matchers else "")


# ---------------------------------------------------------------- queries
def over_time(
    expr: str, legend: str, ref: str = "A", *, exemplars: bool = False
) -> prometheus.Dataquery:
    """A range query; `legend` is a Grafana template such as `{{version}}`."""
    target = prometheus.Dataquery().datasource(METRICS).expr(expr).ref_id(ref)
    return target.range().legend_format(legend).exemplar(exemplars)


def now(expr: str, ref: str = "A") -> prometheus.Dataquery:
    """An instant query."""
    return prometheus.Dataquery().datasource(METRICS).expr(expr).ref_id(ref).instant()


# ---------------------------------------------------------------- limits
def below(red: float, *ambers: float) -> dashboard_builders.ThresholdsConfig:
    """Good is small: red from the red line upward, amber from the least of `ambers`."""
    middle = [(min(ambers), AMBER)] if ambers and min(ambers) < red else []
    return _steps([(None, GREEN), *middle, (red, RED)])


def above(floor: float, *comforts: float) -> dashboard_builders.ThresholdsConfig:
    """Good is large: red under the floor, amber between it and the highest of `comforts`."""
    higher = max(comforts, default=floor)
    rest = [(floor, AMBER), (higher, GREEN)] if higher > floor else [(floor, GREEN)]
    return _steps([(None, RED), *rest])


def _steps(steps: Sequence[tuple[float | None, str]]) -> dashboard_builders.ThresholdsConfig:
    return (
        dashboard_builders.ThresholdsConfig()
        .mode(dashboard.ThresholdsMode.ABSOLUTE)
        .steps([dashboard.Threshold(value=value, color=color) for value, color in steps])
    )


def names(values: Mapping[int, tuple[str, str]]) -> list[dashboard.ValueMapping]:
    """Show these numbers as (text, colour), and no number as unknown."""
    results = {
        str(value): dashboard.ValueMappingResult(text=text, color=color, index=index)
        for index, (value, (text, color)) in enumerate(values.items())
    }
    return [dashboard.ValueMap(options=results), unknown()]


def unknown() -> dashboard.ValueMapping:
    """No value and NaN in grey: else they take the colour under the first limit, often green."""
    return dashboard.SpecialValueMap(
        options=dashboard.DashboardSpecialValueMapOptions(
            match=dashboard.SpecialValueMatch.NULL_AND_NAN,
            result=dashboard.ValueMappingResult(text=UNKNOWN, color=GREY),
        )
    )


def rung_styles(rungs: type[IntEnum]) -> list[dashboard.DynamicConfigValue]:
    """A ladder part's levels by name: the first is green, the last red, any between amber."""
    last = max(rungs)
    colour = {int(rung): AMBER for rung in rungs} | {0: GREEN, int(last): RED}
    shown = names({int(r): (r.name.lower().replace("_", " "), colour[int(r)]) for r in rungs})
    return [dashboard.DynamicConfigValue(id_val="mappings", value=shown)]


# ---------------------------------------------------------------- panels
def figure(
    title: str,
    description: str,
    expr: str,
    unit: str,
    limits: dashboard_builders.ThresholdsConfig | None = None,
    *,
    width: int = 4,
    height: int = 4,
) -> stat.Panel:
    """One number, now, on the colour of its limit."""
    panel = (
        stat.Panel()
        .title(title)
        .description(description)
        .datasource(METRICS)
        .span(width)
        .height(height)
        .unit(unit)
        .with_target(now(expr))
        .graph_mode(common.BigValueGraphMode.NONE)
        .color_mode(common.BigValueColorMode.BACKGROUND)
        .reduce_options(common_builders.ReduceDataOptions().calcs(["lastNotNull"]))
    )
    return panel.thresholds(limits if limits is not None else _steps([(None, BLUE)]))


def curves(
    title: str,
    description: str,
    targets: Sequence[prometheus.Dataquery],
    unit: str,
    limits: dashboard_builders.ThresholdsConfig | None = None,
    *,
    width: int = 12,
    height: int = 8,
) -> timeseries_builders.Panel:
    """Series over time; limits are drawn as dashed lines."""
    panel = (
        timeseries_builders.Panel()
        .title(title)
        .description(description)
        .datasource(METRICS)
        .span(width)
        .height(height)
        .unit(unit)
        .min(0)
        .targets(list(targets))
        .legend(
            common_builders.VizLegendOptions()
            .show_legend(True)
            .display_mode(common.LegendDisplayMode.TABLE)
            .placement(common.LegendPlacement.BOTTOM)
            .calcs(["lastNotNull", "max"])
        )
        .tooltip(common_builders.VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI))
    )
    if limits is None:
        return panel
    dashed = common_builders.GraphThresholdsStyleConfig().mode(
        common.GraphThresholdsStyleMode.DASHED
    )
    return panel.thresholds(limits).thresholds_style(dashed)


def states(
    title: str,
    description: str,
    targets: Sequence[prometheus.Dataquery],
    *,
    width: int = 12,
    height: int = 7,
) -> statetimeline.Panel:
    """Bars of state over time. Give the names by `.mappings` or by overrides."""
    return (
        statetimeline.Panel()
        .title(title)
        .description(description)
        .datasource(METRICS)
        .span(width)
        .height(height)
        .unit(PLAIN)
        .targets(list(targets))
        .merge_values(True)
        .row_height(0.8)
    )


def log_lines(title: str, description: str, expr: str, *, height: int = 9) -> logs.Panel:
    """The newest log lines of a LogQL query."""
    return (
        logs.Panel()
        .title(title)
        .description(description)
        .datasource(LOGS)
        .span(24)
        .height(height)
        .unit(PLAIN)
        .with_target(loki.Dataquery().datasource(LOGS).expr(expr).ref_id("A").max_lines(200))
        .show_time(True)
        .wrap_log_message(True)
        .enable_log_details(True)
        .sort_order(common.LogsSortOrder.DESCENDING)
    )


# ---------------------------------------------------------------- tables
@dataclass(frozen=True)
class Column:
    """A column of numbers: one instant query whose labels are the table's keys."""

    name: str
    expr: str
    unit: str
    decimals: int | None = None
    limits: dashboard_builders.ThresholdsConfig | None = None
    names: list[dashboard.ValueMapping] | None = None


def rows_by(
    title: str,
    description: str,
    keys: Mapping[str, str],
    columns: Sequence[Column],
    *,
    width: int = 12,
    height: int = 8,
) -> table.Panel:
    """A table with one row for each combination of `keys` (label: heading).

    The frames of all columns are merged on the labels they share, so every expression must
    aggregate down to (some of) the keys: a recording rule's `__name__` would part the rows.
    """
    panel = (
        table.Panel()
        .title(title)
        .description(description)
        .datasource(METRICS)
        .span(width)
        .height(height)
        .unit(PLAIN)
        .filterable(True)
        .with_transformation(dashboard.DataTransformerConfig(id_val="merge", options={}))
        .with_transformation(_arrange(keys, columns))
    )
    for ref, column in zip(_refs(columns), columns, strict=True):
        panel.with_target(now(column.expr, ref).format(PromQueryFormat.TABLE))
        panel.override_by_name(column.name, _column_style(column))
    return panel


def _refs(columns: Sequence[Column]) -> list[str]:
    return [chr(ord("A") + index) for index in range(len(columns))]


def _arrange(keys: Mapping[str, str], columns: Sequence[Column]) -> dashboard.DataTransformerConfig:
    """Put the keys first, drop the time, and give every column its heading."""
    # Grafana calls the value field of a lone query `Value`, of several `Value #A`, `Value #B`.
    values = ["Value"] if len(columns) == 1 else [f"Value #{ref}" for ref in _refs(columns)]
    headings = dict(keys)
    headings |= dict(zip(values, (c.name for c in columns), strict=True))
    return dashboard.DataTransformerConfig(
        id_val="organize",
        options={
            "excludeByName": {"Time": True},
            "indexByName": {field: index for index, field in enumerate(headings)},
            "renameByName": headings,
        },
    )


def _column_style(column: Column) -> list[dashboard.DynamicConfigValue]:
    style: dict[str, object] = {"unit": column.unit}
    if column.decimals is not None:
        style["decimals"] = column.decimals
    if column.names is not None:
        style["mappings"] = column.names
    if column.limits is not None:
        style["thresholds"] = column.limits.build()
    if column.limits is not None or column.names is not None:
        style["custom.cellOptions"] = common.TableColoredBackgroundCellOptions(
            mode=common.TableCellBackgroundDisplayMode.BASIC
        )
    return [dashboard.DynamicConfigValue(id_val=key, value=value) for key, value in style.items()]
