"""Where a stack keeps its state and where its parts listen: what `up` decides and others read."""

import json
import os
import secrets
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from monitors.redlines import RedLines
from redline.processes import ProcessMark

Port = Annotated[int, Field(ge=1, le=65535)]

STATE_DIR = Path(".redline")
_RECORD = "stack.json"
_TOKEN = "control.token"
_VARIABLES = (
    ("runtime_url", "REDLINE_RUNTIME_URL"),
    ("control_url", "REDLINE_CONTROL_URL"),
    ("prometheus_url", "REDLINE_PROMETHEUS_URL"),
    ("alertmanager_url", "REDLINE_ALERTMANAGER_URL"),
    ("token", "REDLINE_TOKEN"),
)
_OF_THE_RECORDED = ("prometheus_url", "alertmanager_url", "lines", "rules", "processes")


class SettingsError(ValueError):
    """Settings that cannot be used; the message says what to do."""


class Ports(BaseModel):
    """The four ports of the embedded stack, all on one loopback address."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    runtime: Port = 8080
    control: Port = 8090
    prometheus: Port = 9090
    alertmanager: Port = 9093


class Stack(BaseModel):
    """A running stack as other commands find it: `stack.json` in the state folder.

    `lines`, `rules`: those it was started with, as a `redline.yaml` has them. `processes`: those
    of this machine, by the names of `redline up`; none where addresses were given by hand.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    runtime_url: str
    control_url: str
    prometheus_url: str | None = None
    alertmanager_url: str | None = None
    token: str
    lines: RedLines | None = None
    rules: dict[str, Any] = {}
    processes: dict[str, ProcessMark] = {}

    def save(self, state_dir: Path) -> None:
        """Write the record; it holds the control token."""
        write_private(state_dir / _RECORD, self.model_dump_json(indent=2))

    def naming(self, processes: dict[str, ProcessMark], state_dir: Path) -> "Stack":
        """The stack with these processes; written where that is news, for `redline drill`."""
        if processes == self.processes:
            return self
        named = self.model_copy(update={"processes": processes})
        named.save(state_dir)
        return named


def find_stack(state_dir: Path) -> Stack:
    """The stack of `state_dir`, with `REDLINE_*` variables over it.

    Raises `SettingsError` where no stack was started there and the variables do not name one.
    """
    raw = _recorded(state_dir / _RECORD)
    given = {key: os.environ[variable] for key, variable in _VARIABLES if variable in os.environ}
    if given.keys() & {"runtime_url", "control_url"}:
        # Another stack: what is recorded here of this one's parts is not true of it.
        raw = {key: value for key, value in raw.items() if key not in _OF_THE_RECORDED}
    raw |= given
    try:
        return Stack.model_validate(raw)
    except ValidationError as err:
        raise SettingsError(
            f"no stack is recorded in {state_dir}/; start one with `redline up`, or name it with "
            "--state-dir, or set REDLINE_RUNTIME_URL, REDLINE_CONTROL_URL and REDLINE_TOKEN"
        ) from err


def _recorded(path: Path) -> dict[str, object]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as err:
        raise SettingsError(
            f"{path}: cannot be read ({err}); stop `redline up` and start it again"
        ) from err


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner may read: the old text or the new one, never a part."""
    part = path.with_name(f"{path.name}.part")
    part.touch(mode=0o600, exist_ok=True)
    part.write_text(text, encoding="utf-8")
    part.replace(path)


def control_token(state_dir: Path) -> str:
    """The token that guards `/control` and the webhook: made once, kept beside the state."""
    path = token_path(state_dir)
    if not path.exists():
        write_private(path, secrets.token_urlsafe(32))
    return path.read_text(encoding="utf-8").strip()


def token_path(state_dir: Path) -> Path:
    """The file Alertmanager reads its webhook credentials from."""
    return state_dir / _TOKEN


def forget_stack(state_dir: Path) -> None:
    """Remove the record of a stack that has stopped."""
    (state_dir / _RECORD).unlink(missing_ok=True)
