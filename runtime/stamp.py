"""What every measurement carries: whose it is, and under which epochs and level."""

from dataclasses import dataclass

from monitors.contract import Level, SessionClass


@dataclass(frozen=True)
class Stamp:
    """One request on one resident. `level`: of its class of sessions; a human holds the parts
    of it that are `by_hand`."""

    resident: str
    version: str
    session: str
    request_id: str
    pool_epoch: int | None
    route_epoch: int
    level: Level
    operator: bool = False
    session_class: SessionClass = SessionClass.INTERACTIVE
    mirror: bool = False
    by_hand: tuple[str, ...] = ()

    @property
    def of_client(self) -> bool:
        """Whether somebody who is no operator waits for it: tables and metrics are of these."""
        return not (self.operator or self.mirror)
