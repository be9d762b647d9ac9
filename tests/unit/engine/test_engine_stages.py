"""Where an engine says that a request's time went, and whose its log lines are."""

import json
import logging
from collections.abc import Callable
from io import StringIO

import pytest

from monitors import logs
from monitors.labels import Stage
from runtime.engine.stages import Stages
from runtime.model.processor import Processor
from runtime.residents.port import EngineStage, Generate
from tests.support.asking import ask
from tests.unit.engine.driving import Driver

Drive = Callable[..., Driver]
TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def by_stage(stages: tuple[EngineStage, ...]) -> dict[Stage, EngineStage]:
    return {stage.stage: stage for stage in stages}


def test_pieces_of_a_stage_are_one_spell_with_the_time_worked_in_it() -> None:
    stages = Stages()
    stages.add(Stage.PREFILL, 2.0, 2.5)
    stages.add(Stage.ENCODE, 1.0, 2.0)
    stages.add(Stage.PREFILL, 4.0, 4.25)
    assert stages.told() == (
        EngineStage(stage=Stage.ENCODE, began=1.0, ended=2.0, busy_s=1.0),
        EngineStage(stage=Stage.PREFILL, began=2.0, ended=4.25, busy_s=0.75),
    )


def test_a_spoken_answer_tells_all_its_stages_and_thinker_and_talker_overlap(drive: Drive) -> None:
    driver = drive()
    before = driver.clock.now
    finished = driver.run(ask("r", media=2, speech=True, max_tokens=16))
    stages = by_stage(finished.stages)
    assert set(stages) == set(Stage) - {
        Stage.RECEIVE, Stage.FETCH, Stage.DECODER_QUEUE, Stage.DECODE_MEDIA,
    }  # fmt: skip
    for stage in stages.values():
        assert before <= stage.began <= stage.ended <= driver.clock.now
        if stage.stage is Stage.QUEUE:
            assert stage.busy_s is None
        else:
            assert stage.busy_s is not None
            assert 0.0 < stage.busy_s <= stage.ended - stage.began + 1e-9
    assert stages[Stage.QUEUE].ended <= stages[Stage.ENCODE].began
    assert stages[Stage.TALKER].began < stages[Stage.DECODE].ended
    assert stages[Stage.DECODE].began < stages[Stage.VOCODER].ended


def test_a_text_answer_has_no_talker(drive: Drive) -> None:
    finished = drive().run(ask("r"))
    assert {Stage.TALKER, Stage.VOCODER} & set(by_stage(finished.stages)) == set()


def test_a_request_that_fails_tells_how_far_it_came(drive: Drive) -> None:
    driver = drive()
    driver.submit(ask("r", media=2))
    driver.step(2)
    driver.engine.flush(9)
    driver.settle()
    assert set(by_stage(driver.failure("r").stages)) >= {Stage.QUEUE, Stage.PREFILL}


def test_a_request_that_fails_before_it_is_admitted_has_waited(drive: Drive) -> None:
    driver = drive()
    driver.submit(ask("r"))
    came = driver.clock.now
    driver.clock.now += 2.0
    driver.engine.cancel("r")
    driver.settle()
    (waited,) = driver.failure("r").stages
    assert waited.stage is Stage.QUEUE
    assert waited.busy_s is None
    assert came >= waited.began
    assert waited.ended - waited.began >= 2.0


def test_a_log_line_about_a_request_carries_its_ids_and_none_of_its_words(
    drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = "a " + "secret"

    def breaks(*_: object, **__: object) -> None:
        raise ValueError(f"cannot read: {words}")

    monkeypatch.setattr(Processor, "prompt", breaks)
    stream = StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logs.JsonFormatter({"resident": "a"}))
    logging.getLogger().addHandler(handler)
    try:
        drive().submit(ask("r", words, traceparent=f"00-{TRACE}-{SPAN}-01"))
    finally:
        logging.getLogger().removeHandler(handler)
    (line,) = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert {field: line[field] for field in logs.FIELDS} == {
        "trace_id": TRACE,
        "span_id": SPAN,
        "request_id": "r",
        "session": "session",
        "resident": "a",
    }
    assert words not in stream.getvalue()
    assert "in breaks" in line["exception"]


@pytest.mark.parametrize(
    ("given", "headers"),
    [
        ({}, {}),
        ({"traceparent": "00-t-s-01"}, {"traceparent": "00-t-s-01"}),
        (
            {"traceparent": "00-t-s-01", "tracestate": "v=1"},
            {"traceparent": "00-t-s-01", "tracestate": "v=1"},
        ),
    ],
)
def test_an_engine_behind_http_gets_the_context_as_headers(
    given: dict[str, str], headers: dict[str, str]
) -> None:
    request: Generate = ask("r", **given)[0]
    assert request.trace_headers() == headers
