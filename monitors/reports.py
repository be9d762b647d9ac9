"""What a data plane answers to the orders of a rollback: what was done, as proof."""

from monitors.wire import Count, Epoch, Name, Wire


class DrainReport(Wire, frozen=True):
    """What a drain left, and what became of the rest. `unkept`: of those aborted, how many had
    sent nothing, but had inputs too large to be kept for a replay."""

    resident: Name
    remaining: Count
    finished: Count
    aborted: Count
    replayed: Count
    unkept: Count = 0


class FlushReceipt(Wire, frozen=True):
    """Proof of what a flush emptied. `invalidated_at` (everything misses) precedes `emptied_at`.

    Both are seconds on the resident host's monotonic clock.
    """

    resident: Name
    old_epoch: Epoch
    new_epoch: Epoch
    pages: Count
    host_pages: Count
    encoder_outputs: Count
    talker_states: Count
    bytes: Count
    invalidated_at: float
    emptied_at: float
    complete: bool


class ProbeReport(Wire, frozen=True):
    """A flush is verified when `verified` is true: everything below says why or why not.

    `cached_tokens` is what a replay of a real earlier prompt found in the cache (`None`: the
    resident had served none); the counts are what the engine still holds of older epochs.
    """

    resident: Name
    pool_epoch: Epoch
    witness_tokens: int | None
    cached_tokens: int | None
    stale_pages: Count
    stale_host_pages: Count
    stale_encoder_outputs: Count
    stale_talker_states: Count
    verified: bool
    detail: str
