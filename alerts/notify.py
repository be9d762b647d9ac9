"""Who is told of rollouts by webhook, as a `redline.yaml` names them; never where, in it."""

import os
from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, model_validator

POSITIONS = "notify.position"  # kind of the journal entries that say how far receivers were told


class Form(StrEnum):
    """What a receiver understands."""

    JSON = "json"  # the fields of a notice, for machines
    SLACK = "slack"  # text and blocks, as Slack and those who copy it take them


class Happening(StrEnum):
    """What of a rollout people are told."""

    STARTED = "started"
    REFUSED = "refused"  # A did not get its model, and is as it was
    CALLED_OFF = "called_off"  # by somebody, before A had traffic
    CANARY = "canary"
    PROMOTING = "promoting"  # each step, and the bake after the last
    PROMOTED = "promoted"
    HELD = "held"
    ROLLING_BACK = "rolling_back"  # A is being taken out
    ROLLED_BACK = "rolled_back"  # and it is proved
    INCOMPLETE = "rollback_incomplete"
    QUARANTINED = "quarantined"


class NoAddress(ValueError):
    """A receiver's URL is not where it should be; the message says where that is."""


class Receiver(BaseModel):
    """One webhook. Its URL, which is often a secret, is the line of a file or a variable."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,39}$")]
    form: Form = Form.JSON
    url_file: Path | None = None
    url_env: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] | None = None
    tell: Annotated[tuple[Happening, ...], Field(min_length=1)] = tuple(Happening)

    @model_validator(mode="after")
    def _has_one_address(self) -> "Receiver":
        if (self.url_file is None) == (self.url_env is None):
            raise ValueError("say where its URL is: url_file, or url_env")
        return self

    @property
    def place(self) -> str:
        """Where its URL stands, in words."""
        return f"${self.url_env}" if self.url_file is None else str(self.url_file)

    def url(self) -> str:
        """Read anew each time, as secrets are changed. Raises `NoAddress`, which shows none."""
        found = (os.environ.get(self.url_env, "") if self.url_env else self._line()).strip()
        if not found.startswith(("http://", "https://")):
            raise NoAddress(f"{self.name}: {self.place} holds no http:// or https:// URL")
        if not _has_host_and_port(found):
            raise NoAddress(f"{self.name}: the URL of {self.place} has no host, or no such port")
        return found

    def _line(self) -> str:
        assert self.url_file is not None
        try:
            return self.url_file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as err:
            raise NoAddress(f"{self.name}: {self.place} cannot be read: {err}") from err


def _has_host_and_port(url: str) -> bool:
    """A port is up to 65535, or left out."""
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def repeated(receivers: Sequence[Receiver]) -> list[str]:
    """Names that several have."""
    counted = Counter(receiver.name for receiver in receivers)
    return [name for name, count in counted.items() if count > 1]
