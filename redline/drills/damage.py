"""What a drill has broken: mended however the drill ends, and told of where it cannot be."""

import signal
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import FrameType

ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)

Mend = Callable[[], str | None]
"""Puts something right. A sentence: it cannot, and what becomes of it."""


@dataclass
class Damage:
    """What is broken now. It is said before anything is broken, so that no instant is left out.

    `left`: what could not be mended, in sentences.
    """

    interrupted: bool = False
    left: list[str] = field(default_factory=list[str])
    _open: dict[str, Mend] = field(default_factory=dict[str, Mend])
    _mended: int = 0
    _mending: bool = False

    def breaks(self, what: str, mend: Mend) -> None:
        """From now on `what` may be broken, until it is mended or forgotten."""
        self._open[what] = mend

    def forget(self, what: str) -> None:
        """It was never broken, or is whole again without us."""
        self._open.pop(what, None)

    def mend(self, what: str) -> None:
        """Put it right if it is broken still. A signal ends the drill after that, not before."""
        before, self._mending = self.interrupted, True
        try:
            if what in self._open:
                self._note(self._open[what]())
                self.forget(what)
        finally:
            self._mending = False
        if self.interrupted and not before:
            raise KeyboardInterrupt

    def _note(self, left: str | None) -> None:
        if left is None:
            self._mended += 1
        else:
            self.left.append(left)

    @contextmanager
    def broken(self, what: str, mend: Mend) -> Generator[None]:
        """`what` may be broken until the block ends, which mends it."""
        self.breaks(what, mend)
        try:
            yield
        finally:
            self.mend(what)

    @contextmanager
    def mended_at_the_end(self) -> Generator[None]:
        """However the block ends, all is mended after it: a signal of `ENDS` is Ctrl-C there, the
        first one alone. What it cut short on its way out is done here."""
        before = {number: signal.signal(number, self._interrupt) for number in ENDS}
        try:
            yield
        finally:
            with ExitStack() as rest:
                for what in self._open:
                    rest.callback(self.mend, what)
            for number, handler in before.items():
                signal.signal(number, handler)

    def _interrupt(self, _number: int, _frame: FrameType | None) -> None:
        first, self.interrupted = not self.interrupted, True
        if first and not self._mending:
            raise KeyboardInterrupt

    @property
    def told(self) -> str:
        """What became of all that was broken."""
        if self.left:
            return f"not all is mended: {'; '.join(self.left)}"
        return "what was broken is mended" if self._mended else "nothing was broken"
