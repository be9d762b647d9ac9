"""Rollbacks under load, each of a random cause at a random moment, and what came of each.

The gateway, its evidence log and the control plane are processes of their own, as in service, and
talk over HTTP; the engines are scripted: they answer, cache, break and are flushed as they are told
to, at no cost. What is measured is the way from evidence to B, not a model.
"""

import asyncio
import random
import sys
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import msgspec

from monitors.contract import DrillKind, Evidence, EvidenceBatch, RequestFinished
from monitors.evidence import Cursor
from monitors.labels import Phase
from monitors.redlines import LatencyLines, RedLines, RolloutLines
from redline.control.api import JournalLine
from redline.control.settings import ControlSettings
from rollout.fold import EvidenceFold
from rollout.plan import Cause
from rollout.rollback import KIND, Record, Stage, Step
from rollout.store import STATE_KIND, SavedState
from tests.support.gateway import VERSIONS, A, settings_for
from tests.support.ports import free_ports

TOKEN = "a-token-of-the-bench"
AUTH = {"Authorization": f"Bearer {TOKEN}"}
GATEWAY = Path(__file__).parents[1] / "tests" / "support" / "scripted_gateway.py"
# Two requests warm a version up, a canary has half of the sessions, and a drain is short: for
# many rollouts in minutes. The lines themselves are the article's, but for latencies, which a
# busy machine would cross by itself.
LINES = RedLines(
    latency=LatencyLines(first_packet_s=0.8, degrade_s=1.0),
    rollout=RolloutLines(warmup_requests=2, canary_weight=50, drain_s=0.5),
)
SLOW_S = 1.1  # a step of a slow A
PROMPTS, SESSIONS = 12, 100_000
MISSING = f"@miss:{VERSIONS[A]}"
PATIENCE_S = 60.0
KEEP_S = 2.0  # a server closes idle connections after 5 s, perhaps just as one is used again
_LOOK_S = 0.05


@dataclass(frozen=True)
class Rolled:
    """One rollback, in calendar seconds of this one machine. `breach`: the first entry of the
    evidence log with which the breach was there, or the moment an operator asked."""

    cause: Cause
    breach: float
    decided: float  # and journalled
    on_stable: float  # the cut over is acknowledged, and journalled
    verified: float
    in_flight: int  # streams of A that the drain found
    ended: float  # from here on A may have traffic again


@dataclass
class Sent:
    """A request as its client saw it. `id` and `version`: None where it was not answered."""

    prompt: str
    at: float
    id: str | None = None
    version: str | None = None


@dataclass
class Load:
    """Clients that ask one thing after the other, some of them aloud, some at length."""

    client: httpx.AsyncClient
    draw: random.Random
    prefix: str = ""  # of every prompt
    sent: list[Sent] = field(default_factory=list[Sent])

    async def keep_asking(self, most_tokens: int) -> None:
        while True:
            await self.ask(self.draw.randint(1, most_tokens))

    async def ask(self, tokens: int) -> None:
        prompt = f"{self.prefix} what is number {self.draw.randrange(PROMPTS)}?".strip()
        speech = self.draw.random() < 0.7
        request = {
            "model": "redline", "stream": True, "max_tokens": tokens,
            "modalities": ["text", "audio"] if speech else ["text"],
            "messages": [{"role": "user", "content": prompt}],
        }  # fmt: skip
        if speech:
            request["audio"] = {"voice": "ethan", "format": "pcm16"}
        session = {"X-Redline-Session": f"s{self.draw.randrange(SESSIONS)}"}
        sent = Sent(prompt, time.time())
        self.sent.append(sent)
        url = "/v1/chat/completions"
        async with self.client.stream("POST", url, json=request, headers=session) as answer:
            sent.id = answer.headers.get("X-Redline-Request")
            sent.version = answer.headers.get("X-Redline-Version")
            async for _ in answer.aiter_bytes():
                pass


@dataclass
class Stand:
    """A gateway and a control plane that run, and what the evidence log said so far. `lags`: how
    much later than asked this process itself was woken, seconds: what the machine adds to a step.
    """

    gateway: httpx.AsyncClient
    control: httpx.AsyncClient
    evidence: list[Evidence] = field(default_factory=list[Evidence])
    lags: list[float] = field(default_factory=list[float])

    async def watch_the_machine(self) -> None:
        """For ever."""
        while True:
            due = time.monotonic() + _LOOK_S
            await asyncio.sleep(_LOOK_S)
            self.lags.append(time.monotonic() - due)

    async def read_evidence(self) -> None:
        """For ever."""
        cursor = Cursor()
        while True:
            asked = {"incarnation": cursor.incarnation, "after": cursor.seq, "wait": 1.0}
            answer = (await self.gateway.get("/evidence", params=asked)).raise_for_status()
            taken = cursor.take(msgspec.json.decode(answer.content, type=EvidenceBatch))
            if taken.missed:
                raise RuntimeError("the bench reads the evidence log too slowly")
            self.evidence.extend(taken.entries)
            cursor = taken.cursor

    async def post(self, path: str, **order: Any) -> None:
        answer = await self.control.post(f"/api/{path}", json={"actor": "bench", **order})
        if answer.is_error:
            raise RuntimeError(f"{path}: {answer.text}")

    async def rollout(self) -> dict[str, Any]:
        return (await self.control.get("/api/status")).json()["rollout"]

    async def until(self, holds: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        """The rollout's status once it is so."""
        async with asyncio.timeout(PATIENCE_S):
            while not holds(found := await self.rollout()):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        return found

    async def drill(self, kind: DrillKind, seconds: float, amount: float = 0.0) -> None:
        order = {"kind": kind, "seconds": seconds, "amount": amount}
        path = f"/control/residents/{A}/drill"
        (await self.gateway.post(path, json=order)).raise_for_status()

    async def journal(self, newest: int) -> list[JournalLine]:
        found = await self.control.get("/api/journal", params={"newest": newest, "told": "true"})
        return msgspec.json.decode(found.raise_for_status().content, type=list[JournalLine])

    # ------------------------------------------------------------ one rollback
    async def roll_back(self, cause: Cause, load: Load, pause_s: float) -> Rolled:
        """A rollout, whose A then breaks; until it is rolled back and A is whole again."""
        await self.post("rollout/start")
        await self.until(lambda found: found["phase"] == Phase.CANARY)
        await asyncio.sleep(pause_s)
        asked = time.time()
        await self._break(cause, load)
        await self.until(lambda found: found["phase"] in (Phase.QUARANTINED, Phase.HOLD))
        found = await self.until(lambda found: found["rollback"] and _done(found["rollback"]))
        load.prefix = ""
        for kind in (DrillKind.TRUNCATE, DrillKind.SLOW):
            await self.drill(kind, 0.0)
        rolled = await self._rolled(cause, asked)
        for identity in found["quarantined"]:
            await self.post("rollout/clear-quarantine", argument=identity)
        return rolled

    async def _break(self, cause: Cause, load: Load) -> None:
        match cause:
            case Cause.FAULTS:
                await self.drill(DrillKind.TRUNCATE, 60.0)
            case Cause.LATENCY:
                await self.drill(DrillKind.SLOW, 60.0, SLOW_S)
            case Cause.CACHE:
                load.prefix = MISSING
            case Cause.OPERATOR:
                await self.post("rollout/rollback", argument="the bench asks")

    async def _rolled(self, cause: Cause, asked: float) -> Rolled:
        lines = await self.journal(60)
        began = max(line.id for line in lines if _is_state(line, Phase.ROLLING_BACK))
        decided = next(line for line in lines if line.id == began)
        state = msgspec.convert(decided.body, SavedState).state
        proved = {
            record.step: (line.wall, record)
            for line in lines
            if line.kind == KIND and line.id > began
            and (record := msgspec.convert(line.body, Record)).stage is Stage.PROVED
        }  # fmt: skip
        assert state.order is not None
        drained = proved[Step.DRAIN][1].progress.drained
        assert drained is not None
        await self._caught_up(decided.wall)
        by_hand = state.order.cause is Cause.OPERATOR
        return Rolled(
            cause=state.order.cause,
            breach=asked if by_hand else self._breach(decided.body),
            decided=decided.wall,
            on_stable=proved[Step.CUT_OVER][0],
            verified=proved[Step.VERIFY][0],
            in_flight=drained.finished + drained.aborted + drained.replayed,
            ended=time.time(),
        )

    async def _caught_up(self, wall: float) -> None:
        """Until the log was read up to there; there is always traffic."""
        async with asyncio.timeout(PATIENCE_S):
            while not self.evidence or self.evidence[-1].wall < wall:  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    def _breach(self, body: Any) -> float:
        """When the entry was logged with which the same fold, entry by entry, finds the breach."""
        state = msgspec.convert(body, SavedState).state
        assert state.plan is not None
        assert state.warm_from is not None
        fold = EvidenceFold(state.plan, state.warm_from)
        if state.judged_from is not None:
            fold.judge_from(state.judged_from)
        for entry in self.evidence:
            if entry.route_epoch >= state.warm_from:
                fold.take((entry,))
                if fold.judgement().breaches:
                    return entry.wall
        raise RuntimeError("the journal tells of a breach that the evidence does not show")


def _done(rollback: dict[str, Any]) -> bool:
    return Step.DONE in rollback["proved"]


def _is_state(line: JournalLine, phase: Phase) -> bool:
    return line.kind == STATE_KIND and line.body["state"]["phase"] == phase


@asynccontextmanager
async def standing(folder: Path) -> AsyncIterator[Stand]:
    """Both processes, from their start to their end."""
    gateway, control = free_ports(2)
    runtime = settings_for(folder, port=gateway, control_token=TOKEN, lines=LINES)
    (folder / "runtime.json").write_text(runtime.model_dump_json())
    plane = ControlSettings(
        port=control, state_dir=folder / "control", runtime_url=f"http://127.0.0.1:{gateway}",
        token=TOKEN, lines=LINES,
    )  # fmt: skip
    (folder / "control.json").write_text(plane.model_dump_json())
    here = [sys.executable, "-m", "redline.cli", "control", f"--settings={folder}/control.json"]
    commands = [[sys.executable, str(GATEWAY), f"{folder}/runtime.json"], here]
    with (folder / "log").open("wb") as log:
        running = [
            await asyncio.create_subprocess_exec(*command, stdout=log, stderr=log)
            for command in commands
        ]
    try:
        async with _client(gateway) as to_gateway, _client(control) as to_control:
            stand = Stand(to_gateway, to_control)
            for client in (to_gateway, to_control):
                await _ready(client)
            async with asyncio.timeout(PATIENCE_S):
                while not await _both_ready(to_gateway):  # noqa: ASYNC110
                    await asyncio.sleep(0.1)
            beside = [
                asyncio.create_task(work())
                for work in (stand.read_evidence, stand.watch_the_machine)
            ]
            try:
                yield stand
            finally:
                for task in beside:
                    task.cancel()
                await asyncio.gather(*beside, return_exceptions=True)
    except BaseException:
        print((folder / "log").read_text(errors="replace")[-4_000:], file=sys.stderr)
        raise
    finally:
        for process in running:
            if process.returncode is None:
                process.terminate()
        for process in running:
            await process.wait()


def _client(port: int) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{port}", headers=AUTH, trust_env=False, timeout=60,
        limits=httpx.Limits(max_connections=None, keepalive_expiry=KEEP_S),
    )  # fmt: skip


async def _ready(client: httpx.AsyncClient) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                if (await client.get("/readyz")).is_success:
                    return
            except httpx.TransportError:
                pass
            await asyncio.sleep(0.1)


async def _both_ready(gateway: httpx.AsyncClient) -> bool:
    residents = (await gateway.get("/control")).json()["residents"]
    return all(resident["state"] == "ready" for resident in residents)


# ---------------------------------------------------------------- what must not happen
def started_on_a_after(rollbacks: list[Rolled], sent: list[Sent]) -> tuple[int, int]:
    """Requests that clients sent after a cut over was acknowledged and before A might have traffic
    again: how many A answered, of how many."""
    answered, of = 0, 0
    for rolled in rollbacks:
        late = [s for s in sent if rolled.on_stable < s.at < rolled.ended and s.version is not None]
        answered += sum(s.version == VERSIONS[A] for s in late)
        of += len(late)
    return answered, of


def hits_across_epochs(evidence: list[Evidence], sent: list[Sent]) -> tuple[int, int]:
    """Cache hits on A that nothing of the same pool epoch explains, of all hits on A.

    A prompt's first request in an epoch must miss: a group of answers to it without any miss hit
    what an older epoch left. One whose count is unknown may have been the first.
    """
    prompts = {s.id: s.prompt for s in sent}
    cached: dict[tuple[object, str | None], list[int | None]] = defaultdict(list)
    for entry in evidence:
        if entry.resident == A and isinstance(entry.body, RequestFinished):
            key = (entry.pool_epoch, prompts.get(entry.request_id))
            cached[key].append(entry.body.cached_tokens)
    hits = sum(bool(tokens) for of in cached.values() for tokens in of)
    across = sum(len(of) for of in cached.values() if all(of))
    return across, hits
