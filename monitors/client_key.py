"""Which client a request is from: a digest of its API key. The key itself goes nowhere."""

import hashlib
from collections.abc import Mapping

from monitors.contract import ClientKey

_PERSON = b"redline-client"


def digest_of(key: str) -> ClientKey:
    """What lists of clients have in place of an API key: 128 bits, the same everywhere."""
    return hashlib.blake2b(key.encode(), digest_size=16, person=_PERSON).hexdigest()


def of_headers(headers: Mapping[str, str]) -> ClientKey | None:
    """Of `Authorization: Bearer KEY`, the names of headers in lower case. None: it shows no key."""
    scheme, _, key = headers.get("authorization", "").partition(" ")
    return digest_of(key.strip()) if scheme.lower() == "bearer" and key.strip() else None
