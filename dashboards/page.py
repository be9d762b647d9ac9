"""A dashboard from rows of panels: numbering, the page's variables, annotations and links."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from grafana_foundation_sdk.builders import dashboard as dashboard_builders
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import dashboard

from dashboards.panels import METRICS, UNKNOWN, VARIABLE_OF, Panel, everything, unknown
from monitors import catalog
from monitors.metric import Label, Metric

Variable = Builder[dashboard.VariableModel]

# As compose.yaml publishes the status page, and mounts docs/runbooks where Grafana serves files.
PLACES = {
    "Status page": "http://127.0.0.1:8090/",
    "Runbooks": "/public/runbooks/README.md",
}


@dataclass(frozen=True)
class Row:
    title: str
    panels: Sequence[Panel]


def page(
    uid: str, title: str, description: str, rows: Sequence[Row], variables: Sequence[Variable]
) -> dashboard.Dashboard:
    """A read-only dashboard in Grafana's classic schema, the one file provisioning takes."""
    builder = (
        dashboard_builders.Dashboard(title)
        .uid(uid)
        .description(description)
        .tags(["redline"])
        .refresh("10s")
        .time("now-30m", "now")
        .timezone("browser")
        .tooltip(dashboard.DashboardCursorSync.CROSSHAIR)
        .readonly()
    )
    for variable in (_metrics_variable(), *variables):
        builder.with_variable(variable)
    for annotation in (_ladder_moves(), _rollbacks()):
        builder.annotation(annotation)
    for link in _links():
        builder.link(link)
    for row in rows:
        builder.with_row(dashboard_builders.Row(row.title))
        for panel in row.panels:
            builder.with_panel(panel)
    return _finished(builder.build())


def _finished(built: dashboard.Dashboard) -> dashboard.Dashboard:
    """Number rows and panels (the builder does not) and say `unknown` where nothing came."""
    for number, panel in enumerate(built.panels or (), start=1):
        panel.id_val = number
        if isinstance(panel, dashboard.Panel):
            config = panel.field_config or dashboard.FieldConfigSource()
            config.defaults.no_value = config.defaults.no_value or UNKNOWN
            config.defaults.mappings = config.defaults.mappings or [unknown()]
            panel.field_config = config
    return built


# ---------------------------------------------------------------- variables
def _metrics_variable() -> Variable:
    return dashboard_builders.DatasourceVariable("datasource").label("Metrics").type("prometheus")


def logs_variable() -> Variable:
    return dashboard_builders.DatasourceVariable("logs").label("Logs").type("loki")


def label_variable(label: Label, metric: Metric, heading: str) -> Variable:
    """A choice among the values that `label` has on `metric`, all of them at first."""
    return (
        dashboard_builders.QueryVariable(VARIABLE_OF[label])
        .label(heading)
        .datasource(METRICS)
        .query(f"label_values({everything(metric)}, {label})")
        .refresh(dashboard.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(dashboard.VariableSort.NUMERICAL_ASC)
        .multi(True)
        .include_all(True)
        .all_value(".*")
        .current(dashboard.VariableOption(selected=True, text="All", value="$__all"))
    )


def version_variable() -> Variable:
    return label_variable(Label.VERSION, catalog.RESIDENT_UP, "Version")


def cell_variables() -> tuple[Variable, Variable]:
    """The two choices that pick cells of table 1."""
    return (
        label_variable(Label.MODALITY, catalog.LIVE_BYTES, "Modality"),
        label_variable(Label.LAYER, catalog.LIVE_BYTES, "Layer"),
    )


# ---------------------------------------------------------------- annotations and links
def _ladder_moves() -> Builder[dashboard.AnnotationQuery]:
    # From the level itself: the first move of a counter that did not exist yet shows no change.
    expr = f"max by (version, part) (changes({everything(catalog.LEVEL)}[1m])) > 0"
    return _mark("Ladder moves", expr, "purple", "{{part}} moved on {{version}}")


def _rollbacks() -> Builder[dashboard.AnnotationQuery]:
    expr = f"increase({everything(catalog.ROLLBACKS)}[1m]) > 0"
    return _mark("Rollbacks", expr, "red", "rollback")


def _mark(name: str, expr: str, colour: str, title: str) -> Builder[dashboard.AnnotationQuery]:
    return (
        dashboard_builders.AnnotationQuery()
        .name(name)
        .datasource(METRICS)
        .enable(True)
        .icon_color(colour)
        .expr(expr)
        .step("10s")
        .title_format(title)
    )


def _links() -> Iterator[Builder[dashboard.DashboardLink]]:
    yield (
        dashboard_builders.DashboardLink("Redline")
        .type(dashboard.DashboardLinkType.DASHBOARDS)
        .tags(["redline"])
        .include_vars(True)
        .keep_time(True)
    )
    for title, url in PLACES.items():
        yield (
            dashboard_builders.DashboardLink(title)
            .type(dashboard.DashboardLinkType.LINK)
            .url(url)
            .target_blank(True)
        )
