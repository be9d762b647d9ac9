"""Verdicts made off the event loop: each written once, in order, and before the end."""

import asyncio
import threading
from collections.abc import Callable

from monitors.detectors.finding import Finding, Verdict
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
    verdicts.ask("b", {SPEECH: clean}, lambda _: written.append("second"))
    await asyncio.sleep(0.01)
    assert written == []
    gate.set()
    await verdicts.settled("b")
    assert written == ["first", "second"]
    await verdicts.stop()


async def test_only_what_a_resident_has_open_is_waited_for() -> None:
    verdicts, gate = Verdicts(), threading.Event()
    verdicts.ask("a", {SPEECH: gated(gate)}, lambda _: None)
    await asyncio.wait_for(verdicts.settled("b"), 5.0)
    gate.set()
    await verdicts.stop()


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
