"""An engine process without a model: the port's messages, deterministic answers, faults on demand.

Words in the last text part of a prompt steer it: `@hang` answers nothing, `@die` ends the process
after the first token, `@stall` blocks it; `@bad`, `@overloaded`, `@shed` and `@fail` are refused;
`@quote` fails in words that quote the prompt, `@say:WORD` answers with that word, `@miss:VERSION`
finds nothing in that version's cache.
"""

import argparse
import asyncio
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import zmq
import zmq.asyncio

from monitors.cache_table import CacheCell
from monitors.contract import DrillKind, DrillOrder, DrillReport, FlushReceipt, KvRung, Shed
from monitors.labels import Modality, Stage
from monitors.redlines import RedLines
from runtime.residents.port import (
    AudioDelta,
    Cancel,
    Capabilities,
    Close,
    Command,
    CountStale,
    Drill,
    Drilled,
    EngineStage,
    EventFrame,
    Failed,
    Finished,
    Flush,
    Flushed,
    Generate,
    KvSet,
    Observe,
    Ready,
    Reply,
    RequestEvent,
    Residency,
    SetKv,
    SetShed,
    Snapshot,
    StaleCount,
    TextDelta,
    TextPart,
    VideoPart,
    VideoPrefilled,
    event_encoder,
    unpack,
)
from runtime.residents.refusal import REFUSED_EXIT

TOKEN_S = 0.01
FRAMES_PER_TOKEN = 2
FRAME_SAMPLES = 480
HEARTBEAT_S = 0.2
PAGE_BYTES = 1024


def key_of(request: Generate) -> bytes:
    """What a prompt is cached under: its parts and its salt."""
    return msgspec.msgpack.encode((request.turns, request.salt))


def words_of(request: Generate) -> list[str]:
    parts = [p.text for turn in request.turns for p in turn.parts if isinstance(p, TextPart)]
    return " ".join(parts).split()


def stages_since(began: float, *, speaks: bool) -> tuple[EngineStage, ...]:
    """Of an answer that ends now: the first three at once, the rest side by side."""
    now = time.monotonic()
    quick = (Stage.QUEUE, Stage.ENCODE, Stage.PREFILL)
    slow = (Stage.DECODE, Stage.TALKER, Stage.VOCODER) if speaks else (Stage.DECODE,)
    ends = [*((stage, began) for stage in quick), *((stage, now) for stage in slow)]
    return tuple(EngineStage(stage=s, began=began, ended=e, busy_s=e - began) for s, e in ends)


class ScriptedEngine:
    """One engine. Its cache maps a prompt to the epoch it was written in."""

    def __init__(self, arguments: argparse.Namespace, socket: zmq.asyncio.Socket) -> None:
        self.name: str = arguments.name
        self.version: str = arguments.version
        self.lines = RedLines.model_validate_json(arguments.lines.read_bytes())
        self.epoch: int = max(1, arguments.min_epoch)
        self.kv = KvRung.NATIVE
        self.shed = Shed.OFF
        self.cache: dict[bytes, int] = {}
        self.drills: dict[DrillKind, DrillOrder] = {}
        self.running: dict[str, asyncio.Task[None]] = {}
        self.hits = self.lookups = self.steps = 0
        self.socket = socket

    async def send(self, event: RequestEvent | Reply | Ready, call: int = 0) -> None:
        await self.socket.send(event_encoder.encode(EventFrame(call=call, event=event)))

    async def serve(self) -> None:
        await self.send(self.ready())
        beat = asyncio.create_task(self.beat())
        try:
            while True:
                frame, arrays = unpack(await self.socket.recv_multipart())
                if isinstance(frame.command, Close):
                    return
                await self.obey(frame.call, frame.command, arrays)
        finally:
            beat.cancel()

    async def beat(self) -> None:
        while True:
            await self.send(self.snapshot())
            await asyncio.sleep(HEARTBEAT_S)

    async def obey(self, call: int, command: Command, arrays: list[Any]) -> None:
        match command:
            case Generate():
                work = self.run(command, arrays)
                self.running[command.request_id] = asyncio.create_task(work)
            case Cancel():
                if command.request_id in self.running:
                    self.running.pop(command.request_id).cancel()
            case SetKv():
                self.kv = command.kv
                await self.send(KvSet(kv=command.kv, pages=len(self.cache)), call)
            case SetShed():
                self.shed = command.shed
            case Flush():
                await self.send(Flushed(receipt=self.flush(command.min_pool_epoch)), call)
            case CountStale():
                await self.send(self.stale(command.pool_epoch), call)
            case Observe():
                await self.send(self.snapshot(), call)
            case Drill():
                await self.send(self.drill(command.order), call)
            case Close():
                raise AssertionError("handled by serve")

    # ------------------------------------------------------------ answers
    async def run(self, request: Generate, arrays: list[Any]) -> None:
        try:
            await self.answer(request, arrays)
        finally:
            self.running.pop(request.request_id, None)

    async def answer(self, request: Generate, arrays: list[Any]) -> None:
        words = words_of(request)
        if "@hang" in words:
            await asyncio.Future()
        if "@stall" in words:
            time.sleep(3600)  # noqa: ASYNC251 - a stalled engine is what is asked for
        for word, kind in (
            ("@bad", "bad_request"),
            ("@overloaded", "overloaded"),
            ("@shed", "shed"),
            ("@fail", "engine"),
        ):
            if word in words:
                failed = Failed(request_id=request.request_id, kind=kind, message=f"as {word} asks")
                await self.send(failed)
                return
        if "@quote" in words:
            message = f"cannot make sense of {' '.join(words)}"
            await self.send(Failed(request_id=request.request_id, kind="engine", message=message))
            return
        began = time.monotonic()
        cached, prompt_tokens = self.look_up(request, len(words) + len(arrays))
        if any(isinstance(p, VideoPart) and p.key_frame for t in request.turns for p in t.parts):
            error = 40.0 if DrillKind.CORRUPT in self.drills else 0.0
            await self.send(
                VideoPrefilled(
                    request_id=request.request_id, at=time.monotonic(), mean_abs_error=error
                )
            )
        for index in range(request.max_tokens):
            await self.token(request, index)
            if "@die" in words:
                await asyncio.sleep(0.05)
                os._exit(3)
        stages = stages_since(began, speaks=request.speech)
        await self.send(self.finished(request, prompt_tokens, cached, stages))

    async def token(self, request: Generate, index: int) -> None:
        slow = self.drills.get(DrillKind.SLOW)
        await asyncio.sleep(TOKEN_S + (slow.amount if slow else 0.0))
        self.steps += 1
        told_to = [word[5:] for word in words_of(request) if word.startswith("@say:")]
        text = f"{self.version} " if index == 0 else f"{(told_to or [f'w{index}'])[0]} "
        await self.send(TextDelta(request_id=request.request_id, text=text, tokens=1))
        if request.speech:
            start = index * FRAMES_PER_TOKEN * FRAME_SAMPLES
            at = np.arange(start, start + FRAMES_PER_TOKEN * FRAME_SAMPLES) / 24_000
            pcm = (8_000 * np.sin(2 * np.pi * 440 * at)).astype("<i2").tobytes()
            if DrillKind.TRUNCATE in self.drills and index == request.max_tokens - 1:
                pcm = pcm[: len(pcm) // 2]
            await self.send(
                AudioDelta(request_id=request.request_id, pcm=pcm, frames=FRAMES_PER_TOKEN)
            )

    def look_up(self, request: Generate, tokens: int) -> tuple[int, int]:
        key = key_of(request)
        lying = DrillKind.LYING_FLUSH in self.drills
        hit = key in self.cache and (lying or self.cache[key] == self.epoch)
        self.lookups += tokens
        self.hits += tokens if hit else 0
        if request.cache_write:
            self.cache[key] = self.epoch
        return (tokens if hit else 0), tokens

    def finished(
        self,
        request: Generate,
        prompt_tokens: int,
        cached: int,
        stages: tuple[EngineStage, ...],
    ) -> Finished:
        frames = FRAMES_PER_TOKEN * request.max_tokens if request.speech else 0
        desync = self.drills.get(DrillKind.DESYNC)
        hit = 0.0 if f"@miss:{self.version}" in words_of(request) else 1.0
        return Finished(
            request_id=request.request_id,
            text_reason="length" if "@long" in words_of(request) else "stop",
            speech_reason="stop" if request.speech else None,
            prompt_tokens=prompt_tokens,
            cached_tokens=cached,
            completion_tokens=request.max_tokens,
            codec_frames=frames,
            samples=frames * FRAME_SAMPLES,
            av_offset_ms=desync.amount * 1000 if desync else None,
            residency=(Residency(modality=Modality.TEXT, hit_mass=hit, lookup_mass=1.0),),
            stages=stages,
            stale_tokens=self.stale_tokens(request, prompt_tokens),
        )

    def stale_tokens(self, request: Generate, prompt_tokens: int) -> int | None:
        if request.probe_epoch is None:
            return None
        kept = self.cache.get(key_of(request)) == request.probe_epoch
        return prompt_tokens if kept else 0

    # ------------------------------------------------------------ state
    def ready(self) -> Ready:
        return Ready(
            version=self.version,
            weights_digest=f"digest-of-{self.version}",
            pool_epoch=self.epoch,
            layers=1,
            page_bytes=PAGE_BYTES,
            pool_pages=1000,
            samples_per_frame=480,
            capabilities=Capabilities(
                flush=True,
                probe=True,
                quantise_kv=True,
                drills=True,
                observes_residency=True,
                observes_video_prefill=True,
            ),
        )

    def snapshot(self) -> Snapshot:
        cell = CacheCell(
            layer=0,
            modality=Modality.TEXT,
            entropy_th=self.lines.entropy.text,
            hit_mass=float(self.steps),
            lookup_mass=float(self.steps),
            entropy_sum=0.0,
            entropy_count=0,
            token_entropy_sum=0.0,
            token_entropy_count=0,
            live_bytes=PAGE_BYTES * len(self.running),
            evictable_bytes=PAGE_BYTES * len(self.cache),
            host_bytes=0,
            alias_pages=0,
        )
        return Snapshot(
            pool_epoch=self.epoch,
            kv=self.kv,
            cells=(cell,),
            prefix_hit_tokens=self.hits,
            prefix_lookup_tokens=self.lookups,
            prefix_evictions=0,
            encoder_hits=0,
            encoder_lookups=0,
            reserved_bytes=1000 * PAGE_BYTES,
            device_bytes=None,
            table_entries=0,
            block_fill=None,
            running=len(self.running),
            waiting=int(self.shed),  # nothing ever waits here: shows that the order came
            busy_s=self.steps * TOKEN_S,
            steps=self.steps,
            reuse="off: uncalibrated",
            live_sequences=len(self.running),
        )

    def flush(self, min_pool_epoch: int) -> FlushReceipt:
        old, now, pages = self.epoch, time.monotonic(), len(self.cache)
        self.epoch = max(self.epoch, min_pool_epoch)
        if DrillKind.LYING_FLUSH not in self.drills:
            self.cache = {k: e for k, e in self.cache.items() if e >= self.epoch}
        return FlushReceipt(
            resident=self.name,
            old_epoch=old,
            new_epoch=self.epoch,
            pages=pages,
            host_pages=0,
            encoder_outputs=0,
            talker_states=0,
            bytes=pages * PAGE_BYTES,
            invalidated_at=now,
            emptied_at=time.monotonic(),
            complete=True,
        )

    def stale(self, pool_epoch: int) -> StaleCount:
        pages = sum(epoch < pool_epoch for epoch in self.cache.values())
        return StaleCount(
            pool_epoch=pool_epoch, pages=pages, host_pages=0, encoder_outputs=0, talker_states=0
        )

    def drill(self, order: DrillOrder) -> Drilled:
        self.drills.pop(order.kind, None)
        if order.seconds:
            self.drills[order.kind] = order
        report = DrillReport(
            resident=self.name, kind=order.kind, running=order.seconds > 0, detail="as ordered"
        )
        return Drilled(report=report)


def end_with_gateway() -> None:
    """The gateway holds our standard input open: its end is ours."""
    while os.read(0, 1024):
        pass
    os._exit(0)


def refuse_by_order(arguments: argparse.Namespace) -> None:
    """A checkpoint with a file `refused` does not pass the check, one with `late` does not start;
    `slow` takes a second to be checked, `held` starts once that file is gone, and `other` has other
    weights when it is checked than when it starts."""
    while not arguments.check and (arguments.checkpoint / "held").exists():
        time.sleep(0.01)
    if not (arguments.check or (arguments.checkpoint / "late").exists()):
        return
    if (arguments.checkpoint / "slow").exists():
        print('{"read": 1, "of": 2}', flush=True)
        time.sleep(1.0)
    for name in ("refused",) if arguments.check else ("late",):
        if (arguments.checkpoint / name).exists():
            sys.stderr.write(f"{arguments.checkpoint}: is {name}\n")
            sys.exit(REFUSED_EXIT)
    if arguments.check:
        changed = "-as-it-was" if (arguments.checkpoint / "other").exists() else ""
        print(f'{{"digest": "digest-of-{arguments.version}{changed}"}}', flush=True)
        sys.exit(0)


async def main(arguments: argparse.Namespace) -> None:
    context = zmq.asyncio.Context()
    socket = context.socket(zmq.DEALER)
    socket.connect(arguments.socket)
    await ScriptedEngine(arguments, socket).serve()
    context.destroy(linger=100)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for flag, kind in (
        ("--name", str), ("--socket", str), ("--checkpoint", Path), ("--version", str),
        ("--min-epoch", int), ("--pool-mb", float), ("--device", str), ("--storage", str),
        ("--lines", Path),
    ):  # fmt: skip
        parser.add_argument(flag, type=kind, required=True)
    for flag in ("--throttled", "--check"):
        parser.add_argument(flag, action="store_true")
    for flag in ("--freed-host", "--freed-device"):
        parser.add_argument(flag, type=int, default=0)
    given = parser.parse_args()
    refuse_by_order(given)
    if not given.checkpoint.is_dir():
        sys.exit(f"no checkpoint at {given.checkpoint}")
    threading.Thread(target=end_with_gateway, daemon=True).start()
    asyncio.run(main(given))
