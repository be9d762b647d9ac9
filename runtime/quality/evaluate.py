"""Runs held-out questions through the real engine, and scores what came out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from monitors.redlines import RedLines
from runtime.engine.build import EngineSettings
from runtime.engine.engine import Engine
from runtime.engine.shadow import ShadowSettings
from runtime.engine.speech import SAMPLE_RATE
from runtime.kv.reuse import ReusePolicy
from runtime.media.fidelity import fidelity_of
from runtime.model.checkpoint import Checkpoint
from runtime.quality.asking import Asked, ask
from runtime.quality.held_out import CALIBRATION_SEED, Sample, draw
from runtime.quality.likelihood import Likelihood
from runtime.quality.plan import Plan, PlanError, Reuse
from runtime.quality.policies import Seen, Tally, policy_of, tallied, watching
from runtime.quality.score import Answer, KvUse, Report, TaskScore, score
from runtime.quality.tasks import Kind
from runtime.quality.tones import read_back
from runtime.residents.port import AudioDelta, Failed, Finished, TextDelta

IN_FLIGHT = 8
CALIBRATION_SAMPLES = 8  # of each task
SPARE_TOKENS = 8  # beyond the right answer's: a longer answer is wrong whatever it goes on with
_TICK_S = 0.001
_LOUDEST = 32767.0

Progress = Callable[[int, int], None]  # samples done, samples in all


class EvaluationFailed(RuntimeError):
    """The engine could not answer; the message is its own."""


@dataclass
class _Heard:
    """What came of one request."""

    text: str = ""
    pcm: bytes = b""
    over: bool = False


@dataclass
class _Ticks:
    """The engine's clock: a step forward at each look, so that its order of work is the plan's
    alone and never the machine's."""

    now: float = field(default=0.0)

    def __call__(self) -> float:
        self.now += _TICK_S
        return self.now


def evaluate(checkpoint: Checkpoint, plan: Plan, progress: Progress = lambda *_: None) -> Report:
    """How well `checkpoint` answers; the same plan gives the same report.

    Raises `PlanError`, `CalibrationError`, `PoolTooSmall`, `NotANumber` or `EvaluationFailed`.
    """
    policy = _policy(checkpoint, plan)
    run = _Run(checkpoint, plan, policy)
    total, tasks = plan.count * len(plan.tasks), list[TaskScore]()
    for kind in plan.tasks:
        answers: list[Answer] = []
        for first in range(0, plan.count, IN_FLIGHT):
            progress(len(tasks) * plan.count + first, total)
            numbers = range(first, min(first + IN_FLIGHT, plan.count))
            answers += run.answers([draw(kind, plan.seconds, n, seed=plan.seed) for n in numbers])
        tasks.append(score(kind, answers))
    progress(total, total)
    return Report(
        version=checkpoint.version,
        weights_digest=checkpoint.weights_digest,
        policy=plan.policy.name,
        kv=plan.kv,
        rung=plan.rung,
        level=plan.level,
        seconds=plan.seconds,
        count=plan.count,
        seed=plan.seed,
        speech=plan.speech,
        kv_use=run.kv_use(),
        tasks=tuple(tasks),
    )


def _policy(checkpoint: Checkpoint, plan: Plan) -> ReusePolicy:
    seen: Sequence[Seen] = ()
    if plan.policy.reuse is Reuse.LOWEST50:
        watched, tally = tallied(watching(checkpoint))
        assert tally is not None
        run = _Run(checkpoint, plan, watched)
        for kind in plan.tasks:
            run.dictate([_calibration(kind, plan, n) for n in range(CALIBRATION_SAMPLES)])
        seen = tally.seen
    return policy_of(checkpoint, plan.policy.reuse, RedLines(), seen, plan.seed)


def _calibration(kind: Kind, plan: Plan, number: int) -> Sample:
    return draw(kind, plan.seconds, number, seed=plan.seed, of=CALIBRATION_SEED)


class _Run:
    """One engine, and one cache to dictate over, under one policy."""

    def __init__(self, checkpoint: Checkpoint, plan: Plan, policy: ReusePolicy) -> None:
        self._plan = plan
        self._fidelity = fidelity_of(plan.level.media, RedLines().ladder)
        self._voices = sorted(checkpoint.config.talker_config.speaker_id)
        self._policy = policy
        settings = self._settings(checkpoint, policy)
        counted, self._tally = tallied(policy)
        try:
            self._engine = Engine(checkpoint, settings, clock=_Ticks(), die=_never)
            self._likelihood = Likelihood(checkpoint, replace(settings, reuse=counted), plan.kv)
        except ValueError as err:
            raise PlanError(str(err)) from err
        self._engine.set_kv(plan.kv)

    def _settings(self, checkpoint: Checkpoint, policy: ReusePolicy) -> EngineSettings:
        return EngineSettings(
            name="eval",
            version=checkpoint.version,
            pool_bytes=self._plan.pool_bytes,
            max_running=IN_FLIGHT,
            reuse=policy,
            storage=self._plan.policy.storage,
            shadow=ShadowSettings(share=0.0),
        )

    def answers(self, samples: Sequence[Sample]) -> list[Answer]:
        """All samples in flight together, spoken where the plan says so, then dictated."""
        asked = [self._ask(sample) for sample in samples]
        heard = self._hear(asked)
        nats = self._dictate(asked)
        return [self._answer(*one) for one in zip(asked, heard, nats, strict=True)]

    def dictate(self, samples: Sequence[Sample]) -> list[float]:
        """Mean nats per token of the right answers."""
        return self._dictate([self._ask(sample) for sample in samples])

    def kv_use(self) -> KvUse:
        """What the policy did to all that was dictated."""
        tally: Tally | None = self._tally
        eligible = None if tally is None else len(tally.seen)
        aliased = 0 if tally is None else tally.aliased
        pages = self._likelihood.pages
        return KvUse(
            rule=self._policy.state if tally is None else tally.words,
            eligible=eligible,
            aliased=aliased,
            aliased_share=aliased / eligible if eligible else None,
            bytes_per_token=pages.bytes / pages.tokens,
            native_bytes_per_token=pages.native_bytes / pages.tokens,
        )

    def _ask(self, sample: Sample) -> Asked:
        longest = len(self._likelihood.answer(sample.question.answer)) + SPARE_TOKENS
        voice = self._voices[sample.number % len(self._voices)]
        return ask(sample, self._fidelity, longest, voice, speech=self._plan.speech)

    def _hear(self, asked: Sequence[Asked]) -> list[_Heard]:
        heard = {one.generate.request_id: _Heard() for one in asked}
        for one in asked:
            self._engine.submit(one.generate, one.arrays)
        while not all(one.over for one in heard.values()):
            for event in self._engine.step():
                match event:
                    case TextDelta():
                        heard[event.request_id].text += event.text
                    case AudioDelta():
                        heard[event.request_id].pcm += event.pcm
                    case Finished():
                        heard[event.request_id].over = True
                    case Failed():
                        raise EvaluationFailed(f"sample {event.request_id}: {event.message}")
        return list(heard.values())

    def _dictate(self, asked: Sequence[Asked]) -> list[float]:
        return self._likelihood.nats([(one.generate, one.arrays, one.right) for one in asked])

    def _answer(self, asked: Asked, heard: _Heard, nats: float) -> Answer:
        return Answer(
            number=asked.sample.number,
            right=asked.right,
            text=heard.text,
            nats=nats,
            spoken=_words(heard.pcm) if self._plan.speech else None,
        )


def _words(pcm: bytes) -> tuple[str, ...]:
    """What int16 sound at 24 kHz speaks."""
    samples = np.frombuffer(pcm, "<i2").astype(np.float32) / _LOUDEST
    return tuple(read_back(samples, SAMPLE_RATE))


def _never() -> None:
    raise AssertionError("no drill runs in an evaluation")
