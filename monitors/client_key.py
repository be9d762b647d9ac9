"""Clients by digests of their API keys, and lists of them. A key itself goes nowhere."""

import hashlib
from collections.abc import Mapping
from typing import Annotated

import msgspec

from monitors.wire import Wire

ClientKey = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{32}$")]
ClientKeys = Annotated[tuple[ClientKey, ...], msgspec.Meta(max_length=500)]

_PERSON = b"redline-client"


class CanaryClients(Wire, frozen=True):
    """Whose requests may go to the canary, by digests of API keys.

    `allow` None: everybody's; else only these, so that a request without a key stays on the stable
    one. `deny` goes over it. There is no empty list of allowed ones: it might be read as all.
    """

    allow: Annotated[ClientKeys, msgspec.Meta(min_length=1)] | None = None
    deny: ClientKeys = ()

    def admit(self, key: ClientKey | None) -> bool:
        """Whether a client's requests may go there. `key` None: it shows none."""
        return key not in self.deny and (self.allow is None or key in self.allow)


EVERYBODY = CanaryClients()


def digest_of(key: str) -> ClientKey:
    """What lists of clients have in place of an API key: 128 bits, the same everywhere."""
    return hashlib.blake2b(key.encode(), digest_size=16, person=_PERSON).hexdigest()


def of_headers(headers: Mapping[str, str]) -> ClientKey | None:
    """Of `Authorization: Bearer KEY`, the names of headers in lower case. None: it shows no key."""
    scheme, _, key = headers.get("authorization", "").partition(" ")
    return digest_of(key.strip()) if scheme.lower() == "bearer" and key.strip() else None
