"""A real journal for tests: a file in a folder of its own, which goes with it."""

from pathlib import Path
from tempfile import TemporaryDirectory

from monitors.journal import Journal


class ScratchJournal(Journal):
    """`close` also removes the folder."""

    def __init__(self) -> None:
        self._folder = TemporaryDirectory(prefix="journal-")
        super().__init__(Path(self._folder.name) / "journal.db")

    def close(self) -> None:
        super().close()
        self._folder.cleanup()
