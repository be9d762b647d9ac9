"""The pool's bytes, counted from its records: by layer and modality, and of older epochs."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from runtime.kv.records import NOBODY, Records
from runtime.kv.tokens import MODALITIES

_TALL = np.int16
_LIVE, _EVICTABLE, _HOST, _FREE = map(_TALL, range(4))


@dataclass(frozen=True)
class Account:
    """Bytes by `[layer, modality]`: live and evictable on the device, and all on the host."""

    live: NDArray[np.int64]
    evictable: NDArray[np.int64]
    host: NDArray[np.int64]


@dataclass(frozen=True)
class Holdings:
    """Pages of older epochs that are still held."""

    pages: int
    host_pages: int
    bytes: int


def account(records: Records, layers: int) -> Account:
    """One pass over whole columns of small numbers: an engine's steps wait for it."""
    kinds = len(MODALITIES)
    tier = np.where((records.uses > 0) | (records.pins > 0), _LIVE, _EVICTABLE)
    tier[records.on_host] = _HOST
    tier[records.form == 0] = _FREE
    cell = (tier * _TALL(layers) + records.layer) * _TALL(kinds) + records.modality
    shared = records.partner != NOBODY  # partners count half of their slot each
    sums = np.bincount(cell, records.size >> shared, (_FREE + 1) * layers * kinds)
    tiers = sums.astype(np.int64).reshape(-1, layers, kinds)
    return Account(live=tiers[_LIVE], evictable=tiers[_EVICTABLE], host=tiers[_HOST])


def evictable_bytes(records: Records) -> int:
    """On the device, in all, without the split of `account`."""
    pages = np.flatnonzero((records.holds > 0) & (records.uses == 0) & (records.pins == 0))
    return int(records.bytes_of(pages)[~records.on_host[pages]].sum())


def held_before(records: Records, epoch: int) -> Holdings:
    """What is still held of epochs before `epoch`."""
    old = (records.form > 0) & (records.epoch_of < epoch)
    return Holdings(
        pages=int((old & ~records.on_host).sum()),
        host_pages=int((old & records.on_host).sum()),
        bytes=int(records.bytes_of(old).sum()),
    )


def fill_rate(records: Records, slots: int) -> float | None:
    """Share of the `slots` of live pages in use; `None` while nothing is live."""
    live = records.live()
    return float(records.fill[live].mean()) / slots if live.any() else None
