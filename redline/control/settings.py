"""What the control plane is told at start. Unknown keys stop it."""

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from monitors.redlines import RedLines


class ControlSettings(BaseModel):
    """Everything `redline.control.app.serve` needs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=1, le=65535)] = 8090
    state_dir: Path
    runtime_url: Annotated[str, Field(pattern=r"^https?://[^/]+/?$")]
    token: Annotated[str, Field(min_length=1)]  # without one nobody could command or alert
    prometheus: bool = False  # False: the rules are evaluated here (DESIGN 1)
    lines: RedLines = RedLines()
    leader_ttl_s: Annotated[float, Field(gt=0.0)] = 5.0
    tick_s: Annotated[float, Field(gt=0.0)] = 1.0
    # Between two looks at the tables where nobody else evaluates them.
    evaluation_s: Annotated[float, Field(gt=0.0)] = 0.25
