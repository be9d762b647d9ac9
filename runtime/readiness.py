"""What `GET /readyz` of a data plane answers: whether it can serve, and what ails its residents.

Anybody may ask. `detail` quotes an engine's log, paths and all: it is for clients on loopback and
holders of the control token, and empty for others.
"""

from collections.abc import Mapping

import msgspec

from monitors.contract import Name, Wire
from monitors.labels import ResidentState
from runtime.supervisor import Supervisor

_READY = "ready"


class ResidentReadiness(Wire, frozen=True):
    """One resident. `refused`: it stays dead until it is told to restart; `detail` says why."""

    name: Name
    state: ResidentState
    refused: bool
    restarts: int
    detail: str

    @property
    def loads_first(self) -> bool:
        """Whether it has neither served nor failed yet."""
        return self.state is ResidentState.LOADING and self.restarts == 0


class Readiness(Wire, frozen=True):
    """`status` and `detail` are those of the stable resident: without it nothing is served."""

    status: str
    detail: str
    residents: tuple[ResidentReadiness, ...]

    @property
    def ready(self) -> bool:
        return self.status == _READY

    def without_details(self) -> "Readiness":
        """The same with each `detail` empty."""
        residents = tuple(msgspec.structs.replace(r, detail="") for r in self.residents)
        return msgspec.structs.replace(self, detail="", residents=residents)


def readiness(supervisors: Mapping[Name, Supervisor], stable: Name) -> Readiness:
    """What the residents are now."""
    served_by = supervisors[stable]
    ready = served_by.state is ResidentState.READY
    return Readiness(
        status=_READY if ready else f"{stable} is {served_by.state}",
        detail=served_by.detail,
        residents=tuple(
            ResidentReadiness(
                name=name, state=s.state, refused=s.refused, restarts=s.restarts, detail=s.detail
            )
            for name, s in supervisors.items()
        ),
    )
