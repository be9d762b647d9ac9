"""A real PostgreSQL in a temporary folder, by an unprivileged user, on a free port of 127.0.0.1."""

import os
import pwd
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
import psycopg

from tests.support.ports import free_ports

MISSING = "needs Debian's postgresql: make test installs it where it may"
_SERIAL = count(1)


def programs() -> Path | None:
    """The folder of `initdb` and `postgres`; None where PostgreSQL is not installed."""
    there = [Path(found).resolve().parent] if (found := shutil.which("postgres")) else []
    there += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((folder for folder in there if (folder / "initdb").exists()), None)


class Cluster:
    """A server of its own. `stop` and `start` again as often as is wanted."""

    def __init__(self, folder: Path, bin_: Path) -> None:
        self.port = free_ports(1)[0]
        self._folder, self._bin = folder, bin_
        self._server: subprocess.Popen[bytes] | None = None
        self._user = _unprivileged()
        if self._user is not None:
            os.chown(folder, self._user, self._user)
        made = [bin_ / "initdb", "--auth=trust", "--username=redline", "--no-sync"]
        self._call([*made, "--no-instructions", "-D", folder / "data"])

    @property
    def url(self) -> str:
        return f"postgresql://redline@127.0.0.1:{self.port}/postgres"

    def fresh(self) -> str:
        """The URL of a schema of its own, with nothing in it."""
        name = f"of_test_{next(_SERIAL)}_{os.getpid()}"
        with psycopg.connect(self.url, autocommit=True) as db:
            db.execute(f"CREATE SCHEMA {name}".encode())
        return f"{self.url}?options=-csearch_path%3D{name}"

    def start(self) -> None:
        """Until it answers."""
        flags = ["-h", "127.0.0.1", "-p", str(self.port), "-k", str(self._folder)]
        with (self._folder / "log").open("ab") as log:
            self._server = subprocess.Popen(
                [self._bin / "postgres", "-D", self._folder / "data", *flags],
                stdout=log, stderr=log,
                user=self._user, group=self._user, extra_groups=self._groups,
            )  # fmt: skip
        deadline = time.monotonic() + 30
        while True:
            try:
                psycopg.connect(self.url, connect_timeout=2).close()
                return
            except psycopg.OperationalError:
                if self._server.poll() is not None or time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def stop(self) -> None:
        """As a machine that is switched off: clients are not waited for."""
        if self._server is not None:
            self._server.send_signal(signal.SIGQUIT)
            self._server.wait(30)
        self._server = None

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """It takes connections and answers nothing."""
        assert self._server is not None
        parent = psutil.Process(self._server.pid)
        stopped = [parent, *parent.children(recursive=True)]
        for process in stopped:
            process.suspend()
        try:
            yield
        finally:
            for process in stopped:
                process.resume()

    @property
    def _groups(self) -> list[int] | None:
        return None if self._user is None else []

    def _call(self, command: list[object]) -> None:
        subprocess.run(
            [str(word) for word in command], check=True, capture_output=True, cwd=self._folder,
            user=self._user, group=self._user, extra_groups=self._groups,
        )  # fmt: skip


def _unprivileged() -> int | None:
    """Whom to be instead of root, as whom PostgreSQL refuses to run; None: who we are."""
    return pwd.getpwnam("nobody").pw_uid if os.geteuid() == 0 else None


@contextmanager
def running_cluster(bin_: Path) -> Iterator[Cluster]:
    """From its first start to its end."""
    with TemporaryDirectory(prefix="redline-pg-", dir="/tmp") as folder:
        cluster = Cluster(Path(folder), bin_)
        cluster.start()
        try:
            yield cluster
        finally:
            cluster.stop()
