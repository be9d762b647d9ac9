"""What can be told without Prometheus of the machinery itself: who is up, and who has traffic.

Each `Look` gives what is wrong now, as the labels that tell one alert from another; None where
that cannot be told, which is not the same as nothing.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from alerts.machinery import ANSWERS_TAKE, RUNTIME_JOB
from alerts.names import AlertName
from monitors.contract import Observed
from monitors.labels import ResidentState
from monitors.metric import Label
from monitors.redlines import RedLines
from monitors.tables import Tables

Labels = tuple[tuple[str, str], ...]
Wrong = tuple[Labels, ...] | None

# The one place that says which alerts need Prometheus, and what on-call has instead.
PROMETHEUS_ONLY: Mapping[AlertName, str] = MappingProxyType(
    {
        AlertName.CONTROL_PLANE_DOWN: "this process is the control plane: its status page is gone",
        AlertName.DETECTOR_BROKEN: "the data plane's log names it",
        AlertName.NO_WAY_BACK: "the status page and `redline status` tell of it",
        AlertName.ROLLBACK_INCOMPLETE: "the status page and `redline status` tell of it",
        AlertName.JOURNAL_UNWRITABLE: "`redline_control_journal_writable` and the log tell of it",
        AlertName.ERROR_BUDGET_BURN: "it looks back over more than tables remember",
        AlertName.WATCHDOG: "it is what says that Prometheus is there",
    }
)


@dataclass(frozen=True)
class Sight:
    """What one look found. None: it could not be read. `now` is monotonic seconds."""

    tables: Tables | None
    observed: Observed | None
    now: float


class Witness:
    """Looks at the machinery; remembers when each version's counters last grew."""

    def __init__(self, lines: RedLines) -> None:
        self._lines = lines
        self._finished = Growth()  # requests, by version
        self._answered = Growth()  # those of them that did not fail
        self._outputs = Growth()  # first outputs, by version
        self.looks: Mapping[AlertName, Callable[[Sight], Wrong]] = {
            AlertName.DATA_PLANE_DOWN: _data_plane_down,
            AlertName.RESIDENT_DOWN: _residents_down,
            AlertName.NO_TRAFFIC: self._no_traffic,
            AlertName.NO_DATA: self._no_data,
        }

    def note(self, sight: Sight) -> None:
        """Remember the counters; before the looks of the same sight."""
        if sight.tables is None:
            self._finished.lost_sight()
            self._answered.lost_sight()
            self._outputs.lost_sight()
            return
        ended = [row for row in sight.tables.faults if row.fault is None]
        outputs = dict[str, int]()
        for row in sight.tables.latency:
            outputs[row.version] = outputs.get(row.version, 0) + row.count
        self._finished.note({row.version: row.finished for row in ended}, sight.now)
        self._answered.note({row.version: row.answered for row in ended}, sight.now)
        self._outputs.note(outputs, sight.now)

    def finishes(self, version: str, now: float) -> bool:
        """Whether what the fault ring holds is news: requests still go into it (S4.3)."""
        return self._finished.grew(version, now, self._lines.faults.recent_s)

    def _no_traffic(self, sight: Sight) -> Wrong:
        """A version that should have traffic and answers nothing."""
        if sight.tables is None or sight.observed is None:
            return None
        sent = {r.version for r in sight.observed.residents if r.weight > 0}
        window_s = self._lines.latency.window_s
        return _by_version(v for v in sent if not self._answered.grew(v, sight.now, window_s))

    def _no_data(self, sight: Sight) -> Wrong:
        """No resident at all, or requests that are answered while no first output is measured.

        That an engine shows no cache table is not told here: it may be unable to.
        """
        if sight.tables is None or sight.observed is None:
            return None
        nobody = () if sight.observed.residents else (((Label.TABLE.value, "all"),),)
        window_s = self._lines.latency.window_s
        if self._outputs.watched(sight.now) < ANSWERS_TAKE * window_s:
            return nobody
        blind = (
            ((Label.TABLE.value, "latency"), (Label.VERSION.value, row.version))
            for row in sight.tables.faults
            if row.fault is None
            and self._answered.grew(row.version, sight.now, window_s)
            and not self._outputs.grew(row.version, sight.now, ANSWERS_TAKE * window_s)
        )
        return (*nobody, *blind)


def _data_plane_down(sight: Sight) -> Wrong:
    down = sight.tables is None or sight.observed is None
    return ((("job", RUNTIME_JOB),),) if down else ()


def _residents_down(sight: Sight) -> Wrong:
    """The stable one, or one with traffic, where no resident of its version is ready."""
    if sight.observed is None:
        return None
    residents, stable = sight.observed.residents, sight.observed.stable
    ready = {r.version for r in residents if r.state is ResidentState.READY}
    missed = {r.version for r in residents if r.weight > 0 or r.name == stable}
    return _by_version(missed - ready)


def _by_version(versions: Iterable[str]) -> tuple[Labels, ...]:
    return tuple(((Label.VERSION.value, version),) for version in sorted(versions))


# ---------------------------------------------------------------- counters read now and then
class Growth:
    """When each version's counter last grew, noted at each look. `now` is monotonic seconds."""

    def __init__(self) -> None:
        self._counts: Mapping[str, int] | None = None  # at the last look; None: there was none
        self._grew_at: dict[str, float] = {}
        self._since: float | None = None

    def note(self, counts: Mapping[str, int], now: float) -> None:
        """What is counted by now. At the first look nobody can tell when it was."""
        if self._counts is None:
            self._since = now
        else:
            for version, count in counts.items():
                if count != self._counts.get(version, 0):  # fewer: who counts was started again
                    self._grew_at[version] = now
        self._counts = counts
        self._grew_at = {v: at for v, at in self._grew_at.items() if v in counts}

    def lost_sight(self) -> None:
        """The counters could not be read: the next look is a first one."""
        self._counts = self._since = None

    def grew(self, version: str, now: float, within_s: float) -> bool:
        """Whether a look within the last seconds found more than the one before."""
        at = self._grew_at.get(version)
        return at is not None and now - at < within_s

    def watched(self, now: float) -> float:
        """For how long every look could read the counters, seconds."""
        return 0.0 if self._since is None else now - self._since
