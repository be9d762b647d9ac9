"""The evidence, saved now and then, so that a successor goes on from it."""

import logging
from collections.abc import Callable

from monitors.journal import JournalUnwritable
from rollout import store
from rollout.ledger import Ledger
from rollout.reading import Reading

_SAVE_S = 5.0  # between two saves

log = logging.getLogger(__name__)


class Saving:
    """When the evidence was saved last. `clock`: monotonic seconds."""

    def __init__(self, ledger: Ledger, clock: Callable[[], float]) -> None:
        self._ledger = ledger
        self._clock = clock
        self._saved = clock()

    def go_on(self, reading: Reading, phase_s: float) -> None:
        """Save it, if it is time. A journal that takes it not is none to stop for."""
        now = self._clock()
        if reading.fold is None or now - self._saved < _SAVE_S:
            return
        self._saved = now
        try:
            store.save_evidence(self._ledger, reading.cursor, reading.fold, phase_s)
        except JournalUnwritable as err:
            log.warning("the evidence is not saved: %s", err)
