"""Watches one request on one resident: milestones, lines, faults and its one ending."""

import asyncio
from collections.abc import Callable, Collection
from functools import partial

from monitors.contract import FaultFound, RequestFinished, ResidencySampled
from monitors.detectors import model_clock, operations
from monitors.detectors.finding import Finding, Gathering, examine
from monitors.detectors.playout import PlayoutClock
from monitors.detectors.speech import SpeechAudit
from monitors.fault_table import counts
from monitors.labels import Detector, Milestone, Outcome
from monitors.redlines import LatencyLines
from runtime.book import Book
from runtime.openai_answer import SPEECH_HZ
from runtime.residents.port import AudioDelta, Finished, TextDelta, VideoPrefilled
from runtime.stamp import Stamp
from runtime.verdicts import Judges, Verdicts

_TIMER_SLACK_S = 0.001  # timers may fire a clock tick early


class Watch:
    """Measures from `since`, the time of the last input byte, on `clock` (monotonic seconds).

    Writes to the book as things happen. After `finish` or `abandon` it takes nothing more in; the
    ending is in the book once the verdict on its speech is there.
    """

    def __init__(
        self,
        book: Book,
        stamp: Stamp,
        *,
        since: float,
        expects: Collection[Milestone],
        lines: LatencyLines,
        speech: SpeechAudit,
        streamed: bool,
        verdicts: Verdicts,
        clock: Callable[[], float],
    ) -> None:
        self.stamp = stamp
        self.first_output: dict[Milestone, float | None] = dict.fromkeys(expects)
        self.outcome = Outcome.REFUSED  # until it is known: it never reached the resident
        self.over = False
        self._book = book
        self._since = since
        self._clock = clock
        self._lines_s = sorted({lines.first_packet_s, lines.degrade_s})
        self._crossed: set[tuple[Milestone, float]] = set()
        self._found: list[FaultFound] = []
        self._text: list[str] = []
        self._speech = Milestone.FIRST_AUDIO_PACKET in self.first_output
        self._audit = speech
        self._playout = PlayoutClock(SPEECH_HZ) if streamed else None
        self._heard = Gathering(Detector.SPEECH)
        self._played = Gathering(Detector.PLAYOUT)
        self._verdicts = verdicts
        self._timers: list[asyncio.TimerHandle] = []

    def start_timers(self, loop: asyncio.AbstractEventLoop) -> None:
        """Have a line that is crossed in silence noted at its crossing."""
        for line_s in self._lines_s:
            left = self._since + line_s - self._clock()
            self._timers.append(loop.call_later(max(0.0, left) + _TIMER_SLACK_S, self.tick))

    def tick(self) -> None:
        """Note each line that a first output is past without having come."""
        elapsed = self._clock() - self._since
        for milestone, seconds in self.first_output.items():
            if seconds is None:
                self._cross(milestone, elapsed)

    def judged(self, *findings: Finding) -> None:
        """Detectors spoke; what came in with the input is shown and never counts."""
        self._found += self._book.judged(self.stamp, *findings)

    def brought(self, *findings: Finding) -> None:
        """The request came from another resident, with what was judged of its input there."""
        self._found += self._book.brought(self.stamp, *findings)

    def prefilled(self, event: VideoPrefilled) -> None:
        """The first key frame is in the Thinker."""
        if self.over:
            return
        self._reach(Milestone.FIRST_VIDEO_FRAME, event.at)
        if event.mean_abs_error is not None:
            judge = partial(operations.arrival_faults, event.mean_abs_error, event.max_abs_error)
            self.judged(examine(Detector.OPERATIONS, judge))

    def came(self, event: AudioDelta) -> None:
        """A packet is here from the resident: how slowly a client reads is not the resident's."""
        if self._playout is not None and not self.over:
            samples = len(event.pcm) // 2
            self._played.take(partial(self._playout.feed, self._clock(), samples))

    def sent(self, event: TextDelta | AudioDelta) -> None:
        """A delta has just been handed to the socket."""
        if self.over:
            return
        now = self._clock()
        match event:
            case TextDelta():
                self._text.append(event.text)
                self._reach(Milestone.FIRST_TOKEN, now)
            case AudioDelta():
                self._heard.take(partial(self._audit.feed, event.frames, event.pcm))
                self._reach(Milestone.FIRST_AUDIO_PACKET, now)

    def finish(self, outcome: Outcome, finished: Finished | None = None) -> None:
        """The request's one ending, in the book whatever else cannot be written. `finished` is
        there when the engine brought it to its end."""
        if self.over:
            return
        self.outcome = outcome
        self._close()
        try:
            if finished is not None:
                self._judge_clocks(finished)
                self._note_residency(finished)
        finally:
            self._settle(outcome, finished)

    def _settle(self, outcome: Outcome, finished: Finished | None) -> None:
        """Have it judged what was said, and the ending written then."""
        judges = self._judges(outcome, finished)
        if judges:
            self._verdicts.ask(self.stamp.resident, judges, partial(self._end, finished))
        else:
            self._end(finished)

    def abandon(self) -> None:
        """The request never reached this resident: it has no ending here."""
        self._close()

    def _end(self, finished: Finished | None, findings: tuple[Finding, ...] = ()) -> None:
        try:
            self.judged(*findings)
        finally:
            self._write_ending(finished)

    def _write_ending(self, finished: Finished | None) -> None:
        lost = self.outcome in (Outcome.FAILED, Outcome.LOST)
        faulted = lost or any(map(counts, self._found))
        ending = RequestFinished(
            outcome=self.outcome,
            faulted=faulted,
            cached_tokens=finished.cached_tokens if finished else None,
            prompt_tokens=finished.prompt_tokens if finished else None,
        )
        self._book.finished(self.stamp, ending, self._found)
        underrun_s = 0.0 if self._playout is None else self._playout.underrun_s
        self._book.played(self.stamp, self._audit.samples / SPEECH_HZ, underrun_s)

    def _judge_clocks(self, finished: Finished) -> None:
        if finished.av_offset_ms is not None or finished.clock_error is not None:
            judge = partial(model_clock.faults, finished.av_offset_ms, finished.clock_error)
            self.judged(examine(Detector.TIMELINE, judge))

    def _judges(self, outcome: Outcome, finished: Finished | None) -> Judges:
        """Who judges the speech; nobody, where the client did not want the rest of it."""
        if finished is not None and self._speech:
            reason, made = finished.speech_reason, finished.codec_frames
        elif outcome in (Outcome.FAILED, Outcome.LOST) and self._has_speech():
            reason, made = None, None
        else:
            return {}
        whole = partial(self._audit.close, reason, "".join(self._text), made)
        judges = {Detector.SPEECH: self._heard.judging(whole)}
        if self._playout is not None:  # a listener plays only what is streamed
            judges[Detector.PLAYOUT] = self._played.judging(self._playout.close)
        return judges

    def _has_speech(self) -> bool:
        """Some was sent, or was to be judged when that broke."""
        return bool(self._audit.frames) or self._heard.failed is not None

    def _note_residency(self, finished: Finished) -> None:
        self._book.residency(
            self.stamp,
            (
                ResidencySampled(
                    modality=each.modality,
                    hit_mass=each.hit_mass,
                    lookup_mass=each.lookup_mass,
                    warm=self._book.is_warm(self.stamp),
                )
                for each in finished.residency
            ),
        )

    def _reach(self, milestone: Milestone, at: float) -> None:
        if self.over or self.first_output.get(milestone, 0.0) is not None:
            return
        seconds = max(0.0, at - self._since)
        self._cross(milestone, seconds)
        self.first_output[milestone] = seconds
        self._book.reached(self.stamp, milestone, seconds)

    def _cross(self, milestone: Milestone, seconds: float) -> None:
        for line_s in self._lines_s:
            if seconds > line_s and (milestone, line_s) not in self._crossed:
                self._crossed.add((milestone, line_s))
                self._book.crossed(self.stamp, milestone, line_s)

    def _close(self) -> None:
        self.over = True
        for timer in self._timers:
            timer.cancel()
