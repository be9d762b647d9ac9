"""The pool's invariants, in words: no page lost, none owned twice, every count exact."""

from collections.abc import Iterable, Iterator

import numpy as np

from runtime.kv.formats import Format
from runtime.kv.pool import PagePool, Pages


def check(pool: PagePool, uses: Iterable[Pages], holds: Iterable[Pages]) -> tuple[str, ...]:
    """What is broken; empty is good.

    `uses` are the pages of every running sequence (one entry per page-table entry), `holds`
    those of every entry of the prefix index.
    """
    return (
        *_miscounted(pool, "used by sequences", pool.uses, uses),
        *_miscounted(pool, "held by the index", pool.holds, holds),
        *_lost(pool),
        *_shared_slots(pool),
        *_slab_books(pool),
    )


def _miscounted(
    pool: PagePool, what: str, counts: np.ndarray, owners: Iterable[Pages]
) -> Iterator[str]:
    true = np.zeros(len(counts), np.int64)
    for pages in owners:
        np.add.at(true, pages, 1)
    for page in np.flatnonzero((counts != true) & (pool.form > 0)):
        yield f"page {page} is {what} {true[page]} times but counts {counts[page]}"
    for page in np.flatnonzero((true > 0) & (pool.form == 0)):
        yield f"page {page} is {what} but free"


def _lost(pool: PagePool) -> Iterator[str]:
    owners = pool.uses + pool.holds + pool.pins
    for page in np.flatnonzero((pool.form > 0) & (owners <= 0)):
        yield f"page {page} is lost: nobody owns it"
    free = np.sort(np.array(pool.free_pages, np.int64))
    if not np.array_equal(free, np.flatnonzero(pool.form == 0)):
        yield "the list of free pages disagrees with the records"


def _shared_slots(pool: PagePool) -> Iterator[str]:
    device = (pool.form > 0) & ~pool.on_host
    groups = [(form.name.lower(), device & (pool.form == form)) for form in Format]
    for name, rows in [*groups, ("host", pool.on_host_pages())]:
        slots, times = np.unique(pool.slot[rows], return_counts=True)
        for slot in slots[times > 1]:
            yield f"{name} slot {slot} belongs to more than one page"


def _slab_books(pool: PagePool) -> Iterator[str]:
    device = (pool.form > 0) & ~pool.on_host
    for form in Format:
        recorded = int((device & (pool.form == form)).sum())
        if recorded != pool.arena.used_slots(form):
            yield (
                f"{recorded} {form.name.lower()} pages are recorded, "
                f"the arena has {pool.arena.used_slots(form)}"
            )
    recorded = int(pool.on_host_pages().sum())
    if recorded != pool.host.used_slots():
        yield f"{recorded} host pages are recorded, the slab has {pool.host.used_slots()}"
    account = pool.account()
    total = int(account.live.sum() + account.evictable.sum())
    used = sum(pool.arena.used_slots(f) * pool.shape.page_bytes(f) for f in Format)
    if total != used:
        yield f"the account says {total} device bytes, the arena {used}"
