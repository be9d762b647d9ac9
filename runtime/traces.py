"""One request as it goes: what is remembered of it, and the trace that it is part of."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import msgspec

from monitors.contract import (
    EvidenceBody,
    FaultFound,
    KvRung,
    LineCrossed,
    MediaRung,
    RequestFinished,
)
from monitors.detectors.finding import Abstained, Finding
from monitors.labels import Keep, Origin, Outcome, Stage
from monitors.requests import (
    Asked,
    Examined,
    Leg,
    Noted,
    RequestRecord,
    StageTime,
    Told,
    TraceNote,
    Usage,
)
from monitors.trace_queue import Content
from monitors.tracing import TraceContext, new_span_id
from runtime.residents.port import EngineStage, Finished
from runtime.stamp import Stamp

# Of one leg: a detector that finds a fault in every frame fills no memory, and pushes out neither
# what else happened nor, where it is the input that is damaged, the faults that are ours.
MAX_FAULTS = 16
MAX_INPUT_FAULTS = 8  # of those
MAX_NOTED = 32  # of everything else, of which there is little: first outputs, lines, residency
MAX_CONTENT_CHARS = 8_192  # of what was said, each way, where it is captured


@dataclass
class _Leg:
    stamp: Stamp
    kv: KvRung | None
    boarded: float
    span_id: str = field(default_factory=new_span_id)
    departed: float | None = None
    left: float | None = None
    over: bool = False
    stages: tuple[EngineStage, ...] = ()
    noted: list[tuple[float, EvidenceBody]] = field(
        default_factory=list[tuple[float, EvidenceBody]]
    )
    examined: list[Examined] = field(default_factory=list[Examined])
    unnoted: int = 0

    def note(self, at: float, body: EvidenceBody) -> None:
        if self._has_room(body):
            self.noted.append((at, body))
        else:
            self.unnoted += 1

    def examine(self, examined: Examined) -> None:
        if len(self.examined) < MAX_NOTED:
            self.examined.append(examined)
        else:
            self.unnoted += 1

    def _has_room(self, body: EvidenceBody) -> bool:
        if isinstance(body, RequestFinished):
            return True  # there is one
        faults = [found for _, found in self.noted if isinstance(found, FaultFound)]
        if not isinstance(body, FaultFound):
            return len(self.noted) - len(faults) < MAX_NOTED
        of_input = sum(found.origin is Origin.INPUT for found in faults)
        full = body.origin is Origin.INPUT and of_input >= MAX_INPUT_FAULTS
        return len(faults) < MAX_FAULTS and not full


class RequestTrace:
    """What happens to one request. `clock`: monotonic seconds; `wall`: calendar time of its first
    byte. `done` is called once: when its client has been told all, and its ending is written.

    `content`: whether to keep what is said, for the trace alone.
    """

    def __init__(
        self,
        context: TraceContext | None,
        *,
        clock: Callable[[], float],
        wall: float,
        done: Callable[["RequestTrace"], None] = lambda _: None,
        content: bool = False,
    ) -> None:
        self.request_id = uuid4().hex
        self.context = context
        self._clock = clock
        self._wall = wall
        self._since = clock()
        self._done = done
        self._stages: list[tuple[Stage, float, float]] = []
        self._legs: list[_Leg] = []
        self._session: str | None = None
        self._operator = False
        self._asked: Asked | None = None
        self._media: MediaRung | None = None
        self._usage: Usage | None = None
        self._told: tuple[float, int | None, str | None] | None = None
        self._outcome: Outcome | None = None
        self._ended: float | None = None
        self._over = False
        self._keep: set[Keep] = set()
        if context is not None and context.sampled:
            self._keep.add(Keep.SAMPLED)
        self._content = _Said() if content else None

    # ------------------------------------------------------------ its trace
    def log_fields(self) -> dict[str, str]:
        """What a log line about it carries."""
        fields = {"request_id": self.request_id}
        if self.context is not None:
            fields |= {"trace_id": self.context.trace_id, "span_id": self.context.span_id}
        if self._session is not None:
            fields["session"] = self._session
        if self._legs:
            fields["resident"] = self._legs[-1].stamp.resident
        return fields

    @property
    def exemplar(self) -> str | None:
        """Its trace id, where the trace is sure to be kept by what is known so far."""
        if self.context is None or not (self.context.sampled or (self.context.ours and self._keep)):
            return None
        return self.context.trace_id

    def onward(self) -> dict[str, str]:
        """W3C headers for the engine of the present leg."""
        return {} if self.context is None else self.context.onward(self._legs[-1].span_id)

    # ------------------------------------------------------------ what happens
    def asked(self, asked: Asked, session: str | None, operator: bool) -> None:
        """It could be read."""
        self._asked, self._session, self._operator = asked, session, operator

    def stage(self, stage: Stage, began: float, ended: float) -> None:
        """A stage in the gateway, on its clock."""
        self._stages.append((stage, began, ended))

    def decoded(self, rung: MediaRung) -> None:
        """Its media is cut into slices of this fidelity."""
        self._media = rung

    def boarded(self, stamp: Stamp, kv: KvRung | None) -> None:
        """It has a place on a resident."""
        self._legs.append(_Leg(stamp, kv, self._clock()))
        if self._content is not None:
            self._content.answer = ""

    def departed(self) -> None:
        """It was handed to that resident."""
        self._legs[-1].departed = self._clock()

    def worked(self, stages: tuple[EngineStage, ...]) -> None:
        """The engine told where its time went."""
        self._legs[-1].stages = stages

    def finished(self, finished: Finished) -> None:
        """The engine brought it to its end."""
        self.worked(finished.stages)
        self._usage = Usage(
            prompt_tokens=finished.prompt_tokens,
            cached_tokens=finished.cached_tokens,
            completion_tokens=finished.completion_tokens,
            text_reason=finished.text_reason,
        )

    def note(self, stamp: Stamp, body: EvidenceBody) -> None:
        """One entry of the evidence log about it; its ending there ends the leg."""
        leg, now = self._leg_of(stamp), self._clock()
        if leg is None:
            return
        if isinstance(body, LineCrossed):
            self._keep.add(Keep.LINE)
        elif isinstance(body, FaultFound):
            self._keep.add(Keep.FAULT)
        leg.note(now, body)
        if isinstance(body, RequestFinished):
            self._leave(leg, now)

    def examined(self, stamp: Stamp, finding: Finding) -> None:
        """A detector looked at it."""
        leg = self._leg_of(stamp)
        if leg is None:
            return
        why = finding.verdict.reason if isinstance(finding.verdict, Abstained) else ""
        leg.examine(Examined(detector=finding.detector, judgement=finding.judgement, why=why))

    def abandoned(self) -> None:
        """It left its resident before it was handed to it: there is no ending to wait for."""
        self._leave(self._legs[-1], self._clock())

    def said(self, messages: Iterable[tuple[str, list[str]]]) -> None:
        """The texts of each turn, by role. Kept only where content is captured."""
        if self._content is not None:
            self._content.hear(messages)

    def answered(self, text: str) -> None:
        """More text of the answer. Kept only where content is captured."""
        if self._content is not None:
            self._content.answer = (self._content.answer + text)[:MAX_CONTENT_CHARS]

    def told(self, status: int | None, code: str | None = None) -> None:
        """What its client was told; the first error is the one that counts."""
        if self._told is None or self._told[2] is None:
            self._told = (self._clock(), status, code)

    def end(self, outcome: Outcome) -> None:
        """Its client has been told all, or is gone."""
        if self._ended is None:
            self._outcome, self._ended = outcome, self._clock()
            for leg in self._legs:  # where a verdict is still being made, the leg itself is over
                leg.left = self._ended if leg.left is None else leg.left
            if outcome is not Outcome.OK:
                self._keep.add(Keep.OUTCOME)
            self._close_if_over()

    def _leg_of(self, stamp: Stamp) -> _Leg | None:
        return next((leg for leg in reversed(self._legs) if leg.stamp == stamp), None)

    def _leave(self, leg: _Leg, now: float) -> None:
        leg.over = True
        leg.left = now if leg.left is None else leg.left
        self._close_if_over()

    def _close_if_over(self) -> None:
        if not self._over and self._ended is not None and all(leg.over for leg in self._legs):
            self._over = True
            self._done(self)

    # ------------------------------------------------------------ what is left of it
    def record(self) -> RequestRecord:
        """As it is now. Of one that is over, with what became of its trace."""
        record = RequestRecord(
            request_id=self.request_id,
            received=self._wall,
            session=self._session,
            operator=self._operator,
            asked=self._asked,
            media=self._media,
            trace=None,
            stages=tuple(self._stage(*stage) for stage in self._stages),
            legs=tuple(self._leg(leg) for leg in self._legs),
            usage=self._usage,
            told=self._told_record(),
            outcome=self._outcome,
            ended_s=self._at(self._ended),
            wrong=tuple(k for k in Keep if k in self._keep and k is not Keep.SAMPLED),
        )
        if self.context is None or not self.context.ours:
            return record
        keep = tuple(k for k in Keep if k in self._keep) if self._over else None
        note = TraceNote(trace_id=self.context.trace_id, span_id=self.context.span_id, keep=keep)
        return msgspec.structs.replace(record, trace=note)

    def content(self) -> Content | None:
        """What was said, where it is captured."""
        reason = None if self._usage is None else self._usage.text_reason
        return None if self._content is None else self._content.worded(reason)

    def _at(self, moment: float | None) -> float | None:
        return None if moment is None else round(moment - self._since, 6)

    def _stage(
        self, stage: Stage, began: float, ended: float, busy_s: float | None = None
    ) -> StageTime:
        return StageTime(
            stage=stage,
            began_s=round(began - self._since, 6),
            ended_s=round(ended - self._since, 6),
            busy_s=busy_s,
        )

    def _told_record(self) -> Told | None:
        if self._told is None:
            return None
        at, status, code = self._told
        return Told(at_s=round(at - self._since, 6), status=status, code=code)

    def _leg(self, leg: _Leg) -> Leg:
        stamp = leg.stamp
        return Leg(
            resident=stamp.resident,
            version=stamp.version,
            pool_epoch=stamp.pool_epoch,
            route_epoch=stamp.route_epoch,
            level=stamp.level,
            kv=leg.kv,
            span_id=leg.span_id,
            boarded_s=round(leg.boarded - self._since, 6),
            departed_s=self._at(leg.departed),
            left_s=self._at(leg.left),
            stages=tuple(self._stage(s.stage, s.began, s.ended, s.busy_s) for s in leg.stages),
            noted=tuple(
                Noted(at_s=round(at - self._since, 6), body=body) for at, body in leg.noted
            ),
            examined=tuple(leg.examined),
            unnoted=leg.unnoted,
        )


class _Said:
    """The words of one request, within bounds."""

    def __init__(self) -> None:
        self.answer = ""
        self._turns: list[dict[str, Any]] = []

    def hear(self, messages: Iterable[tuple[str, list[str]]]) -> None:
        left = MAX_CONTENT_CHARS
        for role, texts in messages:
            parts = []
            for text in texts:
                parts.append({"type": "text", "content": text[:left]})
                left -= len(parts[-1]["content"])
            self._turns.append({"role": role, "parts": parts})

    def worded(self, reason: str | None) -> Content:
        """In the form of the GenAI convention; media is left out."""
        answer = {"role": "assistant", "parts": [{"type": "text", "content": self.answer}]}
        return Content(
            input_messages=json.dumps(self._turns),
            output_messages=json.dumps([{**answer, "finish_reason": reason or "error"}]),
        )
