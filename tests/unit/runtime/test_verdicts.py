"""Verdicts made off the event loop: each written once, in order, and before the end."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable
from contextvars import ContextVar

from monitors.detectors.finding import Abstained, Finding, Verdict
from monitors.labels import Detector, Judgement
from runtime.verdicts import Verdicts

SPEECH = Detector.SPEECH


def clean() -> Verdict:
    return ()


def gated(gate: threading.Event) -> Callable[[], Verdict]:
    """A judge that takes until the gate opens."""

    def judge() -> Verdict:
        assert gate.wait(10.0)
        return ()

    return judge


async def test_a_verdict_is_made_elsewhere_and_written_on_the_loop() -> None:
    verdicts, threads, written = Verdicts(), list[int](), list[tuple[Finding, ...]]()

    def judge() -> Verdict:
        threads.append(threading.get_ident())
        return ()

    def write(findings: tuple[Finding, ...]) -> None:
        threads.append(threading.get_ident())
        written.append(findings)

    verdicts.ask("a", {SPEECH: judge}, write)
    assert written == []
    await verdicts.settled("a")
    assert threads[0] != threads[1] == threading.get_ident()
    assert [(f.detector, f.judgement) for f in written[0]] == [(SPEECH, Judgement.CLEAN)]
    await verdicts.stop()


async def test_the_loop_goes_on_while_one_is_made() -> None:
    verdicts, gate, written = Verdicts(), threading.Event(), list[str]()
    verdicts.ask("a", {SPEECH: gated(gate)}, lambda _: written.append("first"))
    verdicts.ask("a", {SPEECH: clean}, lambda _: written.append("second"))
    await asyncio.sleep(0.01)
    assert written == []
    gate.set()
    await verdicts.settled("a")
    assert written == ["first", "second"]
    await verdicts.stop()


async def test_a_resident_waits_for_its_own_verdicts_alone() -> None:
    verdicts, gate, written = Verdicts(), threading.Event(), list[str]()
    verdicts.ask("a", {SPEECH: gated(gate)}, lambda _: written.append("a"))
    verdicts.ask("b", {SPEECH: clean}, lambda _: written.append("b"))
    await asyncio.wait_for(verdicts.settled("b"), 5.0)
    assert written == ["b"]
    gate.set()
    await verdicts.stop()
    assert written == ["b", "a"]


async def test_a_verdict_that_is_late_is_written_as_none_and_dropped_when_it_comes() -> None:
    verdicts, gate, written = Verdicts(wait_s=0.05), threading.Event(), list[tuple[Finding, ...]]()
    threads = list[threading.Thread]()

    def hangs() -> Verdict:
        threads.append(threading.current_thread())
        return gated(gate)()

    verdicts.ask("a", {SPEECH: hangs, Detector.PLAYOUT: clean}, written.append)
    await asyncio.wait_for(verdicts.settled("a"), 5.0)
    late = Abstained("no verdict in time")
    expected = (Finding(SPEECH, late, 0.0), Finding(Detector.PLAYOUT, late, 0.0))
    assert written == [expected]
    gate.set()
    await verdicts.stop()
    await asyncio.to_thread(threads[0].join, 5.0)
    await asyncio.sleep(0)
    assert written == [expected]


async def test_a_request_gets_its_ending_though_nobody_waits_and_its_detector_hangs() -> None:
    verdicts, gate, written = Verdicts(patience_s=0.02), threading.Event(), asyncio.Event()
    verdicts.ask("a", {SPEECH: gated(gate)}, lambda _: written.set())
    await asyncio.wait_for(written.wait(), 5.0)
    gate.set()
    await verdicts.stop()


async def test_a_stop_does_not_wait_for_ever() -> None:
    verdicts, gate, written = Verdicts(wait_s=0.05), threading.Event(), list[Judgement]()
    for _ in range(3):
        verdicts.ask("a", {SPEECH: gated(gate)}, lambda found: written.append(found[0].judgement))
    await asyncio.wait_for(verdicts.stop(), 5.0)
    assert written == [Judgement.ABSTAINED] * 3
    gate.set()


def test_a_detector_that_hangs_keeps_no_process_alive() -> None:
    hang = """
import asyncio, threading
from monitors.labels import Detector
from runtime.verdicts import Verdicts
async def main():
    verdicts = Verdicts(wait_s=0.05)
    verdicts.ask("a", {Detector.SPEECH: threading.Event().wait}, lambda _: print("written"))
    await verdicts.stop()
asyncio.run(main())
"""
    ran = subprocess.run(
        [sys.executable, "-c", hang], capture_output=True, text=True, timeout=60, check=True
    )
    assert ran.stdout == "written\n"


async def test_a_verdict_is_made_in_the_context_of_the_request_that_asks() -> None:
    about, seen = ContextVar[str]("about"), list[str]()
    verdicts = Verdicts()

    def judge() -> Verdict:
        seen.append(about.get())
        return ()

    for name in ("r1", "r2"):
        about.set(name)
        verdicts.ask("a", {SPEECH: judge}, lambda _: None)
    await verdicts.stop()
    assert seen == ["r1", "r2"]


async def test_a_stop_waits_for_every_verdict_and_later_ones_are_made_at_once() -> None:
    verdicts, written = Verdicts(), list[int]()
    for number in range(5):
        verdicts.ask("a", {SPEECH: clean}, lambda _, n=number: written.append(n))
    await verdicts.stop()
    assert written == [0, 1, 2, 3, 4]
    verdicts.ask("a", {SPEECH: clean}, lambda _: written.append(5))
    assert written[-1] == 5


async def test_a_detector_that_fails_says_so_and_the_others_speak(
    broken_detectors: list[str],
) -> None:
    verdicts, written = Verdicts(), list[Finding]()

    def broken() -> Verdict:
        raise ZeroDivisionError("no hops")

    judges = {SPEECH: broken, Detector.PLAYOUT: clean}
    verdicts.ask("a", judges, lambda findings: written.extend(findings))
    await verdicts.stop()
    assert [f.judgement for f in written] == [Judgement.FAILED, Judgement.CLEAN]
    assert len(broken_detectors) == 1
