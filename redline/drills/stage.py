"""Where a drill plays: injects, looks until each step came or is overdue, and always cleans up."""

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from alerts.names import AlertName
from alerts.parts import Part
from alerts.policy import Policy
from alerts.rule import Rule
from monitors.contract import DrillKind, Observed, ResidentStatus
from monitors.redlines import RedLines
from redline import inject
from redline.client import ClientError, RefusedError, ask
from redline.control.api import ControlStatus
from redline.control.ladder_api import LadderStatus
from redline.drills.bounds import Bounds
from redline.drills.damage import Damage
from redline.drills.signs import Sign
from redline.drills.timeline import BEGIN, Mark, Step, Timeline
from redline.drills.traffic import Probe, Traffic
from redline.drills.watch import PERIOD_S, Sight, Watch
from redline.processes import ProcessMark
from redline.settings import Stack

Awaited = tuple[Step, Sign]
Guard = Callable[[Sight], str | None]  # what must not happen and did, as a sentence
_LONGEST_S = 600.0  # an injection ends by itself after this, should nobody be left to end it


class CannotRun(RuntimeError):
    """The drill cannot be held now; the message says why and what to do."""


class Unanswered(RuntimeError):
    """A step is overdue: there is nothing more to wait for. `sight`: what was so then."""

    def __init__(self, sight: Sight) -> None:
        super().__init__("a step is overdue")
        self.sight = sight


@dataclass(frozen=True)
class Teller:
    """Who follows the drill: `tell` hears of each step as it comes, `wait_for` what is awaited;
    `confirm` puts a question."""

    tell: Callable[[str], None]
    wait_for: Callable[[str], None]
    confirm: Callable[[str], bool]


@dataclass
class Stage:
    """One drill under way."""

    stack: Stack
    policy: Policy
    watch: Watch
    traffic: Traffic
    teller: Teller
    recovery: bool = True
    own_traffic: bool = True
    damage: Damage = field(default_factory=Damage)
    timeline: Timeline = field(
        default_factory=lambda: Timeline(began=Mark(time.time(), "began", "this drill"))
    )
    _guards: list[Guard] = field(default_factory=list[Guard])

    @property
    def bounds(self) -> Bounds:
        return Bounds(self.lines)

    # ------------------------------------------------------------ before anything is broken
    def observed(self) -> Observed:
        """What the data plane says now. Raises `ClientError`."""
        return ask(self.stack, "GET", f"{self.stack.runtime_url}/control", Observed)

    def control(self) -> ControlStatus:
        """What the control plane says now. Raises `ClientError`."""
        return ask(self.stack, "GET", f"{self.stack.control_url}/api/status", ControlStatus)

    def stable(self) -> ResidentStatus:
        """The stable resident."""
        observed = self.observed()
        return next(one for one in observed.residents if one.name == observed.stable)

    def process(self, name: str) -> ProcessMark:
        """One of this stack's processes, by the name `redline up` gives it. Raises `CannotRun`."""
        try:
            return self.stack.processes[name]
        except KeyError:
            raise CannotRun(
                f"the pid of the {name} is not known here: this drill stops a process, so it needs "
                "the machine and the state folder that `redline up` runs in"
            ) from None

    def rule(self, alert: AlertName) -> Rule:
        """The alert as the rule over tables that it is. Raises `CannotRun`."""
        rule = self.policy.rule(alert)
        if rule is None:
            raise CannotRun(f"{alert} is left out of this stack's policy")
        return rule

    @property
    def lines(self) -> RedLines:
        """The red lines that this stack goes by."""
        return self.policy.lines

    def dwell_left_s(self, part: Part, version: str) -> float:
        """How long the ladder will stay on a rung yet, should it be quiet from now: relapses
        have made that longer."""
        parts = self.ladder(version).parts
        return next(each.dwell_left_s for each in parts if each.part == part)

    def ladder(self, version: str) -> LadderStatus:
        """The version's ladder, as the control plane keeps it now. Raises `CannotRun`."""
        for ladder in self.control().ladders:
            if ladder.version == version:
                return ladder
        raise CannotRun(f"the control plane keeps no ladder of {version}; see `redline ladder`")

    # ------------------------------------------------------------ while it runs
    def tell(self, line: str) -> None:
        """A line for whoever follows the drill."""
        self.teller.tell(line)

    def begin(self, what: str) -> None:
        """The moment from which times are counted until there is a breach."""
        self.timeline = replace(self.timeline, began=Mark(time.time(), what, "this drill"))
        self.tell(f"{BEGIN}: {what}")

    @contextmanager
    def injected(self, kind: DrillKind, name: str, amount: float | None) -> Generator[None]:
        """A fault in one resident's engine, until the block ends."""
        what = f"{kind} on {name}"
        with self.damage.broken(what, lambda: self._end_injection(kind, name)):
            try:
                report = inject.start(self.stack, kind, name, _LONGEST_S, amount)
            except RefusedError as err:
                self.damage.forget(what)
                raise CannotRun(str(err)) from err
            except ClientError as err:
                raise CannotRun(str(err)) from err
            self.tell(f"{what}: {report.detail}")
            yield

    def _end_injection(self, kind: DrillKind, name: str) -> str | None:
        try:
            inject.start(self.stack, kind, name, 0.0, inject.DEFAULT_AMOUNT.get(kind, 1.0))
        except ClientError as err:
            left = f"{kind} on {name} ends by itself within {_LONGEST_S:.0f} s ({err})"
            self.tell(left)
            return left
        return None

    def await_first(self, sign: Sign, within_s: float, what: str) -> None:
        """Something that must be so before anything is broken. Raises `CannotRun`."""
        deadline = time.time() + within_s
        while sign(self.watch.sight()) is None:
            if time.time() > deadline:
                raise CannotRun(f"{what}: not so after {within_s:.0f} s; see `redline status`")
            self.teller.wait_for(what)
            time.sleep(PERIOD_S)

    def expect(self, *awaited: Awaited) -> None:
        """Look until each has come. Raises `Unanswered` when one of them is overdue."""
        self._add(*(step for step, _ in awaited))
        while missing := [(step, sign) for step, sign in awaited if not self._came(step)]:
            sight = self._look()
            for step, sign in missing:
                if self.timeline.at(step.since) is not None and (mark := sign(sight)) is not None:
                    self.note(step.key, mark)
            now = time.time()
            if any(self.timeline.overdue(step, now) for step, _ in missing):
                raise Unanswered(sight)
            self.teller.wait_for(", ".join(step.key for step, _ in missing))
            time.sleep(PERIOD_S)

    def act(self, key: str, what: str) -> None:
        """Something that the drill does itself, in the timeline."""
        self._add(Step(key, what, within_s=None))
        self.note(key, Mark(time.time(), what, "this drill"))

    def pause(self, seconds: float, why: str) -> None:
        """Let time pass, looking on."""
        until = time.time() + seconds
        while time.time() < until:
            self._look()
            self.teller.wait_for(why)
            time.sleep(PERIOD_S)

    @contextmanager
    def guarded(self, guard: Guard) -> Generator[None]:
        """Whenever the drill looks, until the block ends, this must not be so."""
        self._guards.append(guard)
        try:
            yield
        finally:
            self._guards.remove(guard)

    def prove(self, step: Step, shows: Callable[[Probe], str | None]) -> Probe:
        """Ask as a client does until an answer shows it: `shows` says how. Raises `Unanswered`."""
        self._add(step)
        while True:
            probe = self._probe(step)
            told = None if probe is None else shows(probe)
            if probe is not None and told is not None:
                self.note(step.key, Mark(probe.at, told, "a request"))
                return probe
            if self.timeline.overdue(step, time.time()):
                raise Unanswered(self._look())
            time.sleep(PERIOD_S)

    def _look(self) -> Sight:
        sight = self.watch.sight()
        for guard in self._guards:
            told = guard(sight)
            self.never(told is not None and told not in self.timeline.broken, told or "")
        return sight

    def _probe(self, step: Step) -> Probe | None:
        try:
            return self.traffic.probe()
        except ClientError as err:
            self.teller.wait_for(f"{step.key}: {err}")
            return None

    def never(self, broken: bool, sentence: str) -> None:
        """Note in `sentence` what must not happen, where it did."""
        if broken:
            self.timeline = replace(self.timeline, broken=(*self.timeline.broken, sentence))

    def note(self, key: str, mark: Mark) -> None:
        """A step came."""
        self.timeline = replace(self.timeline, marks={**self.timeline.marks, key: mark})
        self.tell(f"{key}: {mark.seen}")

    def _add(self, *steps: Step) -> None:
        self.timeline = replace(self.timeline, steps=(*self.timeline.steps, *steps))

    def _came(self, step: Step) -> bool:
        return step.key in self.timeline.marks
