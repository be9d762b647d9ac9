"""What fires now, whoever found it out: Alertmanager's webhook or the embedded evaluator."""

import hashlib
from enum import StrEnum
from typing import Literal

import msgspec

from monitors.contract import Wire
from monitors.labels import Action
from monitors.metric import Label

NEWS, SOURCE = "alert.news", "alert.source"  # kinds of journal entries
NewsState = Literal["pending", "firing", "resolved"]
Labels = frozenset[tuple[str, str]]


class Source(StrEnum):
    """Who evaluates the rules."""

    PROMETHEUS = "prometheus"
    EMBEDDED = "embedded"


class Firing(Wire, frozen=True):
    """One alert that fires. `version` is never None where `action` says to act on something."""

    alert: str
    action: Action
    version: str | None
    labels: dict[str, str]
    starts_at: float  # wall seconds; with the labels it names one firing for ever
    summary: str = ""
    source: Source = Source.PROMETHEUS
    runbook: str | None = None  # a page below the project's folder, or a URL

    @property
    def operation_id(self) -> str:
        """The same for every repeat of this firing, so that acting on it twice is acting once."""
        return f"{fingerprint(self.labels)}-{self.starts_at:.3f}"

    @property
    def all_labels(self) -> Labels:
        """The labels as one value that can be looked up."""
        return frozenset(self.labels.items())

    @property
    def identity(self) -> Labels:
        """What both sources call the same alert of those that both evaluate: Prometheus may know
        more labels, of where it scraped and of itself."""
        return frozenset(item for item in self.labels.items() if item[0] in _TELLING)


_TELLING = frozenset({"alertname", Label.VERSION, Label.MILESTONE, Label.TABLE})


class AlertNews(Wire, frozen=True):
    """Body of an `alert.news` entry. Times are wall seconds; `starts_at` of a pending alert is
    since when its line is crossed."""

    alert: str
    version: str | None
    labels: dict[str, str]
    state: NewsState
    source: Source
    starts_at: float
    heard_at: float


class SourceChanged(Wire, frozen=True):
    """Body of an `alert.source` entry: who evaluates the rules from now on, and who did before."""

    source: Source
    before: Source


def fingerprint(labels: dict[str, str]) -> str:
    """16 hex digits that name a set of labels, whatever their order."""
    return hashlib.sha256(msgspec.json.encode(labels, order="sorted")).hexdigest()[:16]
