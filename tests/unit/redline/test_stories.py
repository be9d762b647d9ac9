"""Journal entries in words: each kind, and what is left out of the story."""

from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from alerts.firing import NEWS, SOURCE, AlertNews, Source, SourceChanged
from alerts.ladder import Mode, Move
from alerts.parts import Part
from monitors.contract import DrainReport, FlushReceipt, ProbeReport, Wire
from monitors.journal import Entry, Journal
from redline.control.ladder_events import MODE, MOVED, ModeSet
from redline.control.stories import story
from rollout.plan import Cause
from rollout.rollback import KIND, Progress, Record, RollbackOrder, Stage, Step
from rollout.store import EVIDENCE_KIND, STATE_KIND

ORDER = RollbackOrder(
    stable="b", canary="a", identity="sha256:1", cause=Cause.FAULTS, quarantine=True, actor="ann",
    reasons=("faults",), route_epoch=7, drain_s=1.0,
)  # fmt: skip
PROGRESS = Progress(
    order=ORDER,
    route_epoch=8,
    drained=DrainReport(resident="a", remaining=0, finished=1, aborted=2, replayed=3),
    receipt=FlushReceipt(
        resident="a", old_epoch=1, new_epoch=2, pages=40, host_pages=0, encoder_outputs=0,
        talker_states=0, bytes=1_500_000, invalidated_at=1.0, emptied_at=1.1, complete=True,
    ),
    probe=ProbeReport(
        resident="a", pool_epoch=2, witness_tokens=9, cached_tokens=0, stale_pages=0,
        stale_host_pages=0, stale_encoder_outputs=0, stale_talker_states=0, verified=True,
        detail="the witness missed",
    ),
)  # fmt: skip


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with closing(Journal(tmp_path / "j.db")) as opened:
        yield opened


def tell(journal: Journal, kind: str, body: Wire | Mapping[str, object]) -> str | None:
    journal.append(kind, "test", body, 1)
    entry = journal.last(kind)
    assert isinstance(entry, Entry)
    return story(entry)


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (Step.INTENT, "intent proved"),
        (Step.CUT_OVER, "cut_over proved: A at 0 % since route epoch 8"),
        (Step.DRAIN, "drain proved: 1 finished, 3 replayed on B, 2 aborted"),
        (Step.FLUSH, "flush proved: 40 pages, 1.50 MB, pool epoch 1 -> 2"),
        (Step.VERIFY, "verify proved: the witness missed"),
        (Step.QUARANTINE, "quarantine proved: sha256:1"),
        (Step.DONE, "done proved"),
    ],
)
def test_a_proved_step_is_told_with_its_proof(journal: Journal, step: Step, words: str) -> None:
    record = Record(step=step, stage=Stage.PROVED, progress=PROGRESS)
    assert tell(journal, KIND, record) == words


def test_requests_that_could_not_be_replayed_for_their_size_are_told(journal: Journal) -> None:
    assert PROGRESS.drained is not None
    drained = msgspec.structs.replace(PROGRESS.drained, unkept=1)
    progress = msgspec.structs.replace(PROGRESS, drained=drained)
    record = Record(step=Step.DRAIN, stage=Stage.PROVED, progress=progress)
    assert tell(journal, KIND, record).endswith(
        "2 aborted (1 as too large to be kept for a replay)"
    )


def test_a_step_that_was_begun_is_the_restarts_business(journal: Journal) -> None:
    assert (
        tell(journal, KIND, Record(step=Step.FLUSH, stage=Stage.BEGUN, progress=PROGRESS)) is None
    )


def test_a_step_that_failed_says_why(journal: Journal) -> None:
    failed = msgspec.structs.replace(PROGRESS, failure="verify: the witness hit")
    record = Record(step=Step.VERIFY, stage=Stage.FAILED, progress=failed)
    assert tell(journal, KIND, record) == "ROLLBACK_INCOMPLETE at verify: verify: the witness hit"


def test_a_move_and_a_mode_are_told(journal: Journal) -> None:
    move = Move(at=0.0, version="v1", part=Part.MEDIA, rung=1, reason="RedlineLatencyDegrade")
    assert tell(journal, MOVED, move) == "v1: media to rung 1, 360p+8k (RedlineLatencyDegrade)"
    assert tell(journal, MODE, ModeSet(mode=Mode.FROZEN)) == "the ladder is frozen"


@pytest.mark.parametrize(("version", "who"), [("v1", "RedlineX of v1"), (None, "RedlineX")])
def test_news_of_an_alert_says_who_found_it_and_how_long_after_it_began(
    journal: Journal, version: str | None, who: str
) -> None:
    news = AlertNews(
        alert="RedlineX", version=version, labels={}, state="firing", source=Source.EMBEDDED,
        starts_at=12.5, heard_at=13.0,
    )  # fmt: skip
    assert tell(journal, NEWS, news) == (f"{who} is firing, says embedded (it began 0.5 s before)")


def test_a_change_of_who_evaluates_is_told(journal: Journal) -> None:
    changed = SourceChanged(source=Source.EMBEDDED, before=Source.PROMETHEUS)
    assert tell(journal, SOURCE, changed) == (
        "the rules are evaluated by embedded now, by prometheus no longer"
    )


def test_saved_evidence_is_no_story(journal: Journal) -> None:
    assert tell(journal, EVIDENCE_KIND, {"anything": 1}) is None


@pytest.mark.parametrize("kind", [STATE_KIND, KIND, MOVED, MODE, NEWS, SOURCE, "somebody.elses"])
def test_an_entry_of_another_form_is_told_as_it_is(journal: Journal, kind: str) -> None:
    """An earlier release wrote it: one old entry must not hide all the others."""
    assert tell(journal, kind, {"old": "form"}) == '{"old":"form"}'
