"""Who serves a session: weights, stickiness, the canary's lease and the fence of epochs."""

import hashlib
from collections.abc import Callable, Mapping, Set

import msgspec

from monitors.client_key import ClientKey
from monitors.contract import Epoch, Name, Route, Wire

_BUCKETS = 10_000


class Fence(Wire, frozen=True):
    """What a data plane must never forget (DESIGN 1). No epoch in it ever falls."""

    leader_epoch: Epoch
    route: Route
    min_pool_epochs: dict[Name, Epoch]


class OrderRefused(ValueError):
    """An order that may not be taken; the message tells the operator why."""


class UnknownResident(LookupError):
    """No resident has this name; the message lists those there are."""


class Router:
    """Routes by the last order taken. `clock`: monotonic seconds; `versions`: of each resident."""

    def __init__(
        self, fence: Fence, versions: Mapping[Name, str], *, clock: Callable[[], float]
    ) -> None:
        self.fence = fence
        self._versions = versions
        self._clock = clock
        self._weight = 0  # boots with the canary at 0, whatever was routed before
        self._mirror_weight = 0
        self._lease_ends = 0.0

    @property
    def route(self) -> Route:
        """The last route taken, as it was ordered."""
        return self.fence.route

    @property
    def lease_left_s(self) -> float:
        """Seconds until the canary's weights fall to 0; 0 where both are 0 already."""
        held = self._weight or self._mirror_weight
        return max(0.0, self._lease_ends - self._clock()) if held else 0.0

    @property
    def canary_weight(self) -> int:
        """Percent of sessions for the canary now."""
        return self._weight if self.lease_left_s > 0.0 else 0

    @property
    def mirror_weight(self) -> int:
        """Percent of the stable resident's sessions that are copied to the canary now."""
        return self._mirror_weight if self.lease_left_s > 0.0 else 0

    def weight(self, name: Name) -> int:
        """Percent of sessions for one resident now. The weights sum to 100."""
        if name == self.route.stable:
            return 100 - self.canary_weight
        return self.canary_weight if name == self.route.canary else 0

    def may_serve(self, name: Name, client: ClientKey | None) -> bool:
        """Whether a client's request may still be handed to a resident that was picked for it
        before: to the stable one always, also where all new sessions go to the canary."""
        admitted = self.weight(name) > 0 and self.route.clients.admit(client)
        return name == self.route.stable or admitted

    def pick(self, session: str, client: ClientKey | None = None) -> Name:
        """The resident of a session: always the same while the weights stay as they are."""
        canary = self.route.canary
        if canary is not None and self.route.clients.admit(client):
            salt = self._versions[canary]  # another rollout, other sessions
            if bucket(session, salt) < self.canary_weight * _BUCKETS // 100:
                return canary
        return self.route.stable

    def mirror_of(self, name: Name, session: str, client: ClientKey | None) -> Name | None:
        """Who is given a copy of a client's request that `name` serves; all of a session's requests
        are copied or none. None: nobody."""
        canary = self.route.canary
        if name != self.route.stable or canary is None or not self.route.clients.admit(client):
            return None
        share = self.mirror_weight * _BUCKETS // 100
        return canary if bucket(session, f"mirror\0{self._versions[canary]}") < share else None

    def require(self, name: Name) -> None:
        """Raises `UnknownResident`."""
        if name not in self._versions:
            there = ", ".join(sorted(self._versions))
            raise UnknownResident(f"no resident is called {name!r}; there are: {there}")

    def admit(self, leader_epoch: Epoch) -> Fence:
        """The fence after an order of this leader. Raises `OrderRefused` for a stale leader."""
        if leader_epoch < self.fence.leader_epoch:
            raise OrderRefused(
                f"leader epoch {leader_epoch} is stale: {self.fence.leader_epoch} leads now"
            )
        return msgspec.structs.replace(self.fence, leader_epoch=leader_epoch)

    def fence_after(self, route: Route, ready: Set[Name]) -> Fence:
        """The fence once `route` is taken. A repeated order is a renewal of the lease.

        Raises `OrderRefused` for a stale leader, an epoch that does not grow, or a resident that
        cannot be given traffic; `UnknownResident` for a name that is not here.
        """
        fence = self.admit(route.leader_epoch)
        for name in filter(None, (route.stable, route.canary)):
            self.require(name)
        _require_new_or_same(route, self.route)
        _require_sense(route)
        if not self.retreats(route):
            _require_ready(route, ready)
        return msgspec.structs.replace(fence, route=route)

    def retreats(self, route: Route) -> bool:
        """Whether `route` gives nothing to a resident on trial: so that it may be taken before the
        disk has it. The stable one stays, or whoever orders it says that it takes a promotion
        back: that of a canary whose lease is over looks like a promotion."""
        return not _on_trial(route) and (route.takes_back or route.stable == self.route.stable)

    def take(self, fence: Fence) -> None:
        """Route by `fence.route`, as `fence_after` gave it, and start its lease."""
        self.fence = fence
        self._weight = fence.route.canary_weight
        self._mirror_weight = fence.route.mirror_weight
        self._lease_ends = self._clock() + fence.route.lease_s

    def drop_canary(self) -> None:
        """Send no more to the canary until a route is taken again (it died)."""
        self._weight = self._mirror_weight = 0


def bucket(session: str, salt: str) -> int:
    """A stable hash of a session, 0 to 9999."""
    digest = hashlib.blake2b(f"{salt}\0{session}".encode(), digest_size=8).digest()
    return int.from_bytes(digest) % _BUCKETS


def _require_new_or_same(route: Route, held: Route) -> None:
    if route.route_epoch > held.route_epoch:
        return
    same = msgspec.structs.replace(
        held,
        leader_epoch=route.leader_epoch,
        lease_s=route.lease_s,
        takes_back=route.takes_back,
    )
    if route != same:
        raise OrderRefused(
            f"route epoch {route.route_epoch} does not grow: {held.route_epoch} is held, with "
            f"{held.stable!r} stable and {held.canary_weight} % for {held.canary!r}"
        )


def _require_sense(route: Route) -> None:
    if route.canary == route.stable:
        raise OrderRefused(f"stable and canary are both {route.stable!r}; name two residents")
    weight = route.canary_weight or route.mirror_weight
    if weight and route.canary is None:
        raise OrderRefused(f"weight {weight} without a canary; name one")
    if weight and route.takes_back:
        raise OrderRefused(f"weight {weight} in an order that takes back; give nobody any")


def _require_ready(route: Route, ready: Set[Name]) -> None:
    """Of a move toward somebody new; nothing blocks a retreat."""
    on_trial = _on_trial(route)
    asked = {route.stable, route.canary} if on_trial else {route.stable}
    missing = sorted(name for name in asked if name is not None and name not in ready)
    if missing:
        needs = "a canary needs both residents" if on_trial else "it would serve everybody"
        raise OrderRefused(f"not ready: {', '.join(missing)}; {needs}")


def _on_trial(route: Route) -> bool:
    return bool(route.canary_weight or route.mirror_weight)
