"""What fires now, whoever found it out: Alertmanager's webhook or the embedded evaluator."""

import hashlib

import msgspec

from monitors.contract import Wire
from monitors.labels import Action


class Firing(Wire, frozen=True):
    """One alert that fires. `version` is never None where `action` says to act on something."""

    alert: str
    action: Action
    version: str | None
    labels: dict[str, str]
    starts_at: float  # wall seconds; with the labels it names one firing for ever
    summary: str = ""

    @property
    def operation_id(self) -> str:
        """The same for every repeat of this firing, so that acting on it twice is acting once."""
        return f"{fingerprint(self.labels)}-{self.starts_at:.3f}"


def fingerprint(labels: dict[str, str]) -> str:
    """16 hex digits that name a set of labels, whatever their order."""
    return hashlib.sha256(msgspec.json.encode(labels, order="sorted")).hexdigest()[:16]
