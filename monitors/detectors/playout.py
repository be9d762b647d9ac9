"""The playout clock: the silence that a listener who plays speech as it comes would hear."""

from dataclasses import dataclass

from monitors.contract import FaultFound
from monitors.detectors.finding import Abstained, Verdict
from monitors.labels import Detector, Fault, Grade, Origin

PREBUFFER_S = 0.1  # a player holds back one packet of 80 ms and a little, for the next to come
AUDIBLE_S = 0.060  # a silence inside speech as long as a stop consonant's closure passes for one
HANG_S = 3.0  # three times the silence that people in conversation take for trouble: it seems over
HANG_SHARE = 0.8  # of all the silence: less, and it is slow throughout, which is load
HANG_PACKETS = 5  # of fewer, nobody can tell the one from the other
SLOWING_SPEECH_S = 4.0
SLOWING_RATIO = 1.5


@dataclass(frozen=True)
class Stall:
    """Silence for `seconds` after `at_s` seconds of speech."""

    at_s: float
    seconds: float


class PlayoutClock:
    """Plays one speech stream from its first packet on, `prebuffer_s` behind it."""

    def __init__(self, sample_rate: int, prebuffer_s: float = PREBUFFER_S) -> None:
        self._rate = sample_rate
        self._prebuffer_s = prebuffer_s
        self._empty_at = 0.0
        self._came: list[tuple[float, float]] = []  # when, and the speech before it; seconds
        self.stalls: list[Stall] = []  # longer than `AUDIBLE_S`
        self.underrun_s = 0.0
        self.speech_s = 0.0

    def feed(self, at: float, samples: int) -> float:
        """Takes a packet that arrived `at` (seconds, any clock); returns the silence before it."""
        if not self._came:
            self._empty_at = at + self._prebuffer_s
        silence = max(0.0, at - self._empty_at)
        if silence > AUDIBLE_S:
            self.stalls.append(Stall(self.speech_s, silence))
        self._came.append((at, self.speech_s))
        seconds = samples / self._rate
        self._empty_at += silence + seconds
        self.underrun_s += silence
        self.speech_s += seconds
        return silence

    def pace(self, start: float = 0.0, stop: float = 1.0) -> float | None:
        """Real-time factor: seconds of waiting for a second of speech, between two shares of the
        stream; None where fewer than two packets came in between."""
        wanted = start * self.speech_s, stop * self.speech_s
        inside = [one for one in self._came if wanted[0] <= one[1] <= wanted[1]]
        if len(inside) < 2:
            return None
        (first, before), (last, after) = inside[0], inside[-1]
        return (last - first) / (after - before) if after > before else None

    def close(self) -> Verdict:
        """What the listener heard of it."""
        if not self._came:
            return Abstained("no speech came")
        return (*self._stalled(), *self._slowing())

    def _stalled(self) -> tuple[FaultFound, ...]:
        if not self.stalls:
            return ()
        longest = max(self.stalls, key=lambda stall: stall.seconds)
        alone = longest.seconds > HANG_SHARE * self.underrun_s and len(self._came) >= HANG_PACKETS
        hangs = alone and longest.seconds >= HANG_S
        pace = self.pace()
        detail = (
            f"{len(self.stalls)} stalls, {self.underrun_s:.2f} s of silence in {self.speech_s:.2f}"
            f" s of speech; the longest {longest.seconds:.2f} s after {longest.at_s:.2f} s"
            f"{'' if pace is None else f'; real-time factor {pace:.2f}'}"
        )
        found = _found(
            "hang" if hangs else "stall",
            Grade.HARD if hangs else Grade.SOFT,
            detail,
            at_s=longest.at_s,
            value=longest.seconds,
            limit=HANG_S if hangs else AUDIBLE_S,
            unit="s",
        )
        return (found,)

    def _slowing(self) -> tuple[FaultFound, ...]:
        """It falls behind more and more: the listener's store of speech runs out."""
        early, late = self.pace(0.0, 0.5), self.pace(0.5, 1.0)
        if early is None or late is None or self.speech_s < SLOWING_SPEECH_S:
            return ()
        limit = max(1.0, SLOWING_RATIO * early)
        if late <= limit:
            return ()
        detail = f"real-time factor {early:.2f} in the first half of the speech, {late:.2f} after"
        half_s = self.speech_s / 2
        soft = Grade.SOFT
        return (_found("slowing", soft, detail, at_s=half_s, value=late, limit=limit, unit="s/s"),)


def _found(
    rule: str, grade: Grade, detail: str, *, at_s: float, value: float, limit: float, unit: str
) -> FaultFound:
    return FaultFound(
        fault=Fault.SPEECH_TRUNCATED,
        grade=grade,
        origin=Origin.OUTPUT,
        detector=Detector.PLAYOUT,
        rule=rule,
        detail=detail,
        at_ms=1000.0 * at_s,
        value=value,
        limit=limit,
        unit=unit,
    )
