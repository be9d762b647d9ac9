"""Damage to the packets of a clip, as networks and disks do it; and how much of it can be seen."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from tests.faults.encodings import Coded, Piece

VISIBLE_DB = 32.0  # luma PSNR against the clean decode; below it the damage shows
_HEADER = 12  # bytes of a payload that flips leave alone, so that it is not refused at once
_PERFECT_DB = 99.0

Luma = Mapping[int, NDArray[np.uint8]]
Pieces = list[Piece]


class BitstreamFault(StrEnum):
    """What happens to the packets."""

    DROPPED = "dropped"  # one to three in a row
    LOST_REFERENCE = "lost_reference"  # one that those after it build on, early in its group
    LOST_KEY = "lost_key"  # a key frame
    FLIPPED = "flipped"  # 1 to 40 bits of one payload
    SPRINKLED = "sprinkled"  # one or two bits in each of several payloads
    TRUNCATED = "truncated"  # the tail of one payload
    ZEROED = "zeroed"  # a stretch of one payload


def inject(coded: Coded, fault: BitstreamFault, seed: int) -> bytes:
    """The file with this fault somewhere in it."""
    random = np.random.default_rng([seed, *fault.encode()])
    pieces = list(coded.pieces)
    if fault is BitstreamFault.TRUNCATED and coded.coding.codec == "av1":
        return coded.with_pieces(_truncated(pieces, random, cut_last_obu))
    return coded.with_pieces(_INJECT[fault](pieces, random))


@dataclass(frozen=True)
class Damage:
    """What a viewer loses: frames never shown, and the worst luma PSNR of those that are."""

    lost: int
    worst_db: float

    @property
    def visible(self) -> bool:
        return self.lost > 0 or self.worst_db < VISIBLE_DB


def damage(clean: Luma, broken: Luma) -> Damage:
    """The broken decode against the clean one, frame by frame of the same time stamp."""
    shown = clean.keys() & broken.keys()
    worst = min((psnr(clean[at], broken[at]) for at in shown), default=0.0)
    return Damage(len(clean) - len(shown), worst)


def psnr(a: NDArray[np.uint8], b: NDArray[np.uint8]) -> float:
    """Of two pictures of one shape, in dB; those of another shape have nothing in common."""
    if a.shape != b.shape:
        return 0.0
    error = float(np.mean((a.astype(np.int32) - b) ** 2))
    return _PERFECT_DB if error == 0 else min(_PERFECT_DB, 10 * np.log10(255**2 / error))


# ---------------------------------------------------------------- one function per fault
# Packets are never lost up to an end of the clip: what is left would be a whole, shorter clip.
def _dropped(pieces: Pieces, random: np.random.Generator) -> Pieces:
    inner = [i for i, p in enumerate(pieces[1:-3], 1) if not p.key] or [len(pieces) // 2]
    first = int(random.choice(inner))
    last = first + int(random.integers(1, 4))
    return pieces[:first] + pieces[last:]


def _lost_reference(pieces: Pieces, random: np.random.Generator) -> Pieces:
    behind_key = [i + 1 for i, p in enumerate(pieces[:-2]) if p.key and not pieces[i + 1].key]
    at = int(random.choice(behind_key or [len(pieces) // 2]))
    return pieces[:at] + pieces[at + 1 :]


def _lost_key(pieces: Pieces, random: np.random.Generator) -> Pieces:
    keys = [i for i, p in enumerate(pieces[:-1]) if p.key and (i or not pieces[i + 1].key)]
    at = int(random.choice(keys))
    return pieces[:at] + pieces[at + 1 :]


def _flipped(pieces: Pieces, random: np.random.Generator) -> Pieces:
    at = int(random.integers(len(pieces)))
    flips = int(random.integers(1, 41))
    return _with(pieces, at, lambda data: flipped(data, flips, random))


def _sprinkled(pieces: Pieces, random: np.random.Generator) -> Pieces:
    for at in random.choice(len(pieces), int(random.integers(3, 9)), replace=False):
        pieces = _with(pieces, int(at), lambda d: flipped(d, int(random.integers(1, 3)), random))
    return pieces


def _cut(data: bytes, share: float) -> bytes:
    return data[: max(1, int(len(data) * share))]


def _truncated(
    pieces: Pieces, random: np.random.Generator, cut: Callable[[bytes, float], bytes] = _cut
) -> Pieces:
    share = random.uniform(0.2, 0.8)
    return _with(pieces, int(random.integers(len(pieces))), lambda data: cut(data, share))


def cut_last_obu(data: bytes, share: float) -> bytes:
    """An AV1 temporal unit whose last OBU keeps this share of its payload and says so: no muxer
    takes one that is longer than the packet."""
    start = at = 0
    payload, size = 0, 0
    while at < len(data):
        start, payload = at, at + (2 if data[at] & 0x04 else 1)
        size, payload = _leb128(data, payload)
        at = payload + size
    head = data[start : start + (2 if data[start] & 0x04 else 1)]
    kept = max(1, int(size * share))
    return data[:start] + head + _as_leb128(kept) + data[payload : payload + kept]


def _leb128(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for i in range(8):
        value |= (data[at + i] & 0x7F) << (7 * i)
        if not data[at + i] & 0x80:
            return value, at + i + 1
    raise ValueError("an OBU size has at most eight bytes")


def _as_leb128(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


def _zeroed(pieces: Pieces, random: np.random.Generator) -> Pieces:
    share = random.uniform(0.2, 0.8)

    def zero(data: bytes) -> bytes:
        start = min(max(_HEADER, int(len(data) * share)), len(data) - 1)
        gone = max(1, (len(data) - start) // 2)
        return data[:start] + bytes(gone) + data[start + gone :]

    return _with(pieces, int(random.integers(len(pieces))), zero)


def flipped(data: bytes, count: int, random: np.random.Generator) -> bytes:
    """The payload with `count` bits turned over, behind its first bytes where it has more."""
    broken = bytearray(data)
    for at in random.integers(min(_HEADER, len(data) - 1), len(data), count):
        broken[at] ^= 1 << int(random.integers(8))
    return bytes(broken)


def _with(pieces: Pieces, at: int, change: Callable[[bytes], bytes]) -> Pieces:
    piece = pieces[at]
    return [*pieces[:at], replace(piece, data=change(piece.data)), *pieces[at + 1 :]]


_INJECT: dict[BitstreamFault, Callable[[Pieces, np.random.Generator], Pieces]] = {
    BitstreamFault.DROPPED: _dropped,
    BitstreamFault.LOST_REFERENCE: _lost_reference,
    BitstreamFault.LOST_KEY: _lost_key,
    BitstreamFault.FLIPPED: _flipped,
    BitstreamFault.SPRINKLED: _sprinkled,
    BitstreamFault.TRUNCATED: _truncated,
    BitstreamFault.ZEROED: _zeroed,
}
