"""What the control plane is told at start. Unknown keys stop it."""

from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from alerts.notify import Receiver
from alerts.policy import Policy, make
from monitors.redlines import RedLines


class ControlSettings(BaseModel):
    """Everything `redline.control.app.serve` needs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=1, le=65535)] = 8090
    state_dir: Path
    runtime_url: Annotated[str, Field(pattern=r"^https?://[^/]+/?$")]
    journal_url: str | None = None  # as `monitors.journal.open_store` takes it; None: a file here
    token: Annotated[str, Field(min_length=1)]  # without one nobody could command or alert
    prometheus: bool = False  # False: the rules are evaluated here (DESIGN 1)
    lines: RedLines = RedLines()
    notify: tuple[Receiver, ...] = ()  # as the `notify:` of a redline.yaml
    rules: dict[str, Any] = {}  # as the `rules:` of a redline.yaml
    leader_ttl_s: Annotated[float, Field(gt=0.0)] = 5.0
    tick_s: Annotated[float, Field(gt=0.0)] = 1.0
    # Between two looks at the tables where nobody else evaluates them.
    evaluation_s: Annotated[float, Field(gt=0.0)] = 0.2

    @property
    def policy(self) -> Policy:
        """The rules at these lines. Notices' maintenance windows are Alertmanager's alone."""
        return make(self.lines, self.rules, where="rules")

    @model_validator(mode="after")
    def _has_a_policy(self) -> "ControlSettings":
        _ = self.policy  # or a wrong rule would be met when it is first evaluated
        return self
