"""Whose requests the canary gets, beside its share: clients by list, and copies of B's requests."""

from monitors.client_key import EVERYBODY, CanaryClients
from monitors.contract import Percent, Wire


class Audience(Wire, frozen=True):
    """Part of a rollout's plan, and fixed with it. `mirror_weight`: percent of B's sessions whose
    requests are copied to A, while A serves as the canary."""

    clients: CanaryClients = EVERYBODY
    mirror_weight: Percent = 0

    @property
    def words(self) -> str:
        """In a sentence for people; empty: everybody's, and no copies. Never a key's digest."""
        allow, deny = self.clients.allow, self.clients.deny
        parts = [
            "" if allow is None else f"only {len(allow)} allowed client(s)",
            f"never {len(deny)} denied client(s)" if deny else "",
            f"copies of {self.mirror_weight} % of B's sessions" if self.mirror_weight else "",
        ]
        return ", ".join(part for part in parts if part)


ANYBODY = Audience()
