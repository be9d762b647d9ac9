"""What every measurement carries: whose it is, and under which epochs and level."""

from dataclasses import dataclass

from monitors.contract import Level


@dataclass(frozen=True)
class Stamp:
    """One request on one resident."""

    resident: str
    version: str
    session: str
    request_id: str
    pool_epoch: int | None
    route_epoch: int
    level: Level
    operator: bool = False
