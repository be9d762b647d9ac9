"""What keeps a journal, as a narrow port: whole transactions, rows to read, and a clock."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol


class JournalUnwritable(RuntimeError):
    """It cannot be written or reached; what is in it is untouched. The message says what to do."""


class JournalInDoubt(JournalUnwritable):
    """The connection was lost while it was writing: whether it is written is to be looked up."""


class Answer(Protocol):
    """What a statement gave."""

    @property
    def rowcount(self) -> int: ...
    def fetchone(self) -> Any: ...


class Db(Protocol):
    """A transaction under way. Placeholders are question marks, as in SQLite."""

    def execute(self, query: str, values: Sequence[object] = ..., /) -> Answer: ...


class Store(Protocol):
    """Three tables: `entries`, which is only ever appended to, `memories` and `lease`.

    Safe to call from several threads. Every call raises `JournalUnwritable` where it fails.
    """

    def transaction(self) -> AbstractContextManager[Db]:
        """All of the block's writes, or none; durable when it ends. One at a time, whoever asks:
        the next one sees all that this one wrote."""
        ...

    def rows(self, query: str, values: Sequence[object] = ()) -> list[Any]:
        """Of a query that waits for no transaction."""
        ...

    def wall(self, db: Db) -> float:
        """Calendar seconds by a clock that all who share the store go by."""
        ...

    def close(self) -> None: ...
