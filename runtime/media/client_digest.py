"""What a client says its media's bytes are, as RFC 9530 has it: `sha-256=:BASE64:`."""

import base64
import binascii
import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from monitors.contract import FaultFound
from monitors.detectors import digest
from monitors.labels import Modality

LONGEST = 512  # letters

_HASHES: dict[str, Callable[[bytes], Any]] = {"sha-256": hashlib.sha256, "sha-512": hashlib.sha512}
_MEMBER = re.compile(r"([a-z*][a-z0-9_.*-]*)=:([A-Za-z0-9+/=]*):(?:;[^,]*)?", re.ASCII)


class DigestError(ValueError):
    """A digest that is none; the message says what one looks like."""


@dataclass(frozen=True)
class ClientDigest:
    """Algorithm and digest, once for each algorithm that the client used and that is known here."""

    said: tuple[tuple[str, bytes], ...]

    def faults(self, data: bytes, modality: Modality) -> tuple[FaultFound, ...]:
        """Whether `data` is what the client means; at most one fault. Hashes all of it: call it in
        a thread."""
        for algorithm, said in self.said:
            came = _HASHES[algorithm](data).digest()
            if found := digest.faults(modality, algorithm, said, came):
                return found
        return ()


def parse(field: str) -> ClientDigest:
    """A `Content-Digest` or `Repr-Digest` field, or the `digest` of a content part.

    Algorithms unknown here are passed over, as the RFC wants it; where none is left there is
    nothing to check. Raises `DigestError` for what is no such field.
    """
    members = [_MEMBER.fullmatch(member.strip()) for member in field.split(",")]
    if len(field) > LONGEST or not all(members):
        raise DigestError(f"{field[:60]!r} is no digest: it looks like sha-256=:BASE64:")
    said = [(m[1], _decoded(m[1], m[2])) for m in members if m is not None and m[1] in _HASHES]
    return ClientDigest(tuple(said))


def digest_of(data: bytes) -> str:
    """What a client says of these bytes."""
    return f"sha-256=:{base64.b64encode(hashlib.sha256(data).digest()).decode()}:"


def _decoded(algorithm: str, text: str) -> bytes:
    length = _HASHES[algorithm](b"").digest_size
    try:
        said = base64.b64decode(text, validate=True)
    except binascii.Error as err:
        raise DigestError(f"the {algorithm} digest is not base64 ({err})") from err
    if len(said) != length:
        raise DigestError(f"a {algorithm} digest has {length} bytes, not {len(said)}")
    return said
