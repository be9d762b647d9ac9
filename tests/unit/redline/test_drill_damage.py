"""What a drill has broken is mended however it ends, and what is not is said."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from redline.cli import app
from redline.drills import command, run
from redline.drills.damage import ENDS, Damage
from redline.settings import Stack


def send(number: signal.Signals) -> None:
    """A signal to ourselves, with time for Python to notice."""
    os.kill(os.getpid(), number)
    time.sleep(0.05)


@pytest.mark.parametrize("number", ENDS)
def test_every_signal_that_ends_a_drill_is_as_ctrl_c(number: signal.Signals) -> None:
    before, damage, mended = signal.getsignal(number), Damage(), list[str]()

    def ended() -> None:
        with damage.mended_at_the_end(), damage.broken("b", lambda: mended.append("b")):
            send(number)
            pytest.fail("it went on")

    with pytest.raises(KeyboardInterrupt):
        ended()
    assert mended == ["b"]
    assert damage.told == "what was broken is mended"
    assert signal.getsignal(number) == before


@pytest.mark.parametrize("again", ENDS)
def test_impatience_does_not_skip_what_is_being_mended(again: signal.Signals) -> None:
    damage, mended = Damage(), list[str]()

    def slowly() -> None:
        send(again)
        send(again)
        mended.append("a")

    def ended() -> None:
        with (
            damage.mended_at_the_end(),
            damage.broken("b", lambda: mended.append("b")),
            damage.broken("a", slowly),
        ):
            send(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        ended()
    assert mended == ["a", "b"]


def test_a_signal_while_a_drill_mends_in_its_course_ends_it_after_that() -> None:
    damage, mended = Damage(), list[str]()

    def slowly() -> None:
        mended.append("begun")
        send(signal.SIGINT)
        mended.append("a")

    def ended() -> None:
        with damage.mended_at_the_end():
            with damage.broken("a", slowly):
                pass
            pytest.fail("it went on")

    with pytest.raises(KeyboardInterrupt):
        ended()
    assert mended == ["begun", "a"]


def test_impatience_does_not_skip_what_else_ends_either() -> None:
    damage, ends = Damage(), list[str]()

    def ended() -> None:
        with damage.mended_at_the_end():
            try:
                send(signal.SIGTERM)
            finally:
                send(signal.SIGINT)
                ends.append("its requests")

    with pytest.raises(KeyboardInterrupt):
        ended()
    assert ends == ["its requests"]


def test_what_was_cut_short_on_its_way_out_is_mended_at_the_end_newest_first() -> None:
    damage, mended = Damage(), list[str]()

    def ended() -> None:
        with damage.mended_at_the_end():
            damage.breaks("first", lambda: mended.append("first"))
            damage.breaks("second", lambda: mended.append("second"))
            raise KeyboardInterrupt  # between the breaking and the block that mends

    with pytest.raises(KeyboardInterrupt):
        ended()
    assert mended == ["second", "first"]


def test_one_that_cannot_be_mended_keeps_no_other_from_it() -> None:
    damage, mended = Damage(), list[str]()

    def fails() -> None:
        raise RuntimeError("no")

    def ended() -> None:
        with damage.mended_at_the_end():
            damage.breaks("first", lambda: mended.append("first"))
            damage.breaks("second", fails)

    with pytest.raises(RuntimeError):
        ended()
    assert mended == ["first"]


def test_what_was_never_broken_or_is_whole_again_is_left_alone() -> None:
    damage = Damage()
    with damage.mended_at_the_end(), damage.broken("b", lambda: pytest.fail("mended")):
        damage.forget("b")
    assert damage.told == "nothing was broken"


# ---------------------------------------------------------------- what the command says
@pytest.mark.parametrize(
    ("left", "says"),
    [
        (None, "interrupted; what was broken is mended"),
        ("slow on b ends by itself", "interrupted; not all is mended: slow on b ends by itself"),
    ],
)
def test_an_interrupted_drill_says_what_really_became_of_it(
    left: str | None, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def held(*given: Any) -> None:
        with given[-1].broken("slow on b", lambda: left):
            send(signal.SIGTERM)

    monkeypatch.setattr(run, "hold_drill", held)
    outcome = drill(tmp_path)
    assert outcome.exit_code == command.INTERRUPTED
    assert says in outcome.stderr


def test_a_drill_that_broke_nothing_yet_does_not_say_that_it_mended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "hold_drill", lambda *_: send(signal.SIGHUP))
    assert "interrupted; nothing was broken" in drill(tmp_path).stderr


def drill(state: Path) -> Any:
    Stack(runtime_url="http://r", control_url="http://c", token="t").save(state)
    return CliRunner().invoke(app, ["drill", "latency", "--state-dir", str(state)])
