"""The models that were loaded by order, on disk: a data plane that starts again serves the same.

Settings that were changed since the order win: whoever changed them meant it.
"""

import json
import logging
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from monitors.contract import Name
from runtime import durable
from runtime.settings import ResidentSpec

_FILE = "models.json"

log = logging.getLogger(__name__)


class Loaded(BaseModel):
    """One resident's model, `given` in the settings and in place of it `spec`, by order `load`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    given: ResidentSpec
    spec: ResidentSpec
    load: str


class ModelsFile:
    """One `models.json` in the state folder, always a whole one."""

    def __init__(self, state_dir: Path) -> None:
        self._path = state_dir / _FILE
        self._given: dict[Name, ResidentSpec] = {}
        self.loaded: dict[Name, Loaded] = {}

    def specs(self, given: Iterable[ResidentSpec]) -> dict[Name, ResidentSpec]:
        """The residents as they are to be served, by name, in the order of the settings."""
        self._given = {spec.name: spec for spec in given}
        found = {name: one for name, one in self._read().items() if name in self._given}
        self.loaded = {name: one for name, one in found.items() if one.given == self._given[name]}
        specs = self._given | {name: one.spec for name, one in self.loaded.items()}
        if len({spec.version for spec in specs.values()}) < len(specs):
            log.warning("%s: gives two residents one version; it is left aside", self._path)
            self.loaded, specs = {}, self._given
        return dict(specs)

    def store(self, spec: ResidentSpec, load: str) -> None:
        """Returns once it is on the disk. Raises `OSError`."""
        one = Loaded(given=self._given[spec.name], spec=spec, load=load)
        loaded = {**self.loaded, spec.name: one}
        try:
            self._write(loaded)
        except OSError:
            with suppress(OSError):  # else the next start might serve what is refused now
                self._write(self.loaded)
            raise
        self.loaded = loaded

    def _write(self, loaded: dict[Name, Loaded]) -> None:
        shown = {name: each.model_dump(mode="json") for name, each in loaded.items()}
        durable.replace(self._path, json.dumps(shown).encode())

    def _read(self) -> dict[Name, Loaded]:
        try:
            raw = json.loads(self._path.read_text(encoding="utf-8"))
            return {name: Loaded.model_validate(one) for name, one in raw.items()}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, AttributeError, ValidationError) as err:
            log.error("%s: cannot be used, the settings' models are served: %s", self._path, err)
            return {}
