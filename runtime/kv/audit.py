"""The pool's invariants, in words: no page lost, none owned twice, every count exact."""

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from runtime.kv.formats import Format
from runtime.kv.pool import PagePool
from runtime.kv.records import NOBODY, Pages, Records
from runtime.kv.slabs import Slab


def check(pool: PagePool, uses: Iterable[Pages], holds: Iterable[Pages]) -> tuple[str, ...]:
    """What is broken; empty is good.

    `uses` are the pages of every running sequence (one entry per page-table entry), `holds`
    those of every entry of the prefix index.
    """
    records = pool.records
    return (
        *_miscounted(records, "used by sequences", records.uses, uses),
        *_miscounted(records, "held by the index", records.holds, holds),
        *_lost(records),
        *_partners(records),
        *_slots(records, "device", pool.arena, ~records.on_host),
        *_slots(records, "host", pool.host, records.on_host),
        *_account(pool),
    )


def _miscounted(
    records: Records, what: str, counts: NDArray[np.int32], owners: Iterable[Pages]
) -> Iterator[str]:
    true = np.zeros(len(counts), np.int64)
    for pages in owners:
        np.add.at(true, pages, 1)
    for page in np.flatnonzero((counts != true) & (records.form > 0)):
        yield f"page {page} is {what} {true[page]} times but counts {counts[page]}"
    for page in np.flatnonzero((true > 0) & (records.form == 0)):
        yield f"page {page} is {what} but free"


def _lost(records: Records) -> Iterator[str]:
    owners = records.uses + records.holds + records.pins
    for page in np.flatnonzero((records.form > 0) & (owners <= 0)):
        yield f"page {page} is lost: nobody owns it"
    free = np.sort(np.array(records.free_pages, np.int64))
    if not np.array_equal(free, np.flatnonzero(records.form == 0)):
        yield "the list of free pages disagrees with the records"


def _partners(records: Records) -> Iterator[str]:
    """Partners know each other, are of one slot and in a form that has partners."""
    pages = np.flatnonzero((records.form > 0) & (records.partner != NOBODY))
    others = records.partner[pages]
    alike = (records.partner[others] == pages) & (records.form[pages] == Format.SUBSPACE)
    for column in (records.form, records.size, records.slot, records.on_host):
        alike &= column[pages] == column[others]
    for page, other in zip(pages[~alike], others[~alike], strict=True):
        yield f"page {page} and its partner {other} disagree"


def _slots(records: Records, where: str, slab: Slab, here: NDArray[np.bool_]) -> Iterator[str]:
    """Each taken slot belongs to one page or to two partners, and the slab knows of no other."""
    first = (records.partner == NOBODY) | (records.partner > np.arange(len(records.partner)))
    taken = (records.form > 0) & here & first
    for size in {*np.unique(records.size[taken]).tolist(), *slab.books.sizes()}:
        slots, times = np.unique(records.slot[taken & (records.size == size)], return_counts=True)
        for slot in slots[times > 1]:
            yield f"{where} slot {slot} of {size} bytes belongs to more than one page"
        if times.sum() != slab.books.used_slots(size):
            yield (
                f"{times.sum()} {where} slots of {size} bytes are recorded, "
                f"the slab has {slab.books.used_slots(size)}"
            )


def _account(pool: PagePool) -> Iterator[str]:
    account = pool.account()
    tiers = (
        ("device", account.live + account.evictable, pool.arena),
        ("host", account.host, pool.host),
    )
    for where, cells, slab in tiers:
        total, used = int(cells.sum()), slab.books.used_bytes
        if total != used:
            yield f"the account says {total} {where} bytes, the slab {used}"
